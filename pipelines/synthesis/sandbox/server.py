"""The sandbox's fork server: a warm interpreter that forks once a run. A script of its own; standard library only.

Started as `python -I -S -B server.py`; one JSON object a line on stdin (first the configuration, then requests) and
one a line on stdout. It imports the usual modules once, never starts a thread, never runs or even compiles untrusted
text itself, and sets limits only in the children that it forks. End of input ends it and everything it started.

Request: {"kind": "python" | "command" | "call", "folder", "code" | "argv" | "function" + "payload", "stdin",
"bytecode", "limits"}.
Reply:   {"exit_code", "output", "reason", "result", "cpu_seconds"}; reason is null, "wall", "cpu", "output" or "disk".
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import stat
import sys
import time
import traceback
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import isolation  # type: ignore[import-not-found,unused-ignore]
import trees  # type: ignore[import-not-found,unused-ignore]

WORKSPACE = "/workspace"  # what the run's folder is called in every observation
DISK_POLL_SECONDS = 0.25
ENTRY_BYTES = 1_024
_WARM_CALLBACKS = 0  # exit functions of the warm modules themselves (set before the first fork)
MAX_RESULT_BYTES = 64 << 20


class Capture:
    """Bytes of a stream: the first half of the cap and the last half, so that the middle is what goes missing."""

    def __init__(self, cap: int) -> None:
        self.cap, self.total = cap, 0
        self.head, self.tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.cap - len(self.head)
        self.head += data[:room] if room > 0 else b""
        self.tail += data[max(0, room) :]
        if len(self.tail) > 2 * self.cap:
            del self.tail[: -self.cap]

    def text(self) -> str:
        if self.total <= 2 * self.cap:
            return bytes(self.head + self.tail).decode("utf-8", "replace")
        gap = self.total - 2 * self.cap
        tail = bytes(self.tail[-self.cap :]).decode("utf-8", "replace")
        return self.head.decode("utf-8", "replace") + f"\n[… {gap} bytes cut …]\n" + tail


def run(request: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Fork a child for one request, watch it, kill what it leaves, and say how it ended."""
    limits = request["limits"]
    out_read, out_write = os.pipe()
    result_read, result_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(request, state, out_read, out_write, result_read, result_write)
    os.close(out_write)
    os.close(result_write)
    output, result = Capture(limits["output_bytes"] // 2), Capture(MAX_RESULT_BYTES)
    reason, status, usage = _watch(pid, limits, request["folder"], {out_read: output, result_read: result})
    isolation.kill_everything(pid, state["uid"], state["own_pids"])
    if state["own_scratch"]:
        isolation.clear_scratch(state["root"])
    for descriptor, capture in ((out_read, output), (result_read, result)):
        _drain(descriptor, capture)
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(status)
    if reason is None and code == -signal.SIGXCPU:
        reason = "cpu"
    text = output.text().replace(request["folder"], WORKSPACE)
    return {
        "exit_code": 128 - code if code < 0 else code,
        "output": text,
        "reason": reason,
        "result": result.text() if result.total and result.total <= MAX_RESULT_BYTES else None,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }


def _watch(pid: int, limits: dict[str, Any], folder: str, captures: dict[int, Capture]) -> tuple[str | None, int, Any]:
    """Read the child's streams until it ends or breaks a limit: (reason, wait status, resource usage)."""
    poller = select.poll()
    ended = os.pidfd_open(pid)
    for descriptor in (*captures, ended, 0):
        poller.register(descriptor, select.POLLIN if descriptor else select.POLLHUP)
    start = time.monotonic()
    deadline, next_look = start + limits["wall_seconds"], start + DISK_POLL_SECONDS
    reason = None
    while reason is None:
        now = time.monotonic()
        ready = [fd for fd, _ in poller.poll(max(0.0, min(deadline, next_look) - now) * 1000)]
        for descriptor in ready:
            if descriptor in captures:
                data = os.read(descriptor, 65536)
                captures[descriptor].add(data)
                if not data:
                    poller.unregister(descriptor)
        if ended in ready:
            break
        now = time.monotonic()
        if 0 in ready:
            reason = "wall"  # the client is gone
        elif any(c.total > limits["stream_bytes"] for c in captures.values()):
            reason = "output"
        elif now >= deadline:
            reason = "wall"
        elif now >= next_look:
            next_look = now + DISK_POLL_SECONDS
            if _disk_use(folder) > limits["disk_bytes"]:
                reason = "disk"
    os.close(ended)
    if reason is not None:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return reason, status, usage


def _drain(descriptor: int, capture: Capture) -> None:
    """Take what is left in a pipe whose writers are dead."""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(descriptor, 65536):
            capture.add(data)


def _disk_use(folder: str) -> int:
    """Bytes under a folder; what vanishes meanwhile counts nothing.

    Every entry counts at least `ENTRY_BYTES`, for file systems also run out of entries; a tree too deep to be looked
    into counts as endless.
    """
    total = 0
    for parent, folders, names in trees.walk(folder):
        total += ENTRY_BYTES * len(folders)
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(parent, name))
                if stat.S_ISDIR(status.st_mode):
                    return 1 << 62
                total += max(ENTRY_BYTES, status.st_blocks * 512)
    return total


