"""`datamix check` reads every checkpoint of a run against its own state: the step-N folders are in no manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from datamix.checks import CheckResult, check_path
from datamix.checks.checkpoints import check_resumable
from schemas.errors import InputError
from schemas.files import digest_of, sha256_file, write_json
from schemas.progress import Quiet
from schemas.shard import read_index


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "run/train/checkpoints/step-4"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(f"content of {name}", encoding="utf-8")
    state = {"step": 4, "key": "k", "files": {path.name: sha256_file(path) for path in sorted(folder.iterdir())}}
    write_json(folder / "state.json", {**state, "digest": digest_of(state)})
    return folder


def resumable_faults(saved: Path) -> list[str]:
    result = CheckResult("run", "run")
    check_resumable(saved.parents[2], result)
    return [fault.path for fault in result.faults]


def test_whole_checkpoint_passes(saved: Path) -> None:
    assert resumable_faults(saved) == []
    result = check_path(saved, Quiet())
    assert (result.ok, result.kind, result.summary) == (True, "checkpoint", {"step": 4, "files": 3})


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "state.json"])
def test_one_changed_byte_or_a_missing_file_is_named(saved: Path, name: str) -> None:
    path = saved / name
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"step": 4', b'"step": 5') if name == "state.json" else b"C" + whole[1:])
    assert resumable_faults(saved) == [f"train/checkpoints/step-4/{name}"]
    assert {fault.path for fault in check_path(saved, Quiet()).faults} == {name}
    path.unlink()
    assert f"train/checkpoints/step-4/{name}" in resumable_faults(saved)


@pytest.mark.parametrize(
    "content",
    [
        {"stages": [{"name": "p", "phase": "pretrain", "contxt_tokens": 4, "files": []}]},
        {"stages": 3},
        {"stages": ["p"]},
        {"stages": [], "version": "x"},
        {"stages": [{"name": "p", "phase": "pretrain", "context_tokens": 4, "files": [{"path": "p.arrow"}]}]},
    ],
)
def test_an_index_that_is_json_and_no_index_is_named(tmp_path: Path, content: object) -> None:
    write_json(tmp_path / "index.json", content)
    with pytest.raises(InputError, match=r"index\.json: not a shard index"):
        read_index(tmp_path)
    assert [fault.path for fault in check_path(tmp_path, Quiet()).faults] == ["index.json"]
