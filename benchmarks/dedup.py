"""Dedup: megabytes of text per CPU second, memory and what is removed, beside Daft and rensa on the same files.

    python benchmarks/dedup.py [--json] [--corpus FILE...] [--megabytes N] [--truth FOLDER] [--rounds N] [--peers a,b]

Every pass runs in a process of its own (`benchmarks/dedup_passes.py`), the passes in turn, on the same files: ours as
`datamix dedup --verdicts-only` (Parquet read, kernel, bands, exact check, union, write of the verdicts), ours as
`datamix dedup` (the texts are written to kept/ and dropped/ as well), Daft (read, normalize, minhash, bands) and rensa
(Python shingles, RMinHash, bands). Loading of libraries and of compiled code is reported apart as `startup`.

Files have the columns id and text: any corpus of some hundred megabytes will do. Without --corpus, N megabytes are
assembled from the running Python's own packages.

--truth is a folder with neardup.parquet (id, text) and neardup_pairs.parquet (a, b, jaccard): all pairs of exact
Jaccard similarity. Removal is right as far as all but one document of every component at 0.8 go.

`growth` says what it costs to double the corpus (half of it against all of it), and how the peak memory of our pass
changes when a quarter of the documents gets four times the text (four documents joined), or four times the documents.

The peers are the extra `bench`: pip install -c constraints.txt -e '.[bench]'. Those that are missing are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

HERE = Path(__file__).parent
TRUTH = HERE.parent / "../shared/data/neardup"
OURS = ("verdicts", "text")
_SUFFIXES = (".py", ".pyi", ".md", ".rst", ".txt", ".h", ".hpp", ".c", ".js", ".html", ".css")
_GROUP_BYTES = 8 << 20


def run_pass(name: str, files: list[str], removed: Path) -> dict[str, Any]:
    """One pass in a new process. Raises CalledProcessError when it fails; its own messages go to the terminal."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(HERE / "dedup_passes.py"), name, str(removed), *files]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def size_of(files: list[str]) -> tuple[int, float]:
    """Documents and megabytes (UTF-8) of text."""
    documents, size = 0, 0
    for path in files:
        table = _table(path)
        documents += table.num_rows
        size += pc.sum(pc.binary_length(table.column("text"))).as_py() or 0
    return documents, size / 1e6


def _table(path: str) -> pa.Table:
    if path.endswith(".parquet"):
        return pq.read_table(path, columns=["id", "text"])
    import pyarrow.json as pj

    return pj.read_json(path).select(["id", "text"])


def assemble(megabytes: float, target: Path) -> None:
    """Write text files of the standard library and the installed packages, sorted by path, up to a size."""
    left = int(megabytes * 1e6)
    names: list[str] = []
    texts: list[str] = []
    paths = sysconfig.get_paths()
    for root in dict.fromkeys([paths["purelib"], paths["platlib"], paths["stdlib"]]):
        for path in sorted(Path(root).rglob("*")):
            if left <= 0 or path.suffix not in _SUFFIXES or not path.is_file():
                continue
            text = path.read_bytes()[: min(left, 200_000)].decode("utf-8", "ignore")
            if text.strip():
                names.append(str(path.relative_to(root)))
                texts.append(text)
                left -= len(text.encode())
    write(pa.table({"id": pa.array(names), "text": pa.array(texts, pa.large_string())}), target)


