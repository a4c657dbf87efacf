"""LLaMA-Factory v1 rows: typed content parts and `loss_weight` on every message; `tools` as JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pipelines.synthesis.convert.chat import arguments_object, count_metadata
from pipelines.synthesis.convert.writer import LeftOut, Losses, weight_of
from schemas.trajectory import Message, Trajectory

__all__ = ["LlamaFactoryWriter"]


class LlamaFactoryWriter:
    """`--to llamafactory`."""

    name = "llamafactory"
    kind: Literal["jsonl", "parquet"] = "jsonl"
    needs_tokenizer = False

    def schema(self) -> Any:
        """None: a jsonl target."""
        return None

    def rows(self, trajectories: list[Trajectory], losses: Losses) -> Iterator[list[dict[str, Any]] | LeftOut]:
        """See `Writer.rows`."""
        for trajectory in trajectories:
            row: dict[str, Any] = {"id": trajectory.id}
            row["messages"] = [self._message(message, losses) for message in trajectory.messages]
            if trajectory.tools not in ("", "[]"):
                row["tools"] = trajectory.tools
            count_metadata(trajectory, losses)
            yield [row]

    def _message(self, message: Message, losses: Losses) -> dict[str, Any]:
        parts: list[dict[str, str]] = []
        if message.reasoning is not None:
            parts.append({"type": "reasoning", "value": message.reasoning})
        if message.content or not (message.reasoning is not None or message.tool_calls):
            parts.append({"type": "text", "value": message.content})
        for call in message.tool_calls:
            body = {"name": call.name, "arguments": arguments_object(call)}
            parts.append({"type": "tool_call", "value": json.dumps(body, ensure_ascii=False)})
        losses.add("call ids (results are paired by position)", len(message.tool_calls))
        if message.name and message.role != "tool":
            losses.add("names of turns (observation, compaction)")
        return {"role": message.role, "content": parts, "loss_weight": weight_of(message)}
