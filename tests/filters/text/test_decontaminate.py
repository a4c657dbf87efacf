"""Contamination is found verbatim, wrapped and inside long documents; shared boilerplate flags nothing (B20)."""

import textwrap

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.text.decontaminate import BenchmarkItem, build_index, find_overlaps, item_texts

ITEM = (
    "Natalia planted forty-eight tulips along the northern fence in April, and then she planted half as many "
    "daffodils beside the pond in May. How many flowers did Natalia plant altogether in April and May?"
)
LICENCE = (
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated "
    "documentation files, to deal in the software without restriction."
)
OTHER = " ".join(f"word{i} other{i * 7 % 31}" for i in range(400))


def _flagged(document: str, *items: str) -> bool:
    index = build_index([BenchmarkItem(f"bench#{i}", text) for i, text in enumerate(items, 1)])
    return find_overlaps(pa.array([document]), index)[0] is not None


@pytest.mark.parametrize(
    "document",
    [
        ITEM,
        textwrap.fill(ITEM, 40),
        ITEM.upper().replace(",", " ;"),
        f"{OTHER}\n\n{ITEM}\n\n{OTHER}",
        ITEM[: len(ITEM) * 3 // 4],
    ],
    ids=["verbatim", "wrapped", "case and marks", "inside a long document", "three quarters"],
)
def test_item_is_found(document: str) -> None:
    assert _flagged(document, ITEM)


def test_match_names_item_coverage_and_span() -> None:
    index = build_index([BenchmarkItem("a.jsonl#1", OTHER), BenchmarkItem("a.jsonl#2", ITEM)])
    (found,) = find_overlaps(pa.array([f"Before it.\n{textwrap.fill(ITEM, 40)}\nAfter it."]), index)
    assert found is not None
    assert (found.item, found.coverage) == ("a.jsonl#2", 1.0)
    assert found.span == ITEM[:300].rstrip("?")


def test_shared_licence_header_flags_nothing() -> None:
    item = f"{LICENCE} {ITEM} {OTHER[:1500]}"
    assert not _flagged(f"{LICENCE} An entirely different program follows here, {OTHER[2000:]}", item)


def test_common_formula_flags_nothing() -> None:
    formula = "x = (-b + sqrt(b^2 - 4 a c)) / (2 a) and x = (-b - sqrt(b^2 - 4 a c)) / (2 a)"
    assert not _flagged(f"Completing the square gives {formula} {OTHER}", f"{ITEM} {formula} {ITEM[::-1]}")


def test_template_of_a_benchmark_does_not_count() -> None:
    template = "Read the following question carefully, think step by step, and give the final answer after four hashes:"
    items = [f"{template} what is {i} plus {i * 3}" for i in range(40)]
    assert not _flagged(f"{template} name the capital of a country of your choice and say why", *items)


def test_short_item_is_found_whole_inside_a_document_and_not_in_part() -> None:
    short = "Which seven rivers meet below the old stone bridge?"
    assert _flagged(f"{OTHER} {short} {OTHER}", short)
    assert not _flagged(f"{OTHER} Which seven rivers meet below the new bridge? {OTHER}", short)


def test_item_of_a_few_words_is_found_only_as_a_whole_document() -> None:
    assert _flagged("what is love", "What is love?")
    assert not _flagged("he asked what is love and left", "What is love?")


def test_empty_documents_and_empty_benchmarks_overlap_with_nothing() -> None:
    texts = pa.array(["", None, "  \n", "!!!"])
    assert find_overlaps(texts, build_index([BenchmarkItem("a#1", ITEM)])) == [None] * 4
    assert find_overlaps(texts, build_index([])) == [None] * 4
    assert find_overlaps(texts, build_index([BenchmarkItem("a#1", "!!!")])) == [None] * 4


def test_record_gives_its_long_fields_or_its_longest() -> None:
    fields = [("id", "HumanEval/1"), ("prompt", ITEM), ("n", 3), ("test", LICENCE)]
    assert item_texts(fields, 13) == [ITEM, LICENCE]
    assert item_texts([("id", "x"), ("question", "What is love?")], 13) == ["What is love?"]
    assert item_texts([("id", None), ("n", 3)], 13) == []


@given(st.integers(0, 3000), st.lists(st.text(alphabet=" abc", max_size=30), max_size=5))
def test_an_item_is_found_wherever_it_stands(position: int, around: list[str]) -> None:
    words = OTHER.split()
    at = position % (len(words) + 1)
    assert _flagged(" ".join([*around, *words[:at], ITEM, *words[at:]]), ITEM)
