"""ms-swift agent rows: roles user, assistant, tool_call, tool_response; `loss` true or false; `tools` as JSON text.

ms-swift merges a tool_call turn into the assistant turn before it and looks at the first flag only, so all turns made
of one message carry the same flag.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pipelines.synthesis.convert.chat import arguments_object, count_metadata, with_think
from pipelines.synthesis.convert.writer import LeftOut, Losses, trained, weight_of
from schemas.trajectory import Message, Trajectory

__all__ = ["SwiftWriter"]


class SwiftWriter:
    """`--to swift`."""

    name = "swift"
    kind: Literal["jsonl", "parquet"] = "jsonl"
    needs_tokenizer = False

    def schema(self) -> Any:
        """None: a jsonl target."""
        return None

    def rows(self, trajectories: list[Trajectory], losses: Losses) -> Iterator[list[dict[str, Any]] | LeftOut]:
        """See `Writer.rows`."""
        for trajectory in trajectories:
            turns: list[dict[str, Any]] = []
            for message in trajectory.messages:
                made = list(self._turns(message, losses))
                if turns and made and turns[-1]["role"] in ("assistant", "tool_call") and message.role == "assistant":
                    losses.add("assistant turns in a row, which ms-swift merges under the flag of the first")
                turns.extend(made)
            row: dict[str, Any] = {"id": trajectory.id, "messages": turns}
            if trajectory.tools not in ("", "[]"):
                row["tools"] = trajectory.tools
            count_metadata(trajectory, losses)
            yield [row]

    def _turns(self, message: Message, losses: Losses) -> Iterator[dict[str, Any]]:
        if message.role != "assistant":
            if message.name and message.role != "tool":
                losses.add("names of turns (observation, compaction)")
            role = "tool_response" if message.role == "tool" else message.role
            yield {"role": role, "content": message.content}
            return
        flag: dict[str, Any] = {"loss": trained(message)}
        if trained(message) and weight_of(message) != 1:
            flag["loss_scale"] = weight_of(message)
        text = with_think(message, losses)
        if text or not message.tool_calls:
            yield {"role": "assistant", "content": text, **flag}
        for call in message.tool_calls:
            body = {"name": call.name, "arguments": arguments_object(call)}
            yield {"role": "tool_call", "content": json.dumps(body, ensure_ascii=False), **flag}
        losses.add("call ids (results are paired by position)", len(message.tool_calls))
