"""tau-bench runs ({task_id, trial, reward, info, traj}), tau2 logs ({simulations}) and few-shot plain-text rows.

tau-bench tools report failure as a result that starts with "Error": that is their interface, so it is a signal here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_message
from pipelines.synthesis.ingest.parts import call_from_function, canonical_role, content_text, mapping, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, Trajectory

__all__ = ["Tau2", "TauBench", "TauFewShot"]


def _reward(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class TauBench:
    """Historical tau-bench rows."""

    name = "tau-bench"

    def matches(self, value: Any) -> float:
        """`traj` beside `task_id` and `reward`."""
        if not isinstance(value, dict) or not isinstance(value.get("traj"), list):
            return 0.0
        return 0.95 if "task_id" in value and "reward" in value else 0.4

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row; a run with an empty `traj` (it died at the start) is set aside."""
        notes = Notes()
        messages = []
        for index, raw in enumerate(value["traj"]):
            message = chat_message(raw, notes, f"traj[{index}]")
            if message.role == "tool" and message.content.startswith("Error"):
                message.error, message.signal = True, "error_prefix"
            messages.append(message)
        info = mapping(value.get("info"))
        task = mapping(info.get("task"))
        reward = _reward(value.get("reward"))
        instruction = task.get("instruction")
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(
                id=str(value["task_id"]) if value.get("task_id") is not None else None,
                instruction=instruction if isinstance(instruction, str) else "",
            ),
            outcome=Outcome(None if reward is None else reward >= 1, reward, "reward"),
            extra={"trial": value.get("trial"), "error": info.get("error")},
        )


class Tau2:
    """tau2 logs: one file, many simulations."""

    name = "tau2"

    def matches(self, value: Any) -> float:
        """`simulations`, or one simulation with `reward_info` and `messages`."""
        if not isinstance(value, dict):
            return 0.0
        if isinstance(value.get("simulations"), list):
            return 0.95
        return 0.9 if "reward_info" in value and "termination_reason" in value and "messages" in value else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a simulation; one that cannot be read is set aside, the others go on."""
        if "simulations" not in value:
            yield self._simulation(value, {}, place)
            return
        for index, simulation in enumerate(value["simulations"]):
            inside = place.inside(f"simulations[{index}]")
            try:
                yield self._simulation(simulation, value, inside)
            except RecordError as error:
                yield error.at(inside, self.name)

    def _simulation(self, simulation: Any, log: Mapping[str, Any], place: Place) -> Trajectory:
        if not isinstance(simulation, dict) or not isinstance(simulation.get("messages"), list):
            raise RecordError("messages", "a simulation must hold a list of messages", simulation)
        notes = Notes()
        messages: list[Message] = []
        for index, raw in enumerate(simulation["messages"]):
            for message in _tau2_messages(raw, notes, f"messages[{index}]"):
                if message.role == "assistant" and not any(seen.role in ("user", "assistant") for seen in messages):
                    message.author = "harness"
                    notes.add("scripted greeting, not the model's words")
                messages.append(message)
        graded = simulation.get("reward_info")
        reward = _reward(graded.get("reward")) if isinstance(graded, dict) else None
        tools = mapping(mapping(log.get("info")).get("environment_info")).get("tool_defs")
        return assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(id=str(simulation["task_id"]) if simulation.get("task_id") is not None else None),
            tools=tools_text(tools, notes) if isinstance(tools, list) else "[]",
            outcome=Outcome(None if reward is None else reward >= 1, reward, "reward"),
            extra={key: simulation.get(key) for key in ("trial", "termination_reason", "seed")},
        )


def _tau2_messages(raw: Any, notes: Notes, field: str) -> Iterator[Message]:
    """The messages the agent saw: calls and results on the user's side (requestor 'user') are not among them."""
    if not isinstance(raw, dict):
        raise RecordError(field, "a message must be an object", raw)
    if isinstance(raw.get("tool_messages"), list):
        for index, inner in enumerate(raw["tool_messages"]):
            yield from _tau2_messages(inner, notes, f"{field}.tool_messages[{index}]")
        return
    role = canonical_role(raw.get("role"), f"{field}.role")
    if role == "tool":
        if raw.get("requestor") == "user":
            notes.add("results of the user's own calls, which the agent never saw, left out")
            return
        flag = raw.get("error")
        error = flag if isinstance(flag, bool) else None
        yield Message(
            role="tool",
            content=content_text(raw.get("content"), notes, f"{field}.content"),
            tool_call_id=str(raw.get("tool_call_id") or raw.get("id") or "") or None,
            error=error,
            signal="error_flag" if error else None,
        )
        return
    calls = raw.get("tool_calls") or []
    content = content_text(raw.get("content"), notes, f"{field}.content")
    if role == "user" and calls:
        notes.add("the user's own calls, which the agent never saw, left out", len(calls))
        if not content:
            return
    message = Message(role=role, content=content)
    if role == "assistant":
        raw_data = mapping(raw.get("raw_data"))
        thoughts = [block for block in raw_data.get("thinking_blocks") or [] if isinstance(block, dict)]
        message.reasoning = "\n\n".join(str(block.get("thinking") or "") for block in thoughts) or None
        stop = raw_data.get("stop_reason") or raw_data.get("finish_reason")
        message.stop = stop if isinstance(stop, str) else None
        message.tool_calls = [
            call_from_function(call, notes, f"{field}.tool_calls[{index}]") for index, call in enumerate(calls)
        ]
    yield message


class TauFewShot:
    """Few-shot rows {messages_display: "user: …\\nassistant: …\\ntool: …"}."""

    name = "tau-few-shot"
    _turn = re.compile(r"^(system|user|assistant|tool): ", re.M)

    def matches(self, value: Any) -> float:
        """The one key `messages_display`."""
        return 0.95 if isinstance(value, dict) and isinstance(value.get("messages_display"), str) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row. Calls are not in the source ("assistant: None"): empty turns of author "lost"."""
        text = value["messages_display"]
        notes = Notes()
        marks = list(self._turn.finditer(text))
        if not marks or marks[0].start() != 0:
            raise RecordError("messages_display", "must start with 'user: ' or another role", text)
        messages = []
        for index, mark in enumerate(marks):
            end = marks[index + 1].start() - 1 if index + 1 < len(marks) else len(text)
            message = Message(role=mark.group(1), content=text[mark.end() : end])
            if message.role == "assistant" and message.content == "None":
                message.content, message.author = "", "lost"
                notes.add("calls that the source does not hold (assistant: None), turns left empty")
            messages.append(message)
        notes.add("plain text cut into turns at lines that start with a role")
        yield assemble(source=self.name, place=place, messages=messages, notes=notes)
