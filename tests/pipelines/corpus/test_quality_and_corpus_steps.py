"""The steps quality and corpus: row-aligned verdicts, every document kept or dropped once with its first reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.corpus import corpus, quality
from pipelines.corpus.tables import (
    VERDICT_SCHEMAS,
    corpus_part,
    documents_part,
    read_verdicts,
    verdict_part,
    write_part,
)
from pipelines.trove.executor import TroveEngine
from schemas.document import DOCUMENT_SCHEMA, KEEP
from schemas.errors import CheckError

GOOD = "The people of the town have a garden and they like to work with it. " * 5
TEXTS = [GOOD + str(n) for n in range(40)] + ["too short", "", "import os\n\n\ndef f(x):\n    return os.sep + x\n"]


def documents(texts: list[str]) -> list[dict[str, Any]]:
    return [{"text": text, "source": f"s{n % 2}", "license": "MIT"} for n, text in enumerate(texts)]


def files_of(run: Path, folder: str) -> dict[str, bytes]:
    return {p.relative_to(run).as_posix(): p.read_bytes() for p in sorted((run / folder).rglob("*")) if p.is_file()}


def test_quality_gives_one_row_for_each_document_in_the_same_order(make_run: Any) -> None:
    context: RunContext = make_run(documents(TEXTS))
    output = quality.step(context)
    for part, path in enumerate(output.files):
        table = pq.read_table(path)
        assert table.schema.names == ["id", "verdict", "quality", "language"]
        assert table.column("language").null_count == table.num_rows
        assert table.column("id").to_pylist() == pq.read_table(documents_part(context.run, part))["id"].to_pylist()
        assert all(0 <= score <= 1 for score in table.column("quality").to_pylist())
    assert output.counts == {"documents_in": 43, "kept": 41, "dropped": {"empty": 1, "gopher:few_words": 1}}


def test_the_recipe_names_the_rule_sets(make_run: Any) -> None:
    context: RunContext = make_run(documents(["too short", "", "x { y"]), quality={"rules": ["c4"]})
    assert quality.step(context).counts["dropped"] == {"c4:curly_bracket": 1, "c4:few_sentences": 1, "empty": 1}


def write_later_verdicts(context: RunContext, dedup: dict[str, Any], found: dict[str, str]) -> None:
    """The tables of the steps between quality and corpus, by text: a dedup row, a decontamination verdict."""
    for part in range(context.recipe.engine.partitions):
        rows = pq.read_table(documents_part(context.run, part)).to_pylist()
        quality_verdicts = read_verdicts(context.run, "quality", part)["verdict"].to_pylist()
        tables: dict[str, list[dict[str, Any]]] = {"dedup": [], "classify": [], "decontaminate": []}
        for row, before in zip(rows, quality_verdicts, strict=True):
            alone = {"verdict": KEEP if before == KEEP else None}
            tables["dedup"].append({"id": row["id"], **alone, **dedup.get(row["text"], {})})
            tables["classify"].append({"id": row["id"], "domain": "web", "domain_score": 0.5})
            verdict = found.get(row["text"], tables["dedup"][-1]["verdict"])
            tables["decontaminate"].append({"id": row["id"], "verdict": verdict if verdict != "near" else None})
        for step, records in tables.items():
            batch = pa.RecordBatch.from_pylist(records, VERDICT_SCHEMAS[step])
            write_part(verdict_part(context.run, step, part), VERDICT_SCHEMAS[step], [batch])


def finished_run(make_run: Any, **options: Any) -> RunContext:
    context: RunContext = make_run(documents(TEXTS), **options)
    quality.step(context)
    near = {"verdict": "near", "cluster": "k", "similarity": 0.9, "duplicate_of": "k"}
    write_later_verdicts(context, {TEXTS[3]: near}, {TEXTS[4]: "contaminated"})
    return context


def test_every_document_is_kept_or_dropped_with_its_first_reason(make_run: Any) -> None:
    context = finished_run(make_run)
    counts = corpus.step(context).counts
    assert counts["documents_in"] == 43
    assert counts["kept"] == 39
    assert counts["dropped"] == {"contaminated": 1, "empty": 1, "gopher:few_words": 1, "near": 1}
    assert counts["kept_by_domain"] == {"web": 39}
    assert sum(counts["kept_by_source"].values()) == 39
    rows: dict[str, list[dict[str, Any]]] = {}
    for kind in ("kept", "dropped"):
        tables = [pq.read_table(corpus_part(context.run, kind, part)) for part in range(3)]
        assert all(table.schema.equals(DOCUMENT_SCHEMA) for table in tables)
        rows[kind] = [row for table in tables for row in table.to_pylist()]
    assert {row["verdict"] for row in rows["kept"]} == {KEEP}
    assert {row["text"]: row["verdict"] for row in rows["dropped"]} == {
        "too short": "gopher:few_words",
        "": "empty",
        TEXTS[3]: "near",
        TEXTS[4]: "contaminated",
    }
    assert sorted(row["text"] for kind in rows for row in rows[kind]) == sorted(TEXTS)
    assert sum(len(row["text"]) for row in rows["kept"]) == counts["characters_kept"]
    assert sum(len(row["text"]) for row in rows["dropped"]) == counts["characters_dropped"]
    (near,) = [row for row in rows["dropped"] if row["verdict"] == "near"]
    assert (near["cluster"], near["domain"], near["domain_score"], near["license"]) == ("k", "web", 0.5, "MIT")
    assert near["quality"] > 0
    assert near["tokens"] is None


def test_one_and_two_workers_give_the_same_bytes(make_run: Any) -> None:
    alone = finished_run(make_run, folder="one")
    corpus.step(alone)
    engine = TroveEngine(workers=2)
    try:
        two = finished_run(make_run, folder="two", engine=engine)
        corpus.step(two)
    finally:
        engine.close()
    for folder in ("verdicts/quality", "corpus"):
        assert files_of(two.run, folder) == files_of(alone.run, folder)


def test_verdicts_of_another_run_are_refused(make_run: Any) -> None:
    context = finished_run(make_run)
    path = verdict_part(context.run, "classify", 1)
    table = pq.read_table(path)
    write_part(path, VERDICT_SCHEMAS["classify"], table.slice(1).to_batches())
    with pytest.raises(CheckError, match=r"verdicts/classify/part-00001.parquet: does not line up with"):
        corpus.step(context)
    path.unlink()
    with pytest.raises(CheckError, match=r"verdicts/classify/part-00001.parquet: missing"):
        corpus.step(context)


def test_a_partition_without_documents_is_joined_to_empty_files(make_run: Any) -> None:
    context: RunContext = make_run(documents(TEXTS[:1]), partitions=4)
    quality.step(context)
    write_later_verdicts(context, {}, {})
    output = corpus.step(context)
    assert [pq.read_metadata(path).num_rows for path in output.files].count(0) == 7
    assert output.counts["kept"] == 1


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["too short", "short too", ""], ["corpus: warning: no document is left: gopher:few_words 2, empty 1"]),
        (["too short", GOOD], []),
        ([], []),
    ],
)
def test_a_corpus_of_which_nothing_is_left_is_told_with_the_reasons(
    texts: list[str], said: list[str], make_run: Any
) -> None:
    context: RunContext = make_run(documents(texts))
    quality.step(context)
    write_later_verdicts(context, {}, {})
    corpus.step(context)
    heard: Any = context.progress
    assert heard.lines == said
