"""SWE-agent runs as published on model hubs: {instance_id, target, trajectory: [{role, text, mask}], exit_status}.

Role `ai` is the model; `mask` true (demonstrations, cut context) means that a turn is not trained on. Rows whose
`trajectory` holds plain chat messages are read the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_messages
from pipelines.synthesis.ingest.formats.openai_chat import outcome_of, task_of
from pipelines.synthesis.ingest.parts import canonical_role
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Trajectory

__all__ = ["SweAgentHub"]


class SweAgentHub:
    """One run a row."""

    name = "swe-agent-hub"

    def matches(self, value: Any) -> float:
        """`trajectory` whose first items have a role and a text or content."""
        steps = value.get("trajectory") if isinstance(value, dict) else None
        if not isinstance(steps, list) or not steps or "history" in value or "info" in value:
            return 0.0
        shaped = all(isinstance(step, dict) and "role" in step for step in steps[:3])
        return 0.9 if shaped and ("text" in steps[0] or "content" in steps[0] or "system_prompt" in steps[0]) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        steps = value["trajectory"]
        if "text" in steps[0] or "system_prompt" in steps[0]:
            messages = [_message(raw, notes, f"trajectory[{index}]") for index, raw in enumerate(steps)]
        else:
            messages = chat_messages(steps, notes, "trajectory")
        spoken = False
        for message in messages:
            if message.role == "user" and spoken:
                message.name = "observation"
            spoken = spoken or message.role == "assistant"
        status = value.get("exit_status")
        last = next((message for message in reversed(messages) if message.role == "assistant"), None)
        if last is not None and isinstance(status, str) and "exit" in status:
            last.stop = status
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=task_of(value),
            outcome=outcome_of(value),
            extra={
                "exit_status": status,
                "submission": value.get("generated_patch", value.get("patch")),
                "model": value.get("model_name", value.get("model")),
            },
        )


def _message(raw: Any, notes: Notes, field: str) -> Message:
    if not isinstance(raw, dict):
        raise RecordError(field, "a turn must be an object", raw)
    role = canonical_role(raw.get("role"), f"{field}.role")
    text = raw.get("text")
    if text is None and role == "system":
        text = raw.get("system_prompt")
    if not isinstance(text, str):
        raise RecordError(f"{field}.text", "must be a string", text)
    message = Message(role=role, content=text)
    if role == "assistant" and raw.get("mask") is True:
        message.train, message.author = False, "demo"
        notes.add("turns that the source masks, not trained")
    return message
