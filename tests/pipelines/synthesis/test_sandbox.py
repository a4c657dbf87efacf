"""Abuse of the sandbox, at every level that this machine can give: each attempt ends as a result, nothing is left.

Promise 8 of DESIGN §4: code from a teacher or a corpus runs only in the sandbox.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.synthesis.sandbox import Limits, RunResult, Sandbox, Workspace, WorkspaceError
from schemas.errors import UsageError

SMALL = Limits(
    cpu_seconds=1,
    wall_seconds=3.0,
    memory_bytes=400 << 20,
    file_bytes=1 << 20,
    open_files=32,
    processes=12,
    disk_bytes=4 << 20,
    output_bytes=2_000,
    stream_bytes=2 << 20,
)


@pytest.fixture(scope="module", params=["bubblewrap", "limits", "plain"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    os.environ["DATAMIX_TEST_SECRET"] = "hunter2"
    try:
        box = Sandbox(SMALL, level=request.param)
    except UsageError as missing:
        pytest.skip(str(missing))
    with box:
        yield box


@pytest.fixture
def workspace(sandbox: Sandbox) -> Workspace:
    return sandbox.workspace()


def descendants(root: int) -> set[int]:
    """Every process below `root`, by the parent links of /proc."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(folder.name)] = int(fields[1])
    found = {root}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def attempt(sandbox: Sandbox, workspace: Workspace, code: str, **limits: object) -> RunResult:
    """Run it, then see that nothing runs on, and that the sandbox still works."""
    assert sandbox._process is not None
    before = descendants(sandbox._process.pid)
    result = sandbox.run_python(textwrap.dedent(code), workspace, **limits)
    if result.reason != "lost":
        assert descendants(sandbox._process.pid) == before
    after = sandbox.run_python("print('alive')", workspace)
    assert (after.exit_code, after.output) == (0, "alive\n")
    return result


def test_prints_and_exit_codes_come_back(sandbox: Sandbox, workspace: Workspace) -> None:
    assert attempt(sandbox, workspace, "print('a'); import sys; print('b', file=sys.stderr)").output == "a\nb\n"
    assert attempt(sandbox, workspace, "raise SystemExit(7)").exit_code == 7
    assert attempt(sandbox, workspace, "import os; os._exit(5)").exit_code == 5


def test_traceback_names_the_workspace_and_no_real_path(sandbox: Sandbox, workspace: Workspace) -> None:
    workspace.write("pkg/broken.py", "def f():\n    return 1 / 0\n")
    result = attempt(sandbox, workspace, "from pkg.broken import f\nf()\n")
    assert result.exit_code == 1
    assert 'File "/workspace/pkg/broken.py", line 2, in f' in result.output
    assert 'File "/workspace/main.py", line 2, in <module>' in result.output
    assert str(workspace.root.parent) not in result.output
    assert "server.py" not in result.output


def test_equal_programs_give_equal_output_whatever_ran_before(sandbox: Sandbox, workspace: Workspace) -> None:
    program = "import sys, json; print({'b', 'a', 'c'}, hash('x'), 'evil' in sys.modules, json.dumps(1))"
    first = attempt(sandbox, workspace, program).output
    attempt(sandbox, workspace, "import sys, json; sys.modules['evil'] = json; json.dumps = None")
    assert attempt(sandbox, workspace, program).output == first
    assert "False" in first


def test_command_runs_and_a_missing_one_is_127(sandbox: Sandbox, workspace: Workspace) -> None:
    workspace.write("a.txt", "one\ntwo\n")
    assert sandbox.run_command(["grep", "-n", "two", "a.txt"], workspace).output == "2:two\n"
    assert sandbox.run_command(["cat"], workspace, stdin="typed").output == "typed"
    assert sandbox.run_command(["no-such-program"], workspace).exit_code == 127


def test_plugins_are_loaded_before_their_folder_is_hidden(sandbox: Sandbox, tmp_path: Path) -> None:
    plugin = tmp_path / "doubling.py"
    plugin.write_text("def double(payload):\n    print('seen')\n    return {'value': payload['value'] * 2}\n")
    level = "plain" if sandbox._plain else sandbox.level
    with Sandbox(SMALL, level=level, plugins=[plugin]) as box:  # type: ignore[arg-type]
        workspace = box.workspace()
        result = box.call("doubling:double", {"value": 21}, workspace)
        assert (result.result, result.output, result.exit_code) == ({"value": 42}, "seen\n", 0)
        assert box.call("doubling:double", {}, workspace).result is None


