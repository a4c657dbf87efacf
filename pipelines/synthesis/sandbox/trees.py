"""Folders that untrusted code made: walking and removing them however deep they are. Standard library only.

`os.walk` and `shutil.rmtree` call themselves once a level (Python 3.11), and no path may have more than 4,096 bytes,
but `mkdir d; cd d` goes on for ever. Used inside the server process (see server.py) and outside.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["LONGEST_PATH", "remove_tree", "walk"]

LONGEST_PATH = 3_800  # bytes of a folder that is looked into: with any name in it still a path that the system takes


def walk(root: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """(folder, names of its folders, other names) from the top down, like `os.walk`; the folders may be cut.

    A link to a folder is among the folders, but is not followed. A folder deeper than `LONGEST_PATH` is among the other
    names: whoever looks at what kind they are finds it. Folders that cannot be read are empty.
    """
    waiting = [os.fspath(root)]
    while waiting:
        parent = waiting.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(parent) as entries:
                for entry in entries:
                    deep = len(os.fsencode(entry.path)) > LONGEST_PATH and not entry.is_symlink()
                    (folders if _is_folder(entry) and not deep else names).append(entry.name)
        except OSError:
            continue
        yield parent, folders, names
        paths = [os.path.join(parent, name) for name in folders]
        waiting += [path for path in reversed(paths) if not os.path.islink(path)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def remove_tree(root: str | os.PathLike[str]) -> None:
    """Delete a file, link or folder whatever its permissions and depth are; links are not followed.

    Folders within folders are first moved up to the top, so that no path gets long. Raises OSError.
    """
    top = os.fspath(root)
    if os.path.islink(top) or not os.path.isdir(top):
        os.unlink(top)
        return
    waiting = [top]
    moved = 0
    while waiting:
        folder = waiting.pop()
        _unlock(folder)
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for path, is_folder in found:
            if not is_folder:
                os.unlink(path)
                continue
            if folder != top:
                _unlock(path)  # moving a folder writes into it
                while os.path.lexists(target := os.path.join(top, f"{moved:x}")):
                    moved += 1
                os.rename(path, target)
                path = target
            waiting.append(path)
        if folder != top:
            os.rmdir(folder)
    os.rmdir(top)


def _unlock(folder: str) -> None:
    """Open a folder to its owner; a server that may write everywhere need not be the owner."""
    with contextlib.suppress(PermissionError):
        os.chmod(folder, 0o700)
