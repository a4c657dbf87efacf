"""Step `masks`: apply the recipe's policy to every raw trajectory, and sort what comes out by id.

    trajectories/raw/NAME-k.parquet  ─ decide, per file ─►  trajectories/sorting/…  ─ merge, per partition ─►
    trajectories/kept/part-k.parquet, trajectories/dropped/part-k.parquet

The first pass streams a raw file in batches, decides, and writes what it decided as uncompressed Arrow, one file a
partition, with a sketch of each run's calls. Then runs of one task are compared by their sketches (R16). The last pass
orders the ids of one partition and reads rows in that order from memory-mapped files. Memory: one batch, plus ids and
the sketches of tasks with more than one run. Equal input gives equal bytes at any worker count.
A kept record that is marked with a call style is written in it (pipelines.synthesis.styles), after all was decided.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from filters.text.decontaminate import Benchmarks, build_benchmarks
from filters.trajectory.configure import Settings, configured_policy
from filters.trajectory.decide import decide
from filters.trajectory.duplicates import RunSketch, sketch_of, surplus_runs
from filters.trajectory.findings import Finding
from filters.trajectory.leaks import prompt_finding, prompt_text
from filters.trajectory.policies import Decision
from filters.trajectory.rules import Rule
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.decontaminate import read_benchmarks
from pipelines.synthesis.styles import restyled
from schemas.document import partition_of
from schemas.errors import CheckError, InputError
from schemas.files import atomic_path
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

__all__ = ["masks"]

BATCH_BYTES = 32 << 20  # text held at once by a task
_SORTING_SCHEMA = pa.schema(
    [
        *TRAJECTORY_SCHEMA,
        pa.field("order", pa.string(), nullable=False),  # raw file, row and piece: the first of equal ids stays
        pa.field("reason", pa.string(), nullable=False),  # "" for kept
        pa.field("counts", pa.binary(), nullable=False),  # JSON of what the kept row adds to the step's counts
        pa.field("task_key", pa.string(), nullable=False),  # "" for a run that is not compared with others
        pa.field("calls", pa.int64(), nullable=False),
        pa.field("pairs", pa.list_(pa.uint64()), nullable=False),  # the sketch of its calls
    ]
)


def masks(context: RunContext) -> StepOutput:
    """Write trajectories/kept and trajectories/dropped from trajectories/raw by the recipe's policy and its rules.

    Counts: trajectories_in, pieces_added (by splitting), kept, dropped {reason: n} (in + added = kept + dropped),
    and of the kept ones assistant_turns = trained_turns + masked_turns, masked_by {reason: turns} (each turn under
    its first reason), errors, recoveries, flags {flag: n}; of all redacted {kind: n}, cut_observations and
    cut_characters (R14). A record that a detector cannot judge is dropped as "unjudged:ERROR".

    Raises RecipeError for an unknown policy, rule or threshold, CheckError for a raw file that is not whole, and with
    on_error: fail InputError for the first record that cannot be judged.
    """
    recipe, folder = context.recipe, context.run / "trajectories"
    policy = configured_policy(recipe.trajectories.policy, recipe.trajectories.rules)
    partitions = recipe.engine.partitions
    raw = sorted((folder / "raw").glob("*.parquet"))
    sorting = folder / "sorting"
    shutil.rmtree(sorting, ignore_errors=True)
    index = _prompt_index(context, sorting) if raw and policy.rules["R17"].action != "off" else ""
    skip = recipe.on_error == "skip"
    decided = context.engine.map(
        _decide_file,
        [
            _Decide(str(path), number, policy.name, recipe.trajectories.rules, index, skip, partitions, str(sorting))
            for number, path in enumerate(raw)
        ],
        label="masks: decide",
        progress=context.progress,
    )
    surplus: list[dict[str, str]] = [{} for _ in range(partitions)]
    for identity, reason in _surplus(sorting, policy.rules["R16"]).items():
        surplus[partition_of(identity, partitions)][identity] = reason
    merged = context.engine.map(
        _merge_partition,
        [_Merge(part, len(raw), str(sorting), str(folder), surplus[part]) for part in range(partitions)],
        label="masks: sort",
        progress=context.progress,
    )
    shutil.rmtree(sorting, ignore_errors=True)
    files = [folder / kind / _part(part) for kind in ("kept", "dropped") for part in range(partitions)]
    return StepOutput(files, _sum(decided, merged))


def _prompt_index(context: RunContext, sorting: Path) -> str:
    """The file with the recipe's benchmark items, indexed for search; "" when it names none."""
    config = context.recipe.decontaminate
    if not config.benchmarks:
        return ""
    path = sorting / "benchmarks.npz"
    build_benchmarks(read_benchmarks(context)[0], config.shingle_words).save(path)
    return str(path)