def _child(request: dict[str, Any], state: dict[str, Any], *pipes: int) -> None:
    """The forked child: never returns."""
    code = 1
    try:
        os.setsid()
        _, out_write, _, result_write = pipes
        source = os.open(os.devnull, os.O_RDONLY)
        if request.get("stdin"):
            source = os.memfd_create("stdin")
            os.write(source, request["stdin"].encode())
            os.lseek(source, 0, os.SEEK_SET)
        os.dup2(result_write, 3) if result_write != 3 else os.set_inheritable(3, True)
        for target, descriptor in ((0, source), (1, out_write), (2, out_write)):
            os.dup2(descriptor, target)
        os.closerange(4, 256)
        limits = dict(request["limits"])
        limits["processes"] += state["busy_processes"]
        _enter(request["folder"])
        isolation.apply_limits(limits, state["uid"])
        code = _perform(request)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _enter(folder: str) -> None:
    """Work in the run's folder, which an earlier run may have closed to its own user, or else in /.

    Root's rights pass closed folders; as the folder's owner we open it for a moment. So a run sees the same for both.
    """
    try:
        try:
            os.chdir(folder)
        except PermissionError:
            mode = os.lstat(folder).st_mode
            if not stat.S_ISDIR(mode):
                raise
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)
            os.chdir(folder)
            os.chmod(folder, stat.S_IMODE(mode))
    except OSError:
        os.chdir("/")


def _perform(request: dict[str, Any]) -> int:
    """Do what was asked, as the untrusted child; returns the exit code."""
    os.environ["HOME"] = os.environ["TMPDIR"] = request["folder"]
    if request["kind"] == "command":
        os.set_inheritable(3, False)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, which a program would inherit
        try:
            os.execvpe(request["argv"][0], request["argv"], os.environ)  # noqa: S606
        except OSError as error:
            os.write(2, f"{request['argv'][0]}: {error.strerror}\n".encode())
            return 127
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", newline="\n")
    sys.stderr = sys.stdout  # one stream, in the order in which things were written
    sys.path.insert(0, os.getcwd())
    sys.dont_write_bytecode = not request["bytecode"]
    if request["kind"] == "call":
        module, name = request["function"].split(":")
        result = getattr(sys.modules[module], name)(request["payload"])
        sys.stdout.flush()
        text = json.dumps(result).encode()
        while text:
            text = text[os.write(3, text) :]
        return 0
    os.close(3)
    return _run_python(request["code"])


def _run_python(code: str) -> int:
    """Run program text as `python FILE` would, with its tracebacks and exit codes."""
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = ["main.py"]
    name = os.path.join(os.getcwd(), "main.py")
    exit_code = 0
    try:
        import linecache

        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        exec(compile(code, name, "exec"), main.__dict__)  # noqa: S102 - this is the sandboxed child
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code)
    except BaseException as error:
        traceback.print_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        exit_code = 1
    import atexit
    import threading

    if threading.active_count() > 1 or "concurrent.futures" in sys.modules:
        threading._shutdown()  # type: ignore[attr-defined]
    if atexit._ncallbacks() > _WARM_CALLBACKS:
        atexit._run_exitfuncs()
    return exit_code & 255


def main() -> None:
    """Read the configuration, isolate, warm up, then serve until the input ends."""
    config = json.loads(sys.stdin.readline())
    os.umask(0o022)
    _warm_up(config["modules"], config["plugins"])  # before the folders that hold them are hidden
    gained: set[str] = set(config["gained"])
    if not config["inside_bubblewrap"] and not config["plain"]:
        gained |= isolation.leave_shared_spaces()
        if "pids" in gained:
            inner = os.fork()
            if inner:
                _wait_outside(inner)
            isolation.prctl(isolation.PR_SET_PDEATHSIG, signal.SIGKILL)
        if gained and isolation.make_private_mounts(config["root"], config["scratch_bytes"]):
            gained.add("mounts")
        if "pids" in gained:
            isolation.mount_own_proc()
    isolation.prctl(isolation.PR_SET_DUMPABLE, 0)
    isolation.prctl(isolation.PR_SET_CHILD_SUBREAPER, 1)
    uid = isolation.pick_user(config["uid"]) if "user" not in gained else None
    own_user = uid is not None or "user" in gained
    state = {
        "uid": uid,
        "root": config["root"],
        "own_pids": "pids" in gained and os.getpid() == 1,
        "own_scratch": "mounts" in gained,
        "busy_processes": 0 if own_user else isolation.processes_of_user(os.getuid()),
    }
    global _WARM_CALLBACKS
    import atexit

    _WARM_CALLBACKS = atexit._ncallbacks()
    gc.collect()
    gc.freeze()
    _reply({"gained": sorted(gained), "uid": uid, "pid_one": os.getpid() == 1})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _reply(run(request, state))
        except OSError as error:  # no process, no memory or no descriptor to be had: the run failed, the server lives
            _reply({"exit_code": 1, "output": str(error), "reason": "server", "result": None, "cpu_seconds": 0.0})
    for name in os.listdir(config["root"]):  # the client is gone: what it would have removed
        with contextlib.suppress(OSError):
            trees.remove_tree(os.path.join(config["root"], name))


def _warm_up(modules: list[str], plugins: list[str]) -> None:
    """Import what runs will find loaded; afterwards nothing of ours is on the path."""
    for name in modules:
        importlib.import_module(name)
    for path in plugins:
        sys.path.insert(0, os.path.dirname(path))
        importlib.import_module(os.path.basename(path).removesuffix(".py"))
        del sys.path[0]
    del sys.path[0]
    sys.dont_write_bytecode = True


def _wait_outside(inner: int) -> None:
    """The process that stays outside the new process space: ends with the inner one."""
    os.close(0)
    os.close(1)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 255)


def _reply(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
