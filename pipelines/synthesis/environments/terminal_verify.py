"""Whether the jobs of a terminal task are done: files, archives, repositories, answers, and what else was touched."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pipelines.synthesis.environments.answers import same_text_answer
from pipelines.synthesis.environments.terminal_jobs.base import File, Job, RepositoryGoal
from pipelines.synthesis.environments.terminal_shell import Shell
from pipelines.synthesis.sandbox import Workspace
from pipelines.synthesis.sandbox.trees import walk
from schemas.errors import DatamixError

__all__ = ["Judge", "snapshot", "tar_members"]

OPEN = stat.S_IRWXU  # what the owner of a folder needs to work in it
MOST_ARCHIVE_BYTES = 64 << 20  # unpacked: what is larger is no archive of ours


class Judge:
    """Holds what a task's jobs want, and what their repositories were at the start."""

    def __init__(self, workspace: Workspace, shell: Shell, jobs: Sequence[Job]) -> None:
        self._workspace, self._shell, self._jobs = workspace, shell, jobs
        self._start: dict[str, dict[str, str]] = {}  # repository -> ref -> commit
        self._folders: dict[str, int] = {}  # folders of the start -> permission bits

    def begin(self) -> None:
        """Make the repositories and remember where their branches are, and all folders with their permissions.

        Raises DatamixError when git refuses.
        """
        for job in self._jobs:
            if job.repository is None:
                continue
            goal = job.repository
            made = self._shell.script(
                f"git init -q -b main {goal.folder} && git -C {goal.folder} fast-import --quiet --done && "
                f"git -C {goal.folder} checkout -q {goal.branch} && rm -rf {goal.folder}/.git/hooks && "
                f"git -C {goal.folder} for-each-ref --format='%(refname:short) %(objectname)' refs/heads",
                goal.stream,
            )
            if made.exit_code:
                raise DatamixError(f"git could not make the repository {goal.folder}: {made.output[-300:]}")
            self._start[goal.folder] = dict(line.split(" ") for line in made.output.splitlines())
        self._folders = _folder_modes(self._workspace.root, self._repositories())

    def _repositories(self) -> set[str]:
        """Where git keeps what it keeps: only git is asked about that."""
        return {f"{job.repository.folder}/.git" for job in self._jobs if job.repository is not None}

    def count(self, answers: Mapping[int, str]) -> tuple[int, int]:
        """(jobs that are right, things touched that belong to no goal).

        Of folders those count that are empty or closed, and those of the start whose permissions were changed.
        """
        wanted = {path: len(file.data) for job in self._jobs for path, file in job.expected.items()}
        found = snapshot(self._workspace.root, wanted, self._repositories(), self._folders)
        right = 0
        allowed: set[str] = set()
        for number, job in enumerate(self._jobs, 1):
            good = all(_same(found.get(path), file) for path, file in job.expected.items())
            allowed |= job.expected.keys() | job.archives.keys()
            for path, members in job.archives.items():
                good &= tar_members(self._workspace.root / path) == members
            good &= not any(os.path.lexists(self._workspace.root / folder) for folder in job.gone)
            good &= job.answer is None or same_text_answer(answers.get(number, ""), job.answer)
            mine = {path for path in found if path == job.folder or path.startswith(f"{job.folder}/")}
            good &= mine <= job.expected.keys()
            if good and job.repository is not None:
                good = self._repository(job.repository)
            right += good
        folders = tuple(f"{job.folder}/" for job in self._jobs)
        stray = [path for path in found if path not in allowed and not f"{path}/".startswith(folders)]
        return right, len(stray)

    def _repository(self, goal: RepositoryGoal) -> bool:
        """Whether a repository is as wanted, asked of git itself in the sandbox.

        Told to believe the objects alone: neither replace refs nor grafts, which only say that a history is another.
        What its filters and hooks write is not read.
        """
        start = self._start[goal.folder]
        git = f"git --no-replace-objects -C {goal.folder} -c core.fsmonitor=false -c core.hooksPath=/dev/null"
        lines = [
            "export GIT_GRAFT_FILE=/dev/null",
            "exec 2> /dev/null",
            f"{git} status --porcelain",
            "echo ==",
            f"{git} ls-tree -r refs/heads/{goal.head}",
            "echo ==",
            f"{git} rev-list --count {start.get(goal.head, 'none')}..refs/heads/{goal.head}",
            f"{git} rev-list --parents -n 1 refs/heads/{goal.head} | wc -w",
            "echo ==",
            f"{git} for-each-ref --format='%(refname) %(objectname)'",
            "echo ==",
            *(
                f"{git} merge-base --is-ancestor {start[ref]} refs/heads/{goal.head} && echo yes"
                for ref in goal.contains
            ),
            "true",
        ]
        run = self._shell.script("\n".join(lines))
        parts = run.output.split("==\n")
        if run.exit_code or len(parts) != 5:
            return False
        status, tree, numbers, refs, ancestors = parts
        now = dict(line.split(" ") for line in refs.splitlines())
        wanted = {(ref if ref.startswith("refs/") else f"refs/heads/{ref}"): start[at] for ref, at in goal.refs.items()}
        counted = [word.strip() for word in numbers.split("\n") if word.strip()]
        parents = goal.parents + 1 if goal.commits else int(counted[-1] or 0) if counted else 0
        return (
            not status.strip()
            and _blobs(tree) == {path: _blob_id(data) for path, data in goal.tree.items()}
            and counted == [str(goal.commits), str(parents)]
            and all(now.get(ref) == commit for ref, commit in wanted.items())
            and not any(f"refs/heads/{name}" in now for name in goal.gone)
            and ancestors.split() == ["yes"] * len(goal.contains)
        )


