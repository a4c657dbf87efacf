"""Steps for anyone's datatrove pipeline: read record batches, judge quality, classify, deduplicate in three stages.

Deduplication needs a decision over the whole corpus, so it is three executors over one folder that all tasks see:

    1. [any reader, …, DedupSketch(folder)]         any number of tasks
    2. [DedupDecide(folder)]                         one task, after 1
    3. [DedupResult(folder), any step, any writer]   as many tasks as 1, after 2; it needs no reader

Decisions are those of a recipe: the same pure functions. Files are whole or absent; stage 2 refuses a folder in which
the sketches of a task are missing, so a stopped stage 1 is never taken for the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.pipeline.base import PipelineStep

from pipelines.corpus.batch_judges import ContaminationJudge, DomainPredictor, judge_batch
from pipelines.corpus.batches import alive, only
from pipelines.corpus.batchwise import DedupWhole
from pipelines.trove.batches import BatchStep, to_batches
from schemas.errors import CheckError
from schemas.files import atomic_path, read_json, write_json

__all__ = ["Classify", "Decontaminate", "DedupDecide", "DedupResult", "DedupSketch", "FilterQuality", "ReadBatches"]


class ReadBatches(PipelineStep):  # type: ignore[misc]
    """Parquet files of a folder as record batches, file i in task i modulo the number of tasks."""

    name, type = "read batches", "datamix"

    def __init__(self, folder: str, columns: Sequence[str] | None = None, rows: int = 1000) -> None:
        super().__init__()
        self.folder, self.columns, self.rows = folder, columns, rows

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[pa.RecordBatch]:
        """See `PipelineStep.run`."""
        if data:
            yield from data
        for path in sorted(Path(self.folder).glob("**/*.parquet"))[rank::world_size]:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(self.rows, columns=self.columns):
                    self.stat_update("rows", value=batch.num_rows)
                    yield batch


class FilterQuality(BatchStep):
    """Judge texts by rule sets (gopher, gopher-repetition, c4, fineweb, code, formula): `verdict` and `quality`."""

    name = "quality"

    def __init__(
        self, rules: Sequence[str] = ("gopher", "code", "formula"), *, rows: int = 1000, keep_dropped: bool = False
    ) -> None:
        super().__init__(rows, keep_dropped)
        self.rules = tuple(rules)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Both columns."""
        return judge_batch(batch, self.rules)


class Classify(BatchStep):
    """Give every text a `domain` and a `domain_score` by the fasttext model at `model`."""

    name = "classify"

    def __init__(self, model: str, *, rows: int = 1000, keep_dropped: bool = False) -> None:
        super().__init__(rows, keep_dropped)
        self.model = model
        self._predictor: DomainPredictor | None = None  # loaded in the worker: models cannot be pickled

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Both columns."""
        if self._predictor is None:
            self._predictor = DomainPredictor(self.model)
        return self._predictor(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictor": None}


class Decontaminate(BatchStep):
    """Drop texts that hold items of the benchmark files: `verdict`, `benchmark` and `matched`."""

    name = "decontaminate"

    def __init__(
        self, benchmarks: Sequence[str], *, shingle_words: int = 13, rows: int = 1000, keep_dropped: bool = False
    ) -> None:
        super().__init__(rows, keep_dropped)
        self.benchmarks, self.shingle_words = tuple(benchmarks), shingle_words
        self._judge: ContaminationJudge | None = None  # made in the worker

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The three columns."""
        if self._judge is None:
            self._judge = ContaminationJudge([(path, path) for path in self.benchmarks], self.shingle_words)
        return self._judge(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_judge": None}


class DedupSketch(PipelineStep):  # type: ignore[misc]
    """Stage 1: spool what comes in and write its signatures; nothing goes on. Cost: one copy of the text on disk."""

    name, type = "dedup sketch", "datamix"

    def __init__(
        self, folder: str, threshold: float = 0.8, *, shingle_words: int = 5, permutations: int = 128, rows: int = 1000
    ) -> None:
        super().__init__()
        self.folder, self.rows = Path(folder), rows
        self.settings = {"threshold": threshold, "shingle_words": shingle_words, "permutations": permutations}

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`."""
        whole = DedupWhole(**self.settings)  # type: ignore[arg-type]
        count = 0
        for batch in to_batches(data, self.rows):
            with self.track_time("batch"):
                name = f"{rank:05d}-{count:06d}"
                _write(self.folder / "spool" / f"{name}.arrow", batch)
                _write(self.folder / "sketches" / f"{name}.arrow", whole.summarise(only(batch, alive(batch))))
            self.stat_update("rows", value=batch.num_rows)
            count += 1
        write_json(
            self.folder / "tasks" / f"{rank:05d}.json",
            {"batches": count, "tasks": world_size, "settings": self.settings},
        )
        yield from ()


class DedupDecide(PipelineStep):  # type: ignore[misc]
    """Stage 2, one task: decide over all sketches. Memory: 700 bytes a document, 8 a word of the candidates."""

    name, type = "dedup decide", "datamix"

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`. Raises CheckError when stage 1 is not whole or this is not one task."""
        if world_size != 1:
            raise CheckError(f"DedupDecide runs as one task, received tasks={world_size}. Set tasks=1")
        names, settings = self._names()
        whole = DedupWhole(**settings)
        summaries = [(name, _read(self.folder / "sketches" / f"{name}.arrow")) for name in names]
        with self.track_time("decide"):
            for name, columns in whole.decide(summaries, lambda n: [_read(self.folder / "spool" / f"{n}.arrow")]):
                _write(self.folder / "columns" / f"{name}.arrow", columns)
        yield from ()

    def _names(self) -> tuple[list[str], dict[str, Any]]:
        """Batches of all tasks of stage 1, and the settings they agree on."""
        tasks = [read_json(path) for path in sorted((self.folder / "tasks").glob("*.json"))]
        count = tasks[0]["tasks"] if tasks else 1
        for rank in range(count):
            if not (self.folder / "tasks" / f"{rank:05d}.json").is_file():
                raise CheckError(f"{self.folder}: task {rank} of DedupSketch is not done. Run it before DedupDecide")
        if len(tasks) != count or any(task != {**tasks[0], "batches": task["batches"]} for task in tasks):
            raise CheckError(
                f"{self.folder}: sketches of different settings or numbers of tasks lie together. Use a new folder"
            )
        names = [f"{rank:05d}-{n:06d}" for rank, task in enumerate(tasks) for n in range(task["batches"])]
        return names, tasks[0]["settings"]


class DedupResult(BatchStep):
    """Stage 3: give the spooled batches (or Documents) of the same task on, with `verdict`, `duplicate_of`, ….

    Rows that went are left out and counted; with `keep_dropped` they stay.
    """

    name = "dedup result"

    def __init__(self, folder: str, *, keep_dropped: bool = False) -> None:
        super().__init__(keep_dropped=keep_dropped)
        self.folder = Path(folder)

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See `PipelineStep.run`. Raises CheckError for another number of tasks than stage 1 had."""
        if data:
            yield from data
        task = read_json(self.folder / "tasks" / f"{rank:05d}.json")
        if task["tasks"] != world_size:
            raise CheckError(f"{self.folder}: DedupSketch ran as {task['tasks']} tasks, DedupResult as {world_size}")
        for number in range(task["batches"]):
            name = f"{rank:05d}-{number:06d}"
            columns = _read(self.folder / "columns" / f"{name}.arrow")
            done = DedupWhole().attach(_read(self.folder / "spool" / f"{name}.arrow"), columns)
            self.count(done)
            yield from self.given(done)


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
