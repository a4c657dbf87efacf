"""Sheets of the reasoning family: links between problems, lengths by difficulty, tools on long ones."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import statistics

import pytest

from filters.trajectory.detectors import detect
from pipelines.synthesis.environments.base import open_environment
from pipelines.synthesis.environments.problems import calculate, number, same_answer
from pipelines.synthesis.environments.problems.algebra import linear_system, polynomial
from pipelines.synthesis.environments.problems.links import LINKS, make_link
from pipelines.synthesis.environments.problems.logic import knights
from pipelines.synthesis.environments.problems.science import shopping
from pipelines.synthesis.environments.reasoning import ReasoningEnvironment, problems_of
from pipelines.synthesis.environments.sheets import target_tokens
from pipelines.synthesis.lengths import estimated_tokens
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.trajectory import Trajectory


def play(difficulty: float, seed: int, rate: float = 0.0) -> Trajectory:
    with open_environment("reasoning") as environment:
        task = environment.generate(seed, difficulty)
        return rollout(environment, task, open_teacher("reasoning", environment, task, rate, 0), 3000)


@pytest.mark.parametrize("kind", sorted(LINKS))
def test_links_are_right_by_their_own_programs(kind: str) -> None:
    for seed in range(25):
        generator = random.Random(f"{kind}:{seed}")
        places = sorted(generator.sample(range(1, 60), generator.randint(6, 30)))
        earlier = [(place, generator.choice([0, 1, 7, generator.randrange(10**6)])) for place in places]
        problem = make_link(kind, f"key {seed}", earlier)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(problem.program, {})
        assert same_answer(printed.getvalue(), problem.answer), problem.statement
        assert problem.answer in problem.conclusion
        for step in problem.steps:
            if step.expression is not None:
                assert number(calculate(step.expression)) == step.value
        assert make_link(kind, f"key {seed}", earlier) == problem


def test_a_changed_answer_changes_the_links_that_use_it() -> None:
    earlier = [(place, place * 11) for place in range(1, 9)]
    changed = [(place, answer + 500) for place, answer in earlier]
    before = make_link("remainder_of_sum", "k", earlier)
    after = make_link("remainder_of_sum", "k", changed)
    assert before.statement == after.statement
    assert before.answer != after.answer


def test_a_third_of_a_long_sheet_is_links_to_earlier_problems() -> None:
    task = ReasoningEnvironment().generate(8, 7)
    raw = task.data["problems"]
    links = [place for place, entry in enumerate(raw, 1) if "link" in entry]
    assert len(raw) > 60
    assert 0.25 < len(links) / len(raw) < 0.34
    assert [problem.answer for problem in problems_of(task)] == task.data["answers"]
    again = ReasoningEnvironment().generate(8, 7)
    assert json.dumps(again.data) == json.dumps(task.data)
    assert not any("link" in entry for entry in ReasoningEnvironment().generate(8, 5).data["problems"])


def test_lengths_rise_with_the_difficulty_and_reach_their_target() -> None:
    medians = []
    for difficulty in (1, 2, 3, 4, 5, 6, 7):
        lengths = [estimated_tokens(play(difficulty, seed)) for seed in range(9 if difficulty < 6 else 3)]
        medians.append(statistics.median(lengths))
    assert medians == sorted(set(medians))
    assert medians[0] < 300
    assert 0.75 < medians[-1] / target_tokens(7) < 1.3
    assert 150_000 < target_tokens(10) < 220_000


def test_sheets_of_hours_always_have_a_tool_and_check_every_answer() -> None:
    tasks = [ReasoningEnvironment().generate(seed, 7.6) for seed in range(6)]
    assert {task.data["mode"] for task in tasks} == {"calculator", "python"}
    run = play(7.6, 1)
    calls = sum(len(message.tool_calls) for message in run.messages)
    problems = len(json.loads(run.extra or "")["data"]["problems"])
    assert run.outcome.success is True
    assert 0.6 * problems < calls <= problems
    assert [f for f in detect(run).findings if f.rule in ("R6", "R7")] == []


def test_the_calculator_is_never_asked_the_same_twice_in_a_problem() -> None:
    checked = 0
    for seed in range(90):
        with open_environment("reasoning") as environment:
            task = environment.generate(seed, 4)
            if task.data["mode"] != "calculator":
                continue
            run = rollout(environment, task, open_teacher("reasoning", environment, task, 0.0, 0))
        checked += 1
        assert [f for f in detect(run).findings if f.rule == "R6"] == []
    assert checked > 12


@pytest.mark.parametrize("difficulty", [1.0, 1.5, 2.0, 2.9])
def test_no_two_of_a_thousand_short_tasks_are_alike(difficulty: float) -> None:
    with open_environment("reasoning") as environment:
        asked = {environment.generate(seed, difficulty).instruction for seed in range(5_000, 6_000)}
    assert len(asked) == 1_000


@pytest.mark.parametrize(
    ("coefficients", "text"),
    [([2, 0, -1, 5], "2x^3 - x + 5"), ([1, -1], "x - 1"), ([-3, 0, 0], "-3x^2"), ([5, 1, 1], "5x^2 + x + 1")],
)
def test_a_polynomial_is_written_as_on_paper(coefficients: list[int], text: str) -> None:
    assert polynomial(coefficients) == text


def test_one_thing_is_in_the_singular() -> None:
    statements = [make(random.Random(seed), 3).statement for seed in range(150) for make in (shopping, knights)]
    joined = "\n".join(statements)
    assert " 1 brush at " in joined
    assert "Exactly 1 of us is a knight." in joined
    assert not re.search(r"\b1 \w+s at |1 of us are|1 seed bags", joined)


def test_the_program_for_a_system_of_equations_assumes_nothing_about_its_solution() -> None:
    for seed in range(20):
        problem = linear_system(random.Random(seed), 5)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(problem.program, {})
        assert printed.getvalue().strip() == problem.answer
        assert "product" not in problem.program  # no search within bounds that nobody gave