def _surplus(sorting: Path, rule: Rule) -> dict[str, str]:
    """{id: reason} of kept runs that rule R16 drops, from the sketches in the sorting files."""
    if rule.action != "drop" or not (rule.limit("near_equal") or rule.limit("runs_a_task")):
        return {}
    files = sorted(sorting.glob("part-*/raw-*.arrow"))
    runs_of: Counter[str] = Counter()
    for batch in _columns(files, ["task_key"]):
        runs_of.update(batch.column("task_key").to_pylist())
    sketches: dict[str, RunSketch] = {}
    for batch in _columns(files, ["id", "task_key", "reason", "outcome", "stats", "calls", "pairs"]):
        for row, (task, reason) in enumerate(
            zip(batch.column("task_key").to_pylist(), batch.column("reason").to_pylist(), strict=True)
        ):
            if task and not reason and runs_of[task] > 1:
                values = {name: batch.column(name)[row].as_py() for name in batch.schema.names}
                sketches[values["id"]] = RunSketch(
                    id=values["id"],
                    task=task,
                    success=values["outcome"]["success"],
                    errors=values["stats"]["errors"],
                    calls=values["calls"],
                    pairs=tuple(values["pairs"]),
                )
    return surplus_runs(
        sketches.values(),
        near_equal=rule.limit("near_equal"),
        least_calls=int(rule.limit("least_calls")),
        runs_a_task=int(rule.limit("runs_a_task")),
    )


