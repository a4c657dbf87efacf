"""Answers of a final turn: how people write them, and texts that only a model writes."""

from __future__ import annotations

import pytest

from pipelines.synthesis.environments.answers import answers_of, same_text_answer
from pipelines.synthesis.environments.problems import same_answer


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("Answer: 5", {1: "5"}),
        ("so\n  **Answer 2:** 7 \n> - answer 3 = `x y`\r\n", {2: "7", 3: "`x y`"}),
        ("Answer 1: 4\nno, wait\nAnswer 1: 5", {1: "5"}),
        ("answer1: 4", {1: "4"}),
        ("Answer:\n5", {}),
        ("My answer: 5", {}),
        ("Answers: 5", {}),
        ("Answer 1234567: 5", {}),
    ],
)
def test_answer_lines_are_read(text: str, answers: dict[int, str]) -> None:
    assert answers_of(text) == answers


def test_a_line_without_a_number_answers_the_first_that_is_asked() -> None:
    assert answers_of("Answer: 5", first=3) == {3: "5"}


@pytest.mark.parametrize(
    "text",
    ["\n" * 300_000, "answer: " + "* " * 150_000 + "x", "answer" + " " * 300_000 + "x", "* " * 150_000 + "answer"],
)
def test_the_cost_grows_with_the_length_only(text: str) -> None:
    assert len(answers_of(text)) <= 1  # by backtracking these would take hours


def test_an_endless_number_is_no_number_of_an_answer() -> None:
    assert answers_of(f"Answer {'1' * 5_000}: x\nAnswer 2: y") == {2: "y"}


@pytest.mark.parametrize("given", ["1e999999999", "1e-999999999", "9" * 5_000, "1/0", "1e", "nan", "inf", ""])
def test_numbers_that_could_not_be_written_out_are_wrong_at_once(given: str) -> None:
    assert not same_answer(given, "3")
    assert not same_text_answer(given, "3")


@pytest.mark.parametrize("given", ["1/2", "0.5", "5e-1", " **0.50** ", "+.5", "2/4"])
def test_equal_numbers_are_the_same_answer(given: str) -> None:
    assert same_answer(given, "1/2")


@pytest.mark.parametrize("wanted", ["'.'", "'*'", "'_'", "…"])
def test_an_answer_that_is_a_mark_is_not_given_by_silence_or_another_mark(wanted: str) -> None:
    assert same_text_answer(wanted, wanted)
    assert same_text_answer(f"`{wanted}`", wanted)
    assert not same_text_answer("", wanted)
    assert not same_text_answer("''", wanted)
    assert not same_text_answer("''.'*'_'…", wanted)


def test_commas_stand_between_thousands_only() -> None:
    for same in (same_answer, same_text_answer):
        assert same("1,234,567", "1234567")
        assert not same("3,0", "30")
        assert not same("12,34", "1234")
        assert not same("1,2345", "12345")
