"""One dedup pass in a process of its own, for `benchmarks/dedup.py`: ours and those of the peers.

    python benchmarks/dedup_passes.py PASS REMOVED.json FILE...

PASS is verdicts, text, daft or rensa; FILEs are all parquet or all jsonl, with the columns id and text. A small warm-up
pass first loads libraries and compiled code; its CPU time is `startup_seconds`. Prints one JSON object; the ids of the
removed documents go to REMOVED.json. CPU seconds are those of the process, its threads and its children.

The peers make signatures; what a dedup needs beyond (bands, a check by whole signatures, union) is written around
them here: 16 bands of 8, as their manuals propose for 128 values and 0.8, without the exact check that ours does.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

THRESHOLD = 0.8
PERMUTATIONS, BANDS, ROWS = 128, 16, 8
_WORDS = re.compile(r"\w+")


def cpu_seconds() -> float:
    """User and system time of this process and of the children that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mb() -> float:
    """The most memory this process has held, in MB.

    Linux: VmHWM, which begins anew with the program; getrusage's figure begins with what the parent held.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii", errors="replace"))[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def batches(files: list[str]) -> Iterator[pa.RecordBatch]:
    """The columns id and text of all files."""
    for path in files:
        if path.endswith(".parquet"):
            yield from pq.ParquetFile(path).iter_batches(1024, columns=["id", "text"], use_threads=False)
        else:
            yield from pj.read_json(path).select(["id", "text"]).to_batches(1024)


def verdicts_pass(files: list[str]) -> list[str]:
    """`datamix dedup --verdicts-only`, in one process: read, sketch, check, unite, write one verdict a document."""
    from pipelines.corpus.standalone import Inputs, dedup_verdicts
    from pipelines.engine import InProcess
    from schemas.progress import Quiet

    with tempfile.TemporaryDirectory() as out:
        dedup_verdicts(Inputs(files), out, InProcess(), Quiet(), threshold=THRESHOLD)
        table = pq.read_table(Path(out) / "verdicts", columns=["source_id", "verdict"])
    gone = np.asarray(table.column("verdict").to_pylist(), object) != "keep"
    return [str(name) for name in table.column("source_id").filter(pa.array(gone)).to_pylist()]


def text_pass(files: list[str]) -> list[str]:
    """`datamix dedup`, in one process: as above, and every text is sorted by id and written to kept/ or dropped/."""
    from pipelines.corpus.standalone import Inputs, dedup_files
    from pipelines.engine import InProcess
    from schemas.progress import Quiet

    with tempfile.TemporaryDirectory() as out:
        dedup_files(Inputs(files), out, InProcess(), Quiet(), threshold=THRESHOLD)
        names = pq.read_table(Path(out) / "dropped", columns=["source_id"]).column("source_id").to_pylist()
    return [str(name) for name in names]


def daft_pass(files: list[str]) -> list[str]:
    """Daft's own reader, `normalize` and `minhash` (its fastest hash), then bands."""
    import daft

    read = daft.read_parquet if files[0].endswith(".parquet") else daft.read_json
    text = daft.col("text").normalize(remove_punct=True, lowercase=True, nfd_unicode=True, white_space=True)
    sketch = text.minhash(num_hashes=PERMUTATIONS, ngram_size=5, seed=1, hash_function="xxhash3_64")
    table = read(files).select(daft.col("id"), sketch.alias("signature")).to_arrow()
    column = table.column("signature").combine_chunks()
    column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    signatures = column.flatten().to_numpy().reshape(-1, PERMUTATIONS)
    return removed_by_signatures(table.column("id").to_pylist(), signatures)


def rensa_pass(files: list[str]) -> list[str]:
    """rensa's RMinHash over word 5-grams made in Python, as its manual shows, then bands."""
    from rensa import RMinHash

    ids: list[Any] = []
    signatures: list[list[int]] = []
    for batch in batches(files):
        ids += batch.column(0).to_pylist()
        for text in batch.column(1).to_pylist():
            words = _WORDS.findall((text or "").lower())
            grams = {" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))} if words else set()
            sketch = RMinHash(num_perm=PERMUTATIONS, seed=42)
            sketch.update(list(grams))
            signatures.append(sketch.digest())
    return removed_by_signatures(ids, np.array(signatures, np.uint32).reshape(-1, PERMUTATIONS))


def removed_by_signatures(ids: list[Any], signatures: npt.NDArray[np.uint32]) -> list[str]:
    """All but the first of every component of pairs that share a band and agree in THRESHOLD of their values."""
    from filters.text.dedup.cluster import components

    pairs: list[npt.NDArray[np.int64]] = []
    for band in range(BANDS):
        block = np.ascontiguousarray(signatures[:, band * ROWS : (band + 1) * ROWS]).view(np.uint64)
        keys = np.full(len(block), 0x9E3779B97F4A7C15, np.uint64)
        for column in block.T:
            keys = (keys ^ column) * np.uint64(0xD6E8FEB86659FD93)
            keys ^= keys >> np.uint64(32)
        order = np.argsort(keys, kind="stable")
        new = np.concatenate([[True], keys[order][1:] != keys[order][:-1]])
        hubs = order[np.flatnonzero(new)[np.cumsum(new) - 1]]
        both = np.stack([hubs[~new], order[~new]], axis=1)
        agree = np.concatenate(
            [(signatures[part[:, 0]] == signatures[part[:, 1]]).mean(axis=1) for part in np.array_split(both, 16)]
        )
        pairs.append(both[agree >= THRESHOLD])
    root = components(len(ids), np.concatenate(pairs))
    return [str(ids[n]) for n in np.flatnonzero(root != np.arange(len(ids)))]


PASSES: dict[str, Callable[[list[str]], list[str]]] = {
    "verdicts": verdicts_pass,
    "text": text_pass,
    "daft": daft_pass,
    "rensa": rensa_pass,
}


def warm_up(name: str) -> None:
    """The same pass on twenty small documents: libraries and compiled code are loaded, caches are made."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "small.parquet")
        texts = [" ".join(f"word{n * k % 97}" for n in range(80)) for k in range(20)]
        pq.write_table(pa.table({"id": [str(n) for n in range(20)], "text": texts}), path)
        PASSES[name]([path])


def main() -> None:
    """Measure one pass and print it."""
    name, removed_path, *files = sys.argv[1:]
    warm_up(name)
    startup, resident = cpu_seconds(), peak_mb()
    clock = time.perf_counter()
    removed = PASSES[name](files)
    seconds, wall = cpu_seconds() - startup, time.perf_counter() - clock
    Path(removed_path).write_text(json.dumps(removed), encoding="utf-8")
    found = {
        "pass": name,
        "cpu_seconds": seconds,
        "wall_seconds": wall,
        "startup_seconds": startup,
        "peak_mb": peak_mb(),
        "start_mb": resident,
        "removed": len(removed),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
