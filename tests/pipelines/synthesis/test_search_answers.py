"""Search tasks: other right ways and forms of an answer pass, near misses fail, patterns of a model end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pipelines.synthesis.environments.base import Environment, TaskSpec, open_environment
from pipelines.synthesis.environments.search import questions_of
from pipelines.synthesis.environments.search_questions import Question
from pipelines.synthesis.pools.search import build_search_pool
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.trajectory import ToolCall


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    out = tmp_path_factory.mktemp("run") / "trajectories" / "search"
    build_search_pool([], out, standard_library_too=True)
    with open_environment("search", pool_path=out) as opened:
        yield opened


def _task_of(environment: Environment, kind: str) -> tuple[TaskSpec, Question]:
    """An easy task with one question of a kind."""
    for seed in range(500):
        task = environment.generate(seed, 1.0)
        questions = questions_of(task)
        if len(questions) == 1 and questions[0].kind == kind:
            return task, questions[0]
    raise AssertionError(f"no task of kind {kind}")


def _call(environment: Environment, name: str, **arguments: object) -> str:
    return environment.invoke(ToolCall("c", name, json.dumps(arguments))).text


def test_a_number_may_be_given_as_written_or_by_value(environment: Environment) -> None:
    forms = 0
    for seed in range(400):
        task = environment.generate(seed, 1.0)
        question = questions_of(task)[0]
        if question.kind not in ("constant", "default") or not question.accept or len(questions_of(task)) > 1:
            continue
        for answer in (question.answer, *question.accept):
            environment.reset(task)
            _call(environment, "search", query=question.hops[0].query, k=20)
            environment.answer(f"Answer: {answer}")
            assert environment.verify().success is True
            forms += 1
    assert forms >= 4


def test_another_way_to_the_document_counts_and_an_answer_from_memory_does_not(environment: Environment) -> None:
    task, question = _task_of(environment, "default")
    environment.reset(task)
    environment.answer(f"Answer: {question.answer}")
    assert environment.verify().reward == 0.5  # right, but nothing was looked up
    environment.reset(task)
    _call(environment, "search", query="something else entirely", k=1)
    _call(environment, "open", document=question.support[0])
    environment.answer(f"**Answer:** `{question.answer}`")
    assert environment.verify().success is True
    environment.answer(f"Answer: {question.answer} or {question.answer}1")
    assert environment.verify().success is False


def test_the_teacher_states_nothing_that_no_document_showed(environment: Environment) -> None:
    stated = 0
    for seed in range(24):
        task = environment.generate(seed, (1.0, 2.5)[seed % 2])
        trajectory = rollout(environment, task, open_teacher("search", environment, task, 0.0, 0))
        assert trajectory.outcome.success is True
        shown = " ".join(m.content for m in trajectory.messages if m.role == "tool").casefold()
        for question in questions_of(task):
            if question.kind in ("gap", "default", "constant", "file"):
                assert question.answer.strip("'").casefold() in " ".join(shown.split()), question
                stated += 1
    assert stated > 10


@pytest.mark.parametrize("pattern", ["(?R)", "(?R)*a", "(a(?1)?)+b", "(?P<x>a(?&x))", r"\\(?1)", "(?P<x>a(?P>x)?)"])
def test_patterns_that_call_themselves_are_refused(environment: Environment, pattern: str) -> None:
    task, question = _task_of(environment, "default")
    environment.reset(task)
    assert "calls itself" in _call(environment, "find", document=question.support[0], pattern=pattern)


@pytest.mark.parametrize("pattern", [r"\(?1\)?", "(?:a)|(?i)b", r"(a)\1", "(?-i:def) ", "(a)?(?(1)b|c)"])
def test_other_patterns_with_brackets_are_not(environment: Environment, pattern: str) -> None:
    task, question = _task_of(environment, "default")
    environment.reset(task)
    assert "calls itself" not in _call(environment, "find", document=question.support[0], pattern=pattern)
