"""The step dedup on a run folder: verdict files, counts, references, damage between stages, worker counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filters.text.dedup.sketch import normalise, scheme_tag, sketch
from pipelines.context import RunContext
from pipelines.corpus.dedup import step
from pipelines.corpus.dedup_files import HashFile, SketchWriter, read_sketches
from pipelines.corpus.tables import documents_part, verdict_part
from pipelines.engine import open_engine
from schemas.document import KEEP
from schemas.errors import CheckError, InputError, UsageError

MakeRun = Callable[..., RunContext]
NEARDUP = Path(__file__).parents[3] / "../shared/data/neardup"


def words(first: int, count: int) -> str:
    return " ".join(f"w{n}" for n in range(first, first + count))


def verdicts(context: RunContext) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for part in range(context.recipe.engine.partitions):
        documents = pq.read_table(documents_part(context.run, part), columns=["id", "origin"]).to_pylist()
        found = pq.read_table(verdict_part(context.run, "dedup", part)).to_pylist()
        assert [d["id"] for d in documents] == [v["id"] for v in found]
        rows |= {d["origin"]: v for d, v in zip(documents, found, strict=True)}
    return rows


def test_duplicates_name_the_document_that_stays_and_their_similarity(make_run: MakeRun) -> None:
    text = words(0, 200)
    context = make_run(
        [
            {"text": text, "origin": "best", "quality": 0.9},
            {"text": text, "origin": "copy", "source": "other", "quality": 0.5},
            {"text": text + " and more", "origin": "near", "quality": 0.4},
            {"text": words(5000, 200), "origin": "alone"},
            {"text": text, "origin": "bad", "quality": 1.0, "quality_verdict": "quality:short"},
        ]
    )
    output = step(context)
    rows = verdicts(context)
    best = rows["best"]["id"]
    assert [rows[o]["verdict"] for o in ("best", "copy", "near", "alone", "bad")] == [
        KEEP,
        "duplicate:exact",
        "duplicate:near",
        KEEP,
        None,
    ]
    assert [rows[o]["duplicate_of"] for o in ("best", "copy", "near", "alone", "bad")] == [None, best, best, None, None]
    assert [rows[o]["cluster"] for o in ("best", "copy", "near", "alone", "bad")] == [best, best, best, None, None]
    assert rows["copy"]["similarity"] == 1.0
    assert rows["near"]["similarity"] == pytest.approx(196 / 198)
    assert rows["best"]["similarity"] is None
    assert output.counts["documents_in"] == 4
    assert output.counts["kept"] == 2
    assert output.counts["dropped"] == {"duplicate:exact": 1, "duplicate:near": 1}
    assert (output.counts["clusters"], output.counts["largest_cluster"]) == (1, 3)
    assert (output.counts["bands"], output.counts["rows"], output.counts["permutations_unused"]) == (20, 6, 8)
    assert output.counts["by_source"]["other"] == {"documents": 1, "removed": 1, "removed_share": 1.0}
    assert len(output.files) == 3
    assert not (context.run / "spill").exists()
    assert any("'other' loses 1 of 1" in line for line in context.progress.lines)  # type: ignore[attr-defined]


@pytest.mark.parametrize("texts", [[], ["one"], ["one", "two", "three"]])
def test_a_corpus_without_duplicates_goes_through(make_run: MakeRun, texts: list[str]) -> None:
    context = make_run([{"text": t} for t in texts])
    output = step(context)
    assert output.counts["kept"] == output.counts["documents_in"] == len(texts)
    assert output.counts["dropped"] == {}
    assert len(verdicts(context)) == len(texts)


def test_an_all_identical_corpus_keeps_one_document(make_run: MakeRun) -> None:
    context = make_run([{"text": "the very same few words again and again", "origin": str(n)} for n in range(300)])
    output = step(context)
    assert (output.counts["kept"], output.counts["dropped"]) == (1, {"duplicate:exact": 299})


def corpus() -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    documents = []
    for base in range(60):
        text = [f"b{base}w{n}" for n in rng.integers(0, 10_000, 150)]
        for edit in range(int(rng.integers(1, 4))):
            changed = [f"e{edit}" if n in rng.integers(0, 150, edit) else w for n, w in enumerate(text)]
            domain = "code" if base % 3 == 0 else "math"
            documents.append({"text": " ".join(changed), "source_domain": domain, "quality": float(rng.random())})
    return documents


def test_two_workers_and_one_write_the_same_bytes(make_run: MakeRun) -> None:
    one = make_run(corpus(), folder="one")
    two = make_run(corpus(), folder="two", engine=open_engine("datatrove", 2))
    a, b = step(one), step(two)
    assert a.counts == b.counts
    assert a.counts["dropped"]["duplicate:near"] > 5
    assert [f.read_bytes() for f in a.files] == [f.read_bytes() for f in b.files]


def test_the_number_of_partitions_does_not_change_what_is_removed(make_run: MakeRun) -> None:
    found = []
    for partitions in (1, 7):
        context = make_run(corpus(), folder=f"run-{partitions}", partitions=partitions)
        step(context)
        found.append({o: (v["verdict"], v["duplicate_of"], v["similarity"]) for o, v in verdicts(context).items()})
    assert found[0] == found[1]


def test_a_new_set_is_deduplicated_against_an_old_one(make_run: MakeRun, tmp_path: Path) -> None:
    old = tmp_path / "old.jsonl"
    rows = [{"id": "A1", "text": words(0, 200)}, {"id": "A2", "text": words(0, 200)}, {"text": words(900, 200)}]
    old.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    context = make_run(
        [
            {"text": words(0, 200) + " end", "origin": "near"},
            {"text": words(900, 200), "origin": "exact"},
            {"text": words(3000, 200), "origin": "new"},
        ],
        dedup={"against": str(old)},
    )
    output = step(context)
    found = verdicts(context)
    assert [found[o]["verdict"] for o in ("near", "exact", "new")] == ["duplicate:near", "duplicate:exact", KEEP]
    assert found["near"]["duplicate_of"] == "A1"
    assert found["near"]["similarity"] == pytest.approx(196 / 197)
    assert found["exact"]["duplicate_of"] == f"{old}#3"
    assert output.counts["documents_in"] == 3
    assert output.counts["reference_documents"] == 3
    assert output.counts["kept"] == 1


def test_reference_paths_and_records_that_cannot_be_used_are_named(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dedup\.against.*names no file"):
        step(make_run([{"text": "a"}], dedup={"against": str(tmp_path / "none.jsonl")}))
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"text": "lone \\ud800 surrogate"}\n', encoding="utf-8")
    assert step(make_run([{"text": "a"}], folder="odd", dedup={"against": str(odd)})).counts["kept"] == 1
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "fine"}\n{"text": 5}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.jsonl:2: field 'text'.*int"):
        step(make_run([{"text": "a"}], folder="second", dedup={"against": str(bad)}))


def write_sketches(path: Path, texts: list[str], permutations: int = 128) -> dict[str, str]:
    scheme = scheme_tag(permutations, 5)
    writer = SketchWriter(scheme)
    column = pa.array(texts, pa.large_string())
    found = sketch(normalise(column), permutations=permutations)
    count = len(texts)
    names = pa.array([str(n) for n in range(count)])
    writer.add(np.arange(count), names, names, pa.array([1.0] * count, pa.float32()), found)
    writer.write(path)
    return scheme


@pytest.mark.parametrize("cut", [1, 7, 67, 5000])
def test_a_sketch_file_that_is_cut_short_is_refused_by_name(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "sketches.arrow"
    scheme = write_sketches(path, [words(n, 50) for n in range(40)])
    whole = path.read_bytes()
    assert len(read_sketches([path], [40], scheme).ids) == 40
    path.write_bytes(whole[:-cut])
    with pytest.raises(CheckError, match=r"sketches\.arrow: missing or cut short"):
        read_sketches([path], [40], scheme)


def test_a_file_of_hashes_that_is_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "hashes.u32"
    path.write_bytes(np.arange(10, dtype=np.uint32).tobytes())
    with HashFile(path, 10) as hashes:
        assert hashes.read(2, 5).tolist() == np.fromfile(path, np.uint32)[2:5].tolist()
    for size in (39, 36, 0):
        path.write_bytes(bytes(size))
        with pytest.raises(CheckError, match=rf"hashes\.u32: {size} bytes, expected 40"):
            HashFile(path, 10)


def test_sketches_of_another_scheme_or_count_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "sketches.arrow"
    scheme = write_sketches(path, ["one text", "two texts"])
    with pytest.raises(CheckError, match=r"sketches\.arrow: signatures of scheme"):
        read_sketches([path], [2], {**scheme, "scheme": "datasketch-1"})
    with pytest.raises(CheckError, match="2 rows, its task wrote 3"):
        read_sketches([path], [3], scheme)


@pytest.mark.skipif(not NEARDUP.exists(), reason="the sample data is not beside this checkout")
def test_removal_on_the_development_set_is_precise_and_complete(make_run: MakeRun) -> None:
    rows = pq.read_table(NEARDUP / "neardup.parquet").to_pylist()
    context = make_run(
        [{"text": r["text"], "source": r["source"], "origin": r["id"], "source_domain": r["domain"]} for r in rows]
    )
    step(context)
    removed = {origin for origin, v in verdicts(context).items() if v["verdict"] != KEEP}
    parent = {r["id"]: r["id"] for r in rows}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for pair in pq.read_table(NEARDUP / "neardup_pairs.parquet").to_pylist():
        if pair["jaccard"] >= 0.8:
            parent[root(pair["a"])] = root(pair["b"])
    members: dict[str, list[str]] = {}
    for name in parent:
        members.setdefault(root(name), []).append(name)
    wanted = sum(len(group) - 1 for group in members.values())
    right = sum(min(len(group) - 1, len(removed & set(group))) for group in members.values())
    assert right / len(removed) >= 0.99
    assert right / wanted >= 0.99
