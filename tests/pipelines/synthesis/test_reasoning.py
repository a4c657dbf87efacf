"""The reasoning family: answers agree with independent programs, verdicts are exact, the teacher solves everything."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.trajectory.detectors import detect
from pipelines.synthesis.environments.base import Environment, open_environment
from pipelines.synthesis.environments.problems import TOPICS, calculate, number, same_answer
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.sandbox import Limits, Sandbox
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.errors import UsageError
from schemas.trajectory import Message, ToolCall, Trajectory


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with (
        Sandbox(Limits(cpu_seconds=1)) as sandbox,
        open_environment("reasoning", split="heldout", sandbox=sandbox) as opened,
    ):
        yield opened


def play(environment: Environment, seed: int, difficulty: float, rate: float) -> Trajectory:
    task = environment.generate(seed, difficulty)
    return rollout(environment, task, open_teacher("reasoning", environment, task, rate, 1))


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_every_step_and_answer_is_right(topic: str) -> None:
    for difficulty in (1, 3, 5.5):
        for seed in range(4):
            problem = TOPICS[topic](random.Random(f"{topic}:{difficulty}:{seed}"), difficulty)
            for step in problem.steps:
                if step.expression is not None:
                    assert number(calculate(step.expression)) == step.value
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(problem.program, {})
            assert same_answer(printed.getvalue(), problem.answer), problem.statement
            assert problem.answer in problem.conclusion


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 20), st.sampled_from(["+", "-", "*", "/", "//", "%"]))
def test_calculator_agrees_with_python(a: int, b: int, c: int, operator: str) -> None:
    exact = eval(f"(Fraction({a}) {operator} {c}) * {b} - {a}", {"Fraction": Fraction})
    assert calculate(f"({a} {operator} {c}) * {b} - {a}") == exact


REFUSED = [
    *("", "1 +", "x + 1", "__import__('os')", "1 / 0", "10 ** 10 ** 10", "2 ** 5000", "(lambda: 1)()", "1 if 1 else 2"),
    *("'a' * 3", "3 = 3", "1 << 3", "(" * 300 + "1", "9" * 501, "True + 1", "1e400 * 1", "7 ** (1 / 2)", "0 ** -1"),
]


@pytest.mark.parametrize("expression", REFUSED)
def test_calculator_refuses_what_is_not_bounded_arithmetic(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        calculate(expression)


@settings(max_examples=200)
@given(st.text(max_size=40))
def test_calculator_never_fails_otherwise(text: str) -> None:
    try:
        found = calculate(text)
    except ValueError as refusal:
        assert str(refusal)
    else:
        assert found != ""


@pytest.mark.parametrize(
    ("given_", "wanted", "equal"),
    [
        ("0.5", "1/2", True),
        ("2/4", "1/2", True),
        (" **7** ", "7", True),
        ("1,000", "1000", True),
        ("Knight.", "knight", True),
        ("$3$", "3", True),
        ("3.0", "3", True),
        ("0.33", "1/3", False),
        ("", "1", False),
        ("1/0", "1", False),
        ("knave", "knight", False),
    ],
)
def test_answers_are_compared_by_value(given_: str, wanted: str, equal: bool) -> None:
    assert same_answer(given_, wanted) is equal


def test_without_mistakes_everything_is_solved_in_all_modes(environment: Environment) -> None:
    modes = set()
    for seed in range(40):
        trajectory = play(environment, seed, 1 + seed / 8, 0.0)
        modes.add(trajectory.tools.count("calculator") + 2 * trajectory.tools.count("run_code"))
        assert (trajectory.outcome.success, trajectory.outcome.reward) == (True, 1.0)
        assert {m.label for m in trajectory.messages if m.role == "assistant"} == {"step"}
    assert modes == {0, 1, 2}


def test_mistakes_fail_for_real_and_detectors_agree(environment: Environment) -> None:
    kinds: set[str] = set()
    for seed in range(40):
        trajectory = play(environment, seed, 3 + seed / 12, 0.35)
        blind = replace(trajectory, messages=[replace(m, label=None) for m in trajectory.messages])
        found = {
            f.message for f in detect(blind).findings if f.rule in {"R2", "R3", "R4", "R5"} and f.message is not None
        }
        log = set()
        for index, message in enumerate(trajectory.messages):
            if (message.label or "").startswith("mistake:"):
                kinds.add(message.label or "")
                if message.tool_calls:
                    log.add(index)
                    assert trajectory.messages[index + 1].error is True
                else:
                    assert trajectory.outcome.success is False
        assert found == log
        if seed % 8 == 0:
            assert replay(environment, trajectory) == []
            assert json.dumps(play(environment, seed, 3 + seed / 12, 0.35).to_row()) == json.dumps(trajectory.to_row())
    assert {"mistake:bad_expression", "mistake:bad_code", "mistake:malformed_arguments"} <= kinds


def test_a_wrong_answer_gets_its_share_only(environment: Environment) -> None:
    task = environment.generate(3, 5)
    environment.reset(task)
    answers = task.data["answers"]
    environment.answer("\n".join(f"Answer {n}: {a}" for n, a in enumerate(answers[:-2], 1)))
    outcome = environment.verify()
    assert (outcome.success, outcome.reward) == (False, (len(answers) - 2) / len(answers))
    environment.reset(task)
    assert environment.verify().reward == 0


def test_tasks_are_distinct_and_seeded(environment: Environment) -> None:
    tasks = [environment.generate(seed, 1 + seed % 6) for seed in range(300)]
    assert len({(t.instruction, t.data["mode"]) for t in tasks}) == 300
    assert environment.generate(17, 6).to_json() == tasks[17].to_json()
    with pytest.raises(UsageError, match="1 to 10"):
        environment.generate(1, 0.5)


def test_programs_of_an_agent_are_contained(environment: Environment) -> None:
    task = next(t for t in (environment.generate(s, 1) for s in range(50)) if t.data["mode"] == "python")
    environment.reset(task)
    for code, signal in (
        ("while True: pass", "timeout"),
        ("raise SystemExit(4)", "exit_code=4"),
        ("open('/etc/left', 'w')", "exit_code=1"),
    ):
        result = environment.invoke(ToolCall("c", "run_code", json.dumps({"code": code})))
        assert (result.error, result.signal) == (True, signal)
    assert environment.invoke(ToolCall("c", "calculator", '{"expression": "1"}')).signal == "unknown_tool"


class Mute:
    """An agent that answers nothing."""

    def act(self, messages: list[Message], tools: str) -> Message:
        return Message("assistant", "")


def test_an_empty_answer_is_a_failed_outcome(environment: Environment) -> None:
    outcome = rollout(environment, environment.generate(1, 1), Mute()).outcome
    assert (outcome.success, outcome.reward) == (False, 0.0)
