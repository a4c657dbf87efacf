"""The index and the manifest say exactly what was written."""

from pathlib import Path

import pyarrow as pa
import pytest

from schemas.errors import CheckError, InputError
from schemas.files import read_json, write_json
from schemas.manifest import Manifest, describe_files, manifest_path, read_manifest, write_manifest
from schemas.shard import ShardFile, ShardIndex, StageIndex, read_index, shard_schema, token_type, write_index


def _index() -> ShardIndex:
    file = ShardFile("sft-0-64/part-00000.arrow", "ab", 10, 2, 100, 30, 5)
    return ShardIndex(512, "tok", "rec", [StageIndex("sft-0-64", "sft", 64, [file], {"fill": 0.99})])


def test_token_type_widens_when_ids_no_longer_fit() -> None:
    assert token_type(65_536) == pa.uint16()
    assert token_type(65_537) == pa.uint32()


def test_schema_states_alignment_and_version() -> None:
    metadata = shard_schema(512, {"stage": "x"}).metadata
    assert metadata[b"datamix.alignment"] == b"inputs"
    assert metadata[b"datamix.stage"] == b"x"
    assert metadata[b"datamix.version"] == b"1"


def test_index_round_trip(tmp_path: Path) -> None:
    write_index(tmp_path, _index())
    back = read_index(tmp_path)
    assert back == _index()
    assert back.digest() == _index().digest()
    assert (back.stages[0].rows, back.stages[0].tokens, back.stages[0].trained_tokens) == (2, 100, 30)


def test_newer_index_is_refused(tmp_path: Path) -> None:
    path = write_index(tmp_path, _index())
    raw = read_json(path)
    raw["version"] = "99"
    write_json(path, raw)
    with pytest.raises(CheckError, match="version 99 is newer than 1"):
        read_index(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_broken_index_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "index.json").write_text(content)
    with pytest.raises(InputError, match=r"index\.json"):
        read_index(tmp_path)


def test_missing_index_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Run the shards step first"):
        read_index(tmp_path)


def test_manifest_round_trip_and_absence(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc")
    files = describe_files(tmp_path, [tmp_path / "a.txt"])
    manifest = Manifest("read", "key", files, {"documents": 1})
    assert read_manifest(tmp_path, "read") is None
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path, "read") == manifest
    assert files[0].path == "a.txt"
    assert files[0].bytes == 3


def test_half_written_manifest_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "read.json").write_text('{"step": "re')
    assert read_manifest(tmp_path, "read") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"step": "read", "key": "k", "files": [{"path": "a"}]}'])
def test_damaged_manifest_is_a_step_that_is_not_done(tmp_path: Path, text: str) -> None:
    path = manifest_path(tmp_path, "read")
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    assert read_manifest(tmp_path, "read") is None
