"""Harbor `traces` rows: {conversations: [{role, content}], agent, episode, trial_name, result, …}.

A row holds the whole conversation up to its episode. Assistant turns that an earlier row of the same trial already
held (same words so far) are author "copied": only the new reply is the row's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import xxhash

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.formats.chat import chat_messages
from pipelines.synthesis.ingest.records import Notes, Place, SetAside
from schemas.trajectory import Message, Outcome, Task, Trajectory

__all__ = ["HarborTraces"]


class HarborTraces:
    """Rows of one file; remembers a hash of every conversation prefix it has given (16 bytes a turn)."""

    name = "harbor-traces"

    def __init__(self) -> None:
        self._given: set[bytes] = set()

    def matches(self, value: Any) -> float:
        """`conversations` with roles, beside `agent` and `episode` or `trial_name`."""
        if not isinstance(value, dict) or not isinstance(value.get("conversations"), list):
            return 0.0
        return 0.9 if "agent" in value and ("episode" in value or "trial_name" in value) else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a row."""
        notes = Notes()
        messages = chat_messages(value["conversations"], notes, "conversations")
        trial = str(value.get("trial_name") or value.get("run_id") or "")
        self._mark(messages, trial, notes)
        task = value.get("task")
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(id=task if isinstance(task, str) else None),
            outcome=_outcome(value.get("result")),
            extra={key: value.get(key) for key in ("agent", "model", "episode", "trial_name")},
        )

    def _mark(self, messages: list[Message], trial: str, notes: Notes) -> None:
        running = xxhash.xxh3_128(trial.encode("utf-8", "surrogatepass"))
        spoken = False
        for message in messages:
            text = f"\x00{message.role}\x01{message.reasoning or ''}\x02{message.content}"
            running.update(text.encode("utf-8", "surrogatepass"))
            prefix = running.digest()
            if message.role == "assistant" and prefix in self._given:
                message.author = "copied"
                notes.add("turns that an earlier row of the same trial holds, copied")
            elif message.role == "user" and spoken:
                message.name = "observation"
            spoken = spoken or message.role == "assistant"
            self._given.add(prefix)


def _outcome(result: Any) -> Outcome:
    """`result` is a reward (a number or its text) or the name of an exception."""
    try:
        reward = float(result)
    except (TypeError, ValueError):
        return Outcome(None if result is None else False, None, None if result is None else f"result={result}")
    return Outcome(reward >= 1, reward, "reward")