def write(table: pa.Table, target: Path) -> str:
    """Parquet in row groups of some 8 MB of text: what a reader must hold is the same for short and long documents."""
    mean = (pc.sum(pc.binary_length(table.column("text"))).as_py() or 0) / max(1, table.num_rows)
    pq.write_table(table, target, row_group_size=int(_GROUP_BYTES // max(1, mean)) + 1, compression="zstd")
    return str(target)


def removal(folder: Path, removed: set[str]) -> dict[str, float]:
    """Precision and recall of a removal: a component of n documents at 0.8 should lose n - 1 of them."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for pair in pq.read_table(folder / "neardup_pairs.parquet").to_pylist():
        if pair["jaccard"] >= 0.8:
            parent[root(pair["a"])] = root(pair["b"])
    members: dict[str, set[str]] = {}
    for name in list(parent):
        members.setdefault(root(name), set()).add(name)
    wanted = sum(len(group) - 1 for group in members.values())
    right = sum(min(len(group) - 1, len(removed & group)) for group in members.values())
    return {"precision": right / max(1, len(removed)), "recall": right / max(1, wanted)}


def growth(table: pa.Table, folder: Path, rounds: int) -> dict[str, Any]:
    """Cost of a doubled corpus, and peak memory with four times the text and with four times the documents."""
    quarter = table.num_rows // 4
    parts = [table.slice(n * quarter, quarter) for n in range(4)]
    texts = [part.column("text").combine_chunks().cast(pa.large_string()) for part in parts]
    joined = pc.binary_join_element_wise(*texts, pa.scalar("\n\n", pa.large_string()))
    made = {
        "half": table.slice(0, table.num_rows // 2),
        "whole": table,
        "quarter": parts[0],
        "four_times_text": parts[0].set_column(1, "text", joined),
        "four_times_documents": table.slice(0, 4 * quarter),
    }
    files = {name: write(one, folder / f"{name}.parquet") for name, one in made.items()}
    found: dict[str, Any] = {}
    for name, path in files.items():
        runs = [run_pass("verdicts", [path], folder / "removed.json") for _ in range(rounds)]
        documents, megabytes = size_of([path])
        found[name] = {
            "documents": documents,
            "megabytes": megabytes,
            "cpu_seconds": min(run["cpu_seconds"] for run in runs),
            "peak_mb": min(run["peak_mb"] for run in runs),
            "start_mb": min(run["start_mb"] for run in runs),
        }
    found["cost_of_double"] = found["whole"]["cpu_seconds"] / found["half"]["cpu_seconds"]
    return found


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything, as one JSON-able object."""
    files = options.corpus
    if not files:
        assemble(options.megabytes, folder / "corpus.parquet")
        files = [str(folder / "corpus.parquet")]
    peers = [name for name in options.peers.split(",") if name and importlib.util.find_spec(name) is not None]
    documents, megabytes = size_of(files)
    passes: dict[str, dict[str, Any]] = {}
    for _ in range(options.rounds):
        for name in [*OURS, *peers]:
            one = run_pass(name, files, folder / "removed.json")
            if name not in passes or one["cpu_seconds"] < passes[name]["cpu_seconds"]:
                passes[name] = one
    for name, one in passes.items():
        one["megabytes_per_cpu_second"] = megabytes / one["cpu_seconds"]
        one["ratio_of_ours"] = one["cpu_seconds"] / passes["verdicts"]["cpu_seconds"]
        one["ratio_of_ours_with_startup"] = (one["cpu_seconds"] + one["startup_seconds"]) / (
            passes["verdicts"]["cpu_seconds"] + passes["verdicts"]["startup_seconds"]
        )
        if (options.truth / "neardup.parquet").is_file():
            run_pass(name, [str(options.truth / "neardup.parquet")], folder / "removed.json")
            gone = set(json.loads((folder / "removed.json").read_text(encoding="utf-8")))
            one["removal"] = removal(options.truth, gone)
    found = {"documents": documents, "megabytes": megabytes, "load": os.getloadavg()[0], "passes": passes}
    if options.growth:
        found["growth"] = growth(pa.concat_tables([_table(path) for path in files]), folder, options.rounds)
    return found


def show(found: dict[str, Any]) -> None:
    """The figures as text."""
    print(f"{found['documents']:,} documents, {found['megabytes']:.1f} MB of text; load {found['load']:.1f}")
    for name, one in found["passes"].items():
        score = one.get("removal")
        scores = f"  removal P {score['precision']:.3f} R {score['recall']:.3f}" if score else ""
        print(
            f"{name:9} {one['cpu_seconds']:7.2f} CPU s  {one['megabytes_per_cpu_second']:7.1f} MB/s  "
            f"ours is {one['ratio_of_ours']:5.2f} x as fast ({one['ratio_of_ours_with_startup']:.2f} with startup)  "
            f"startup {one['startup_seconds']:.2f} s  peak {one['peak_mb']:.0f} MB{scores}"
        )
    if "growth" in found:
        print(f"double the corpus: {found['growth']['cost_of_double']:.2f} x the time")
        for name in ("quarter", "four_times_text", "four_times_documents"):
            one = found["growth"][name]
            print(
                f"{name:21} {one['documents']:8,} documents {one['megabytes']:7.1f} MB  peak {one['peak_mb']:.0f} MB "
                f"({one['peak_mb'] - one['start_mb']:.0f} MB above the start)"
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--corpus", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--truth", type=Path, default=TRUTH)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peers", default="daft,rensa")
    parser.add_argument("--no-growth", dest="growth", action="store_false")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
