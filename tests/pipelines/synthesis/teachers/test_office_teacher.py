"""The office's scripted teacher: solves every kind, errs for real, and detectors and replay agree with its log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from filters.trajectory.detectors import MISTAKE_RULES, detect
from pipelines.synthesis.environments.base import Environment, open_environment
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.trajectory import Trajectory


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with open_environment("office") as opened:
        yield opened


def play(environment: Environment, seed: int, difficulty: float, rate: float) -> Trajectory:
    task = environment.generate(seed, difficulty)
    return rollout(environment, task, open_teacher("office", environment, task, rate, seed), 3000)


@pytest.fixture(scope="module")
def erring(environment: Environment) -> list[Trajectory]:
    return [play(environment, seed, 1 + seed % 12 / 3, 0.3) for seed in range(60)]


def tokens(trajectory: Trajectory) -> float:
    """Bytes / 4, the project's estimate, of the whole trajectory with its tools."""
    said = [m.content + (m.reasoning or "") for m in trajectory.messages]
    calls = [call.name + call.arguments for m in trajectory.messages for call in m.tool_calls]
    return sum(len(text.encode()) for text in [*said, *calls, trajectory.tools]) / 4


def test_without_mistakes_everything_is_solved(environment: Environment) -> None:
    for seed in range(45):
        trajectory = play(environment, 1000 + seed, 1 + seed / 9, 0.0)
        assert (trajectory.outcome.success, trajectory.outcome.reward) == (True, 1.0), trajectory.outcome
        assert {m.label for m in trajectory.messages if m.role == "assistant"} == {"step"}
        assert trajectory.stats.errors == 0
        assert {finding.rule for finding in detect(trajectory).findings} <= {"R12"}  # a query without a hit


def test_lengths_rise_with_difficulty_from_under_2k(environment: Environment) -> None:
    medians = []
    for difficulty, count in ((1, 7), (2, 5), (4, 3), (6, 3), (8, 1)):
        lengths = sorted(tokens(play(environment, seed, difficulty, 0.0)) for seed in range(count))
        medians.append(lengths[count // 2])
    assert medians == sorted(medians)
    assert medians[0] < 2_000
    assert medians[-1] > 40_000


def test_the_hardest_task_is_solved_and_over_150k_tokens_long(environment: Environment) -> None:
    trajectory = play(environment, 3, 10, 0.0)
    assert trajectory.outcome.success is True
    assert tokens(trajectory) > 150_000


def test_every_recorded_mistake_has_a_failing_observation(erring: list[Trajectory]) -> None:
    kinds: Counter[str] = Counter()
    for trajectory in erring:
        for index, message in enumerate(trajectory.messages):
            label = message.label or ""
            if not label.startswith("mistake:"):
                continue
            kinds[label.removeprefix("mistake:")] += 1
            if message.tool_calls:
                assert trajectory.messages[index + 1].error is True
                assert trajectory.messages[index + 1].signal is not None
            else:
                assert trajectory.outcome.success is False
    assert {"wrong_path", "malformed_arguments", "unknown_tool", "wrong_argument", "repeated_call"} <= set(kinds)
    assert {"bad_sql", "target_taken", "missing_folder", "wrong_folder", "wrong_message"} <= set(kinds)
    assert {"wrong_column", "missing_cell", "no_such_row", "wrong_event"} & set(kinds)
    assert {"premature_answer", "gave_up", "wrong_answer"} & set(kinds)


def test_mistakes_come_at_about_the_wanted_rate(erring: list[Trajectory]) -> None:
    labels = [m.label or "" for t in erring for m in t.messages if m.role == "assistant"]
    share = sum(label.startswith("mistake") for label in labels) / len(labels)
    assert 0.25 < share < 0.36


def test_runs_end_solved_unless_they_stop_early(erring: list[Trajectory]) -> None:
    for trajectory in erring:
        last = trajectory.messages[-1].label or ""
        assert trajectory.outcome.success is (not last.startswith("mistake:"))
    assert 50 <= sum(bool(trajectory.outcome.success) for trajectory in erring) < 60


def test_detectors_agree_with_the_teachers_log(erring: list[Trajectory]) -> None:
    hits = wrong = missed = 0
    for trajectory in erring:
        blind = replace(trajectory, messages=[replace(m, label=None) for m in trajectory.messages])
        found = {f.message for f in detect(blind).findings if f.rule in MISTAKE_RULES and f.message is not None}
        log = {index for index, m in enumerate(trajectory.messages) if (m.label or "").startswith("mistake")}
        hits, wrong, missed = hits + len(found & log), wrong + len(found - log), missed + len(log - found)
    assert hits > 200
    assert hits / (hits + wrong) >= 0.98
    assert hits / (hits + missed) >= 0.98


def test_replay_is_equal_and_same_seed_gives_same_bytes(environment: Environment, erring: list[Trajectory]) -> None:
    for trajectory in erring[::2]:
        assert replay(environment, trajectory) == []
    for seed in (0, 7, 23):
        again = play(environment, seed, 1 + seed % 12 / 3, 0.3)
        assert json.dumps(again.to_row()) == json.dumps(erring[seed].to_row())


def test_observations_name_no_real_path(erring: list[Trajectory]) -> None:
    text = "\n".join(m.content for t in erring for m in t.messages if m.role == "tool")
    assert "datamix-sandbox" not in text
    assert "/tmp/" not in text
    assert {m.train for t in erring for m in t.messages} == {None}


def test_recoveries_quote_what_was_seen(erring: list[Trajectory]) -> None:
    quoted = 0
    for trajectory in erring:
        for before, message in zip(trajectory.messages, trajectory.messages[1:], strict=False):
            if message.label == "recovery" and before.error:
                start = before.content.removeprefix("Error: ").split("\n")[0][:40]
                quoted += " ".join(start.split()) in (message.reasoning or "")
    assert quoted > 100


def test_a_comparison_with_the_database_names_no_entry_that_only_a_sum_was_shown_of(environment: Environment) -> None:
    several = 0
    for seed in range(60):
        trajectory = play(environment, 9000 + seed, 2, 0.0)
        lines = [line for m in trajectory.messages for line in (m.reasoning or "").split("\n") if " against " in line]
        shown = "\n".join(m.content for m in trajectory.messages if m.role == "tool")
        if "| entries | booked" in shown:
            assert not any(" + " in line for line in lines)
            several += sum("entries)" in line for line in lines)
    assert several > 0


def test_a_draft_is_signed_with_the_name_of_whom_the_assistant_works_for(environment: Environment) -> None:
    bodies = []
    for seed in range(40):
        trajectory = play(environment, 9500 + seed, 1.5, 0.0)
        system = trajectory.messages[0].content
        for message in trajectory.messages:
            for call in message.tool_calls:
                if call.name == "draft_mail":
                    bodies.append(json.loads(call.arguments)["body"])
                    assert bodies[-1].rstrip().split("\n")[-1] in system
    assert bodies