def _columns(files: list[Path], names: list[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of every batch of the sorting files, memory-mapped: other columns are not read."""
    for path in files:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index).select(names)


def _part(part: int) -> str:
    return f"part-{part:05d}.parquet"


def _sum(decided: list[dict[str, Any]], merged: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the tasks' counts up; nested counts are sorted by name."""
    totals: Counter[str] = Counter(
        dict.fromkeys(
            (
                "trajectories_in",
                "pieces_added",
                "kept",
                "assistant_turns",
                "trained_turns",
                "masked_turns",
                "errors",
                "recoveries",
                "cut_observations",
                "cut_characters",
            ),
            0,
        )
    )
    nested: dict[str, Counter[str]] = {name: Counter() for name in ("dropped", "masked_by", "flags", "redacted")}
    for counts in (*decided, *merged):
        for name, value in counts.items():
            if name in nested:
                nested[name].update(value)
            else:
                totals[name] += value
    return {**totals, **{name: dict(sorted(counter.items())) for name, counter in nested.items()}}


@dataclass(frozen=True, slots=True)
class _Decide:
    path: str
    number: int
    policy: str
    rules: Settings
    benchmarks: str  # the index of prompts, "" for none
    skip: bool  # drop a record that cannot be judged, instead of raising
    partitions: int
    sorting: str


def _decide_file(task: _Decide) -> dict[str, Any]:
    """Decide about every trajectory of one raw file; write the outcome to sorting/part-k/raw-N.arrow."""
    policy = configured_policy(task.policy, task.rules)
    benchmarks = Benchmarks.load(Path(task.benchmarks)) if task.benchmarks else None
    counts: Counter[str] = Counter()
    redacted: Counter[str] = Counter()
    row = 0
    with ExitStack() as stack:
        writers: dict[int, pa.RecordBatchFileWriter] = {}
        for part in range(task.partitions):
            path = stack.enter_context(atomic_path(_sorting_file(task.sorting, part, task.number)))
            writers[part] = stack.enter_context(pa.ipc.new_file(str(path), _SORTING_SCHEMA))
        for batch in _batches(Path(task.path)):
            rows: dict[int, list[dict[str, Any]]] = {}
            trajectories = [Trajectory.from_row(record) for record in batch.to_pylist()]
            prompts = _benchmark_prompts(benchmarks, trajectories)
            for number, trajectory in enumerate(trajectories):
                made = decide(trajectory, policy, prompts.get(number, ()))
                if made.failure is not None and not task.skip:
                    raise InputError(
                        f"no rule could be applied ({type(made.failure).__name__}: {made.failure})",
                        path=task.path,
                        line=row + 1,
                        todo="Take the record out, or set on_error: skip",
                    ) from made.failure
                redacted.update(made.redacted)
                pieces = _rows(made.decision, f"{task.number:06d}.{row:012d}")
                counts["trajectories_in"] += 1
                counts["pieces_added"] += len(pieces) - 1
                counts["cut_observations"] += len(made.decision.cut)
                counts["cut_characters"] += sum(made.decision.cut)
                for piece in pieces:
                    rows.setdefault(partition_of(piece["id"], task.partitions), []).append(piece)
                row += 1
            for part, values in rows.items():
                writers[part].write_batch(pa.RecordBatch.from_pylist(values, _SORTING_SCHEMA))
    return {**counts, "redacted": dict(redacted)}


def _benchmark_prompts(benchmarks: Benchmarks | None, trajectories: list[Trajectory]) -> dict[int, list[Finding]]:
    """R17 findings of the trajectories whose prompts hold a benchmark item, by position."""
    if benchmarks is None:
        return {}
    asked = pa.array([prompt_text(trajectory) for trajectory in trajectories], pa.large_string())
    found = benchmarks.search(asked)
    return {row: [prompt_finding(match.benchmark, match.item, match.matched)] for row, match in found.items()}


def _sorting_file(sorting: str, part: int, number: int) -> Path:
    return Path(sorting) / f"part-{part:05d}" / f"raw-{number:06d}.arrow"


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Batches of a raw file of about BATCH_BYTES of text. Raises CheckError for a file that is not whole."""
    try:
        with pq.ParquetFile(path) as file:
            if not file.schema_arrow.equals(TRAJECTORY_SCHEMA):
                raise CheckError(
                    f"{path}: is not a file of trajectories (its columns differ). Run the step synthesize again"
                )
            rows = max(1, file.metadata.num_rows)
            size = sum(file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
            yield from file.iter_batches(batch_size=max(1, min(4096, rows * BATCH_BYTES // max(1, size))))
    except (pa.ArrowInvalid, OSError) as error:
        raise CheckError(f"{path}: cannot be read as Parquet ({error}). Run the step synthesize again") from None


def _rows(decision: Decision, order: str) -> list[dict[str, Any]]:
    """One row of the sorting schema for every piece of a decision, kept ones first."""
    every = [(piece, "") for piece in decision.trajectories] + decision.dropped
    rows = []
    for number, (piece, reason) in enumerate(every):
        sketch = sketch_of(piece) if not reason and piece.task.id else None
        written = piece if reason else restyled(piece)
        rows.append(
            {
                **written.to_row(),
                "order": f"{order}.{number:06d}",
                "reason": reason,
                "counts": orjson.dumps({} if reason else _count(piece)),
                "task_key": sketch.task if sketch else "",
                "calls": sketch.calls if sketch else 0,
                "pairs": sketch.pairs if sketch else (),
            }
        )
    return rows


def _count(trajectory: Trajectory) -> dict[str, Any]:
    """What one kept trajectory adds to the step's counts."""
    turns = [message for message in trajectory.messages if message.role == "assistant"]
    trained = sum(1 for message in turns if message.train)
    return {
        "assistant_turns": len(turns),
        "trained_turns": trained,
        "masked_turns": len(turns) - trained,
        "masked_by": dict(Counter(message.mask_reasons[0] for message in turns if not message.train)),
        "errors": trajectory.stats.errors,
        "recoveries": trajectory.stats.recoveries,
        "flags": dict(Counter(trajectory.flags)),
    }


@dataclass(frozen=True, slots=True)
class _Merge:
    part: int
    files: int
    sorting: str
    folder: str
    surplus: dict[str, str]


def _merge_partition(task: _Merge) -> dict[str, Any]:
    """Write kept/part-k and dropped/part-k sorted by id. A later trajectory with an id seen before is dropped (R16)."""
    totals: Counter[str] = Counter()
    nested: dict[str, Counter[str]] = {name: Counter() for name in ("dropped", "masked_by", "flags")}
    with ExitStack() as stack:
        batches: list[pa.RecordBatch] = []
        for number in range(task.files):
            source = stack.enter_context(pa.memory_map(str(_sorting_file(task.sorting, task.part, number))))
            reader = stack.enter_context(pa.ipc.open_file(source))
            batches.extend(reader.get_batch(index) for index in range(reader.num_record_batches))
        places = sorted(
            (identity, order, index, row)
            for index, batch in enumerate(batches)
            for row, (identity, order) in enumerate(
                zip(batch.column("id").to_pylist(), batch.column("order").to_pylist(), strict=True)
            )
        )
        folder = Path(task.folder)
        kept = stack.enter_context(_Output(folder / "kept" / _part(task.part)))
        dropped = stack.enter_context(_Output(folder / "dropped" / _part(task.part)))
        last = ""
        for identity, _, index, row in places:
            record = batches[index].slice(row, 1)
            decided = record.column("reason")[0].as_py()
            reason = "R16:same_id" if identity == last else decided or task.surplus.get(identity, "")
            if reason != decided:
                record = _dropped_row(record, reason)
            last = identity
            if reason:
                nested["dropped"][reason] += 1
                dropped.add(record)
                continue
            totals["kept"] += 1
            for name, value in orjson.loads(record.column("counts")[0].as_py()).items():
                if name in nested:
                    nested[name].update(value)
                else:
                    totals[name] += value
            kept.add(record)
    return {**totals, **{name: dict(counter) for name, counter in nested.items()}}


def _dropped_row(record: pa.RecordBatch, reason: str) -> pa.RecordBatch:
    """The row with the flag that says why it was dropped."""
    flags = pa.array([[*(record.column("flags")[0].as_py() or []), f"dropped:{reason}"]], pa.list_(pa.string()))
    return record.set_column(record.schema.get_field_index("flags"), record.schema.field("flags"), flags)


class _Output:
    """One Parquet file of TRAJECTORY_SCHEMA, written atomically; a row group ends at BATCH_BYTES."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = ExitStack()
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def __enter__(self) -> _Output:
        self._stack.__enter__()
        temporary = self._stack.enter_context(atomic_path(self._path))
        self._writer = self._stack.enter_context(
            pq.ParquetWriter(
                temporary, TRAJECTORY_SCHEMA, compression="zstd", compression_level=3, use_dictionary=False
            )
        )
        return self

    def add(self, record: pa.RecordBatch) -> None:
        """Take one row."""
        row = record.select(TRAJECTORY_SCHEMA.names)
        self._waiting.append(row)
        self._bytes += row.get_total_buffer_size() if row.num_rows == 0 else row.nbytes
        if self._bytes >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, TRAJECTORY_SCHEMA).combine_chunks()
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._bytes = [], 0

    def __exit__(self, *failure: Any) -> bool | None:
        if failure[0] is None:
            self._flush()
        return self._stack.__exit__(*failure)
