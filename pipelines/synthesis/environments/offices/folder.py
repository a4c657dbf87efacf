"""The office's folder on disk: a workspace that also holds bytes, moves and deletes. No path leaves it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pipelines.synthesis.sandbox.folders import own_folder
from pipelines.synthesis.sandbox.trees import remove_tree
from pipelines.synthesis.sandbox.workspace import Workspace, WorkspaceError

__all__ = ["OfficeFolder"]

MAX_NAME, MAX_PATH = 100, 400  # characters
MAX_FILES = 5_000
MAX_BYTES = 1 << 20  # of one file written by an agent


class OfficeFolder(Workspace):
    """A temporary folder, removed by `close` (or, when the process was killed, by the next one that makes such a
    folder). Nothing in it is ever run."""

    def __init__(self) -> None:
        self._top = own_folder()
        super().__init__(self._top / "office", None)

    def fill(self, files: Mapping[str, bytes], folders: frozenset[str]) -> None:
        """Make the folder hold exactly these."""
        self.clear()
        for name in sorted(folders):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            (self.root / path).write_bytes(data)

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        if self._top.exists():
            remove_tree(self._top)

    def path_of(self, path: str) -> str:
        """A path as it is stored: relative, without `.` and doubled slashes; "." is the top. Raises WorkspaceError."""
        if len(path) > MAX_PATH or any(len(part) > MAX_NAME for part in path.split("/")):
            raise WorkspaceError(f"a path has at most {MAX_PATH} characters and a name {MAX_NAME}", "tool_error")
        if not path.isprintable():
            raise WorkspaceError("a path cannot hold control characters", "tool_error")
        return self._resolve(path).relative_to(self.root).as_posix()

    def holds(self, path: str) -> bool:
        """Whether there is a file of that path. Raises WorkspaceError for one that cannot be."""
        return (self.root / self.path_of(path)).is_file()

    def bytes_of(self, path: str) -> bytes:
        """A file's bytes. Raises WorkspaceError for what is no file here."""
        name = self.path_of(path)
        place = self.root / name
        if place.is_dir():
            raise WorkspaceError(f"{name} is a folder, not a file", "tool_error")
        if not place.is_file():
            raise WorkspaceError(f"no such file: {name}")
        return place.read_bytes()

    def put(self, path: str, data: bytes) -> None:
        """Write a file whose folder is there. Raises WorkspaceError."""
        name = self._free_name(path)
        if len(data) > MAX_BYTES:
            raise WorkspaceError(f"a file has at most {MAX_BYTES} bytes, received {len(data)}", "tool_error")
        place = self.root / name
        if not place.exists() and sum(len(names) for _, _, names in os.walk(self.root)) >= MAX_FILES:
            raise WorkspaceError(f"the office holds at most {MAX_FILES} files", "tool_error")
        place.write_bytes(data)

    def _free_name(self, path: str) -> str:
        """The stored path of a file that may be written. Raises WorkspaceError."""
        name = self.path_of(path)
        if (self.root / name).is_dir():
            raise WorkspaceError(f"{name} is a folder: give the path of the file, with its name", "tool_error")
        parent = PurePosixPath(name).parent
        if not (self.root / parent).is_dir():
            raise WorkspaceError(f"no such folder: {parent}")
        return name

    def move(self, path: str, to: str) -> tuple[str, str]:
        """Move a file to a new path that is free; gives both as stored. Raises WorkspaceError."""
        self.bytes_of(path)
        source, target = self.path_of(path), self._free_name(to)
        if source == target:
            raise WorkspaceError(f"{source} has this path already; nothing was changed", "no_change")
        if (self.root / target).exists():
            raise WorkspaceError(f"{target} exists already; nothing was moved", "tool_error")
        (self.root / source).rename(self.root / target)
        return source, target

    def make_folder(self, path: str) -> str:
        """Make a folder and those above it. Raises WorkspaceError when it is there."""
        name = self.path_of(path)
        place = self.root / name
        if place.is_dir():
            raise WorkspaceError(f"the folder {name} exists already", "no_change")
        blocked = next((one for one in (place, *place.parents) if one.is_file()), None)
        if blocked is not None:
            raise WorkspaceError(f"{blocked.relative_to(self.root)} is a file, not a folder", "tool_error")
        place.mkdir(parents=True)
        return name

    def delete(self, path: str) -> str:
        """Remove one file or empty folder. Raises WorkspaceError."""
        name = self.path_of(path)
        place = self.root / name
        if place.is_dir() and name != ".":
            if any(place.iterdir()):
                raise WorkspaceError(f"the folder {name} is not empty; nothing was deleted", "tool_error")
            place.rmdir()
            return name
        self.bytes_of(path)
        place.unlink()
        return name

    def entries(self, path: str = ".") -> list[str]:
        """Names in a folder: folders first, ending in /, then files; both sorted. Raises WorkspaceError."""
        name = self.path_of(path)
        place = self.root / name
        if not place.is_dir():
            kind = "a file, not a folder" if place.exists() else "no such folder"
            raise WorkspaceError(f"{kind}: {name}", "tool_error" if place.exists() else "not_found")
        below = sorted(place.iterdir(), key=lambda one: (not one.is_dir(), one.name))
        return [one.name + ("/" if one.is_dir() else "") for one in below]

    def paths(self, path: str = ".") -> list[str]:
        """Every file at or below a path, sorted. Raises WorkspaceError."""
        name = self.path_of(path)
        return [name] if (self.root / name).is_file() else [found for found, _ in self.files(name, MAX_FILES)]

    def tree(self) -> tuple[dict[str, bytes], set[str]]:
        """(bytes of every file, every folder) by path."""
        files: dict[str, bytes] = {}
        folders: set[str] = set()
        for parent, names, leaves in os.walk(self.root):
            below = Path(parent).relative_to(self.root)
            folders.update((below / name).as_posix() for name in names)
            files.update({(below / leaf).as_posix(): Path(parent, leaf).read_bytes() for leaf in leaves})
        return files, folders
