"""The near side of the sandbox: starts the warm interpreter, sends it runs, replaces it when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from pipelines.synthesis.sandbox.bubblewrap import bubblewrap_options, bubblewrap_program
from pipelines.synthesis.sandbox.folders import own_folder
from pipelines.synthesis.sandbox.notice import warn_of_limits
from pipelines.synthesis.sandbox.trees import remove_tree
from pipelines.synthesis.sandbox.workspace import Workspace
from schemas.errors import DatamixError, UsageError

__all__ = ["Limits", "RunResult", "Sandbox"]

SERVER = Path(__file__).with_name("server.py")
START_SECONDS = 60.0
GRACE_SECONDS = 10.0  # beyond a run's own wall limit, before the server itself is taken for lost
# imported once by the warm interpreter: a fork has them for free
MODULES = [
    "__future__",
    "abc",
    "array",
    "ast",
    "base64",
    "bisect",
    "binascii",
    "calendar",
    "cmath",
    "codecs",
    "collections",
    "collections.abc",
    "colorsys",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "gc",
    "hashlib",
    "heapq",
    "html",
    "html.entities",
    "io",
    "ipaddress",
    "itertools",
    "json",
    "keyword",
    "linecache",
    "locale",
    "math",
    "numbers",
    "operator",
    "os",
    "posixpath",
    "pprint",
    "random",
    "re",
    "reprlib",
    "shlex",
    "stat",
    "statistics",
    "string",
    "struct",
    "sys",
    "textwrap",
    "threading",
    "time",
    "token",
    "tokenize",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "unittest",
    "urllib.parse",
    "warnings",
    "weakref",
    "zlib",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run. CPU, memory, file size and open files are per process; the others for the whole run.

    `output_bytes` is kept of the output (both ends, the middle is cut); at `stream_bytes` of output the run is stopped.
    """

    cpu_seconds: int = 5
    wall_seconds: float = 30.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 16 << 20
    open_files: int = 64
    processes: int = 32
    disk_bytes: int = 64 << 20
    output_bytes: int = 16_000
    stream_bytes: int = 32 << 20


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    `reason` is None for a run that ended by itself, else why it was stopped: "wall", "cpu", "output", "disk",
    "server" (no process could be made) or "lost" (the warm interpreter died with it). `result` is the value of a call.
    `cpu_seconds` is for measuring only: it differs between runs and never goes into an observation.
    """

    exit_code: int
    output: str
    reason: str | None = None
    result: Any = None
    cpu_seconds: float = 0.0


class Sandbox:
    """One warm interpreter and the folder that its workspaces lie in. See the package's docstring for what it promises.

    `level` "auto" takes bubblewrap when it works; "bubblewrap" insists (UsageError if it does not work); "limits" does
    without; "plain" is limits without any namespace, for machines and tests that have none. `plugins` are files with
    trusted functions that `call` may run; they are loaded before the first fork.
    """

    def __init__(
        self,
        limits: Limits = Limits(),
        level: Literal["auto", "bubblewrap", "limits", "plain"] = "auto",
        plugins: Sequence[Path] = (),
    ) -> None:
        self.limits = limits
        self._plugins = [str(path) for path in plugins]
        self._pid = os.getpid()
        self._process: subprocess.Popen[str] | None = None
        self._root: Path | None = None
        self._count = 0
        bubblewrap = bubblewrap_program() if level in ("auto", "bubblewrap") else None
        if level == "bubblewrap" and bubblewrap is None:
            raise UsageError("bubblewrap is not installed or does not work here. Install bwrap, or use level 'limits'")
        self._bubblewrap = bubblewrap
        self._plain = level == "plain"
        self.level = "bubblewrap" if bubblewrap else "limits"
        self.gaps: tuple[str, ...] = ()
        self.uid: int | None = None
        self._start()
        if level == "auto" and bubblewrap is None:
            warn_of_limits(self.gaps)

    def workspace(self) -> Workspace:
        """A new empty folder for code to work in. It goes when the sandbox is closed."""
        root = self._folder()
        self._count += 1
        return Workspace(root / f"w{self._count:06d}", self.uid)

    def run_python(
        self, code: str, workspace: Workspace, stdin: str = "", bytecode: bool = False, **limits: Any
    ) -> RunResult:
        """Run program text in a fork of the warm interpreter, in the workspace, as `python main.py` would.

        The text is not written to disk. Keyword arguments replace fields of `limits`. Never raises for what the code
        does. Output is stdout and stderr as written; the workspace appears as /workspace. With `bytecode` imports leave
        __pycache__ there, so that later runs need not compile again.
        """
        request = {"kind": "python", "code": code, "stdin": stdin, "bytecode": bytecode}
        return self._send(request, workspace, limits)

    def run_command(self, argv: Sequence[str], workspace: Workspace, stdin: str = "", **limits: Any) -> RunResult:
        """Run a program by its name on PATH; exit code 127 when there is none. Else like `run_python`."""
        return self._send({"kind": "command", "argv": list(argv), "stdin": stdin, "bytecode": False}, workspace, limits)

    def call(
        self, function: str, payload: Any, workspace: Workspace, bytecode: bool = False, **limits: Any
    ) -> RunResult:
        """Run "module:function" of a plugin with a JSON value, in a fork; its JSON value is `RunResult.result`.

        The function may run untrusted code, so its result is only as good as that code lets it be: what a verdict needs
        (expected values) stays out of the payload; bytecode that earlier runs left is as untrusted as they were
        (`Workspace.drop_bytecode`). `result` is None when the fork died before it answered.
        """
        request = {"kind": "call", "function": function, "payload": payload, "bytecode": bytecode}
        return self._send(request, workspace, limits)

    def close(self) -> None:
        """Kill everything, remove every folder. Idempotent; `workspace` starts it again."""
        process, root, self._process, self._root = self._process, self._root, None, None
        if self._pid != os.getpid():
            return  # a fork of the client: these belong to the parent
        if process is not None:
            _kill_server(process)
        if root is not None:
            remove_tree(root)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _folder(self) -> Path:
        if self._process is None:
            self._start()
        if self._root is None:
            raise DatamixError("the sandbox was closed while it was in use")
        return self._root

    def _start(self) -> None:
        if self._root is None:
            self._root = own_folder()
            self._root.chmod(0o755)
        with tempfile.TemporaryFile() as complaints:
            argv = _server_command(self._root, self._bubblewrap, self._plugins, self.limits.disk_bytes)
            self._process = _spawn(argv, complaints)
            report = self._exchange(self._configuration(), START_SECONDS)
            if report is None:
                _kill_server(self._process)
                complaints.seek(0)
                said = complaints.read()[-400:].decode("utf-8", "replace").strip().split("\n")[-1]
                self._process = None
                self.close()
                raise DatamixError(f"the sandbox's interpreter did not start: {said or 'it said nothing'}")
        gained, self.uid = set(report["gained"]), report["uid"]

        root_without_user = os.geteuid() == 0 and self.uid is None
        gaps = {
            "network": "network" not in gained,
            "signals": not (("pids" in gained and report["pid_one"]) or self.uid is not None),
            "files": "mounts" not in gained,
            "processes": root_without_user,
        }
        self.gaps = tuple(name for name, open_ in gaps.items() if open_)

    def _configuration(self) -> dict[str, Any]:
        """The server's first line of input."""
        return {
            "root": str(self._root),
            "inside_bubblewrap": self._bubblewrap is not None,
            "plain": self._plain,
            "gained": ["network", "pids", "mounts"] if self._bubblewrap else [],
            "scratch_bytes": self.limits.disk_bytes,
            "uid": 61184 + os.getpid() % 4000,  # a range that no login uses (systemd's dynamic users)
            "modules": MODULES,
            "plugins": self._plugins,
        }

    def _send(self, request: dict[str, Any], workspace: Workspace, changes: dict[str, Any]) -> RunResult:
        """One exchange with the server; a lost server is replaced, and the run that killed it is recorded as lost."""
        self._folder()
        limits = replace(self.limits, **changes) if changes else self.limits
        if not workspace.root.is_dir():
            workspace.clear()
        request = {**request, "folder": str(workspace.root), "limits": asdict(limits)}
        reply = self._exchange(request, limits.wall_seconds + GRACE_SECONDS)
        if reply is None:
            if self._process is not None:
                _kill_server(self._process)
            self._start()
            return RunResult(137, "", "lost")
        result = _value(reply["result"]) if request["kind"] == "call" else None
        return RunResult(reply["exit_code"], reply["output"], reply["reason"], result, reply["cpu_seconds"])

    def _exchange(self, message: Any, seconds: float) -> dict[str, Any] | None:
        """Send one line, wait for one line: None when the server is gone or silent for too long."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = _read_line(process.stdout, seconds)
            return json.loads(line) if line.endswith("\n") else None
        except (OSError, ValueError):
            return None


def _value(text: str | None) -> Any:
    """The JSON value of a call, None for none and for what is no JSON: the code under the call can write there too."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _read_line(stream: IO[str], seconds: float) -> str:
    """A line, or what there is of one when the time is up. Reads the descriptor itself: nothing is left in a buffer."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream.fileno()], [], [], left)[0]:
            break
        data = os.read(stream.fileno(), 1 << 20)
        if not data:
            break
        parts.append(data)
    return b"".join(parts).decode()


def _server_command(root: Path, bubblewrap: str | None, plugins: Sequence[str], scratch_bytes: int) -> list[str]:
    """How the server is started: the interpreter itself, not a virtual environment's link to it."""
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    argv = [python, "-s", "-S", "-B", "-P", str(SERVER)]
    if bubblewrap:
        folders = {str(SERVER.parent), *(os.path.dirname(path) for path in plugins)}
        argv = [bubblewrap, *bubblewrap_options(root, sorted(folders), scratch_bytes), *argv]
    return argv


def _spawn(argv: list[str], complaints: IO[bytes]) -> subprocess.Popen[str]:
    """Start the server in its own session with an environment that holds nothing of ours."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HOME": "/tmp",  # noqa: S108 - replaced by the workspace in every run
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
    }
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        env=environment,
        cwd="/",
        start_new_session=True,
        text=True,
    )


def _kill_server(process: subprocess.Popen[str]) -> None:
    """Kill the server and its namespaces, and reap it. Runs in progress die with the process space or its cleanup."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(timeout=2.0)  # end of input: the server kills what runs and leaves
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
