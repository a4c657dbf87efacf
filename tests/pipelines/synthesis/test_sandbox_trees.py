"""Folders of any depth, closed folders, forged results: what untrusted code leaves does not break who cleans up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.synthesis.environments.offices.folder import OfficeFolder
from pipelines.synthesis.sandbox import Limits, Sandbox, Workspace
from pipelines.synthesis.sandbox.trees import LONGEST_PATH, remove_tree, walk

DIG = "import os\nfor _ in range({n}):\n    os.mkdir('deep')\n    os.chdir('deep')\nprint('dug')"
DEPTH = 1_100  # deeper than Python calls itself, and longer than a path may be


@pytest.fixture(scope="module", params=["auto", "limits", "plain"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(Limits(wall_seconds=20.0), level=request.param) as opened:
        yield opened


@pytest.fixture
def workspace(sandbox: Sandbox) -> Workspace:
    return sandbox.workspace()


def _dig(top: Path, depth: int) -> None:
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    _dig(top, DEPTH)
    (top / "0").mkdir()  # a name that moved folders would get
    (top / "0" / "file").write_text("x")
    remove_tree(top)
    assert list(tmp_path.iterdir()) == []


def test_removing_a_tree_follows_no_link_and_opens_closed_folders(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    top = tmp_path / "top"
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "link").symlink_to(kept)
    (top / "closed" / "inner").chmod(0)
    (top / "closed").chmod(0)
    remove_tree(top)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "x"


def test_walking_stops_where_paths_get_too_long_and_says_so(tmp_path: Path) -> None:
    _dig(tmp_path, DEPTH)
    (tmp_path / "link").symlink_to(tmp_path)
    seen = list(walk(tmp_path))
    assert sorted(seen[0][1]) == ["deep", "link"] and seen[0][2] == []
    assert seen[-1][1:] == ([], ["deep"])  # the folder that is too deep is told among the other names
    assert all(len(os.fsencode(parent)) <= LONGEST_PATH for parent, _, _ in seen)
    remove_tree(tmp_path / "deep")


def test_a_deep_tree_does_not_outlive_its_run(sandbox: Sandbox, workspace: Workspace) -> None:
    run = sandbox.run_python(DIG.format(n=DEPTH), workspace)
    assert run.reason == "disk" or run.output == "dug\n"
    assert workspace.files() == []
    workspace.drop_bytecode()
    workspace.clear()
    assert list(workspace.root.iterdir()) == []
    assert sandbox.run_python("print(1)", workspace).output == "1\n"


def test_scratch_is_empty_for_the_next_run_after_a_deep_tree(sandbox: Sandbox, workspace: Workspace) -> None:
    if "files" in sandbox.gaps:
        pytest.skip("scratch folders are shared at this level")
    sandbox.run_python("import os\nos.chdir('/tmp')\n" + DIG.format(n=DEPTH), workspace)
    assert "'deep'" not in sandbox.run_python("import os; print(os.listdir('/tmp'))", workspace).output


def test_a_tree_too_deep_to_be_looked_into_counts_as_too_much(sandbox: Sandbox, workspace: Workspace) -> None:
    code = DIG.format(n=DEPTH) + "\nimport time\ntime.sleep(15)"
    run = sandbox.run_python(code, workspace)
    assert run.reason == "disk"


def test_files_without_content_are_limited_too(sandbox: Sandbox, workspace: Workspace) -> None:
    code = "import time\nfor n in range(300):\n    open(f'e{n}', 'w').close()\ntime.sleep(15)"
    assert sandbox.run_python(code, workspace, disk_bytes=100 << 10).reason == "disk"


def test_a_workspace_closed_by_its_code_can_be_opened_again(sandbox: Sandbox, workspace: Workspace) -> None:
    sandbox.run_python("import os; os.chmod('.', 0)", workspace)
    run = sandbox.run_python("print('still here')", workspace)
    assert run.output == "still here\n"  # and no trace of the sandbox's own files
    opened = sandbox.run_command(["sh", "-c", 'chmod 755 "$HOME" && cd "$HOME" && pwd'], workspace)
    assert opened.output == "/workspace\n"


@pytest.mark.parametrize("written", ["b'garbage'", "b'[' * 60_000", "b'\\xff\\xfe'", "b'[1]'"])
def test_a_program_cannot_write_a_result(sandbox: Sandbox, workspace: Workspace, written: str) -> None:
    run = sandbox.run_python(f"import os\nos.write(3, {written})", workspace)
    assert run.result is None and run.exit_code == 1 and "Bad file descriptor" in run.output


def test_a_forged_result_of_a_call_is_none(tmp_path: Path) -> None:
    plugin = tmp_path / "forging.py"
    plugin.write_text("import os\ndef forge(payload):\n    os.write(3, payload.encode())\n    os._exit(0)\n")
    with Sandbox(level="limits", plugins=[plugin]) as opened:
        folder = opened.workspace()
        results = [opened.call("forging:forge", text, folder).result for text in ("no json", "[" * 60_000, '{"a": 1}')]
    assert results == [None, None, {"a": 1}]


def test_what_a_killed_process_left_goes_with_the_next_sandbox_or_office(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    hold = "import sys, time; {make}; print('made', flush=True); time.sleep(600)"
    makers = (
        "import pipelines.synthesis.environments.offices.folder as o; f = o.OfficeFolder(); f.fill({'a': b''}, {'d'})",
        "from pipelines.synthesis.sandbox import Sandbox; f = Sandbox(); f.workspace().write('a', 'x')",
    )
    for maker in makers:
        code = hold.replace("{make}", maker)
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None and process.stdout.readline() == "made\n"
        process.kill()
        process.wait()
        process.stdout.close()
    assert len(list(tmp_path.glob("datamix-*"))) >= 1  # of the office: a killed sandbox's server may have tidied up
    folder = OfficeFolder()
    assert [path.name.split("-")[2] for path in tmp_path.glob("datamix-*")] == [str(os.getpid())]
    folder.close()
    folder.close()
    assert list(tmp_path.iterdir()) == []
