"""Kernel isolation for the sandbox server: namespaces, private mounts, another user, limits. Standard library only.

This file runs inside the server process (see server.py), which imports nothing else of ours. Every measure is tried
and reported; none is assumed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

from trees import remove_tree  # type: ignore[import-not-found,unused-ignore]

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
ALL_SPACES = CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
SYSTEM_FOLDERS = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "proc", "sys", "dev", "tmp", "var"}
SCRATCH_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - mounted over with private file systems

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the shared namespaces named by `flags` (os.unshare exists from Python 3.12 only). Raises OSError."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument. Raises OSError."""
    _check(_libc.prctl(option, value, 0, 0, 0), "prctl")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2). Raises OSError."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def leave_shared_spaces() -> set[str]:
    """Move to own network, process, IPC and host-name spaces; what worked: 'network', 'pids', 'user'.

    Root leaves directly; anyone else (or root without CAP_SYS_ADMIN) through an own user space, mapped to itself.
    """
    if os.geteuid() == 0:
        try:
            unshare(ALL_SPACES)
            return {"network", "pids"}
        except OSError:
            pass  # a container's root without CAP_SYS_ADMIN: the user space below is the other way
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER | ALL_SPACES)
    except OSError:
        return set()
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as handle:
            handle.write(text)
    return {"network", "pids", "user"}


def make_private_mounts(root: str, scratch_bytes: int) -> bool:
    """Read-only system, empty private /tmp, /var/tmp and /dev/shm, other folders hidden; `root` stays writable.

    Needs CAP_SYS_ADMIN in the current user space. Returns whether it worked; a failure half-way raises OSError,
    because a half-changed view is not something to go on with.
    """
    try:
        unshare(CLONE_NEWNS)
    except OSError:
        return False
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    prefix = os.path.realpath(sys.base_prefix)
    held = {path: os.open(path, os.O_PATH) for path in (root, prefix)}
    _make_read_only()
    hidden = [f"/{name}" for name in sorted(os.listdir("/")) if name not in SYSTEM_FOLDERS]
    for folder in [*hidden, *SCRATCH_FOLDERS]:
        if os.path.isdir(folder) and not os.path.islink(folder):
            size = scratch_bytes if folder in SCRATCH_FOLDERS else 1 << 20
            mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},mode=1777,nr_inodes=4096")
    for path, descriptor in held.items():
        if not os.path.exists(path):
            os.makedirs(path, mode=0o755)
        mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND)
        os.close(descriptor)
    mount(None, root, None, MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV)  # it was made read-only with the rest
    for folder in hidden:
        with contextlib.suppress(OSError):
            mount(None, folder, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return True


def _make_read_only() -> None:
    """Turn every mount that may be changed to read-only; / itself must work."""
    with open("/proc/self/mountinfo") as handle:
        points = [line.split()[4].encode().decode("unicode_escape") for line in handle]
    for point in sorted(set(points)):
        if point == "/proc" or point.startswith("/proc/"):
            continue
        for extra in (MS_NOSUID, MS_NOSUID | MS_NODEV):  # a user space may not drop flags that are locked on
            try:
                mount(None, point, None, MS_BIND | MS_REMOUNT | MS_RDONLY | extra)
                break
            except OSError:
                if point == "/" and extra & MS_NODEV:
                    raise


def mount_own_proc() -> None:
    """A /proc of the own process space, where the kernel allows it (it may not inside a container)."""
    with contextlib.suppress(OSError):
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)


def pick_user(wanted: int) -> int | None:
    """The user to run untrusted code as, or None: tried in a child, which must also still find the standard library."""
    if os.geteuid() != 0:
        return None
    for uid in (wanted, 65534):
        pid = os.fork()
        if pid == 0:
            try:
                become(uid)
                open(os.__file__, "rb").close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        if os.waitpid(pid, 0)[1] == 0:
            return uid
    return None


def become(uid: int) -> None:
    """Change to user and group `uid` for good (root only)."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


# made once, before any fork: making array types in every child copies pages for nothing
_CAPABILITY_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()


def drop_capabilities() -> None:
    """Give up every capability of this process (a user space's first process has all of them inside it)."""
    _check(_libc.capset(_CAPABILITY_HEADER, _NO_CAPABILITIES), "capset")


def apply_limits(limits: dict[str, int], uid: int | None) -> None:
    """Set the limits of the calling process and give up its rights. Only ever called in a forked child."""
    cpu = limits["cpu_seconds"]
    pairs = [
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_AS, limits["memory_bytes"], limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 65536, 65536),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
    ]
    for kind, soft, hard in pairs:
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if uid is not None:
        become(uid)
    drop_capabilities()


def processes_of_user(uid: int) -> int:
    """How many threads the user runs already: RLIMIT_NPROC counts them all when the user is not an own one."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # it ended meanwhile
    return count


def kill_everything(leader: int, uid: int | None, own_pids: bool) -> None:
    """Kill what a run left: its group, then all that a pid space, a user or the subreaper can name; reap them all."""
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    if own_pids:
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)  # spares pid 1, which is the server
    elif uid is not None:
        helper = os.fork()
        if helper == 0:
            become(uid)
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
            os._exit(0)
        os.waitpid(helper, 0)
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for child in _children():
                    with contextlib.suppress(OSError):
                        os.kill(child, signal.SIGKILL)
                os.waitpid(-1, 0)


def clear_scratch(keep: str) -> None:
    """Empty the private scratch folders (a run must not see what an earlier one left); `keep` holds the workspaces."""
    for folder in SCRATCH_FOLDERS:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if keep == path or keep.startswith(path + "/"):
                continue
            with contextlib.suppress(OSError):
                remove_tree(path)


def _children() -> list[int]:
    """Direct children of this process: a subreaper also gets the orphans of its grandchildren."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as handle:
            return [int(word) for word in handle.read().split()]
    except OSError:
        return []
