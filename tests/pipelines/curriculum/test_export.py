"""Exports: labels, positions, masks and boundaries of every row, exactly."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.curriculum.export import export_shards
from pipelines.curriculum.export.rows import documents_of, labels_of, positions_of, rolled_mask
from pipelines.curriculum.inspect import Row, Segment, iter_rows, open_shard
from pipelines.curriculum.shards import shards
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.errors import CheckError, UsageError
from schemas.shard import read_index

ROW = Row(
    np.array([5, 6, 0, 7, 8, 9], dtype=np.uint16),
    np.array([False, True, True, False, False, True]),
    [Segment("a", 0, 3, []), Segment("b", 3, 3, [])],
)


@pytest.fixture
def run(make_run: Callable[..., RunContext]) -> Path:
    context = make_run()
    shards(context)
    return context.run


def rows_of(run: Path, stage: int) -> list[Row]:
    index = read_index(run / "shards")
    return [row for file in index.stages[stage].files for row in iter_rows(open_shard(run / "shards" / file.path))]


def test_one_row_in_other_terms() -> None:
    assert labels_of(ROW).tolist() == [-100, 6, 0, -100, -100, 9]
    assert positions_of(ROW).tolist() == [0, 1, 2, 0, 1, 2]
    assert rolled_mask(ROW).tolist() == [1, 1, 0, 0, 1, 0]
    ids, mask = documents_of(ROW, 0, np.uint16)
    assert ids.tolist() == [5, 6, 0, 7, 8, 9, 0]
    assert mask.tolist() == [False, True, True, False, False, True, False]


def test_the_first_target_of_a_segment_is_never_another_segments() -> None:
    """A mask rolled over a boundary would train the last token of one segment to give the first of the next."""
    wrong = Row(ROW.ids, np.array([False, False, False, True, False, False]), ROW.segments)
    assert rolled_mask(wrong).sum() == 0


def test_trl_parquet(run: Path, bpe: TextTokenizer, tmp_path: Path) -> None:
    said = export_shards(run / "shards", tmp_path, "trl", bpe, stage="sft-1-1024")
    table = [row for file in said["files"] for row in pq.read_table(file).to_pylist()]
    rows = rows_of(run, 2)
    assert len(table) == len(rows) == said["rows"]
    for got, row in zip(table, rows, strict=True):
        assert got["input_ids"] == row.ids.tolist()
        assert got["seq_lengths"] == [segment.length for segment in row.segments]
        assert [label != -100 for label in got["labels"]] == row.mask.tolist()
        assert got["position_ids"] == [i for n in got["seq_lengths"] for i in range(n)]


def test_megatron_parquet(run: Path, bpe: TextTokenizer, tmp_path: Path) -> None:
    said = export_shards(run / "shards", tmp_path, "megatron", bpe, stage="sft-1-1024")
    assert all(file.endswith(".idx.parquet") for file in said["files"])
    table = [row for file in said["files"] for row in pq.read_table(file).to_pylist()]
    for got, row in zip(table, rows_of(run, 2), strict=True):
        assert got["input_ids"] == row.ids.tolist()
        assert got["seq_start_id"] == [segment.start for segment in row.segments]
        assert sum(got["loss_mask"]) == int(row.mask.sum())
        targets = [i + 1 for i, on in enumerate(got["loss_mask"]) if on]
        assert targets == np.flatnonzero(row.mask).tolist()


def test_olmo_core_arrays(run: Path, bpe: TextTokenizer, tmp_path: Path) -> None:
    said = export_shards(run / "shards", tmp_path, "olmo-core", bpe, stage="pretrain-0-64")
    ids = np.concatenate([np.fromfile(f, np.uint16) for f in said["files"] if not f.endswith(".label_mask.npy")])
    mask = np.concatenate([np.fromfile(f, np.bool_) for f in said["files"] if f.endswith(".label_mask.npy")])
    segments = [segment for row in rows_of(run, 0) for segment in row.segments]
    assert len(ids) == len(mask) and int((ids == bpe.end_of_text_id).sum()) == len(segments)
    assert int(mask.sum()) == said["trained_tokens"]


def test_all_stages_are_written_and_counted(run: Path, bpe: TextTokenizer, tmp_path: Path) -> None:
    said = export_shards(run / "shards", tmp_path, "trl", bpe)
    index = read_index(run / "shards")
    assert said["tokens"] == sum(stage.tokens for stage in index.stages)
    assert len(said["files"]) == sum(len(stage.files) for stage in index.stages)


def test_wrong_requests_are_refused(run: Path, bpe: TextTokenizer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trl, megatron, olmo-core"):
        export_shards(run / "shards", tmp_path, "tar", bpe)
    with pytest.raises(UsageError, match="pretrain-0-64, sft-0-512"):
        export_shards(run / "shards", tmp_path, "trl", bpe, stage="sft-7")
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text((run / "tokenizer" / "tokenizer.json").read_text() + " ")
    with pytest.raises(CheckError, match="another tokenizer"):
        export_shards(run / "shards", tmp_path, "trl", load_tokenizer(other))
