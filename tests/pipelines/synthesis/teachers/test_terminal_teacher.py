"""The terminal's scripted teacher: solves everything without mistakes, errs for real with them, and replays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from filters.trajectory.detectors import MISTAKE_RULES, detect
from pipelines.synthesis.environments.base import Environment, open_environment
from pipelines.synthesis.environments.lengths import target_bytes
from pipelines.synthesis.environments.terminal import jobs_of
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.scripted import open_teacher
from pipelines.synthesis.teachers.terminal import that_matters
from schemas.trajectory import Trajectory


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with open_environment("terminal") as opened:
        yield opened


def play(environment: Environment, seed: int, difficulty: float, rate: float) -> Trajectory:
    task = environment.generate(seed, difficulty)
    return rollout(environment, task, open_teacher("terminal", environment, task, rate, seed), 3000)


def size(trajectory: Trajectory) -> int:
    """Bytes of everything in a trajectory."""
    calls = sum(len(c.name) + len(c.arguments.encode()) for m in trajectory.messages for c in m.tool_calls)
    texts = sum(len(m.content.encode()) + len((m.reasoning or "").encode()) for m in trajectory.messages)
    return calls + texts + len(trajectory.tools)


@pytest.fixture(scope="module")
def erring(environment: Environment) -> list[Trajectory]:
    return [play(environment, seed, 1 + seed / 10, 0.3) for seed in range(14)]


def test_without_mistakes_everything_is_solved_and_lengths_rise(environment: Environment) -> None:
    medians = []
    for difficulty in (1, 2, 3, 4.5):
        runs = [play(environment, 70 + seed, difficulty, 0.0) for seed in range(3 if difficulty < 4 else 1)]
        for trajectory in runs:
            assert (trajectory.outcome.success, trajectory.stats.errors) == (True, 0)
            assert {m.label for m in trajectory.messages if m.role == "assistant"} == {"step"}
        medians.append(sorted(map(size, runs))[len(runs) // 2])
    assert medians == sorted(medians)
    assert medians[0] < 8_000
    assert medians[-1] > 40_000


def test_the_hardest_tasks_have_half_a_megabyte_to_work_through(environment: Environment) -> None:
    wanted = [target_bytes(difficulty) for difficulty in (1, 5.5, 9.99, 10)]
    assert wanted == sorted(wanted)
    task = environment.generate(3, 10)
    jobs = jobs_of(task)
    planned = sum(len(step.command) + step.shows + 100 for job in jobs for step in job.steps)
    assert planned > 450_000
    assert len({job.kind for job in jobs}) > 8


def test_mistakes_fail_for_real_and_the_detectors_agree(erring: list[Trajectory]) -> None:
    hits = wrong = missed = 0
    kinds: set[str] = set()
    for trajectory in erring:
        blind = replace(trajectory, messages=[replace(m, label=None) for m in trajectory.messages])
        found = {f.message for f in detect(blind).findings if f.rule in MISTAKE_RULES and f.message is not None}
        log = set()
        for index, message in enumerate(trajectory.messages):
            if (message.label or "").startswith("mistake:"):
                log.add(index)
                kinds.add(message.label or "")
                failed = trajectory.messages[index + 1].error if message.tool_calls else not trajectory.outcome.success
                assert failed is True
        hits, wrong, missed = hits + len(found & log), wrong + len(found - log), missed + len(log - found)
    assert hits > 40
    assert hits / (hits + wrong) >= 0.98
    assert hits / (hits + missed) >= 0.98
    assert {"mistake:wrong_path", "mistake:bad_option", "mistake:malformed_arguments"} <= kinds


def test_thoughts_do_not_quote_that_nothing_was_shown(erring: list[Trajectory]) -> None:
    shown = [m.content for t in erring for m in t.messages if m.role == "tool"]
    assert "no output" in shown
    assert not [m.reasoning for t in erring for m in t.messages if "`no output`" in (m.reasoning or "")]


def test_same_seed_same_bytes_and_replay_is_equal(environment: Environment, erring: list[Trajectory]) -> None:
    again = play(environment, 5, 1.5, 0.3)
    assert json.dumps(again.to_row()) == json.dumps(erring[5].to_row())
    for trajectory in erring[::3]:
        assert replay(environment, trajectory) == []


def test_some_end_early_and_the_verdict_says_so(environment: Environment) -> None:
    ends: set[str] = set()
    for seed in range(40):
        task = environment.generate(1000 + seed, 1)
        teacher = open_teacher("terminal", environment, task, 0.6, seed)
        if not teacher.fails:
            continue
        trajectory = rollout(environment, task, teacher)
        ends.add(trajectory.messages[-1].label or "")
        assert trajectory.outcome.success is False
    assert ends <= {"mistake:premature_answer", "mistake:gave_up"}
    assert ends


@pytest.mark.parametrize(
    ("lines", "command", "line"),
    [
        (
            ["on branch main", "ba94e3f Fix cable.cfg for oak"],
            "git log --grep='Fix cable.cfg for oak'",
            "ba94e3f Fix cable.cfg for oak",
        ),
        (["drop:", "canyon"], "find drop/canyon -name '*.png'", ""),
        (["host = alder.example"], "cat conf/anchor-paddle.conf", ""),
        (["CONFLICT in app/tunnel-jasper.cfg"], "cat merge/app/tunnel-jasper.cfg", "CONFLICT in app/tunnel-jasper.cfg"),
        ([], "ls", ""),
    ],
)
def test_a_thought_quotes_only_a_line_that_the_next_command_takes_up(lines: list[str], command: str, line: str) -> None:
    assert that_matters(lines, command, "drop") == line


def test_an_answer_is_concluded_in_a_thought_and_asked_for_only_where_there_is_one(environment: Environment) -> None:
    asking = 0
    for seed in range(12):
        trajectory = play(environment, 400 + seed, 2.5, 0.0)
        jobs = jobs_of(environment.generate(400 + seed, 2.5))
        asked = any(job.answer is not None for job in jobs)
        asking += asked
        assert ("`Answer" in trajectory.messages[1].content) is asked
        thoughts = "\n".join(m.reasoning or "" for m in trajectory.messages)
        for job in jobs:
            if job.answer is not None:
                forms = (f"So it is {job.answer}.", f"The answer is {job.answer}.", f"{job.answer}, then.")
                assert any(form in thoughts for form in forms)
    assert 0 < asking < 12
