"""One task family alone, to one file: what `datamix synth` does.

It does what the step `synthesize` of a recipe with this one entry does, in a work folder beside the output that is gone
at the end, and joins the parts: a family gives what it gives in a run of that seed, on every engine and worker count.

What is left: FILE (Parquet, TRAJECTORY_SCHEMA); FILE.set_aside.jsonl, the tasks that gave no trajectory and why, if
there are any; and, when the pool was built for this file, FILE.pool.jsonl or FILE.search/, which replays need.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.context import RunContext
from pipelines.corpus.plain import plain_files
from pipelines.engine import Engine
from pipelines.synthesis.ingest.store import read_trajectories
from pipelines.synthesis.lengths import estimated_tokens
from pipelines.synthesis.pools.build import pool_place
from pipelines.synthesis.ranges import COUNTED
from pipelines.synthesis.step import roll_out
from schemas.errors import UsageError
from schemas.files import TEMPORARY_PREFIX, atomic_path
from schemas.progress import Progress
from schemas.recipe import Recipe, SynthesizedConfig
from schemas.trajectory import TRAJECTORY_SCHEMA

__all__ = ["Request", "pool_beside", "synthesize_file"]

PARTITIONS = 8
_WORK_PREFIX, _LOCK = f"{TEMPORARY_PREFIX}synth-", "lock"
_UNUSED: dict[str, Any] = {  # a recipe has a training half; nothing here looks at it
    "mixture": {"method": "proportional", "budget_tokens": 1},
    "tokenizer": {"train": {}},
    "curriculum": {},
    "model": {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "intermediate_size": 8,
    },
    "evaluate": {"tasks": 0},
}


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted: an entry of a recipe, the recipe's seed, and where a pool comes from.

    `run` is a run whose pool (or kept corpus) is used, `corpus` jsonl or parquet files; with neither, the standard
    library of the running Python. `fail` ends the work at the first task that gives no trajectory.
    """

    config: SynthesizedConfig
    seed: int = 1
    run: Path | None = None
    corpus: Sequence[str] = ()
    fail: bool = False


def synthesize_file(request: Request, out: str | Path, engine: Engine, progress: Progress) -> dict[str, Any]:
    """Make the tasks, play them, write `out`; returns the counts of the step for this family and some of its own.

    Beside those of `step.roll_out`: success_rate, tokens_median, tokens_longest (bytes / 4), pool_files (where the pool
    lies) and set_aside (the file, or null). Raises UsageError for a request that cannot be met, and what the step does.
    """
    target = Path(out)
    if target.suffix in (".jsonl", ".json"):
        raise UsageError(
            f"--out {out}: trajectories are written as Parquet. For JSON lines: datamix convert {target.stem}.parquet"
        )
    if request.run is not None and request.corpus:
        raise UsageError("--run and --corpus are two sources of one pool. Give one of them")
    with _work_folder(target) as work:
        context = RunContext(work, _recipe(request), engine, progress)
        given = _given_pool(request)
        if given is None:
            _prepare_corpus(request, context)
        rolled = roll_out(context, given)
        pool = pool_place(work / "trajectories", request.config.family)
        kept = _keep_pool(pool, target) if given is None else _point_to(given, target)
        aside = Path(f"{out}.set_aside.jsonl")
        _write_aside(rolled.aside, aside)
        _join(sorted((work / "trajectories" / "raw").glob("*.parquet")), target)
    counts = rolled.counts
    lengths = [estimated_tokens(trajectory) for trajectory in read_trajectories(target)]
    return {
        **{name: counts[name] for name in COUNTED},
        "success_rate": round(counts["solved"] / counts["trajectories"], 4) if counts["trajectories"] else None,
        "tokens_median": round(statistics.median(lengths)) if lengths else None,
        "tokens_longest": max(lengths, default=None),
        **{name: value for name, value in counts.items() if name not in (*COUNTED, "by_family")},
        **({"usage": rolled.usage} if rolled.usage else {}),
        "pool_files": None if kept is None else str(kept),
        "set_aside": str(aside) if aside.exists() else None,
    }


def pool_beside(path: str | Path, family: str) -> Path | None:
    """The pool that a trajectory file's tasks draw from: beside it (`synth`), or in the run that it lies in.

    None for a family without a pool. Raises UsageError when there is none to be found.
    """
    name = pool_place(Path(), family)
    if name is None:
        return None
    places = [Path(f"{path}.{name}"), *(folder / name for folder in Path(path).absolute().parents[:3])]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise UsageError(
            f"{path}: the tasks of the family {family} draw from a pool, and neither {places[0]} nor a run's {name} is "
            f"there. Name the run with --run RUN, or the pool with --pool PATH"
        )
    return found


