"""The work folder of a standalone step: commands side by side leave each other's alone, a killed one's is removed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.corpus.standalone_folder import claim, work_folder
from schemas.errors import UsageError

HOLD = """
import sys, time
from pathlib import Path
from pipelines.corpus.standalone_folder import work_folder
with work_folder(Path(sys.argv[1])) as folder:
    (folder / "documents").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_folder_in_use_by_another_command_stays(tmp_path: Path) -> None:
    with work_folder(tmp_path) as first:
        (first / "documents").mkdir()
        with work_folder(tmp_path) as second:
            assert first != second
            assert (first / "documents").is_dir()
        assert not second.exists()
        assert first.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_command_left_is_removed_by_the_next_and_not_before(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    held = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True)
    try:
        assert held.stdout is not None
        left = Path(held.stdout.readline().strip())
        with work_folder(tmp_path):
            assert (left / "documents").is_dir()
        held.send_signal(signal.SIGKILL)
        held.wait()
        assert (left / "documents").is_dir()
        claim(tmp_path)
        with work_folder(tmp_path) as folder:
            assert [path for path in tmp_path.iterdir() if path != folder] == []
    finally:
        held.kill()
        held.communicate()


def test_a_folder_with_something_else_in_it_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'thesis.txt', which is not a result of this"):
        claim(tmp_path)