def test_bytecode_is_kept_only_where_asked_and_never_stale(sandbox: Sandbox, workspace: Workspace) -> None:
    workspace.write("m.py", "X = 1\n")
    assert sandbox.run_python("import m; print(m.X)", workspace).output == "1\n"
    assert not (workspace.root / "__pycache__").exists()
    assert sandbox.run_python("import m; print(m.X)", workspace, bytecode=True).output == "1\n"
    assert (workspace.root / "__pycache__").exists()
    assert workspace.files() == [("m.py", 6)]
    workspace.write("m.py", "X = 2\n")
    assert sandbox.run_python("import m; print(m.X)", workspace, bytecode=True).output == "2\n"
    workspace.drop_bytecode()
    assert not (workspace.root / "__pycache__").exists()


def test_fork_bomb(sandbox: Sandbox, workspace: Workspace) -> None:
    if "processes" in sandbox.gaps:
        pytest.skip("the process limit does not bind here: a stated gap")
    code = """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
    """
    result = attempt(sandbox, workspace, code, wall_seconds=1.0)
    assert result.reason in ("wall", "cpu", "lost") or result.exit_code != 0


def test_process_limit_stops_the_twentieth_child(sandbox: Sandbox, workspace: Workspace) -> None:
    if "processes" in sandbox.gaps:
        pytest.skip("the process limit does not bind here: a stated gap")
    code = """
        import os, time
        made = 0
        try:
            for _ in range(20):
                if os.fork() == 0:
                    time.sleep(60)
                made += 1
        except OSError:
            print("stopped")
    """
    assert attempt(sandbox, workspace, code).output.endswith("stopped\n")


def test_allocation(sandbox: Sandbox, workspace: Workspace) -> None:
    result = attempt(sandbox, workspace, "x = bytearray(4 << 30)")
    assert (result.exit_code, "MemoryError" in result.output) == (1, True)


def test_slow_allocation(sandbox: Sandbox, workspace: Workspace) -> None:
    result = attempt(sandbox, workspace, "x = []\nwhile True: x.append(bytearray(8 << 20))")
    assert result.exit_code != 0


def test_gigabyte_write(sandbox: Sandbox, workspace: Workspace) -> None:
    code = "with open('big', 'wb') as f:\n    for _ in range(1024): f.write(bytes(1 << 20))"
    result = attempt(sandbox, workspace, code)
    assert result.exit_code != 0
    assert sum(size for _, size in workspace.files()) <= 1 << 20


def test_many_files(sandbox: Sandbox, workspace: Workspace) -> None:
    code = """
        import time
        n = 0
        while True:
            with open(f"f{n}", "wb") as f: f.write(bytes(1 << 19))
            n += 1
            time.sleep(0.01)
    """
    assert attempt(sandbox, workspace, code).reason == "disk"


def test_socket_to_this_machine(sandbox: Sandbox, workspace: Workspace) -> None:
    if "network" in sandbox.gaps:
        pytest.skip("no network namespace here: a stated gap")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=1)"
        result = attempt(sandbox, workspace, code)
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    assert result.exit_code == 1


def test_socket_to_the_network(sandbox: Sandbox, workspace: Workspace) -> None:
    if "network" in sandbox.gaps:
        pytest.skip("no network namespace here: a stated gap")
    code = """
        import socket
        for address in ("192.0.2.1", "8.8.8.8"):
            try:
                socket.create_connection((address, 53), timeout=1)
                print("connected")
            except OSError as error:
                print(error.errno)
    """
    assert attempt(sandbox, workspace, code).output == "101\n101\n"  # ENETUNREACH


def test_read_outside(sandbox: Sandbox, workspace: Workspace, tmp_path: Path) -> None:
    if "files" in sandbox.gaps:
        pytest.skip("no private mounts here: a stated gap")
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    result = attempt(sandbox, workspace, f"print(open({str(secret)!r}).read())")
    assert (result.exit_code, "hunter2" in result.output) == (1, False)
    result = attempt(sandbox, workspace, f"import os; print(os.listdir({str(Path.home())!r}))")
    ways = {
        Path(path).relative_to(Path.home()).parts[0]
        for path in (sys.base_prefix, workspace.root, Path.cwd())
        if Path(path).is_relative_to(Path.home())
    }  # what leads to folders that the code needs
    assert not ({path.name for path in Path.home().iterdir()} - ways) & set(result.output.split("'"))