def _recipe(request: Request) -> Recipe:
    """A recipe with this one entry and the pool's sources."""
    sources: list[dict[str, Any]] = []
    for number, pattern in enumerate(request.corpus):
        kinds = {_kind(path) for path in plain_files(pattern, "--corpus")}
        if len(kinds) > 1:
            raise UsageError(f"--corpus {pattern!r} matches jsonl and parquet files. Give one pattern for each")
        source = {"name": f"corpus-{number}", "kind": kinds.pop(), "path": pattern, "domain": "code"}
        sources.append(source)
    return Recipe.model_validate(
        {
            "name": "synth",
            "seed": request.seed,
            "on_error": "fail" if request.fail else "skip",
            "engine": {"partitions": PARTITIONS},
            "sources": sources or [{"name": "python", "kind": "python-environment"}],
            "trajectories": {"synthesized": [request.config.model_dump()]},
            **_UNUSED,
        }
    )


def _kind(path: Path) -> str:
    with open(path, "rb") as handle:
        return "parquet" if handle.read(4) == b"PAR1" else "jsonl"


def _given_pool(request: Request) -> Path | None:
    """The pool of the run that was named, if it has one."""
    if request.run is None:
        return None
    place = pool_place(request.run / "trajectories", request.config.family)
    if place is not None and place.exists():
        return place
    if place is not None and not any((request.run / "corpus" / "kept").glob("part-*.parquet")):
        raise UsageError(
            f"--run {request.run}: has neither {place.relative_to(request.run)} nor a kept corpus. Run its steps up to "
            "synthesize first, or give --corpus FILES"
        )
    return None


def _prepare_corpus(request: Request, context: RunContext) -> None:
    """Put a kept corpus into the work folder: the run's, or the given files with every document kept."""
    if pool_place(Path(), request.config.family) is None:
        return
    if request.run is not None:
        (context.run / "corpus").mkdir()
        (context.run / "corpus" / "kept").symlink_to((request.run / "corpus" / "kept").resolve())
    elif request.corpus:
        from pipelines.corpus.corpus import step as corpus_step
        from pipelines.corpus.read.step import step as read_step
        from pipelines.corpus.standalone_files import write_neutral

        read_step(context)
        for judge in ("quality", "dedup", "classify", "decontaminate"):
            write_neutral(context.run, judge, PARTITIONS)
        corpus_step(context)


def _keep_pool(place: Path | None, target: Path) -> Path | None:
    """Move a pool that was built for this file beside it."""
    if place is None:
        return None
    kept = Path(f"{target}.{place.name}")
    if kept.is_dir():
        shutil.rmtree(kept)
    os.replace(place, kept)
    return kept


def _point_to(given: Path, target: Path) -> Path:
    """The run's pool; one that an earlier call kept beside the output is another one, and replays would take it."""
    stale = Path(f"{target}.{given.name}")
    if stale.is_dir():
        shutil.rmtree(stale)
    else:
        stale.unlink(missing_ok=True)
    return given


def _write_aside(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A line for every task that gave no trajectory; what an earlier call left goes where there is nothing to say."""
    if not rows:
        path.unlink(missing_ok=True)
        return
    with atomic_path(path) as temporary:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        temporary.write_text("".join(lines), encoding="utf-8")


def _join(parts: Sequence[Path], target: Path) -> None:
    """The rows of the parts in order, in one file written atomically. Memory: one row group."""
    import pyarrow.parquet as pq

    with atomic_path(target) as temporary, pq.ParquetWriter(temporary, TRAJECTORY_SCHEMA, compression="zstd") as writer:
        for part in parts:
            with pq.ParquetFile(part) as file:
                for group in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(group))


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """A folder on the output's own file system, gone at the end; those that killed calls left there go first."""
    if target.is_dir():
        raise UsageError(f"--out {target}: is a folder. Name a file to write")
    if target.exists() and not target.is_file():
        raise UsageError(f"--out {target}: is a device or a pipe. Name a file to write")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{_WORK_PREFIX}*"):
            _remove_if_left(left)
        made = tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=target.parent)
    except OSError as error:
        raise UsageError(f"--out {target}: cannot be written: {error.strerror}. Name another place") from None
    with made as folder:
        new = Path(folder, f"new-{_LOCK}")
        with open(new, "wb") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            new.rename(Path(folder, _LOCK))  # locked before it has its name: nobody finds it free
            yield Path(folder)


def _remove_if_left(folder: Path) -> None:
    """Remove a work folder whose process is gone, on whatever machine it was: it no longer holds its lock."""
    try:
        with open(folder / _LOCK, "rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return  # in use, begun this moment, or not ours to remove
