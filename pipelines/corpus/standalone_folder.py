"""The folder of a standalone step's results: claimed before the work, handed over whole at its end."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.errors import UsageError
from schemas.files import TEMPORARY_PREFIX, write_json

__all__ = ["claim", "hand_over", "work_folder"]

OUTPUTS = ("kept", "dropped", "removed", "verdicts", "summary.json", "set_aside.jsonl")
_WORK = f"{TEMPORARY_PREFIX}work-"


def claim(target: Path) -> None:
    """Raises UsageError for a folder that holds anything but results of such a command."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"--out {target}: is a file. Give a folder, new or empty")
    foreign = [p.name for p in target.iterdir() if p.name not in OUTPUTS] if target.is_dir() else []
    foreign = sorted(name for name in foreign if not name.startswith(TEMPORARY_PREFIX))
    if foreign:
        raise UsageError(f"--out {target}: holds {foreign[0]!r}, which is not a result of this. Give a new folder")
    target.mkdir(parents=True, exist_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def hand_over(run: Path, target: Path, folders: Sequence[str], summary: dict[str, Any]) -> None:
    """Put the results of a work folder in place of older ones."""
    for output in OUTPUTS:
        _remove(target / output)
    for folder in folders:
        os.replace(run / "out" / folder, target / folder)
    aside = run / "set_aside" / "read.jsonl"
    if aside.stat().st_size:
        os.replace(aside, target / "set_aside.jsonl")
    write_json(target / "summary.json", summary)


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """A folder on the results' own file system, gone at the end; one that a killed process left is removed too.

    A folder in use is locked, so commands that write side by side leave one another's alone.
    """
    for left in parent.glob(f"{_WORK}*"):
        lock = _lock(left)
        if lock is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_WORK, dir=parent))
        lock = _lock(folder)
        if lock is not None and folder.is_dir():  # else another command took it for one that was left
            break
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """An open, locked descriptor of a folder; None when another process holds it or it is gone."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    return opened