def test_write_outside(sandbox: Sandbox, workspace: Workspace, tmp_path: Path) -> None:
    if "files" in sandbox.gaps:
        pytest.skip("no private mounts here: a stated gap")
    tmp_path.chmod(0o777)
    targets = [str(tmp_path / "left"), "/usr/left", "/etc/left", "/left", "/tmp/left", "/dev/shm/left"]
    targets += ["/dev/left", str(Path(os.__file__).parents[3] / "left")]
    code = f"""
        for path in {targets!r}:
            try:
                open(path, "w").write("x")
            except OSError:
                pass
    """
    attempt(sandbox, workspace, code)
    assert [path for path in targets if Path(path).exists()] == []
    seen = attempt(sandbox, workspace, f"import os; print([p for p in {targets!r} if os.path.exists(p)])")
    assert seen.output == "[]\n"  # the private /tmp is emptied between runs


def test_deletes_its_own_folder(sandbox: Sandbox, workspace: Workspace) -> None:
    workspace.write("kept.txt", "x")
    attempt(sandbox, workspace, "import shutil, os; shutil.rmtree(os.getcwd(), ignore_errors=True)")
    workspace.write("again.txt", "y")
    assert workspace.read("again.txt") == "y"


def test_ignores_sigterm(sandbox: Sandbox, workspace: Workspace) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    result = attempt(sandbox, workspace, code, wall_seconds=0.5)
    assert (result.reason, result.exit_code) == ("wall", 137)


def test_stops_itself(sandbox: Sandbox, workspace: Workspace) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    assert attempt(sandbox, workspace, code, wall_seconds=0.5).reason == "wall"


def test_endless_output_is_cut_in_the_middle(sandbox: Sandbox, workspace: Workspace) -> None:
    result = attempt(sandbox, workspace, "print('start')\nwhile True: print('x' * 1000)")
    assert result.reason == "output"
    assert result.output.startswith("start\n")
    assert "bytes cut" in result.output
    assert len(result.output) < 2_200


def test_endless_loop(sandbox: Sandbox, workspace: Workspace) -> None:
    result = attempt(sandbox, workspace, "while True: pass")
    assert result.reason in ("cpu", "wall")


