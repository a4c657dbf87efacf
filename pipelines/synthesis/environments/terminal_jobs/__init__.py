"""The jobs that a terminal task is put together from: one function a kind, (random, taken names, characters) -> Job.

`characters` is about what an expert gets to read while doing the job: the material grows with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pipelines.synthesis.environments.terminal_jobs.archives import pack, unpack
from pipelines.synthesis.environments.terminal_jobs.base import File, Job, RepositoryGoal, Step
from pipelines.synthesis.environments.terminal_jobs.branches import cherry_pick, tidy_branches
from pipelines.synthesis.environments.terminal_jobs.files import (
    compare_lists,
    file_by_date,
    file_by_kind,
    permissions,
    rename,
)
from pipelines.synthesis.environments.terminal_jobs.logs import log_answer, log_report
from pipelines.synthesis.environments.terminal_jobs.repositories import (
    ask_history,
    merge_conflict,
    revert_commit,
)
from pipelines.synthesis.environments.terminal_jobs.texts import replace_names, settings, table_answer, table_report

__all__ = ["GIT_JOBS", "JOBS", "PLAIN_JOBS", "File", "Job", "RepositoryGoal", "Step"]

Maker = Callable[[random.Random, set[str], float], Job]
PLAIN_JOBS: dict[str, Maker] = {
    "compare_lists": compare_lists,
    "file_by_date": file_by_date,
    "file_by_kind": file_by_kind,
    "log_answer": log_answer,
    "log_report": log_report,
    "pack": pack,
    "permissions": permissions,
    "rename": rename,
    "replace_names": replace_names,
    "settings": settings,
    "table_answer": table_answer,
    "table_report": table_report,
    "unpack": unpack,
}
GIT_JOBS: dict[str, Maker] = {
    "ask_history": ask_history,
    "cherry_pick": cherry_pick,
    "merge_conflict": merge_conflict,
    "revert_commit": revert_commit,
    "tidy_branches": tidy_branches,
}
JOBS = {**PLAIN_JOBS, **GIT_JOBS}
