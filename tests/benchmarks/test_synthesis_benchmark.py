"""What benchmarks/synthesis.py counts: distinct states, mistakes that show, detectors against the log, replays."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from pipelines.synthesis.environments.base import TaskSpec, open_environment
from schemas.trajectory import Message, Outcome, ToolCall, Trajectory


def load() -> Any:
    spec = importlib.util.spec_from_file_location(
        "benchmark_synthesis", Path(__file__).parents[2] / "benchmarks" / "synthesis.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = load()


def test_states_differ_by_content_and_not_by_seed() -> None:
    first = TaskSpec("a-1", "a", 1, 2.0, "s", "do it", {"seed": 1, "files": [{"key": "1:x", "text": "t"}]})
    same = TaskSpec("a-2", "a", 2, 3.0, "s", "do it", {"seed": 2, "files": [{"key": "2:x", "text": "t"}]})
    other = TaskSpec("a-3", "a", 2, 3.0, "s", "do it", {"seed": 2, "files": [{"key": "2:x", "text": "u"}]})
    assert BENCHMARK.state_of(first) == BENCHMARK.state_of(same)
    assert BENCHMARK.state_of(first) != BENCHMARK.state_of(other)


def run(signals: list[str | None], success: bool) -> Trajectory:
    """One edit, then test runs with these signals, then an answer."""
    messages = [Message("user", "go")]
    for number, signal in enumerate([None, *signals]):
        messages.append(Message("assistant", tool_calls=[ToolCall(f"c{number}", "t", "{}")]))
        messages.append(Message("tool", "said", tool_call_id=f"c{number}", error=signal == "no_match", signal=signal))
    return Trajectory("x", "s", "f", [*messages, Message("assistant", "done")], outcome=Outcome(success, 0.0, ""))


def test_a_mistake_is_shown_by_its_result_the_next_tests_or_the_verdict() -> None:
    assert BENCHMARK.shown(run(["no_match"], True), 3)
    assert not BENCHMARK.shown(run(["tests_passed"], True), 1)
    assert BENCHMARK.shown(run([None, "tests_unfixed"], True), 1)
    assert not BENCHMARK.shown(run(["tests_failed", "tests_unfixed"], True), 1)
    assert BENCHMARK.shown(run([], False), 3)
    assert not BENCHMARK.shown(run([], True), 3)


def test_figures_of_a_family_add_up() -> None:
    with open_environment("reasoning") as environment:
        tasks = BENCHMARK.first_tasks(environment, 12)
        assert (tasks["tasks"], tasks["distinct"], tasks["solved_without_mistakes"]) == (12, 12, 12)
        found = BENCHMARK.mistakes(environment, 20)
    assert found["mistakes"] == found["mistakes_shown"] > 0
    assert (found["precision"], found["recall"], found["replays_equal"]) == (1.0, 1.0, 20)