def test_daemon_does_not_outlive_the_run(sandbox: Sandbox, workspace: Workspace) -> None:
    code = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
        print("launched")
    """
    assert attempt(sandbox, workspace, code).output == "launched\n"


def test_program_started_in_the_background_does_not_outlive_the_run(sandbox: Sandbox, workspace: Workspace) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
    assert attempt(sandbox, workspace, code).exit_code == 0


def test_exit_handler_that_waits(sandbox: Sandbox, workspace: Workspace) -> None:
    code = "import atexit, time; atexit.register(time.sleep, 600)"
    assert attempt(sandbox, workspace, code, wall_seconds=0.5).reason == "wall"


def test_kills_its_parent(sandbox: Sandbox, workspace: Workspace) -> None:
    result = attempt(sandbox, workspace, "import os, signal; os.kill(os.getppid(), signal.SIGKILL); print('on')")
    if "signals" not in sandbox.gaps:
        assert result.reason is None


def test_kills_all_it_can(sandbox: Sandbox, workspace: Workspace) -> None:
    if "signals" in sandbox.gaps:
        pytest.skip("code could signal this very test: a stated gap")
    attempt(sandbox, workspace, "import os, signal; os.kill(-1, signal.SIGKILL)")
    assert attempt(sandbox, workspace, "print('on')").output == "on\n"


def test_opens_too_many_files(sandbox: Sandbox, workspace: Workspace) -> None:
    result = attempt(sandbox, workspace, "x = [open('f', 'w') for _ in range(1000)]")
    assert "Too many open files" in result.output


def test_segmentation_fault(sandbox: Sandbox, workspace: Workspace) -> None:
    assert attempt(sandbox, workspace, "import ctypes; ctypes.string_at(0)").exit_code == 128 + 11


def test_deep_recursion(sandbox: Sandbox, workspace: Workspace) -> None:
    code = "import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()"
    assert attempt(sandbox, workspace, code).exit_code != 0


def test_thousand_threads(sandbox: Sandbox, workspace: Workspace) -> None:
    code = """
        import threading, time
        for _ in range(1000):
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    """
    if "processes" in sandbox.gaps:
        assert attempt(sandbox, workspace, code, wall_seconds=2.0).exit_code is not None
    else:
        assert "can't start new thread" in attempt(sandbox, workspace, code).output


def test_secrets_of_the_environment_are_not_passed_on(sandbox: Sandbox, workspace: Workspace) -> None:
    output = attempt(sandbox, workspace, "import os; print(sorted(os.environ))").output
    assert "DATAMIX_TEST_SECRET" not in output
    code = "import os; print(open(f'/proc/{os.getppid()}/environ').read())"
    assert "hunter2" not in attempt(sandbox, workspace, code).output


def test_limits_cannot_be_raised(sandbox: Sandbox, workspace: Workspace) -> None:
    code = """
        import resource
        for name in ("RLIMIT_CPU", "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC"):
            try:
                resource.setrlimit(getattr(resource, name), (2**40, 2**40))
                print(name)
            except (ValueError, OSError):
                pass
    """
    assert attempt(sandbox, workspace, code).output == ""


def test_limits_of_a_run_do_not_stick_to_the_next(sandbox: Sandbox, workspace: Workspace) -> None:
    attempt(sandbox, workspace, "pass", file_bytes=1000, memory_bytes=200 << 20)
    result = attempt(sandbox, workspace, "open('f', 'wb').write(bytes(500_000)); x = bytearray(250 << 20); print('ok')")
    assert result.output == "ok\n"


def test_cannot_become_root(sandbox: Sandbox, workspace: Workspace) -> None:
    code = """
        import os
        try:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
            os.chown(".", 12345, 12345)
            print("root")
        except OSError:
            print("refused")
    """
    assert attempt(sandbox, workspace, code).output == "refused\n"


def test_memory_of_the_server_is_out_of_reach(sandbox: Sandbox, workspace: Workspace) -> None:
    if "processes" in sandbox.gaps:
        pytest.skip("runs as the root that the server is: a stated gap")
    code = "import os; open(f'/proc/{os.getppid()}/mem', 'r+b')"
    assert "PermissionError" in attempt(sandbox, workspace, code).output


def test_forged_replies_reach_nobody(sandbox: Sandbox, workspace: Workspace) -> None:
    code = """
        import os
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b'{"exit_code": 0, "output": "forged"}\\n')
            except OSError:
                pass
        print("real")
    """
    assert attempt(sandbox, workspace, code).output == "real\n"


def test_links_are_not_followed_from_outside(sandbox: Sandbox, workspace: Workspace) -> None:
    attempt(sandbox, workspace, "import os; os.symlink('/etc', 'link'); os.symlink('/etc/passwd', 'file')")
    for path in ("link/passwd", "file"):
        with pytest.raises(WorkspaceError):
            workspace.read(path)
        with pytest.raises(WorkspaceError):
            workspace.write(path, "x")
    assert workspace.files() == []


def test_pipes_in_the_workspace_do_not_block_reading(sandbox: Sandbox, workspace: Workspace) -> None:
    attempt(sandbox, workspace, "import os; os.mkfifo('pipe')")
    with pytest.raises(WorkspaceError, match="not a regular file"):
        workspace.read("pipe")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "/workspace/../x", "a\0b"])
def test_paths_cannot_leave_the_workspace(workspace: Workspace, path: str) -> None:
    with pytest.raises(WorkspaceError):
        workspace.read(path)
    with pytest.raises(WorkspaceError):
        workspace.write(path, "x")


def test_locked_folders_are_removed(sandbox: Sandbox, workspace: Workspace) -> None:
    code = """
        import os
        os.makedirs("a/b")
        open("a/b/f", "w").write("x")
        os.chmod("a/b", 0); os.chmod("a", 0)
    """
    attempt(sandbox, workspace, code)
    workspace.clear()
    assert list(workspace.root.iterdir()) == []


def test_closing_leaves_no_process_and_no_folder() -> None:
    box = Sandbox(SMALL)
    root = box.workspace().root.parent
    assert box._process is not None
    pid = box._process.pid
    box.close()
    assert not root.exists()
    assert not Path("/proc", str(pid)).exists()


def test_killed_client_leaves_no_process() -> None:
    code = """
        import os, sys, time
        from pipelines.synthesis.sandbox import Sandbox
        box = Sandbox()
        print(box._process.pid, flush=True)
        box.run_python("import time; time.sleep(600)", box.workspace(), wall_seconds=300.0)
    """
    client = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    server = int(client.stdout.readline())
    family = descendants(server)
    client.kill()
    client.wait()
    client.stdout.close()
    for _ in range(200):
        if not any(_is_alive(pid) for pid in family):
            return
        subprocess.run(["sleep", "0.05"], check=True)
    pytest.fail("the server of a killed client still runs")


def _is_alive(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
