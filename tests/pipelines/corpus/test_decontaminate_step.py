"""The step decontaminate on a run folder: benchmark files of both kinds, counts, refusals, worker counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.corpus.decontaminate import step
from pipelines.corpus.tables import VERDICT_SCHEMAS, documents_part, verdict_part, write_part
from pipelines.engine import open_engine
from schemas.errors import InputError, UsageError

MakeRun = Callable[..., RunContext]
QUESTION = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
    "How many clips did Natalia sell altogether in April and May?"
)
OTHER = "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total does it take?"
PROSE = "The river bends twice before it reaches the town, and every spring the meadows on both banks are under water. "


def verdicts(context: RunContext) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for part in range(context.recipe.engine.partitions):
        given = pq.read_table(documents_part(context.run, part), columns=["id", "origin"]).to_pylist()
        found = pq.read_table(verdict_part(context.run, "decontaminate", part)).to_pylist()
        assert [d["id"] for d in given] == [v["id"] for v in found]
        rows |= {d["origin"]: v for d, v in zip(given, found, strict=True)}
    return rows


def deduplicated(context: RunContext, dropped: str = "") -> RunContext:
    schema = VERDICT_SCHEMAS["dedup"]
    for part in range(context.recipe.engine.partitions):
        rows = pq.read_table(documents_part(context.run, part), columns=["id", "origin"]).to_pylist()
        verdict = [{"id": r["id"], "verdict": "duplicate:near" if r["origin"] == dropped else "keep"} for r in rows]
        write_part(verdict_part(context.run, "dedup", part), schema, [pa.RecordBatch.from_pylist(verdict, schema)])
    return context


DOCUMENTS = [
    {"text": PROSE * 3 + QUESTION, "origin": "planted"},
    {"text": OTHER.replace(" ", "\n"), "origin": "wrapped"},
    {"text": PROSE, "origin": "clean"},
    {"text": QUESTION + " again", "origin": "duplicate"},
]


@pytest.fixture
def benchmarks(tmp_path: Path) -> list[str]:
    """One jsonl and one parquet benchmark."""
    lines = [{"question": QUESTION, "answer": "72"}, {"question": "2+2?", "answer": "4"}]
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8")
    pq.write_table(pa.table({"prompt": [OTHER], "difficulty": [3]}), tmp_path / "two.parquet")
    return [str(tmp_path / "one.jsonl"), str(tmp_path / "two.parquet")]


def test_items_of_all_benchmark_files_are_found_and_named(make_run: MakeRun, benchmarks: list[str]) -> None:
    context = deduplicated(make_run(DOCUMENTS, decontaminate={"benchmarks": benchmarks}), "duplicate")
    output = step(context)
    rows = verdicts(context)
    assert {o: r["verdict"] for o, r in rows.items()} == {
        "planted": "contaminated",
        "wrapped": "contaminated",
        "clean": "keep",
        "duplicate": None,
    }
    assert rows["planted"]["benchmark"] == f"{benchmarks[0]}#1:question"
    assert rows["wrapped"]["benchmark"] == f"{benchmarks[1]}#1:prompt"
    assert rows["planted"]["matched"] == QUESTION[:-1]
    assert rows["clean"]["matched"] is None
    assert output.counts["documents_in"] == 3
    assert output.counts["kept"] == 1
    assert output.counts["dropped"] == {"contaminated": 2}
    assert output.counts["benchmarks"][benchmarks[0]] == {
        "items": 2,
        "too_short": 1,
        "unreadable": 0,
        "documents_dropped": 1,
    }


def test_without_benchmarks_every_document_is_kept(make_run: MakeRun) -> None:
    context = deduplicated(make_run(DOCUMENTS))
    output = step(context)
    assert {row["verdict"] for row in verdicts(context).values()} == {"keep"}
    assert output.counts == {"benchmarks": {}, "documents_in": 4, "kept": 4, "dropped": {}}


def test_two_workers_and_one_write_the_same_bytes(make_run: MakeRun, benchmarks: list[str]) -> None:
    parts = {"decontaminate": {"benchmarks": benchmarks}}
    a = step(deduplicated(make_run(DOCUMENTS, folder="one", **parts)))
    b = step(deduplicated(make_run(DOCUMENTS, folder="two", engine=open_engine("datatrove", 2), **parts)))
    assert [f.read_bytes() for f in a.files] == [f.read_bytes() for f in b.files]
    assert a.counts == b.counts


def test_an_empty_corpus_is_a_result(make_run: MakeRun, benchmarks: list[str]) -> None:
    output = step(deduplicated(make_run([], decontaminate={"benchmarks": benchmarks})))
    assert (output.counts["documents_in"], output.counts["dropped"]) == (0, {})


def test_benchmarks_that_can_find_nothing_are_refused(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"decontaminate\.benchmarks.*names no file"):
        step(deduplicated(make_run(DOCUMENTS, decontaminate={"benchmarks": [str(tmp_path / "absent.jsonl")]})))
    (tmp_path / "short.jsonl").write_text('{"question": "Why?"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"short\.jsonl: 1 records, none with a text of 8 words"):
        step(
            deduplicated(make_run(DOCUMENTS, folder="b", decontaminate={"benchmarks": [str(tmp_path / "short.jsonl")]}))
        )


def test_a_broken_benchmark_record_is_counted_or_ends_the_run(make_run: MakeRun, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(json.dumps({"question": QUESTION}) + "\n{oops\n", encoding="utf-8")
    parts = {"decontaminate": {"benchmarks": [str(path)]}}
    output = step(deduplicated(make_run(DOCUMENTS, **parts)))
    assert output.counts["benchmarks"][str(path)]["unreadable"] == 1
    with pytest.raises(InputError, match=r"broken\.jsonl:2"):
        step(deduplicated(make_run(DOCUMENTS, folder="strict", on_error="fail", **parts)))
