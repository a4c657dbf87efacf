"""bubblewrap: how `bwrap` is called, and whether it works on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pipelines.synthesis.sandbox.folders import FOLDER_PREFIX

__all__ = ["bubblewrap_options", "bubblewrap_program"]


def bubblewrap_options(root: Path, folders: Sequence[str], scratch_bytes: int) -> list[str]:
    """bwrap's options: system read-only, `root` writable, `folders` (our own code) and the Python readable.

    Folders on the way to a bound one are made with mode 0755 (bwrap's own default of 0700 shuts other users out).
    """
    options = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:  # the children change to an unprivileged user, the server needs the right to
        options += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_DAC_OVERRIDE"):
            options += ["--cap-add", capability]
    else:
        options += ["--unshare-user"]
    options += ["--die-with-parent", "--new-session", "--as-pid-1", "--proc", "/proc", "--dev", "/dev"]
    for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc"):
        if os.path.islink(folder):
            options += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            options += ["--ro-bind", folder, folder]
    options += ["--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    for prefix in sorted({os.path.realpath(sys.base_prefix), *map(os.path.realpath, folders)}):
        if not prefix.startswith("/usr/"):
            options += [*_way_to(prefix), "--ro-bind", prefix, prefix]
    options += [*_way_to(str(root)), "--bind", str(root), str(root), "--chdir", "/"]
    # last, when every place is made: without root the code is their owner, and would leave things to later runs there
    options += ["--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    return [*options, "--remount-ro", "/"]


def _way_to(path: str) -> list[str]:
    """bwrap's options that make the folders above `path`, apart from those that exist anyway."""
    options = []
    for folder in reversed(Path(path).parents):
        if str(folder) not in ("/", "/tmp", "/usr"):  # noqa: S108
            options += ["--perms", "0755", "--dir", str(folder)]
    return options


_bubblewrap_works: dict[str, bool] = {}


def bubblewrap_program() -> str | None:
    """The path of a bwrap that really works here (tried once a process), or None."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    if program not in _bubblewrap_works:
        with tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as folder:
            argv = [program, *bubblewrap_options(Path(folder), [], 1 << 20), "/bin/true"]
            tried = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30)
        _bubblewrap_works[program] = tried.returncode == 0
    return program if _bubblewrap_works[program] else None
