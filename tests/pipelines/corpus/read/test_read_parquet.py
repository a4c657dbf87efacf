"""Parquet sources: any kind of text column, odd values, and what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.errors import InputError


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_every_type_of_text_column_is_read(read: Any, tmp_path: Path, kind: pa.DataType) -> None:
    texts = ["one", "two\u2028lines", "nul\x00", "one"]
    path = write(tmp_path / "a.parquet", {"text": pa.array(texts).cast(kind), "id": pa.array([7, 8, 9, None])})
    done = read({"kind": "parquet", "path": str(path)})
    assert done.texts == texts
    assert [row["source_id"] for row in sorted(done.rows, key=lambda row: row["origin"])] == ["7", "8", "9", None]
    assert sorted(row["origin"] for row in done.rows) == [f"a.parquet#{n}" for n in (1, 2, 3, 4)]


METADATA = {
    "strings": pa.array(['{"a":1}', "x", None]),
    "nulls": pa.nulls(3),
    "lists": pa.array([["a"], [], None]),
    "structs": pa.array([{"a": 1}, {"a": 2}, None]),
    "absent": None,
}


@pytest.mark.parametrize("form", METADATA)
def test_a_metadata_column_of_any_form_leaves_rows_and_order_alone(read: Any, tmp_path: Path, form: str) -> None:
    columns = {"text": ["a", "b", "c"]} | ({} if METADATA[form] is None else {"metadata": METADATA[form]})
    plain = {"kind": "parquet", "path": str(write(tmp_path / form / "x.parquet", columns))}
    assert read(plain).texts == ["a", "b", "c"]
    if METADATA[form] is not None:
        assert read({**plain, "domain_field": "metadata"}, folder="named").texts == ["a", "b", "c"]


def test_null_and_blank_texts_are_set_aside_with_their_row(read: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"text": ["a", None, "", "  \n", "b"]})
    done = read({"kind": "parquet", "path": str(path)})
    assert done.texts == ["a", "b"]
    assert [(p["line"], p["problem"], p["received"]) for p in done.problems] == [
        (2, "empty_text", "None"),
        (3, "empty_text", "''"),
        (4, "empty_text", "'  \\n'"),
    ]


def test_a_missing_column_and_a_wrong_type_are_refused_before_anything_is_written(read: Any, tmp_path: Path) -> None:
    good = write(tmp_path / "in" / "a.parquet", {"text": ["a"]})
    other = write(tmp_path / "in" / "b.parquet", {"body": ["a"], "n": [1]})
    with pytest.raises(InputError, match=r"b.parquet: field 'text': source 's0' names .* body \(string\), n \(int64\)"):
        read({"kind": "parquet", "path": str(good.parent)})
    with pytest.raises(InputError, match=r"b.parquet: field 'n': the column is int64, a text column is string"):
        read({"kind": "parquet", "path": str(other), "text": "n"})
    with pytest.raises(InputError, match=r"field 'topic': source 's0' names this column in 'domain_field'"):
        read({"kind": "parquet", "path": str(good), "domain_field": "topic"})
    with pytest.raises(InputError, match=r"field 'uid': source 's0' names this column in 'id'"):
        read({"kind": "parquet", "path": str(good), "id": "uid"})
    assert not (tmp_path / "run").exists()


def test_a_file_without_its_end_is_set_aside_and_the_others_are_read(read: Any, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", {"text": ["a"]})
    cut = write(tmp_path / "in" / "b.parquet", {"text": ["b"] * 100})
    cut.write_bytes(cut.read_bytes()[:-40])
    done = read({"kind": "parquet", "path": str(cut.parent)})
    assert done.texts == ["a"]
    assert [(Path(p["path"]).name, p["problem"]) for p in done.problems] == [("b.parquet", "unreadable_file")]
    with pytest.raises(InputError, match=r"b.parquet: unreadable file"):
        read({"kind": "parquet", "path": str(cut.parent)}, on_error="fail", folder="strict")


def test_a_file_damaged_inside_gives_the_rows_before_the_damage(read: Any, tmp_path: Path) -> None:
    texts = [f"row {n} {n * 2654435761 % 2**32:x}" for n in range(4_000)]
    path = write(
        tmp_path / "a.parquet", {"text": texts}, row_group_size=1_000, compression="zstd", use_dictionary=False
    )
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    data = bytearray(path.read_bytes())
    start = column.data_page_offset + 60
    data[start : start + 400] = b"\x00" * 400
    path.write_bytes(data)
    done = read({"kind": "parquet", "path": str(path)})
    assert done.texts == texts[: len(done.texts)]
    assert 1_000 <= len(done.texts) <= 2_000
    assert [(p["problem"], p["line"]) for p in done.problems] == [("truncated_file", len(done.texts) + 1)]


def test_bytes_that_are_no_utf8_in_a_text_column_are_replaced_and_counted(read: Any, tmp_path: Path) -> None:
    raw = pa.array([b"good", b"bad \xff\xfe end"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    done = read({"kind": "parquet", "path": str(write(tmp_path / "a.parquet", {"text": texts}))})
    assert done.texts == ["good", "bad \ufffd\ufffd end"]
    assert done.counts["surrogates_replaced"] == 2
