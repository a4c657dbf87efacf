"""Corpus tables: bytes depend on rows alone, row groups follow text size, alive rows follow the verdicts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.corpus import tables
from pipelines.corpus.tables import (
    VERDICT_SCHEMAS,
    alive_rows,
    count_verdicts,
    documents_part,
    iterate_batches,
    iterate_documents,
    verdict_part,
    write_part,
)
from schemas.document import DOCUMENT_SCHEMA, document_id
from schemas.errors import CheckError


def document_batch(texts: list[str]) -> pa.RecordBatch:
    rows = [
        {"id": document_id(text, "s"), "text": text, "source": "s", "origin": f"a#{number}"}
        for number, text in enumerate(texts)
    ]
    return pa.RecordBatch.from_pylist(rows, DOCUMENT_SCHEMA)


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=6), limit=st.sampled_from([1, 50, 333, 10_000]))
def test_file_bytes_do_not_depend_on_how_rows_are_batched(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    whole = document_batch(["word " * (n % 7) + str(n) for n in range(60)])
    edges = [0, *sorted(cuts), 60]
    pieces = [whole.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "ROW_GROUP_BYTES", limit)
        assert write_part(folder / "whole.parquet", DOCUMENT_SCHEMA, [whole]) == 60
        assert write_part(folder / "pieces.parquet", DOCUMENT_SCHEMA, pieces) == 60
    assert (folder / "whole.parquet").read_bytes() == (folder / "pieces.parquet").read_bytes()


def test_row_groups_are_cut_by_bytes_for_small_and_large_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_BYTES", 1_000_000)
    small = document_batch([f"{n:0100d}" for n in range(30_000)])
    large = document_batch(["x" * 1_000_000 + str(n) for n in range(3)])
    write_part(tmp_path / "small.parquet", DOCUMENT_SCHEMA, [small])
    write_part(tmp_path / "large.parquet", DOCUMENT_SCHEMA, [large])
    small_file, large_file = pq.ParquetFile(tmp_path / "small.parquet"), pq.ParquetFile(tmp_path / "large.parquet")
    assert [small_file.metadata.row_group(g).num_rows for g in range(small_file.num_row_groups)] == [10_000] * 3
    assert [large_file.metadata.row_group(g).num_rows for g in range(large_file.num_row_groups)] == [1] * 3


def test_a_part_without_rows_is_a_valid_file(tmp_path: Path) -> None:
    assert write_part(tmp_path / "none.parquet", DOCUMENT_SCHEMA, []) == 0
    assert pq.read_table(tmp_path / "none.parquet").schema.names == DOCUMENT_SCHEMA.names
    assert list(iterate_batches(tmp_path / "none.parquet")) == []


def test_text_above_two_gibibytes_of_offsets_is_held_in_large_strings(tmp_path: Path) -> None:
    write_part(tmp_path / "a.parquet", DOCUMENT_SCHEMA, [document_batch(["a", "b"])])
    (batch,) = iterate_batches(tmp_path / "a.parquet")
    assert batch.schema.field("text").type == pa.large_string()


def write_verdicts(run: Path, step: str, verdicts: list[str | None]) -> None:
    rows = [{"id": str(n), "verdict": verdict} for n, verdict in enumerate(verdicts)]
    schema = VERDICT_SCHEMAS[step]
    write_part(verdict_part(run, step, 0), schema, [pa.RecordBatch.from_pylist(rows, schema)])


def test_alive_rows_are_those_that_every_step_kept(tmp_path: Path) -> None:
    write_part(documents_part(tmp_path, 0), DOCUMENT_SCHEMA, [document_batch(["a", "b", "c", "d"])])
    write_verdicts(tmp_path, "quality", ["keep", "few_words", "keep", "keep"])
    write_verdicts(tmp_path, "dedup", ["keep", None, "near_duplicate", "keep"])
    assert alive_rows(tmp_path, 0, ["quality"]).tolist() == [True, False, True, True]
    seen = list(iterate_documents(tmp_path, 0, ["text"], after=("quality", "dedup"), rows=3))
    assert [(first, batch.column("text").to_pylist(), mask.tolist()) for first, batch, mask in seen] == [
        (0, ["a", "b", "c"], [True, False, False]),
        (3, ["d"], [True]),
    ]


def test_tables_of_different_runs_are_refused(tmp_path: Path) -> None:
    write_part(documents_part(tmp_path, 0), DOCUMENT_SCHEMA, [document_batch(["a", "b", "c"])])
    write_verdicts(tmp_path, "quality", ["keep", "keep"])
    with pytest.raises(CheckError, match=r"part-00000.parquet has 3 rows, the verdicts of quality have 2"):
        list(iterate_documents(tmp_path, 0, ["text"], after=("quality",)))


def test_missing_and_cut_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"none.parquet: missing"):
        list(iterate_batches(tmp_path / "none.parquet"))
    write_part(tmp_path / "cut.parquet", DOCUMENT_SCHEMA, [document_batch(["a"] * 50)])
    whole = (tmp_path / "cut.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckError, match=r"cut.parquet: cannot be read as Parquet"):
        list(iterate_batches(tmp_path / "cut.parquet"))


def test_verdicts_are_counted_by_name_without_nulls() -> None:
    assert count_verdicts(pa.array(["b", "keep", None, "b"])) == {"b": 2, "keep": 1}
    assert count_verdicts(pa.chunked_array([[]], pa.string())) == {}
