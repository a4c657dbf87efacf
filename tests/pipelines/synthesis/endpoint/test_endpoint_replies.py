"""Bad replies: each ends as a recorded outcome, the other tasks go on, all are counted."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filters.trajectory.policies import apply_policy
from pipelines.synthesis.endpoint.reply import Reply, read_body, to_message
from pipelines.synthesis.endpoint.rollouts import EndpointReport, roll_out_endpoint
from pipelines.synthesis.environments.base import TaskSpec, open_environment
from schemas.progress import Quiet
from schemas.recipe.endpoint import EndpointConfig
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

TOOLS = json.dumps([{"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}])
SURROGATE = "a\ud800b"


def body(message: Any, finish: Any = "stop", **more: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], **more}).encode()


@pytest.mark.parametrize(
    ("raw", "problem", "stop"),
    [
        (b"", "bad_body", "error"),
        (b"<html>502 Bad Gateway</html>", "bad_body", "error"),
        (b"[" * 100_000, "bad_body", "error"),
        (b"\xff\xfe", "bad_body", "error"),
        (b"[1]", "bad_body", "error"),
        (b"null", "bad_body", "error"),
        (b"{}", "no_choices", "error"),
        (b'{"choices": []}', "no_choices", "error"),
        (b'{"choices": null, "error": {"message": "overloaded"}}', "no_choices", "error"),
        (b'{"choices": [{"finish_reason": "stop"}]}', "no_choices", "error"),
        (b'{"choices": ["x"]}', "no_choices", "error"),
        (body({"content": None}), "empty", "error"),
        (body({"content": " \n"}), "empty", "error"),
        (body({"content": "", "reasoning_content": "I think"}), "empty", "error"),
        (body({}), "empty", "error"),
        (body({"content": 7}), "bad_body", "error"),
        (body({"content": "half a sen"}, "length"), "cut", "length"),
        (body({"content": None, "reasoning": "on and on"}, "length"), "cut", "length"),
        (body({"content": "x"}, "content_filter"), "filtered", "content_filter"),
        (body({"content": None, "refusal": "I cannot."}), "refused", "refusal"),
        (body({"content": "x"}, None), "", "stop"),
        (body({"content": "x"}, "something_new"), "", "something_new"),
        (body({"content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}), "", "stop"),
        (body({"content": "x"}, 7), "", "stop"),
    ],
)
def test_bodies_that_are_no_plain_answer_are_named(raw: bytes, problem: str, stop: str) -> None:
    reply = read_body(raw, 400)
    assert (reply.problem, reply.stop) == (problem, stop)
    read = raw.startswith(b"{")
    assert (reply.prompt_tokens, reply.estimated) == ((100, True) if read else (0, False))
    again = Reply.from_record(json.loads(json.dumps(reply.to_record())), {"prompt": 1, "completion": 2})
    assert (again.content, again.stop, again.problem, again.completion_tokens) == (reply.content, stop, problem, 2)


def test_calls_of_every_shape_are_read() -> None:
    calls = [
        {"id": "x", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "1+1"}'}},
        {"id": "x", "function": {"name": "calculator", "arguments": {"expression": "2"}}},
        {"name": "bare", "arguments": None},
        {"function": {"name": None, "arguments": "{"}},
        "no object",
    ]
    reply = read_body(body({"content": None, "tool_calls": calls, "reasoning_content": "hm"}, "tool_calls"), 10)
    message, problem = to_message(reply, TOOLS, "native", 4)
    assert [(c.id, c.name, c.arguments) for c in message.tool_calls] == [
        ("call_4", "calculator", '{"expression": "1+1"}'),
        ("call_5", "calculator", '{"expression": "2"}'),
        ("call_6", "bare", "{}"),
        ("call_7", "", "{"),
        ("call_8", "", "{}"),
    ]
    assert (message.reasoning, message.stop, problem) == ("hm", "stop", "")
    old = read_body(
        body({"content": "", "function_call": {"name": "calculator", "arguments": "{}"}}, "function_call"), 1
    )
    assert old.calls == [("calculator", "{}")]


def test_text_calls_in_a_native_reply_and_think_blocks_are_read() -> None:
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "3"}}\n</tool_call>'
    text = f"<think>\nhm\n</think>\n\nSo.\n{call}"
    message, problem = to_message(Reply(content=text), TOOLS, "native", 0)
    assert (message.reasoning, message.content, problem) == ("hm", "So.", "")
    assert message.tool_calls[0].arguments == '{"expression": "3"}'
    message, _ = to_message(Reply(content="<think>a</think>\n\n7"), TOOLS, "native", 0)
    assert (message.reasoning, message.content) == ("a", "7")
    for text in ("<think>a</think>", "<think>a, and on without an end"):
        message, problem = to_message(Reply(content=text), TOOLS, "native", 0)
        assert (message.content, message.stop, problem) == ("", "error", "empty")
        assert (message.reasoning or "").startswith("a")
    message, problem = to_message(Reply(content="<tool_call>\n{broken"), TOOLS, "xml", 0)
    assert (message.tool_calls, problem) == ([], "malformed_call")
    _, problem = to_message(Reply(content="I just say it"), TOOLS, "react", 0)
    assert problem == "malformed_call"


def test_lone_surrogates_become_the_replacement_character() -> None:
    reply = read_body(body({"content": SURROGATE, "tool_calls": [{"name": SURROGATE, "arguments": SURROGATE}]}), 1)
    assert reply.content == "a\ufffdb"
    assert reply.calls == [("a\ufffdb", "a\ufffdb")]


def test_half_a_character_in_arguments_is_a_failed_call_that_every_file_can_hold(kit: Any) -> None:
    calls = [kit.native_call("calculator", json.dumps({"expression": SURROGATE})), kit.native_call("calculator", "{}")]
    answers = [kit.completion(None, "tool_calls", tool_calls=calls), kit.completion("Answer: 1")]
    server = kit.serve(lambda number, request: answers[min(number, 1)])
    (made,), _ = run(server.url, 1)
    assert [m.signal for m in made.messages if m.role == "tool"] == ["malformed_arguments", "bad_arguments"]
    assert pa.Table.from_pylist([made.to_row()], TRAJECTORY_SCHEMA).num_rows == 1


def tasks(count: int) -> list[TaskSpec]:
    with open_environment("reasoning") as environment:
        made = (environment.generate(seed, 1.0) for seed in range(1000))
        return [task for task in made if task.data["mode"] == "calculator"][:count]


def run(url: str, count: int, journal: Path | None = None, **changes: Any) -> tuple[list[Trajectory], EndpointReport]:
    base = {"base_url": url, "model": "m", "first_wait_s": 0.01, "longest_wait_s": 0.2, "timeout_s": 5, "retries": 2}
    wanted = EndpointConfig.model_validate({**base, "concurrency": 1, "max_steps": 3, **changes})
    report = EndpointReport()
    rolled = roll_out_endpoint(tasks(count), lambda family: open_environment(family), wanted, journal, Quiet(), report)
    return list(rolled), report


def test_every_bad_reply_is_an_outcome_and_the_run_goes_on(kit: Any, tmp_path: Path) -> None:
    call = kit.native_call
    many = [call("calculator", '{"expression": "1"}')] * 20
    script = {
        0: kit.completion(None),
        1: kit.completion("half", "length"),
        2: kit.completion(None, refusal="No."),
        3: kit.completion("x", "content_filter"),
        4: kit.answer(b'{"error": {"message": "context too long"}}', 400),
        5: kit.answer(b"x" * 3_000_000),
        6: kit.completion(None, "tool_calls", tool_calls=[call("nothing", "{}"), call("calculator", "{oops")]),
        7: kit.completion(None, "tool_calls", tool_calls=many),
    }
    counts = {"n": -1}
    first: dict[str, Any] = {}

    def one(number: int, request: dict[str, Any]) -> Any:
        if len(request["messages"]) > 2:
            return kit.completion("Answer: 0")
        asked = request["messages"][-1]["content"]
        if asked not in first:
            counts["n"] += 1
            first[asked] = script.get(counts["n"], kit.completion("Answer: 0"))
        return first[asked]

    server = kit.serve(one)
    made, report = run(server.url, 9)
    assert [t.messages[-1].stop for t in made] == [
        "error", "length", "refusal", "content_filter", "error", "error", "stop", "stop", "stop",
    ]  # fmt: skip
    assert dict(report.problems) == {
        "empty": 1, "cut": 1, "refused": 1, "filtered": 1, "http_400": 1, "too_large": 1, "unknown_tool": 1,
        "malformed_arguments": 1,
    }  # fmt: skip
    assert dict(report.endings) == {"error": 3, "length": 1, "refusal": 1, "content_filter": 1, "answer": 3}
    assert made[4].notes == [
        "teacher=m",
        "turn 0: http_400: Error code: 400 - context too long",
    ]
    assert [m.signal for m in made[6].messages if m.role == "tool"] == ["unknown_tool", "malformed_arguments"]
    assert sum(m.role == "tool" for m in made[7].messages) == 20
    assert not any(t.outcome.success for t in made[:6])
    for trajectory in made[:6]:
        decision = apply_policy(trajectory)
        assert not decision.kept
        signals = {found.signal for found in decision.findings if found.rule == "R8"}
        assert f"stop={trajectory.messages[-1].stop}" in signals
    history = next(r for r in server.seen if len(r["messages"]) == 5)["messages"][2]["tool_calls"]
    assert json.loads(history[1]["function"]["arguments"]) == {"unparsed": "{oops"}


@pytest.mark.parametrize(
    ("bad", "problem", "lost"),
    [
        ({"status": 500}, "http_500", 0),
        ({"status": 429}, "http_429", 0),
        ({"status": 503, "headers": {"Retry-After": "nonsense"}}, "http_503", 0),
        ({"body": b'{"choices": [{"message": {"content": "x"}}]}', "cut": 9}, "connection", 3),
        ({"body": b"<html>", "status": 200}, "bad_body", 3),
        ({"hang_s": 9.0}, "timeout", 3),
    ],
)
def test_passing_failures_are_tried_again_and_lasting_ones_recorded(
    kit: Any, tmp_path: Path, bad: dict[str, Any], problem: str, lost: int
) -> None:
    times = {"left": 2}

    def recovers(number: int, request: dict[str, Any]) -> Any:
        times["left"] -= 1
        return kit.answer(**bad) if times["left"] >= 0 else kit.completion("Answer: 0")

    server = kit.serve(recovers)
    (made,), report = run(server.url, 1, tmp_path / "a.jsonl", timeout_s=0.3, price_in=1, price_out=1)
    assert (made.messages[-1].content, len(server.seen)) == ("Answer: 0", 3)
    assert (report.usage.retries, report.usage.failed, report.usage.lost) == (2, 0, min(lost, 2))
    server = kit.serve(lambda number, request: kit.answer(**bad))
    (made,), report = run(server.url, 1, tmp_path / "b.jsonl", timeout_s=0.3, price_in=1, price_out=1)
    assert (made.messages[-1].stop, dict(report.problems), len(server.seen)) == ("error", {problem: 1}, 3)
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [line["lost"] for line in lines] == [problem] * lost
    assert (report.usage.cost > 0) == (lost > 0)


def test_an_endless_reply_is_cut_off(kit: Any) -> None:
    server = kit.serve(lambda number, request: kit.answer(endless=True))
    (made,), report = run(server.url, 1, max_tokens=10)
    assert dict(report.problems) == {"too_large": 1}
    assert made.messages[-1].stop == "error"


@pytest.mark.parametrize(
    ("header", "asked", "least"),
    [("Retry-After", lambda: "0.4", 0.4), ("retry-after-ms", lambda: "400", 0.4),
     ("Retry-After", lambda: formatdate(time.time() + 2, usegmt=True), 0.9)],
)  # fmt: skip
def test_what_the_endpoint_asks_to_wait_is_waited(kit: Any, header: str, asked: Any, least: float) -> None:
    answers = [kit.answer(b"{}", 429, {header: asked()}), kit.completion("Answer: 1")]
    server = kit.serve(lambda number, request: answers[min(number, 1)])
    started = time.monotonic()
    (made,), _ = run(server.url, 1, longest_wait_s=5)
    assert time.monotonic() - started >= least
    assert made.messages[-1].content == "Answer: 1"


def test_requests_refused_one_by_one_do_not_count_as_a_dead_endpoint(kit: Any) -> None:
    refused = kit.answer(b'{"error": {"message": "context too long"}}', 400)
    server = kit.serve(lambda number, request: refused if number else kit.completion("Answer: 1"))
    made, report = run(server.url, 8, give_up_after=3)
    assert (len(made), report.stopped, report.problems["http_400"]) == (8, "", 7)
    server = kit.serve(lambda number, request: refused)
    made, report = run(server.url, 8, give_up_after=3)
    assert (len(made), report.stopped, len(server.seen)) == (2, "endpoint_down", 3)
