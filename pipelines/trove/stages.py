"""Decisions over the whole corpus in anyone's datatrove pipeline: three executors over one folder that all tasks see.

    1. [any reader, …, DedupSketch(folder)]         any number of tasks
    2. [DedupDecide(folder)]                         one task, after 1
    3. [DedupResult(folder), any step, any writer]   as many tasks as 1, after 2; it needs no reader

and the same with ReweightCount, ReweightDecide, ReweightResult. Decisions are those of a recipe: the same pure
functions. Files are whole or absent; stage 2 refuses a folder in which the summaries of a task are missing, so a
stopped stage 1 is never taken for the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from datatrove.pipeline.base import PipelineStep

from filters.text.dedup.decide import GIANT_CLUSTER
from filters.text.mixing import MixtureWish
from pipelines.corpus.batches import alive, only
from pipelines.corpus.batchwise import DedupWhole, MixtureWhole, Whole
from pipelines.corpus.token_counts import TokenCount
from pipelines.trove.batches import BatchStep, to_batches
from schemas.errors import CheckError
from schemas.files import atomic_path, read_json, write_json

__all__ = [
    "DedupDecide",
    "DedupResult",
    "DedupSketch",
    "ReweightCount",
    "ReweightDecide",
    "ReweightResult",
]


_NO_WISH = MixtureWish({}, 1, max_epochs=1, heldout_share=0, heldout_documents=0, seed=0)  # counting needs none


class _First(PipelineStep):  # type: ignore[misc]
    """Stage 1: spool what comes in and write a summary of it; nothing goes on."""

    type = "datamix"

    def __init__(self, folder: str, whole: Whole, settings: Mapping[str, Any], rows: int) -> None:
        super().__init__()
        self.folder, self.whole, self.settings, self.rows = Path(folder), whole, dict(settings), rows

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`."""
        count = 0
        for batch in to_batches(data, self.rows):
            with self.track_time("batch"):
                name = f"{rank:05d}-{count:06d}"
                _write(self.folder / "spool" / f"{name}.arrow", batch)
                _write(self.folder / "sketches" / f"{name}.arrow", self.whole.summarise(only(batch, alive(batch))))
            self.stat_update("rows", value=batch.num_rows)
            count += 1
        task = {"batches": count, "tasks": world_size, "settings": self.settings}
        write_json(self.folder / "tasks" / f"{rank:05d}.json", task)
        yield from ()


