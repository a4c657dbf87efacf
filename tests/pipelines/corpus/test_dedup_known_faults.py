"""What users of other deduplicators reported (texts, files and sets that broke them), with our stated results."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.corpus.dedup import step
from pipelines.corpus.standalone import Inputs, dedup_files, dedup_verdicts
from pipelines.corpus.tables import verdict_part
from pipelines.engine import InProcess
from schemas.errors import InputError
from schemas.progress import Quiet

MakeRun = Callable[..., RunContext]
FORMS = [dedup_files, dedup_verdicts]


def words(first: int, count: int) -> str:
    return " ".join(f"w{n}" for n in range(first, first + count))


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def run(form: Callable[..., dict[str, Any]], path: str, out: Path, **settings: Any) -> dict[str, Any]:
    return form(Inputs([path]), out, InProcess(), Quiet(), **settings)


@pytest.mark.parametrize("form", FORMS)
def test_line_separators_nul_and_surrogates_are_text_and_rows_stay_whole(form: Any, tmp_path: Path) -> None:
    marks = ["\u2028", "\u2029", "\x85", "\0", "\x0b", "\r", "\ud800", "\udfff", "\U0010ffff"]
    rows = [{"id": n, "text": f"{words(100 * n, 20)}{mark}{words(100 * n + 50, 20)}"} for n, mark in enumerate(marks)]
    found = run(form, jsonl(tmp_path / "a.jsonl", rows + rows), tmp_path / "o")
    assert (found["documents_in"], found["kept"]) == (2 * len(marks), len(marks))
    assert found["dropped"] == {"duplicate:exact": len(marks)}


@pytest.mark.parametrize("form", FORMS)
def test_one_character_documents_are_duplicates_only_of_their_equals(form: Any, tmp_path: Path) -> None:
    texts = ["a", "b", "a", "!", "?", "!", "é", "数", "\u0301", "1", "2"]
    found = run(form, jsonl(tmp_path / "a.jsonl", [{"id": n, "text": t} for n, t in enumerate(texts)]), tmp_path / "o")
    assert (found["kept"], found["dropped"]) == (9, {"duplicate:exact": 2})


@pytest.mark.parametrize("form", FORMS)
def test_documents_without_text_are_set_aside_and_counted(form: Any, tmp_path: Path) -> None:
    rows = [{"id": 1, "text": "some words here"}, {"id": 2, "text": ""}, {"id": 3, "text": " \n\u2028 "}, {"id": 4}]
    found = run(form, jsonl(tmp_path / "a.jsonl", [*rows, {"id": 5, "text": None}]), tmp_path / "o")
    assert (found["documents_in"], found["kept"]) == (1, 1)
    assert found["set_aside"] == {"empty_text": 3, "missing_field": 1}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2, 500])
def test_an_all_identical_corpus_keeps_one(form: Any, tmp_path: Path, count: int) -> None:
    table = pa.table({"id": [str(n) for n in range(count)], "text": [words(0, 60)] * count})
    pq.write_table(table, tmp_path / "a.parquet")
    found = run(form, str(tmp_path / "a.parquet"), tmp_path / "o")
    assert found["kept"] == 1
    assert sum(found["dropped"].values()) == count - 1


@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_appears_late_counts_from_its_first_row(form: Any, tmp_path: Path) -> None:
    a, b = "total = first + second if first > second else 3", "total = first - second if first < second else 3"
    rows: list[dict[str, Any]] = [{"text": words(300 * n, 40)} for n in range(1200)]
    rows += [{"id": "late1", "text": a, "domain": "code"}, {"id": "late2", "text": b, "domain": "code"}]
    found = run(form, jsonl(tmp_path / "a.jsonl", rows), tmp_path / "o")
    assert found["kept"] == len(rows)  # as prose the two have the same words; as code they differ
    again = run(form, jsonl(tmp_path / "b.jsonl", [{"text": a}, {"text": b}]), tmp_path / "p")
    assert again["dropped"] == {"duplicate:near": 1}


def test_huge_documents_are_sketched_and_compared(tmp_path: Path) -> None:
    rng = random.Random(5)
    big = " ".join(f"word{rng.randrange(10**6)}" for _ in range(400_000))
    one_word = "x" * 1_000_000
    texts = [big, big + " tail", big[: len(big) // 2], one_word, one_word + "y", words(0, 30)]
    pq.write_table(pa.table({"id": [str(n) for n in range(6)], "text": texts}), tmp_path / "a.parquet")
    found = run(dedup_verdicts, str(tmp_path / "a.parquet"), tmp_path / "o")
    assert (found["kept"], found["dropped"]) == (5, {"duplicate:near": 1})
    verdicts = pq.read_table(tmp_path / "o" / "verdicts").to_pylist()
    assert {v["source_id"]: v["duplicate_of_source_id"] for v in verdicts if v["verdict"] != "keep"} == {"0": "1"}


def test_a_shared_header_of_three_thousand_words_does_not_merge_different_tasks(make_run: MakeRun) -> None:
    header = words(0, 1500)
    context = make_run([{"text": f"{header} {words(10_000 * n, 700)}", "origin": str(n)} for n in range(1, 120)])
    output = step(context)
    assert output.counts["dropped"] == {}


def test_pairs_in_one_band_stay_two_clusters(make_run: MakeRun) -> None:
    first, second = words(0, 200), words(5000, 200)
    texts = [first, second, first + " one more", second + " one more"]
    context = make_run([{"text": t, "origin": str(n)} for n, t in enumerate(texts)])
    output = step(context)
    assert (output.counts["kept"], output.counts["clusters"]) == (2, 2)


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("permutations", [16, 128])
@pytest.mark.parametrize("partitions", [1, 5])
def test_exactly_one_of_five_copies_survives_whatever_the_settings(
    make_run: MakeRun, threshold: float, permutations: int, partitions: int
) -> None:
    documents = [{"text": words(0, 40), "source": f"s{n}", "origin": f"copy{n}"} for n in range(5)]
    documents += [{"text": words(1000 * n, 40), "origin": f"own{n}"} for n in range(1, 6)]
    context = make_run(documents, partitions=partitions, dedup={"threshold": threshold, "permutations": permutations})
    assert step(context).counts["kept"] == 6


def test_effective_bands_rows_and_the_collision_curve_are_reported(make_run: MakeRun) -> None:
    context = make_run([{"text": words(0, 40)}])
    counts = step(context).counts
    assert counts["bands"] * counts["rows"] + counts["permutations_unused"] == 128
    curve = dict(map(tuple, counts["collision_curve"]))
    assert curve[1.0] == 1.0 and curve[0.8] == pytest.approx(
        1 - (1 - 0.8 ** counts["rows"]) ** counts["bands"], abs=1e-5
    )
    assert any("20 bands of 6 rows (8 of 128" in line for line in context.progress.lines)  # type: ignore[attr-defined]


def test_giant_clusters_and_sources_that_lose_much_are_said_aloud(make_run: MakeRun) -> None:
    documents = [{"text": words(0, 60), "source": "mirror", "origin": str(n)} for n in range(12)]
    settings = {"largest_cluster": 5, "warn_share": 0.9}
    context = make_run([*documents, {"text": words(900, 60)}], dedup=settings)
    counts = step(context).counts
    said = " ".join(context.progress.lines)  # type: ignore[attr-defined]
    assert "1 clusters have more than 5 documents" in said and "'mirror' loses 11 of 12" in said
    assert (counts["kept"], counts["spared_in_giant_clusters"]) == (2, 0)
    quiet = make_run([*documents, {"text": words(900, 60)}], folder="two", dedup={"warn_share": 0.95})
    step(quiet)
    assert not any("warning" in line for line in quiet.progress.lines)  # type: ignore[attr-defined]


def test_nothing_names_a_marker_instead_of_a_document(make_run: MakeRun, tmp_path: Path) -> None:
    old = jsonl(tmp_path / "old.jsonl", [{"id": "old", "text": words(0, 50)}])
    context = make_run([{"text": words(0, 50), "origin": "a"}, {"text": words(700, 50)}], dedup={"against": old})
    step(context)
    rows = [r for part in range(3) for r in pq.read_table(verdict_part(context.run, "dedup", part)).to_pylist()]
    assert Counter(row["duplicate_of"] for row in rows) == {"old": 1, None: 1}


def test_a_reference_without_text_is_refused_by_line(make_run: MakeRun, tmp_path: Path) -> None:
    old = jsonl(tmp_path / "old.jsonl", [{"id": "x", "text": "fine"}, {"id": "y", "content": "no text"}])
    with pytest.raises(InputError, match=r"old\.jsonl.*2.*text"):
        step(make_run([{"text": words(0, 50)}], dedup={"against": old}))
