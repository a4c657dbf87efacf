"""Temporary folders named after the process that owns them, so that what a killed process left is known and goes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from pipelines.synthesis.sandbox.trees import remove_tree

__all__ = ["FOLDER_PREFIX", "own_folder", "remove_leftovers"]

FOLDER_PREFIX = "datamix-sandbox-"  # followed by the number of the owning process


def own_folder() -> Path:
    """A new empty folder of this process, after removing those of processes that are no longer there."""
    remove_leftovers()
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")).resolve()


def remove_leftovers() -> None:
    """Delete folders whose process is gone: a killed one cannot clean up. What cannot be deleted stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):
                remove_tree(folder)
