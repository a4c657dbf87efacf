"""ATIF v1.7 documents, one a line (the fields of 1.8 too, none of its new ones).

The mask goes into `extra` of each agent step ({"train", "weight"}), copied turns into `is_copied_context`, turns of
the harness into `llm_call_count` 0. Arguments are objects there: a call whose arguments are no JSON object is written
as the specification says, as text of the step with the feedback in its observation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pipelines.synthesis.convert.chat import arguments_object, tools_list
from pipelines.synthesis.convert.writer import LeftOut, Losses, trained
from schemas.trajectory import Message, Trajectory

__all__ = ["AtifWriter"]

VERSION = "ATIF-v1.7"


class AtifWriter:
    """`--to atif`."""

    name = "atif"
    kind: Literal["jsonl", "parquet"] = "jsonl"
    needs_tokenizer = False

    def schema(self) -> Any:
        """None: a jsonl target."""
        return None

    def rows(self, trajectories: list[Trajectory], losses: Losses) -> Iterator[list[dict[str, Any]] | LeftOut]:
        """See `Writer.rows`."""
        for trajectory in trajectories:
            steps = _steps(trajectory, losses)
            agent: dict[str, Any] = {"name": trajectory.source, "version": "unknown"}
            tools = tools_list(trajectory.tools, losses)
            if tools:
                agent["tool_definitions"] = tools
            row: dict[str, Any] = {
                "schema_version": VERSION,
                "session_id": trajectory.id,
                "trajectory_id": trajectory.id,
                "agent": agent,
                "steps": steps,
            }
            outcome = trajectory.outcome
            if outcome.reward is not None:
                row["extra"] = {"reward": outcome.reward}
            yield [row]


def _steps(trajectory: Trajectory, losses: Losses) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    owner: dict[str, dict[str, Any]] = {}
    for message in trajectory.messages:
        last = steps[-1] if steps and steps[-1]["source"] == "agent" else None
        if message.role == "tool":
            _place_result(message, last, owner, steps, losses)
        elif message.role == "user" and message.name == "observation" and last is not None and "tool_calls" not in last:
            _add_result(last, message, None)
        else:
            step = _step(message, losses)
            steps.append(step)
            for call in step.get("tool_calls", []):
                owner[call["tool_call_id"]] = step
    for number, step in enumerate(steps, 1):
        step["step_id"] = number
    return [{"step_id": step.pop("step_id"), **step} for step in steps]


def _place_result(
    message: Message,
    last: dict[str, Any] | None,
    owner: dict[str, dict[str, Any]],
    steps: list[dict[str, Any]],
    losses: Losses,
) -> None:
    step = owner.get(message.tool_call_id or "")
    if step is not None:
        if step is not steps[-1]:
            losses.add("results that stood after a later turn, moved to their call's step")
        _add_result(step, message, message.tool_call_id)
    elif last is not None:
        losses.add("results whose call is not in the step before them, written without its id")
        _add_result(last, message, None)
    else:
        losses.add("results that follow no agent step, written as user steps")
        steps.append({"source": "user", "message": message.content})


def _add_result(step: dict[str, Any], message: Message, call_id: str | None) -> None:
    result: dict[str, Any] = {"content": message.content}
    if call_id is not None:
        result = {"source_call_id": call_id, **result}
    extra = {"is_error": message.error, "signal": message.signal}
    kept = {key: value for key, value in extra.items() if value is not None}
    if kept:
        result["extra"] = kept
    step.setdefault("observation", {"results": []})["results"].append(result)


def _step(message: Message, losses: Losses) -> dict[str, Any]:
    if message.role != "assistant":
        if message.name:
            losses.add("names of turns (observation, compaction)")
        step: dict[str, Any] = {"source": message.role, "message": message.content}
        if message.author == "copied":
            step["is_copied_context"] = True
        return step
    step = {"source": "agent", "message": message.content}
    if message.reasoning is not None:
        step["reasoning_content"] = message.reasoning
    calls = [(call, arguments_object(call)) for call in message.tool_calls]
    if all(isinstance(arguments, dict) for _, arguments in calls):
        if calls:
            step["tool_calls"] = [
                {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}
                for call, arguments in calls
            ]
    else:
        losses.add("turns with a call whose arguments are no JSON object, written as text (ATIF keeps objects only)")
        spelled = "".join(f"\n<tool_call>\n{call.name} {call.arguments}\n</tool_call>" for call, _ in calls)
        step["message"] = (message.content + spelled).strip()
    if message.author == "copied":
        step["is_copied_context"] = True
    elif message.author == "harness" and message.reasoning is None:
        step["llm_call_count"] = 0
    extra = {
        "train": trained(message),
        "weight": message.weight,
        "author": message.author,
        "stop_reason": message.stop,
        "mask_reasons": message.mask_reasons or None,
        "label": message.label,
    }
    step["extra"] = {key: value for key, value in extra.items() if value is not None}
    return step
