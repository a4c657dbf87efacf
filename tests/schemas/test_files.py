"""Promise 3, the file half: a path written by datamix is whole or absent (DESIGN §4)."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from schemas.files import (
    TEMPORARY_PREFIX,
    atomic_path,
    canonical_json,
    digest_of,
    read_json,
    remove_temporaries,
    sha256_file,
    write_json,
)


def test_file_appears_only_when_the_block_ends_well(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]


def test_failing_block_keeps_the_old_bytes_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")

    def write_and_fail() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_and_fail()
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_kill_while_writing_keeps_the_old_bytes_and_the_leftover_is_removable(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")
    program = textwrap.dedent(
        f"""
        import os, signal
        from schemas.files import atomic_path
        with atomic_path({str(target)!r}) as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    assert remove_temporaries(tmp_path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_temporary_name_is_recognisable(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a.bin") as temporary:
        assert temporary.name == f"{TEMPORARY_PREFIX}{os.getpid()}-a.bin"
        temporary.write_bytes(b"")


def test_json_round_trip_is_sorted_and_ends_with_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"b": 1, "a": "é"})
    assert path.read_text(encoding="utf-8") == '{\n "a": "é",\n "b": 1\n}\n'
    assert read_json(path) == {"a": "é", "b": 1}


def test_digest_does_not_depend_on_key_order() -> None:
    assert canonical_json({"b": [1, 2], "a": None}) == '{"a":null,"b":[1,2]}'
    assert digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1})
    assert digest_of({"a": 2}) != digest_of({"a": 3})


def test_sha256_of_a_file_is_the_published_value(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert sha256_file(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_folder_as_the_target_is_refused_by_its_own_name_before_any_work(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder") as refused, atomic_path(tmp_path):
        pytest.fail("the block must not run")
    assert refused.value.filename == str(tmp_path)
    assert list(tmp_path.parent.glob(".tmp-*")) == []


def test_a_pipe_or_device_as_the_target_is_refused_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="device or a pipe") as refused, atomic_path(pipe):
        pytest.fail("the block must not run")
    assert refused.value.filename == str(pipe)
    assert pipe.is_fifo()
