"""Token targets, rendered by the curriculum's renderer: `trl` (input_ids + labels) and `megatron` (rolled loss_mask).

trl: labels are aligned with input_ids (the shift happens in the model) and are −100 where nothing is trained.
megatron: `loss_mask[i]` says whether token i+1 is trained (rolled left by one, the last is 0), as Megatron-Bridge and
NeMo keep packed rows; `seq_start_id` lists where sequences start, here [0]: one trajectory a row.
Rows without a trained token are left out: they give a loss of 0/0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pipelines.synthesis.convert.chat import count_metadata
from pipelines.synthesis.convert.writer import LeftOut, Losses, trained, weight_of
from schemas.errors import InputError
from schemas.trajectory import Trajectory

if TYPE_CHECKING:
    from pipelines.curriculum.render import Rendered

__all__ = ["IGNORED", "TokenWriter"]

IGNORED = -100  # torch.nn.CrossEntropyLoss's ignore_index, which Hugging Face labels use


class TokenWriter:
    """`--to trl` and `--to megatron`. `tokenizer` is a Hugging Face tokenizer folder."""

    kind: Literal["jsonl", "parquet"] = "parquet"
    needs_tokenizer = True

    def __init__(self, name: str, tokenizer: str | Path, history: str = "refuse") -> None:
        from pipelines.curriculum.renderers import open_renderer
        from pipelines.synthesis.tokens import load_tokenizer

        self.name = name
        self._render = open_renderer(load_tokenizer(tokenizer), history=history)

    def schema(self) -> Any:
        """Columns of the target."""
        import pyarrow as pa

        ids = pa.field("input_ids", pa.list_(pa.int32()), nullable=False)
        first = pa.field("id", pa.string(), nullable=False)
        if self.name == "trl":
            return pa.schema([first, ids, pa.field("labels", pa.list_(pa.int32()), nullable=False)])
        mask = pa.field("loss_mask", pa.list_(pa.uint8()), nullable=False)
        return pa.schema([first, ids, mask, pa.field("seq_start_id", pa.list_(pa.int32()), nullable=False)])

    def rows(self, trajectories: list[Trajectory], losses: Losses) -> Iterator[list[dict[str, Any]] | LeftOut]:
        """See `Writer.rows`."""
        for trajectory in trajectories:
            for message in trajectory.messages:
                if trained(message) and weight_of(message) != 1:
                    losses.add("loss weights other than 0 and 1, written as trained")
                if message.role == "assistant":
                    message.train = trained(message)
        for trajectory, rendered in zip(trajectories, self._render(trajectories), strict=True):
            if isinstance(rendered, InputError):
                yield LeftOut(f"cannot be rendered: {rendered.problem}")
                continue
            rows = [self._row(trajectory.id, part) for part in rendered]
            whole = [row for row in rows if row is not None]
            if not whole:
                yield LeftOut("no trained token")
                continue
            losses.add("parts of a split trajectory without a trained token", len(rows) - len(whole))
            if len(rendered) > 1:
                losses.add("trajectories split where the chat template rewrites earlier turns")
                for number, row in enumerate(whole):
                    row["id"] = f"{trajectory.id}#{number}"
            count_metadata(trajectory, losses)
            yield whole

    def _row(self, name: str, rendered: Rendered) -> dict[str, Any] | None:
        """The target's columns; None when nothing is trained. The first token has nothing before it: no target."""
        mask = rendered.mask.copy()
        mask[:1] = False
        if not mask.any():
            return None
        ids = rendered.ids.astype(np.int32)
        row: dict[str, Any] = {"id": name, "input_ids": ids}
        if self.name == "trl":
            row["labels"] = np.where(mask, ids, IGNORED).astype(np.int32)
        else:
            row["loss_mask"] = np.append(mask[1:], False).astype(np.uint8)
            row["seq_start_id"] = np.zeros(1, dtype=np.int32)
        return row
