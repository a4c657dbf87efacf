"""The scripted teacher: solves everything without mistakes; its mistakes fail for real, and it says so in its log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from filters.trajectory.detectors import detect
from pipelines.synthesis.environments.base import Environment, open_environment
from pipelines.synthesis.environments.functions import (
    PoolModule,
    open_probe_sandbox,
    probe_source,
    standard_library,
    write_pool,
)
from pipelines.synthesis.replay import replay, task_of
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.teachers.repair import block_edit
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.errors import InputError, UsageError
from schemas.trajectory import Trajectory

WANTED = {
    *("bisect.py", "calendar.py", "colorsys.py", "heapq.py", "quopri.py", "shlex.py", "statistics.py", "textwrap.py"),
    *("base64.py", "fnmatch.py", "html/__init__.py", "email/quoprimime.py", "keyword.py", "posixpath.py", "string.py"),
    *("ipaddress.py", "difflib.py", "functools.py", "urllib/parse.py", "http/cookies.py", "json/encoder.py", "stat.py"),
}
MISTAKE_RULES = {"R2", "R3", "R4", "R5", "R13"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    path = tmp_path_factory.mktemp("pool") / "pool.jsonl"
    with open_probe_sandbox() as sandbox:
        workspace = sandbox.workspace()
        sources = [source for source in standard_library() if source.origin in WANTED]
        found = [probe_source(source, sandbox, workspace) for source in sources]
    write_pool(path, [module for module in found if isinstance(module, PoolModule)])
    with open_environment("repair", pool_path=path, split="all") as opened:
        yield opened


def play(environment: Environment, seed: int, difficulty: float, rate: float) -> Trajectory:
    task = environment.generate(seed, difficulty)
    return rollout(environment, task, open_teacher("repair", environment, task, rate, seed), 3000)


@pytest.fixture(scope="module")
def erring(environment: Environment) -> list[Trajectory]:
    return [play(environment, seed, 1 + seed / 8, 0.35) for seed in range(30)]


def characters(trajectory: Trajectory) -> int:
    calls = sum(len(c.name) + len(c.arguments) for m in trajectory.messages for c in m.tool_calls)
    return calls + sum(len(m.content) + len(m.reasoning or "") for m in trajectory.messages) + len(trajectory.tools)


def test_without_mistakes_everything_is_solved(environment: Environment) -> None:
    for seed in range(12):
        trajectory = play(environment, 100 + seed, 1 + seed / 3, 0.0)
        assert trajectory.outcome.success is True
        assert {m.label for m in trajectory.messages if m.role == "assistant"} == {"step"}
        assert trajectory.stats.errors == 0
        assert trajectory.messages[-1].tool_calls == []


def test_lengths_rise_with_difficulty(environment: Environment) -> None:
    medians = []
    for difficulty, count in ((1, 3), (2.5, 3), (4, 3), (5, 1), (6.5, 1)):
        lengths = sorted(characters(play(environment, seed, difficulty, 0.0)) / 3.3 for seed in range(count))
        medians.append(lengths[count // 2])
    assert medians == sorted(medians)
    assert medians[0] < 2_000
    assert medians[-1] > 35_000


def test_every_recorded_mistake_has_a_failing_observation(erring: list[Trajectory]) -> None:
    kinds: Counter[str] = Counter()
    for trajectory in erring:
        for index, message in enumerate(trajectory.messages):
            label = message.label or ""
            if not label.startswith("mistake:"):
                continue
            kinds[label] += 1
            if label == "mistake:wrong_fix":
                signals = [m.signal for m in trajectory.messages[index + 1 :]]
                assert (
                    "tests_unfixed" in signals[: signals.index("tests_passed") if "tests_passed" in signals else None]
                )
            elif message.tool_calls:
                assert trajectory.messages[index + 1].error is True
            else:
                assert trajectory.outcome.success is False
    assert {"mistake:wrong_path", "mistake:malformed_arguments", "mistake:unknown_tool"} <= set(kinds)
    assert {"mistake:wrong_argument", "mistake:failed_edit", "mistake:wrong_fix", "mistake:repeated_call"} <= set(kinds)


def test_mistakes_come_at_about_the_wanted_rate(erring: list[Trajectory]) -> None:
    labels = [m.label or "" for t in erring for m in t.messages if m.role == "assistant"]
    share = sum(label.startswith("mistake") for label in labels) / len(labels)
    assert 0.25 < share < 0.42


def test_most_runs_recover_and_the_others_are_recorded_as_failed(erring: list[Trajectory]) -> None:
    solved = [trajectory.outcome.success for trajectory in erring]
    assert sum(map(bool, solved)) >= 24
    for trajectory in erring:
        last = trajectory.messages[-1].label or ""
        assert trajectory.outcome.success is (not last.startswith("mistake:"))


def test_detectors_agree_with_the_teachers_log(erring: list[Trajectory]) -> None:
    hits = wrong = missed = 0
    for trajectory in erring:
        blind = replace(trajectory, messages=[replace(m, label=None) for m in trajectory.messages])
        found = {f.message for f in detect(blind).findings if f.rule in MISTAKE_RULES and f.message is not None}
        log = {
            index
            for index, message in enumerate(trajectory.messages)
            if (message.label or "").startswith("mistake") and message.tool_calls
        }
        hits, wrong, missed = hits + len(found & log), wrong + len(found - log), missed + len(log - found)
    assert hits > 100
    assert hits / (hits + wrong) >= 0.98
    assert hits / (hits + missed) >= 0.98


def test_same_seed_same_bytes_and_replay_is_equal(environment: Environment, erring: list[Trajectory]) -> None:
    for seed in (0, 9, 20):
        again = play(environment, seed, 1 + seed / 8, 0.35)
        assert json.dumps(again.to_row()) == json.dumps(erring[seed].to_row())
    for trajectory in erring[::5]:
        assert replay(environment, trajectory) == []


def test_replay_names_what_differs(environment: Environment, erring: list[Trajectory]) -> None:
    changed = Trajectory.from_row(erring[0].to_row())
    index = next(i for i, m in enumerate(changed.messages) if m.role == "tool")
    changed.messages[index].content += "!"
    assert [difference.message for difference in replay(environment, changed)] == [index]
    flipped = Trajectory.from_row(erring[0].to_row())
    flipped.outcome = replace(flipped.outcome, success=not flipped.outcome.success)
    assert [difference.message for difference in replay(environment, flipped)] == [-1]
    with pytest.raises(InputError, match="carries no task"):
        task_of(replace(erring[0], extra=None))


def test_observations_name_no_real_path_and_no_address(erring: list[Trajectory]) -> None:
    text = "\n".join(m.content for t in erring for m in t.messages if m.role == "tool")
    assert "datamix-sandbox" not in text
    assert " at 0x7" not in text


def test_nothing_is_decided_about_training(erring: list[Trajectory]) -> None:
    assert {m.train for t in erring for m in t.messages} == {None}


def test_rates_and_families_out_of_range_are_refused(environment: Environment) -> None:
    task = environment.generate(1, 1)
    with pytest.raises(UsageError, match="mistake_rate"):
        open_teacher("repair", environment, task, 0.9, 0)
    with pytest.raises(UsageError, match="no scripted teacher"):
        open_teacher("nope", environment, task, 0.1, 0)


def test_block_edit_grows_until_the_old_text_is_unique() -> None:
    current = "if a:\n    x = 1\nif b:\n    x = 1\n"
    wanted = "if a:\n    x = 1\nif b:\n    x = 2\n"
    old, new = block_edit(current, wanted)
    assert current.count(old) == 1
    assert current.replace(old, new) == wanted
    insertion = block_edit("a\nb\n", "a\nc\nb\n")
    assert "a\nb\n".replace(*insertion) == "a\nc\nb\n"


def test_which_exception_is_wanted_is_read_in_the_tests_before_it_is_named(environment: Environment) -> None:
    seen = 0
    for seed in range(60):
        task = environment.generate(5000 + seed, 1)
        (raw,) = task.data["files"]
        if not any(fault["kind"] == "wrong_exception" for fault in raw["faults"]):
            continue
        seen += 1
        trajectory = rollout(environment, task, open_teacher("repair", environment, task, 0.0, seed), 3000)
        calls = [(call.name, json.loads(call.arguments)) for m in trajectory.messages for call in m.tool_calls]
        edit = next(number for number, (name, _) in enumerate(calls) if name == "edit")
        read = [arguments["path"] for name, arguments in calls[:edit] if name == "read_file"]
        assert any(path.startswith("tests/") for path in read)
    assert seen > 0


def test_the_kind_of_a_failed_edit_is_what_the_tool_said_of_it(erring: list[Trajectory]) -> None:
    seen: Counter[str] = Counter()
    for trajectory in erring:
        for index, message in enumerate(trajectory.messages):
            kind = (message.label or "").removeprefix("mistake:")
            if kind in ("failed_edit", "ambiguous_edit"):
                seen[kind] += 1
                assert (" times in " in trajectory.messages[index + 1].content) is (kind == "ambiguous_edit")
    assert set(seen) == {"failed_edit", "ambiguous_edit"}