def snapshot(
    root: Path,
    sizes: Mapping[str, int],
    left_out: Collection[str] = (),
    modes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, tuple[str, int, bytes]]:
    """{path: (kind, permission bits, content or link target)} of all that lies in none of the folders `left_out`.

    A folder counts when nothing is in it, when its owner cannot work in it, or when it has other permissions than
    `modes` says. Only files of the path and size in `sizes` are read, others have the content b"": thousands of sparse
    files cost nothing to make. What cannot be read has the kind "closed".
    """
    found: dict[str, tuple[str, int, bytes]] = {}
    for parent, folders, names in walk(root):
        here = Path(parent)
        found.pop(place := here.relative_to(root).as_posix(), None)
        mode = stat.S_IMODE(here.lstat().st_mode)
        if place != "." and (not (folders or names) or mode & OPEN != OPEN or modes.get(place, mode) != mode):
            found[place] = ("folder", mode, b"")
        linked = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if (here / name).relative_to(root).as_posix() not in left_out]
        for name in (*names, *linked):
            path = here / name
            status = path.lstat()
            mode = status.st_mode
            key = path.relative_to(root).as_posix()
            if stat.S_ISLNK(mode):
                found[key] = ("link", 0, os.fsencode(path.readlink()))
            elif not stat.S_ISREG(mode):
                found[key] = ("other", 0, b"")
            else:
                try:
                    data = path.read_bytes() if sizes.get(key) == status.st_size else b""
                    found[key] = ("file", stat.S_IMODE(mode), data)
                except OSError:
                    found[key] = ("closed", stat.S_IMODE(mode), b"")
        # those that the walk comes to are taken out again; it cannot look into a closed one
        found |= {
            (here / name).relative_to(root).as_posix(): ("closed", 0, b"") for name in folders if name not in linked
        }
    return found


def _folder_modes(root: Path, left_out: Collection[str]) -> dict[str, int]:
    """{path: permission bits} of every folder below `root` that lies in none of `left_out`."""
    modes: dict[str, int] = {}
    for parent, folders, _ in walk(root):
        places = {name: Path(parent, name).relative_to(root).as_posix() for name in folders}
        folders[:] = [name for name in folders if places[name] not in left_out]
        modes |= {places[name]: stat.S_IMODE(Path(parent, name).lstat().st_mode) for name in folders}
    return modes


def _same(found: tuple[str, int, bytes] | None, wanted: File) -> bool:
    return found == ("file", wanted.mode, wanted.data)


def tar_members(path: Path) -> dict[str, bytes] | None:
    """The files of a tar or tar.gz by name (a leading ./ is dropped), None for anything else or too much."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None  # a link, or a named pipe that would never end
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            unpacker = zlib.decompressobj(wbits=31)
            data = unpacker.decompress(data, MOST_ARCHIVE_BYTES)
            if unpacker.unconsumed_tail:
                return None
        members: dict[str, bytes] = {}
        size = 0
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for entry in archive:
                size += entry.size
                if size > MOST_ARCHIVE_BYTES:
                    return None  # a sparse member may claim any size
                content = archive.extractfile(entry) if entry.isreg() else None
                if content is not None:
                    members[entry.name.removeprefix("./")] = content.read()
                elif not entry.isdir():
                    return None
        return members
    except (OSError, zlib.error, tarfile.TarError, EOFError, ValueError):
        return None


def _blob_id(data: bytes) -> str:
    """The name that git gives to a content (SHA-1 repositories)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - git's own naming


def _blobs(listing: str) -> dict[str, str]:
    """{path: blob id} of `git ls-tree -r`; a mode other than a plain file's gives an id that matches nothing."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        head, _, path = line.partition("\t")
        mode, _, name = head.split(" ")
        found[path] = name if mode == "100644" else f"{mode} {name}"
    return found
