"""OpenAI chat and fine-tuning rows, TRL and Hugging Face `messages` + `tools` rows, bare lists of messages.

Also what axolotl, ms-swift, slime, tinker, verl and torchtune read: their mask fields become `train` and `weight`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_messages, looks_like_messages
from pipelines.synthesis.ingest.parts import tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, Trajectory

__all__ = ["OpenAIChat", "outcome_of", "task_of"]

_TASK_KEYS = ("task_id", "instance_id", "custom_id", "id")
_EXTRA_KEYS = ("exit_status", "resolved", "model", "model_name", "parallel_tool_calls", "termination_reason", "trial")


def task_of(row: Mapping[str, Any]) -> Task:
    """The task id that a row carries (instance_id, task_id, …) as text; instruction stays empty."""
    for key in _TASK_KEYS:
        value = row.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return Task(id=str(value))
    return Task()


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """`resolved`, `target` or `success` (booleans) and `reward` (a finite number), else unknown."""
    reward = row.get("reward")
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        reward = None
    for key in ("resolved", "target", "success"):
        value = row.get(key)
        if isinstance(value, bool):
            return Outcome(value, None if reward is None else float(reward), key)
    if reward is not None and not isinstance(reward, bool):
        return Outcome(reward >= 1, float(reward), "reward")
    return Outcome()


def extra_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields worth keeping beside the conversation."""
    return {key: row[key] for key in _EXTRA_KEYS if isinstance(row.get(key), str | int | float | bool)}


class OpenAIChat:
    """{messages, tools} rows and bare lists of {role, content}."""

    name = "openai"

    def matches(self, value: Any) -> float:
        """A list of messages under `messages` (or `conversations`, `conversation`, `dialog`), or the list itself."""
        if isinstance(value, dict):
            if looks_like_messages(value.get("prompt")) and looks_like_messages(value.get("completion")):
                return 0.6
            return 0.6 if looks_like_messages(self._list(value)) or self._empty(value) else 0.0
        return 0.5 if looks_like_messages(value) else 0.0

    @staticmethod
    def _empty(value: Mapping[str, Any]) -> bool:
        return value.get("messages") == [] and len(value) <= 12

    @staticmethod
    def _list(value: Mapping[str, Any]) -> Any:
        for key in ("messages", "conversations", "conversation", "dialog"):
            if key in value:
                return value[key]
        return None

    @staticmethod
    def _prompted(row: Mapping[str, Any], notes: Notes) -> list[Message]:
        """{prompt, completion} rows (TRL, verifiers): assistant turns of the prompt are context, author "copied"."""
        if "messages" in row or not isinstance(row.get("prompt"), list) or not isinstance(row.get("completion"), list):
            return []
        prompt = chat_messages(row["prompt"], notes, "prompt")
        for message in prompt:
            if message.role == "assistant":
                message.author = "copied"
                notes.add("assistant turns of the prompt, not part of the completion")
        return prompt + chat_messages(row["completion"], notes, "completion")

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        row: Mapping[str, Any] = value if isinstance(value, dict) else {"messages": value}
        messages = self._prompted(row, notes) or chat_messages(self._list(row), notes)
        if not messages:
            raise RecordError("messages", "the run has no messages")
        tools = row.get("tools") or row.get("functions")
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=task_of(row),
            tools=tools_text(tools, notes),
            outcome=outcome_of(row),
            extra=extra_of(row),
        )
