"""The folder that untrusted code works in, as seen from outside: paths cannot leave it, links are not followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pipelines.synthesis.sandbox.trees import remove_tree, walk

__all__ = ["MOUNT_NAME", "Workspace", "WorkspaceError"]

MOUNT_NAME = "/workspace"
HIDDEN_FOLDERS = {"__pycache__"}
FIRST_TIME = 1_700_000_000  # of modification, in seconds; each write is one later, so that bytecode is never stale


class WorkspaceError(Exception):
    """A path that cannot be used; `kind` is a tool signal (not_found or tool_error). Told to the agent, not raised."""

    def __init__(self, message: str, kind: str = "not_found") -> None:
        super().__init__(message)
        self.kind = kind


class Workspace:
    """One folder of a sandbox. Paths are relative, or absolute below /workspace; files are UTF-8 text.

    `uid` owns what is written here, so that the code under test can change it (None: leave it as it is).
    """

    def __init__(self, root: Path, uid: int | None) -> None:
        self.root, self.uid = root, uid
        self._writes = 0
        self.clear()

    def clear(self) -> None:
        """Empty the folder; make it again if the code removed it."""
        if self.root.exists() or self.root.is_symlink():
            remove_tree(self.root)
        self.root.mkdir(mode=0o755, parents=True)
        self._own(self.root)

    def drop_bytecode(self) -> None:
        """Remove every __pycache__: code may have put there what its sources do not say."""
        for parent, folders, _ in walk(self.root):
            for name in [name for name in folders if name in HIDDEN_FOLDERS]:
                remove_tree(Path(parent, name))
                folders.remove(name)

    def write(self, path: str, text: str) -> None:
        """Create or replace a file; folders are made. Times of modification count writes. Raises WorkspaceError."""
        target = self._resolve(path)
        missing = [folder for folder in target.parents if folder.is_relative_to(self.root) and not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o755)
            self._own(folder)
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise WorkspaceError(f"cannot write {path}: {error.strerror}", "tool_error") from error
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
        self._writes += 1
        os.utime(target, (FIRST_TIME + self._writes, FIRST_TIME + self._writes))
        self._own(target)

    def read(self, path: str, max_bytes: int = 4 << 20) -> str:
        """The text of a file (bytes that are not UTF-8 become U+FFFD). Raises WorkspaceError."""
        target = self._resolve(path)
        try:
            mode = target.lstat().st_mode
        except OSError as error:
            raise WorkspaceError(f"no such file: {path}") from error
        if stat.S_ISDIR(mode):
            raise WorkspaceError(f"{path} is a folder, not a file", "tool_error")
        if not stat.S_ISREG(mode):
            raise WorkspaceError(f"{path} is not a regular file", "tool_error")
        try:
            with open(os.open(target, os.O_RDONLY | os.O_NOFOLLOW), "rb") as handle:
                data = handle.read(max_bytes + 1)
        except OSError as error:
            raise WorkspaceError(f"cannot read {path}: {error.strerror}", "tool_error") from error
        if len(data) > max_bytes:
            raise WorkspaceError(f"{path} has more than {max_bytes} bytes", "tool_error")
        return data.decode("utf-8", "replace")

    def files(self, folder: str = ".", limit: int = 10_000) -> list[tuple[str, int]]:
        """(relative path, bytes) of every regular file below `folder`, sorted by path. Raises WorkspaceError."""
        top = self._resolve(folder)
        if not top.is_dir():
            raise WorkspaceError(f"no such folder: {folder}")
        found = []
        for parent, folders, names in walk(top):
            folders[:] = sorted(name for name in folders if name not in HIDDEN_FOLDERS)
            for name in names:
                path = Path(parent, name)
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append((path.relative_to(self.root).as_posix(), status.st_size))
                if len(found) >= limit:
                    return sorted(found)
        return sorted(found)

    def name_of(self, path: str) -> str:
        """A path as it is stored: relative, without `.` and doubled slashes. Raises WorkspaceError."""
        return self._resolve(path).relative_to(self.root).as_posix()

    def _resolve(self, path: str) -> Path:
        """The real place of a path that stays inside. Raises WorkspaceError for one that leaves or crosses a link."""
        if path == MOUNT_NAME or path.startswith(MOUNT_NAME + "/"):
            path = path[len(MOUNT_NAME) + 1 :] or "."
        if path.startswith("/") or "\0" in path:
            raise WorkspaceError(f"{path!r} is outside the workspace: use a path relative to it")
        place = self.root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if part == "..":
                raise WorkspaceError(f"{path!r}: '..' is not allowed")
            place = place / part
            try:
                linked = place.is_symlink()
            except OSError as error:  # a name or path too long, a folder closed to us
                raise WorkspaceError(f"{path[:100]!r}: {error.strerror}", "tool_error") from error
            if linked:
                raise WorkspaceError(f"{path!r} crosses a symbolic link", "tool_error")
        return place

    def _own(self, path: Path) -> None:
        if self.uid is not None:
            os.chown(path, self.uid, self.uid)
