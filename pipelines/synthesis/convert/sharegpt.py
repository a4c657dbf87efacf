"""ShareGPT rows (LLaMA-Factory v0): conversations[{from, value}], `system`, `tools` as JSON text.

LLaMA-Factory v0 has no mask for a turn. `turn_mask: true` (do not train) is what SWE-Lego's fork of it reads; other
readers ignore it and train every gpt and function_call turn, which is stated as a loss whenever a turn is masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pipelines.synthesis.convert.chat import arguments_object, count_metadata, with_think
from pipelines.synthesis.convert.writer import LeftOut, Losses, trained, weight_of
from schemas.trajectory import Message, Trajectory

__all__ = ["ShareGPTWriter"]

_SPEAKERS = {"user": "human", "tool": "observation", "system": "system"}


class ShareGPTWriter:
    """`--to sharegpt`."""

    name = "sharegpt"
    kind: Literal["jsonl", "parquet"] = "jsonl"
    needs_tokenizer = False

    def schema(self) -> Any:
        """None: a jsonl target."""
        return None

    def rows(self, trajectories: list[Trajectory], losses: Losses) -> Iterator[list[dict[str, Any]] | LeftOut]:
        """See `Writer.rows`."""
        for trajectory in trajectories:
            messages = list(trajectory.messages)
            row: dict[str, Any] = {"id": trajectory.id}
            if messages and messages[0].role == "system":
                row["system"] = messages.pop(0).content
            row["conversations"] = [turn for message in messages for turn in self._turns(message, losses)]
            row["tools"] = trajectory.tools or "[]"
            count_metadata(trajectory, losses)
            yield [row]

    def _turns(self, message: Message, losses: Losses) -> Iterator[dict[str, Any]]:
        if message.role != "assistant":
            if message.name and message.role != "tool":
                losses.add("names of turns (observation, compaction)")
            yield {"from": _SPEAKERS[message.role], "value": message.content}
            return
        mask = {"turn_mask": not trained(message)}
        if not trained(message):
            losses.add("masked turns: only SWE-Lego's fork of LLaMA-Factory reads turn_mask, others train them")
        elif weight_of(message) != 1:
            losses.add("loss weights other than 0 and 1, written as trained")
        text = with_think(message, losses)
        if text or not message.tool_calls:
            yield {"from": "gpt", "value": text, **mask}
        if message.tool_calls:
            if text:
                losses.add("turns with text and calls, cut in two (LLaMA-Factory v0 drops rows that do not alternate)")
            losses.add("call ids (results are paired by position)", len(message.tool_calls))
            calls = [{"name": call.name, "arguments": arguments_object(call)} for call in message.tool_calls]
            value = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)
            yield {"from": "function_call", "value": value, **mask}
