"""Cutting files into JSON values: kinds by content, compression by magic bytes, elements equal to a whole parse."""

import gzip
import io
import json

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthesis.ingest import files
from pipelines.synthesis.ingest.files import elements, open_stream, pairs, read_lines, sniff

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text()
    | st.sampled_from(['"', "\\", "[{", "]}", '\\"']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(JSON_VALUES, max_size=6), st.sampled_from([None, 1]), st.booleans())
def test_elements_of_any_array_equal_a_whole_parse(values, indent, ascii_only):
    data = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert [json.loads(part) for part in elements(io.BytesIO(data))] == values


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=5))
def test_pairs_of_any_object_equal_a_whole_parse(value):
    data = json.dumps(value).encode()
    assert {json.loads(key): json.loads(part) for key, part in pairs(io.BytesIO(data))} == value


def test_elements_that_cross_read_borders_are_whole(monkeypatch):
    monkeypatch.setattr(files, "_CHUNK", 7)
    values = [{"text": 'a "quoted" \\ brace } bracket ]' * 5, "n": [1, [2, {"x": None}]]}, "tail", 3.5, True]
    data = json.dumps(values, indent=2).encode()
    assert [json.loads(part) for part in elements(io.BytesIO(data))] == values


@pytest.mark.parametrize(
    ("data", "given"),
    [(b'[{"a": 1}, {"b": [1, 2', 1), (b'[{"a": 1}', 1), (b'["abc', 0), (b'[{"a": 1} {"b": 2}]', 1), (b"[1, 2, 3", 2)],
)
def test_a_cut_array_gives_what_is_whole_and_then_an_error(data, given):
    found = []
    with pytest.raises(ValueError, match=r"ends inside|not closed|after an element"):
        for part in elements(io.BytesIO(data)):
            found.append(part)
    assert len(found) >= given


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b'{"a": 1}\n{"a": 2}\n', "lines"),
        (b'{"a": 1}\n', "object"),
        (b'\xef\xbb\xbf{"a": 1}', "object"),
        (b'{\n "a": 1\n}\n', "object"),
        (b'[{"a": 1}]', "array"),
        (b'[\n {"a": 1},\n {"a": 2}\n]', "array"),
        (b'{"a": 1, "b\n{"a": 2}\n', "lines"),
        (b'"a string"\n{"a": 2}\n', "lines"),
        (b"MIT License\n\nCopyright", "text"),
        (b"# Title\n", "text"),
        (b"# comment\nhistory:\n  - role: user\n", "yaml"),
        (b"PAR1....", "parquet"),
        (b"PK\x03\x04....", "zip"),
    ],
)
def test_kind_is_told_by_content(tmp_path, data, kind):
    path = tmp_path / "anything.bin"
    path.write_bytes(data)
    assert sniff(str(path)) == kind


@pytest.mark.parametrize(
    ("tail", "kind"), [(b"", "object"), (b"\n", "object"), (b'\n{"a": 1}\n', "lines"), (b'\n{"a": 1', "lines")]
)
def test_a_first_line_longer_than_the_head_is_followed_to_its_end(tmp_path, tail, kind):
    path = tmp_path / "long"
    path.write_bytes(json.dumps({"text": "x" * (2 * files.HEAD_BYTES)}).encode() + tail)
    assert sniff(str(path)) == kind


def test_a_long_first_line_that_opens_an_array_is_an_array(tmp_path):
    path = tmp_path / "array"
    path.write_bytes(b"[" + json.dumps({"text": "x" * (2 * files.HEAD_BYTES)}).encode() + b',\n{"a": 1}]')
    assert sniff(str(path)) == "array"


def test_compression_is_seen_by_magic_bytes_not_by_name(tmp_path):
    body = b'{"a": 1}\n{"a": 2}\n'
    for name, data in [
        ("plain.zst", body),
        ("zstd.jsonl", zstandard.compress(body)),
        ("gzip.txt", gzip.compress(body)),
        ("two-frames", zstandard.compress(body[:9]) + zstandard.compress(body[9:])),
    ]:
        (tmp_path / name).write_bytes(data)
        with open_stream(str(tmp_path / name)) as stream:
            assert stream.read() == body, name


def test_lines_keep_their_numbers_over_blank_lines_and_lose_a_mark():
    stream = io.BytesIO(b'\xef\xbb\xbf{"a":1}\n\n  \r\n{"b":2}\r\n{"c":3}')
    assert [(number, line.strip()) for number, line in read_lines(stream)] == [
        (1, b'{"a":1}'),
        (4, b'{"b":2}'),
        (5, b'{"c":3}'),
    ]
