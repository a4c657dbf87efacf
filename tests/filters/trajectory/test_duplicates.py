"""Runs of one task (R16): how alike two are, which one stays, how many."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.duplicates import SKETCH_SIZE, RunSketch, similarity, sketch_of, surplus_runs


def sketch(name: str, pairs: set[int], *, success: bool | None = None, errors: int = 0, task: str = "t") -> RunSketch:
    return RunSketch(name, task, success, errors, len(pairs), tuple(sorted(pairs)[:SKETCH_SIZE]))


def test_equal_calls_give_equal_sketches_whatever_is_said(make: SimpleNamespace) -> None:
    def run(words: str) -> RunSketch:
        return sketch_of(make.build(make.bash("ls", content=words), make.fine(), make.say(words), task_id="t"))

    assert run("one") == run("two")
    assert run("one").task == "test\0t"
    assert sketch_of(make.build(make.say("hi"))).task == ""


def test_order_of_calls_counts(make: SimpleNamespace) -> None:
    one = sketch_of(make.build(make.bash("a"), make.fine(), make.bash("b"), make.fine(), task_id="t"))
    two = sketch_of(make.build(make.bash("b"), make.fine(), make.bash("a"), make.fine(), task_id="t"))
    assert similarity(one, two) == 0.0


@given(st.sets(st.integers(0, 60), min_size=1), st.sets(st.integers(0, 60), min_size=1))
def test_similarity_is_jaccard_for_runs_that_fit_the_sketch(a: set[int], b: set[int]) -> None:
    assert similarity(sketch("a", a), sketch("b", b)) == pytest.approx(len(a & b) / len(a | b))


def test_long_runs_are_estimated() -> None:
    generator = random.Random(5)
    numbers = [generator.getrandbits(64) for _ in range(2000)]
    a, b = set(numbers[:1900]), set(numbers[100:])
    assert similarity(sketch("a", a), sketch("b", b)) == pytest.approx(1800 / 2000, abs=0.08)


def test_the_better_run_stays() -> None:
    pairs = set(range(10))
    runs = [
        sketch("1", pairs, success=False),
        sketch("2", pairs, success=None),
        sketch("3", pairs, success=True, errors=2),
        sketch("4", pairs, success=True, errors=1),
        sketch("5", {*range(100, 110)}, success=False),
        sketch("6", pairs, success=False, task="another"),
        sketch("7", pairs, success=False, task=""),
        sketch("8", pairs, success=False, task=""),
    ]
    reason = "R16:near_equal"
    assert surplus_runs(runs, near_equal=0.95, least_calls=3, runs_a_task=0) == {"1": reason, "2": reason, "3": reason}


def test_short_runs_are_not_compared_and_a_cap_is_a_cap() -> None:
    runs = [sketch(str(n), {1, 2}) for n in range(5)]
    assert surplus_runs(runs, near_equal=0.95, least_calls=3, runs_a_task=0) == {}
    assert surplus_runs(runs, near_equal=0.95, least_calls=3, runs_a_task=3) == {
        "3": "R16:runs_a_task",
        "4": "R16:runs_a_task",
    }
    best_last = [*runs[:4], replace(runs[4], success=True)]
    assert "4" not in surplus_runs(best_last, near_equal=0, least_calls=3, runs_a_task=1)
