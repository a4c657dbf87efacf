"""The order in which rows of a run's shards are trained, and the small state that resumes it anywhere.

Row i of epoch e of a stage is a pure function of (index digest, seed, stage, e, i). Stages come in the order of the
index, and a batch never holds rows of two stages or two epochs. Every process computes the same global batches and
reads only its own share of each, so the order does not depend on how many there are, before or after a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemas.errors import CheckError, UsageError
from schemas.shard import read_index
from trainer.permutation import Permutation
from trainer.shards import Row, StageReader

__all__ = ["Batch", "LoaderState", "ShardLoader"]

_BLOCK_ROWS = 1024  # of the order, computed at once


@dataclass(frozen=True, slots=True)
class LoaderState:
    """Where the loader is: `cursor` rows of epoch `epoch` of stage number `stage` were handed out, over all ranks."""

    digest: str
    seed: int
    stage: int = 0
    epoch: int = 0
    cursor: int = 0

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values, well under 1 KB as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one optimizer step in global order, as numbers in their stage; `read` gives one of them."""

    stage: int
    epoch: int
    first: int
    rows: list[int]
    read: Callable[[int], Row]

    def share(self, rank: int, world: int) -> list[int]:
        """The rows that process `rank` of `world` reads: disjoint over ranks, their union is the batch."""
        return self.rows[rank::world]


class ShardLoader:
    """Hands out batches of the stages of `folder`/index.json whose phase is in `phases`."""

    def __init__(
        self,
        folder: str | Path,
        *,
        seed: int,
        phases: Sequence[str] = ("pretrain", "sft"),
        epochs: int = 1,
        verify: bool = False,
    ) -> None:
        """Open and check every shard (`verify`: its SHA-256 too).

        Raises InputError without an index, CheckError for a shard that is missing or changed.
        """
        self.index = read_index(folder)
        self.stages = [stage for stage in self.index.stages if stage.phase in phases]
        self.epochs = epochs
        origin = {"tokenizer_digest": self.index.tokenizer_digest, "recipe_digest": self.index.recipe_digest}
        self._readers = [StageReader(folder, stage, self.index.vocab_size, verify, origin) for stage in self.stages]
        self.state = LoaderState(self.index.digest(), seed)
        self._block: tuple[tuple[int, int], int, list[int]] = ((-1, -1), 0, [])

    def order(self, stage: int, epoch: int) -> Permutation:
        """The order of rows of one epoch of one stage."""
        name = f"{self.state.digest}/{self.state.seed}/{self.stages[stage].name}/{epoch}"
        return Permutation.of(len(self._readers[stage]), name)

    def seek(self, state: LoaderState) -> None:
        """Go on from `state`.

        Raises CheckError when it was saved for other shards, UsageError when for another seed or beyond the end.
        """
        if state.digest != self.state.digest:
            raise CheckError(
                f"the loader state belongs to shards {state.digest[:12]}, these are {self.state.digest[:12]}. "
                "Restore the shards or start the training again"
            )
        if state.seed != self.state.seed:
            raise UsageError(f"the loader state was saved with seed {state.seed}, the recipe has {self.state.seed}")
        rows = len(self._readers[state.stage]) if state.stage < len(self.stages) else 0
        if not (0 <= state.stage <= len(self.stages) and 0 <= state.epoch < self.epochs and 0 <= state.cursor <= rows):
            raise UsageError(f"the loader state {state.to_json()} lies outside these shards")
        self.state = state

    def next_batch(self, rows: int) -> Batch | None:
        """The next `rows` rows, fewer at the end of an epoch; None after the last stage. Moves the state."""
        state = self.state
        stage, epoch, cursor = state.stage, state.epoch, state.cursor
        while stage < len(self.stages) and cursor >= len(self._readers[stage]):
            stage, epoch, cursor = (stage, epoch + 1, 0) if epoch + 1 < self.epochs else (stage + 1, 0, 0)
        if stage == len(self.stages):
            self.state = LoaderState(state.digest, state.seed, stage, 0, 0)
            return None
        reader = self._readers[stage]
        numbers = self._numbers(stage, epoch, cursor, min(cursor + rows, len(reader)))
        self.state = LoaderState(state.digest, state.seed, stage, epoch, cursor + len(numbers))
        return Batch(stage, epoch, cursor, numbers, reader.__getitem__)

    def _numbers(self, stage: int, epoch: int, first: int, last: int) -> list[int]:
        """Rows at the places `first`…`last` - 1 of the order, which is computed a block ahead."""
        held_for, start, block = self._block
        if held_for != (stage, epoch) or not start <= first <= last <= start + len(block):
            start = first
            end = min(len(self._readers[stage]), first + max(_BLOCK_ROWS, last - first))
            block = self.order(stage, epoch).block(start, end)
            self._block = ((stage, epoch), start, block)
        return block[first - start : last - start]
