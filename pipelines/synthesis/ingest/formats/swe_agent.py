"""SWE-agent .traj files (old text actions, XML, function calling; 0.x and 1.x), bare histories, demonstration YAML.

`history` is the conversation; the full messages that sit in every step (`messages` before 1.1.0, `query` after) repeat
it and are not read. Text actions stay text: the model wrote them so. Observations of text actions are user turns
named "observation".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_message, looks_like_messages
from pipelines.synthesis.ingest.parts import mapping
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, Trajectory

__all__ = ["SweAgent"]

_MARKS = ("message_type", "agent", "is_demo", "thought", "action")


class SweAgent:
    """{trajectory, history, info} or {history} alone."""

    name = "swe-agent"

    def matches(self, value: Any) -> float:
        """A `history` of messages with SWE-agent's own keys, or a `trajectory` of steps with action and observation."""
        if not isinstance(value, dict):
            return 0.0
        steps = value.get("trajectory")
        if isinstance(steps, list) and isinstance(value.get("info"), dict):
            if steps and isinstance(steps[0], dict) and "action" in steps[0] and "observation" in steps[0]:
                return 0.95
            if not steps and "history" in value:
                return 0.9
        history = value.get("history")
        if isinstance(history, list) and looks_like_messages(history):
            marked = any(mark in item for item in history for mark in _MARKS if isinstance(item, dict))
            return 0.9 if marked else 0.4
        return 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a file."""
        notes = Notes()
        history = value.get("history")
        if history:
            messages = _from_history(history, notes)
        elif value.get("trajectory"):
            messages = _from_steps(value["trajectory"])
            notes.add("no history in the file: turns rebuilt from the steps (response, observation)")
        else:
            raise RecordError("history", "the run has no messages", history)
        info = mapping(value.get("info"))
        replay = _replay(value.get("replay_config"))
        _stop_of(messages, info, notes)
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=_task(value, replay),
            outcome=_outcome(info),
            extra={
                "exit_status": info.get("exit_status"),
                "submission": info.get("submission"),
                "model": mapping(mapping(replay.get("agent")).get("model")).get("name"),
                "steps": len(value["trajectory"]) if isinstance(value.get("trajectory"), list) else None,
                "api_calls": mapping(info.get("model_stats")).get("api_calls"),
            },
        )


def _from_history(history: Any, notes: Notes) -> list[Message]:
    if not isinstance(history, list):
        raise RecordError("history", "must be a list of messages", history)
    messages: list[Message] = []
    spoken = False
    for index, raw in enumerate(history):
        message = chat_message(raw, notes, f"history[{index}]")
        if raw.get("is_demo") is True:
            message.author = "demo"
            notes.add("demonstration messages, not the model's words")
        elif message.role == "assistant":
            spoken = True
        elif message.role == "user" and spoken:
            message.name = "observation"
        messages.append(message)
    return messages


def _from_steps(steps: list[Any]) -> list[Message]:
    messages = []
    for index, step in enumerate(steps):
        if not isinstance(step, dict):
            raise RecordError(f"trajectory[{index}]", "a step must be an object", step)
        messages.append(Message(role="assistant", content=str(step.get("response") or step.get("thought") or "")))
        messages.append(Message(role="user", content=str(step.get("observation") or ""), name="observation"))
    return messages


def _replay(raw: Any) -> Mapping[str, Any]:
    """The replay configuration: an object, or its JSON text (SWE-smith)."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            return {}
    return raw if isinstance(raw, dict) else {}


def _task(value: Mapping[str, Any], replay: Mapping[str, Any]) -> Task:
    problem = replay.get("problem_statement")
    if isinstance(problem, dict):
        text = problem.get("text")
        return Task(id=str(problem["id"]) if problem.get("id") else None, instruction=text if text else "")
    environment = value.get("instance_id") or value.get("environment")
    named = isinstance(environment, str) and environment not in ("main", "swe_main")
    return Task(id=environment if named else None)


def _outcome(info: Mapping[str, Any]) -> Outcome:
    """`resolved` when the file was graded; being submitted is not success."""
    resolved = info.get("resolved")
    return Outcome(resolved, None, "resolved") if isinstance(resolved, bool) else Outcome()


def _stop_of(messages: list[Message], info: Mapping[str, Any], notes: Notes) -> None:
    """An exit by cost, context or error ends in words of the harness, not of the model."""
    status = info.get("exit_status")
    if not isinstance(status, str) or "exit" not in status:
        return
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    if last is None:
        return
    last.stop = status
    if last.content.strip().lower().startswith("exit due to"):
        last.author = "harness"
        notes.add("final turn written by the harness, not the model")
