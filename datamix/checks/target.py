"""What a path is (run, shards, one file) and which checks it gets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datamix.checks.checkpoints import CHECKPOINT_STATE, check_checkpoint, check_resumable
from datamix.checks.corpus import check_corpus
from datamix.checks.curriculum import check_curriculum
from datamix.checks.files import check_files
from datamix.checks.result import CheckResult
from datamix.checks.shards import check_shard_file, check_shards
from datamix.checks.trajectories import check_trajectories, check_trajectory_file
from datamix.folder import RUN_NAME, run_recipe
from schemas.errors import InputError, UsageError
from schemas.progress import Progress
from schemas.shard import INDEX_NAME

__all__ = ["check_path"]


def check_path(given: str | Path, progress: Progress) -> CheckResult:
    """Check a run folder, a shards folder, a checkpoint, or one .arrow or .parquet file.

    Raises InputError when nothing is there or it is none of these.
    """
    path = Path(given)
    if not path.exists():
        raise InputError("no such file or folder", path=str(given), todo="Give a run, a shards folder or one file")
    if (path / RUN_NAME).is_file():
        return _check_run(path, progress)
    if (path / INDEX_NAME).is_file():
        result = CheckResult(str(given), "shards")
        check_shards(path, "", result, progress)
        return result
    if (path / CHECKPOINT_STATE).is_file():
        result = CheckResult(str(given), "checkpoint")
        result.summary |= check_checkpoint(path, "", result)
        return result
    if path.is_file() and path.suffix == ".arrow":
        result = CheckResult(str(given), "shard")
        check_shard_file(path, result)
        return result
    if path.is_file() and path.suffix == ".parquet":
        return _check_parquet(path)
    raise InputError(
        "neither a run (run.json), a shards folder (index.json), a checkpoint (state.json), nor a .arrow or .parquet "
        "file",
        path=str(given),
        todo="Give the folder that `datamix run --out` wrote, or a file in it",
    )


def _check_run(run: Path, progress: Progress) -> CheckResult:
    result = CheckResult(str(run), "run")
    manifests = check_files(run, result, progress)
    try:
        partitions = run_recipe(run).engine.partitions
    except UsageError:
        return result  # check_files has said what is wrong with the recipe
    if "read" in manifests:
        check_corpus(run, manifests, partitions, result, progress)
    check_trajectories(run, manifests, result, progress)
    check_resumable(run, result)
    if "shards" in manifests:
        check_shards(run / "shards", "shards/", result, progress)
        check_curriculum(run, result)
    return result


def _check_parquet(path: Path) -> CheckResult:
    """A Parquet file says in its metadata which record it holds."""
    result = CheckResult(str(path), "parquet")
    try:
        with pq.ParquetFile(path) as file:
            kind = (file.schema_arrow.metadata or {}).get(b"datamix.record", b"").decode()
            result.kind = kind or "parquet"
            if kind == "trajectory":
                check_trajectory_file(path, result)
            else:
                result.summary["rows"] = sum(batch.num_rows for batch in file.iter_batches())
    except (OSError, pa.ArrowException, ValueError) as error:
        result.fault(path.name, f"cannot be read as Parquet ({error})")
    return result
