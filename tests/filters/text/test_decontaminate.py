"""Decontamination: items are found in every form; shared headers, instructions and formulas flag nothing."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from filters.text.boilerplate import LICENCE_NOTICES
from filters.text.decontaminate import Benchmarks, Match, Unit, build_benchmarks, item_units

SAMPLE = Path(__file__).parents[3] / "../shared/data/corpus/sample.jsonl.zst"
QUESTION = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
    "How many clips did Natalia sell altogether in April and May?"
)
PROSE = "The river bends twice before it reaches the town, and every spring the meadows on both banks are under water. "
FORMULA = "x = (-b + sqrt(b^2 - 4*a*c)) / (2*a) and x = (-b - sqrt(b^2 - 4*a*c)) / (2*a)"


def units(*texts: str, benchmark: str = "bench.jsonl") -> list[Unit]:
    return [Unit(benchmark, f"{benchmark}#{n}", "question", text) for n, text in enumerate(texts, 1)]


def search(benchmarks: Benchmarks, *texts: str | None) -> dict[int, Match]:
    return benchmarks.search(pa.array(texts, pa.large_string()))


PLANTED = {
    "verbatim": QUESTION,
    "wrapped at 40 columns": "\n".join(textwrap.wrap(QUESTION, 40)),
    "inside a long document": PROSE * 400 + QUESTION + " " + PROSE * 400,
    "wrapped and quoted": "\n".join("> " + line for line in textwrap.wrap(QUESTION, 30)),
    "upper case": QUESTION.upper(),
    "the first three quarters": QUESTION[: len(QUESTION) * 3 // 4],
}


@pytest.mark.parametrize("form", PLANTED)
def test_a_planted_item_is_found_with_its_span(form: str) -> None:
    other = "Another item about a train that leaves the station at noon with 20 cars"
    benchmarks = build_benchmarks(units(other, QUESTION))
    found = search(benchmarks, PROSE, PLANTED[form], None)
    assert list(found) == [1]
    assert (found[1].benchmark, found[1].item) == ("bench.jsonl", "bench.jsonl#2:question")
    assert found[1].matched.lower().startswith("natalia sold clips")
    assert found[1].matched in PLANTED[form]


@pytest.mark.parametrize("notice", range(len(LICENCE_NOTICES)))
def test_a_shared_licence_header_flags_nothing(notice: int) -> None:
    header = LICENCE_NOTICES[notice]
    benchmarks = build_benchmarks(units(header + "\n" + QUESTION))
    assert search(benchmarks, header + "\n" + PROSE * 3, header) == {}
    assert list(search(benchmarks, header + QUESTION)) == [0]


def test_a_common_formula_or_instruction_alone_flags_nothing() -> None:
    instruction = "Answer the following question step by step and put the final answer after four hash signs."
    items = [
        f"{instruction} Farmer {name} keeps {n} hens that lay {n + 3} eggs every day. {FORMULA} How many in a week?"
        for n, name in enumerate(["Ann", "Bo", "Cy", "Di", "Ed"], 11)
    ]
    benchmarks = build_benchmarks(units(*items))
    assert search(benchmarks, f"{PROSE} {FORMULA} {PROSE}", f"{instruction} {PROSE}", instruction + FORMULA) == {}
    assert [m.item for m in search(benchmarks, *items).values()] == [f"bench.jsonl#{n}:question" for n in range(1, 6)]


def test_short_items_need_all_of_their_words_and_very_short_ones_are_left_out() -> None:
    short = "Compute the sum of all primes below nineteen"
    benchmarks = build_benchmarks(units(short, QUESTION))
    assert list(search(benchmarks, PROSE + short + "!", "Compute the sum of all primes below twenty", short)) == [0, 2]
    joined = {"question": "What is the largest city of Peru?", "answer": "It is Lima"}
    assert [u.text for u in item_units(joined, "b", "b#1")[0]] == ["What is the largest city of Peru? It is Lima"]
    assert item_units({"question": "2 + 2 = ?", "answer": "4"}, "b", "b#1") == ([], True)


def test_fields_of_any_name_and_depth_are_units() -> None:
    record = {"id": "x/1", "prompt": QUESTION, "meta": {"notes": ["short", PROSE]}, "n": 5, "none": None}
    found, short = item_units(record, "b", "b#7")
    assert [(u.field, u.text) for u in found] == [("prompt", QUESTION), ("meta.notes[1]", PROSE)]
    assert not short


def test_an_item_given_several_times_is_still_found() -> None:
    benchmarks = build_benchmarks(units(*[QUESTION] * 5))
    assert list(search(benchmarks, QUESTION)) == [0]


def test_one_run_of_words_in_common_is_not_enough() -> None:
    part = " ".join(QUESTION.split()[:14])
    assert search(build_benchmarks(units(QUESTION)), f"{PROSE} {part} {PROSE}") == {}


def test_odd_documents_are_searched_like_others() -> None:
    benchmarks = build_benchmarks(units(QUESTION))
    assert search(benchmarks, "", None, "\x00", "x" * 100_000, "one") == {}
    assert search(benchmarks) == {}


def test_an_index_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    benchmarks = build_benchmarks(units(QUESTION, "Compute the sum of all primes below nineteen"))
    benchmarks.save(tmp_path / "index.npz")
    texts = (QUESTION, PROSE, "compute THE sum of all primes\nbelow nineteen")
    assert search(Benchmarks.load(tmp_path / "index.npz"), *texts) == search(benchmarks, *texts)
    assert len(search(benchmarks, *texts)) == 2


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample data is not beside this checkout")
def test_benchmarks_that_are_in_the_sample_corpus_are_all_found_and_hardly_anything_else() -> None:
    import zstandard

    with open(SAMPLE, "rb") as handle:
        content = zstandard.ZstdDecompressor().stream_reader(handle).read().decode("utf-8")
    rows = [json.loads(line) for line in content.split("\n") if line][::3]
    names = ("github:openai/grade-school-math", "github:openai/human-eval")
    planted = [n for n, row in enumerate(rows) if row["source"] in names]
    found: set[int] = set()
    items = [u for n in planted for u in item_units({"text": rows[n]["text"]}, rows[n]["source"], rows[n]["id"])[0]]
    benchmarks = build_benchmarks(items)
    for first in range(0, len(rows), 4096):
        texts = pa.array([row["text"] for row in rows[first : first + 4096]], pa.large_string())
        found |= {first + row for row in benchmarks.search(texts)}
    assert len(planted) > 2000
    assert set(planted) <= found
    assert len(found - set(planted)) < 0.001 * (len(rows) - len(planted))
