"""Files that are whole or absent: write to a temporary name, fsync, rename.

Guarantees: after a crash at any moment a path written here holds either its old bytes or its new bytes.
Not guaranteed: that temporary files (`.tmp-*`) of a killed process are gone; `remove_temporaries` deletes them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = [
    "TEMPORARY_PREFIX",
    "atomic_path",
    "canonical_json",
    "digest_of",
    "read_json",
    "remove_temporaries",
    "sha256_file",
    "write_json",
]

TEMPORARY_PREFIX = ".tmp-"


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends well it is fsynced and renamed to `path`.

    The temporary file is removed when the block raises. Parent folders are made. Raises IsADirectoryError when `path`
    is a folder and OSError when it is a device or a pipe (a rename would put a file in its place: /dev/null would no
    longer be one), before the work is done.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder. Name a file to write", os.fspath(target))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "is a device or a pipe, no file. Name a file to write", os.fspath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{target.name}"
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, target)
        _fsync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _fsync_folder(folder: Path) -> None:
    """Make a rename durable (POSIX: the folder entry needs its own fsync)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporaries(folder: str | os.PathLike[str]) -> int:
    """Delete what killed processes left under `folder`; returns how many files went."""
    leftovers = sorted(Path(folder).rglob(f"{TEMPORARY_PREFIX}*"))
    for leftover in leftovers:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
    return len(leftovers)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text, so it can be hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 (hex) of a file's bytes, read in blocks."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as readable JSON with sorted keys, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read one JSON file (UTF-8). Raises FileNotFoundError and json.JSONDecodeError as they are."""
    return json.loads(Path(path).read_text(encoding="utf-8"))
