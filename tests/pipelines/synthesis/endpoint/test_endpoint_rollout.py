"""Tasks done by a server of the test's own: order, samples, pass rates, journal, styles, stops."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.synthesis.endpoint.rollouts import EndpointReport, roll_out_endpoint
from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult
from pipelines.synthesis.styles import style_of
from schemas.errors import DatamixError, UsageError
from schemas.progress import Quiet
from schemas.recipe.endpoint import EndpointConfig
from schemas.trajectory import Outcome, Trajectory

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum of two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


class Sums(Environment):
    """A small family: the sum of two numbers, by a tool."""

    family = "sums"
    tools = (ADD,)

    def __init__(self) -> None:
        self.said = ""
        self.sum = 0
        self.closed = False

    def generate(self, seed: int, difficulty: float) -> TaskSpec:
        return TaskSpec(
            f"sums-{seed}", "sums", seed, difficulty, "You add.", f"{seed} + {seed + 1}?", {"s": 2 * seed + 1}
        )

    def reset(self, task: TaskSpec) -> str:
        self.said, self.sum = "", task.data["s"]
        return task.instruction

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(str(arguments["a"] + arguments["b"]))

    def answer(self, text: str) -> None:
        self.said = text

    def verify(self) -> Outcome:
        right = self.said.strip() == str(self.sum)
        return Outcome(right, float(right), "the sum")

    def close(self) -> None:
        self.closed = True


OPENED: list[Sums] = []


def open_family(family: str) -> Environment:
    assert family == "sums"
    OPENED.append(Sums())
    return OPENED[-1]


def tasks(count: int) -> list[TaskSpec]:
    return [Sums().generate(seed, 1.0) for seed in range(count)]


def config(url: str, **changes: Any) -> EndpointConfig:
    base = {"base_url": url, "model": "m", "first_wait_s": 0.01, "longest_wait_s": 0.05, "timeout_s": 5}
    return EndpointConfig.model_validate({**base, **changes})


def run(settings: EndpointConfig, count: int, journal: Path | None = None) -> tuple[list[Trajectory], EndpointReport]:
    report = EndpointReport()
    return list(roll_out_endpoint(tasks(count), open_family, settings, journal, Quiet(), report)), report


def numbers(body: dict[str, Any]) -> tuple[int, int]:
    """The two numbers that a request asks about."""
    asked = next(message["content"] for message in body["messages"] if message["role"] == "user")
    first, second = re.findall(r"\d+", asked)[:2]
    return int(first), int(second)


def expert(kit: Any, style: str) -> Any:
    """A script that calls `add` in a style, then says the sum that it was given."""

    def script(number: int, body: dict[str, Any]) -> Any:
        a, b = numbers(body)
        last = body["messages"][-1]["content"]
        if len(body["messages"]) > 2:
            total = re.findall(r"\d+", last)[-1]
            return kit.completion(f"Thought: done\nFinal Answer: {total}" if style == "react" else total)
        given = json.dumps({"a": a, "b": b})
        if style == "native":
            return kit.completion(None, "tool_calls", tool_calls=[kit.native_call("add", given)])
        if style == "xml":
            call = f"<function=add>\n<parameter=a>\n{a}\n</parameter>\n<parameter=b>\n{b}\n</parameter>\n</function>"
            return kit.completion(f"I add.\n<tool_call>\n{call}\n</tool_call>")
        if style == "hermes":
            return kit.completion(f'<tool_call>\n{{"name": "add", "arguments": {given}}}\n</tool_call>')
        return kit.completion(f"Thought: I add.\nAction: add\nAction Input: {given}")

    return script


@pytest.mark.parametrize("style", ["native", "xml", "hermes", "react"])
def test_a_teacher_of_every_style_solves_tasks_in_order_and_is_stored_canonically(kit: Any, style: str) -> None:
    server = kit.serve(expert(kit, style))
    made, report = run(config(server.url, call_style=style, concurrency=3), 7)
    assert [t.task.id for t in made] == [f"sums-{n}" for n in range(7)]
    assert all(t.outcome.success for t in made)
    for seed, trajectory in enumerate(made):
        call = trajectory.messages[2].tool_calls[0]
        assert (call.name, json.loads(call.arguments)) == ("add", {"a": seed, "b": seed + 1})
        assert [m.role for m in trajectory.messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert style_of(trajectory) == style
        assert "teacher=m" in trajectory.notes
    assert report.to_counts() | {"cost": 0} == {
        "tasks": 7, "trajectories": 7, "solved": 7, "unfinished": 0, "stopped": "", "endings": {"answer": 7},
        "problems": {}, "damaged_journal_lines": 0, "requests": 14, "reused": 0, "retries": 0, "failed": 0, "lost": 0,
        "prompt_tokens": 1400, "completion_tokens": 140, "estimated": 0, "cost": 0, "cost_of_journal": 0.0,
    }  # fmt: skip
    assert 1 <= server.most_active <= 3
    assert ("tools" in server.seen[0]) == (style == "native")
    assert all(environment.closed for environment in OPENED)


def test_several_samples_give_pass_rates_and_are_told_apart(kit: Any) -> None:
    def script(number: int, body: dict[str, Any]) -> Any:
        a, b = numbers(body)
        right = body["seed"] % 2 == 0 and a != 1  # task 1 is never solved
        return kit.completion(str(a + b if right else -1))

    server = kit.serve(script)
    made, report = run(config(server.url, samples=6, seed=3, concurrency=4), 3)
    assert [t.origin for t in made[:2]] == ["sums?seed=0&difficulty=1&sample=0", "sums?seed=0&difficulty=1&sample=1"]
    assert len({body["seed"] for body in server.seen}) == 18
    for row, group in zip(report.pass_rates, [made[:6], made[6:12], made[12:]], strict=True):
        solved = sum(t.outcome.success is True for t in group)
        assert row["pass_rate"] == solved / 6
        assert row["measured_difficulty"] == pytest.approx(1 + 9 * (1 - solved / 6))
        assert {note for t in group for note in t.notes if note.startswith("pass")} == {f"pass_rate={solved}/6"}
    assert report.pass_rates[1]["solved"] == 0
    assert 0 < report.solved < 12


def test_a_finished_journal_asks_nothing_again_and_gives_the_same_trajectories(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(expert(kit, "native"))
    journal = tmp_path / "j" / "journal.jsonl"
    first, _ = run(config(server.url), 5, journal)
    asked = len(server.seen)
    server.close()
    again, report = run(config("http://127.0.0.1:9/v1"), 5, journal)  # another address, nobody there
    assert again == first
    assert (asked, report.usage.requests, report.usage.reused) == (10, 0, 10)


def test_other_settings_are_other_requests(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(expert(kit, "native"))
    run(config(server.url), 2, tmp_path / "j.jsonl")
    _, report = run(config(server.url, temperature=0.5), 2, tmp_path / "j.jsonl")
    assert report.usage.reused == 0
    assert server.seen[-1]["temperature"] == 0.5


def test_an_agent_that_never_ends_is_stopped_after_max_steps(kit: Any) -> None:
    call = kit.native_call("add", '{"a": 1, "b": 1}')
    server = kit.serve(lambda number, body: kit.completion("again", "tool_calls", tool_calls=[call]))
    made, report = run(config(server.url, max_steps=4), 2)
    assert [len(server.seen), dict(report.endings)] == [8, {"max_steps": 2}]
    assert made[0].flags == ["max_steps"]


def test_a_wrong_key_ends_the_work_at_once_and_is_not_shown(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-secret-123"
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {key}"}}).encode()
    server = kit.serve(lambda number, request: kit.answer(body, 401))
    settings = config(server.url, api_key_env="A_TEACHER_KEY")
    with pytest.raises(UsageError, match=r"A_TEACHER_KEY .*is not set"):
        run(settings, 1)
    monkeypatch.setenv("A_TEACHER_KEY", key)
    with pytest.raises(DatamixError, match=r"answered 401: .*\[key\].*key in \$A_TEACHER_KEY") as caught:
        run(settings, 3, tmp_path / "j.jsonl")
    assert key not in str(caught.value)
    assert set(server.keys) == {f"Bearer {key}"}
    assert key not in (tmp_path / "j.jsonl").read_text()


def test_a_dead_endpoint_stops_the_work_and_the_next_run_goes_on(kit: Any, tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    made, report = run(config("http://127.0.0.1:9/v1", retries=1, give_up_after=3, concurrency=1), 10, journal)
    assert (report.stopped, report.unfinished > 0) == ("endpoint_down", True)
    assert [t.messages[-1].stop for t in made] == ["error", "error"]  # the third in a row ended the work
    assert made[0].notes[1].startswith("turn 0: connection: ")
    server = kit.serve(expert(kit, "native"))
    whole, report = run(config(server.url), 10, journal)
    assert (report.stopped, report.solved, len(whole)) == ("", 10, 10)


def test_a_caller_that_stops_early_leaves_no_thread_and_no_environment(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(expert(kit, "native"))
    OPENED.clear()
    rolled = roll_out_endpoint(tasks(50), open_family, config(server.url, concurrency=5), tmp_path / "j", Quiet())
    assert next(rolled).outcome.success is True
    rolled.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "endpoint"]
    assert OPENED
    assert all(environment.closed for environment in OPENED)
    asked = len(server.seen)
    assert asked < 100
    _, report = run(config(server.url, concurrency=5), 50, tmp_path / "j")  # the journal is free again
    assert report.usage.reused == asked


def test_an_error_of_the_environment_reaches_the_caller(kit: Any) -> None:
    server = kit.serve(expert(kit, "native"))

    def broken(family: str) -> Environment:
        raise UsageError(f"no pool for {family}")

    with pytest.raises(UsageError, match="no pool for sums"):
        list(roll_out_endpoint(tasks(3), broken, config(server.url), None, Quiet()))
    assert server.seen == []


def test_many_threads_give_what_one_gives(kit: Any) -> None:
    server = kit.serve(expert(kit, "native"))
    one, _ = run(config(server.url, concurrency=1), 40)
    many, _ = run(config(server.url, concurrency=32, samples=1), 40)
    assert many == one


def test_an_interrupt_waits_for_no_slow_reply_and_counts_its_request_as_lost(kit: Any, tmp_path: Path) -> None:
    quick = tasks(1)[0].instruction

    def script(number: int, body: dict[str, Any]) -> Any:
        asked = next(message["content"] for message in body["messages"] if message["role"] == "user")
        return kit.completion("1") if asked == quick else replace(kit.completion("1"), hang_s=50)

    server = kit.serve(script)
    settings = config(server.url, concurrency=2, retries=0, timeout_s=50)
    made = roll_out_endpoint(tasks(2), open_family, settings, tmp_path / "journal", Quiet(), EndpointReport())
    next(made)
    while len(server.seen) < 2:
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        made.throw(KeyboardInterrupt)
    lines = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    lost = [line["lost"] for line in lines if "lost" in line]
    assert lost == ["interrupted"]  # and not "timeout", after a minute