class _Decide(PipelineStep):  # type: ignore[misc]
    """Stage 2, one task: decide over all summaries."""

    type = "datamix"
    first = ""  # name of stage 1

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def whole(self, settings: dict[str, Any]) -> Whole:
        """The decision that stage 1 prepared."""
        raise NotImplementedError

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`. Raises CheckError when stage 1 is not whole or this is not one task."""
        if world_size != 1:
            raise CheckError(f"{type(self).__name__} runs as one task, received tasks={world_size}. Set tasks=1")
        names, settings = self._names()
        summaries = [(name, _read(self.folder / "sketches" / f"{name}.arrow")) for name in names]
        with self.track_time("decide"):
            decided = self.whole(settings).decide(summaries, lambda n: [_read(self.folder / "spool" / f"{n}.arrow")])
            for name, columns in decided:
                _write(self.folder / "columns" / f"{name}.arrow", columns)
        yield from ()

    def _names(self) -> tuple[list[str], dict[str, Any]]:
        """Batches of all tasks of stage 1, and the settings they agree on."""
        tasks = [read_json(path) for path in sorted((self.folder / "tasks").glob("*.json"))]
        if not tasks:
            raise CheckError(f"{self.folder}: no task of {self.first} is done. Run it before {type(self).__name__}")
        count = tasks[0]["tasks"]
        for rank in range(count):
            if not (self.folder / "tasks" / f"{rank:05d}.json").is_file():
                raise CheckError(
                    f"{self.folder}: task {rank} of {self.first} is not done. Run it before {type(self).__name__}"
                )
        if len(tasks) != count or any(task != {**tasks[0], "batches": task["batches"]} for task in tasks):
            raise CheckError(
                f"{self.folder}: summaries of different settings or numbers of tasks lie together. Use a new folder"
            )
        names = [f"{rank:05d}-{n:06d}" for rank, task in enumerate(tasks) for n in range(task["batches"])]
        return names, tasks[0]["settings"]


class _Result(BatchStep):
    """Stage 3: give the spooled batches (or Documents) of the same task on, with the decided columns.

    Rows that went are left out and counted; with `keep_dropped` they stay.
    """

    first = ""  # name of stage 1

    def __init__(self, folder: str, whole: Whole, keep_dropped: bool) -> None:
        super().__init__(keep_dropped=keep_dropped)
        self.folder, self.whole = Path(folder), whole

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`. Raises CheckError for another number of tasks than stage 1 had."""
        if data:
            yield from data
        task = read_json(self.folder / "tasks" / f"{rank:05d}.json")
        if task["tasks"] != world_size:
            raise CheckError(
                f"{self.folder}: {self.first} ran as {task['tasks']} tasks, {type(self).__name__} as {world_size}"
            )
        for number in range(task["batches"]):
            name = f"{rank:05d}-{number:06d}"
            columns = _read(self.folder / "columns" / f"{name}.arrow")
            done = self.whole.attach(_read(self.folder / "spool" / f"{name}.arrow"), columns)
            self.count(done)
            yield from self.given(done)


class DedupSketch(_First):
    """Stage 1: spool what comes in and write its signatures; nothing goes on. Cost: one copy of the text on disk."""

    name = "dedup sketch"

    def __init__(
        self,
        folder: str,
        threshold: float = 0.8,
        *,
        shingle_words: int = 5,
        permutations: int = 128,
        largest_cluster: int = GIANT_CLUSTER,
        rows: int = 1000,
    ) -> None:
        settings = {
            "threshold": threshold,
            "shingle_words": shingle_words,
            "permutations": permutations,
            "largest_cluster": largest_cluster,
        }
        whole = DedupWhole(**settings)  # type: ignore[arg-type]
        super().__init__(folder, whole, settings, rows)


class DedupDecide(_Decide):
    """Stage 2, one task: decide over all sketches. Memory: about 2 KB a document, 8 a word of the candidates."""

    name, first = "dedup decide", "DedupSketch"

    def whole(self, settings: dict[str, Any]) -> Whole:
        """See `DedupSketch`."""
        return DedupWhole(**settings)


class DedupResult(_Result):
    """Stage 3: the rows of stage 1 with `verdict`, `cluster`, `similarity`, `duplicate_of`; duplicates are left out,
    or stay with `keep_dropped`."""

    name, first = "dedup result", "DedupSketch"

    def __init__(self, folder: str, *, keep_dropped: bool = False) -> None:
        super().__init__(folder, DedupWhole(), keep_dropped)


class ReweightCount(_First):
    """Stage 1: spool what comes in and write ids, domains and token counts; nothing goes on.

    Tokens come from the column or metadata `tokens`, or are counted by the Hugging Face tokenizer folder `tokenizer`.
    """

    name = "reweight count"

    def __init__(self, folder: str, *, tokenizer: str | None = None, rows: int = 1000) -> None:
        whole = MixtureWhole(_NO_WISH, TokenCount(tokenizer) if tokenizer else None)
        super().__init__(folder, whole, {}, rows)


class ReweightDecide(_Decide):
    """Stage 2, one task: choose documents by domain. `shares` are of tokens; empty means as the supply is.

    `more` are other fields of `filters.text.mixing.MixtureWish`: method ("temperature", "unimax"), source_shares, ….
    """

    name, first = "reweight decide", "ReweightCount"

    def __init__(
        self,
        folder: str,
        shares: Mapping[str, float],
        budget_tokens: int,
        *,
        max_epochs: float = 4,
        heldout_share: float = 0.01,
        heldout_documents: int = 4,
        seed: int = 0,
        **more: Any,
    ) -> None:
        super().__init__(folder)
        self.wish = MixtureWish(dict(shares), budget_tokens, max_epochs, heldout_share, heldout_documents, seed, **more)

    def whole(self, settings: dict[str, Any]) -> Whole:
        """The mixture that is wished for."""
        return MixtureWhole(self.wish)


class ReweightResult(_Result):
    """Stage 3: the rows of stage 1 with `tokens`, `split` (train, heldout, unused) and `epochs`."""

    name, first = "reweight result", "ReweightCount"

    def __init__(self, folder: str, *, keep_dropped: bool = False) -> None:
        super().__init__(folder, MixtureWhole(_NO_WISH), keep_dropped)


def _write(path: Path, batch: pa.RecordBatch) -> None:
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)


def _read(path: Path) -> pa.RecordBatch:
    """The batch of a file. Raises CheckError when it is missing or cut short."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    except (pa.ArrowInvalid, OSError) as error:
        raise CheckError(f"{path}: missing or cut short ({error}). Run the stage that writes it again") from None
