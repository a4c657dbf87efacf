"""JSON Lines as people have them: odd line ends, odd characters, cut files, records that are no documents."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.corpus.read.jsonl import read_jsonl
from pipelines.corpus.read.records import Problem, Record, without_surrogates
from schemas.errors import InputError
from schemas.recipe import SourceConfig

ZSTD = zstandard.ZstdCompressor(write_checksum=True)
CONFIG = SourceConfig(name="s", kind="jsonl", path="x")


def write_lines(path: Path, *texts: str) -> Path:
    path.write_bytes(b"".join(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in texts))
    return path


def texts_of(path: Path) -> list[Any]:
    return [
        found.fields["text"] if isinstance(found, Record) else found.problem for found in read_jsonl(str(path), CONFIG)
    ]


ODD = ["a\u2028b", "a\u2029b", "a\u0085b", "a\x0bb\x0cc", "a\x00b", "\ufeffa", "tab\there", "日本語 🙂"]


def test_records_end_at_newline_only(read: Any, tmp_path: Path) -> None:
    done = read({"path": str(write_lines(tmp_path / "odd.jsonl", *ODD))})
    assert done.texts == ODD
    assert done.counts["set_aside"] == {}


def test_bom_blank_lines_crlf_trailing_spaces_and_no_final_newline_give_the_clean_rows(
    read: Any, tmp_path: Path
) -> None:
    clean = write_lines(tmp_path / "clean.jsonl", "one", "two", "three")
    lines = clean.read_bytes().splitlines()
    untidy = tmp_path / "untidy.jsonl"
    untidy.write_bytes(b"\xef\xbb\xbf" + lines[0] + b"  \r\n\r\n   \n" + lines[1] + b"\r\n\n" + lines[2])
    assert read({"path": str(untidy)}, folder="a").texts == read({"path": str(clean)}, folder="b").texts
    assert [row["origin"] for row in read({"path": str(untidy)}, folder="c").rows if row["text"] == "three"] == [
        "untidy.jsonl#6"
    ]


@pytest.mark.parametrize("late", [101, 10_001])
def test_a_key_that_appears_late_is_kept(read: Any, tmp_path: Path, late: int) -> None:
    path = tmp_path / "late.jsonl"
    records = [{"text": f"text {n}"} for n in range(late)]
    records[-1] |= {"lang": "de", "license": "MIT", "id": 77}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    done = read({"path": str(path), "language_field": "lang"})
    (row,) = [row for row in done.rows if row["text"] == f"text {late - 1}"]
    assert (row["language"], row["license"], row["source_id"]) == ("de", "MIT", "77")


def test_metadata_of_any_form_is_taken_as_text(read: Any, tmp_path: Path) -> None:
    forms: list[Any] = ["code", None, ["a", "b"], {"k": 1}, 3, True, ""]
    path = tmp_path / "meta.jsonl"
    path.write_text("".join(json.dumps({"text": f"t{n}", "domain": form}) + "\n" for n, form in enumerate(forms)))
    done = read({"path": str(path), "domain_field": "domain", "domain": "web"})
    found = {row["text"]: row["source_domain"] for row in done.rows}
    assert [found[f"t{n}"] for n in range(7)] == ["code", "web", '["a","b"]', '{"k":1}', "3", "True", "web"]


def test_lone_surrogates_are_replaced_and_counted_and_pairs_are_joined(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "surrogates.jsonl"
    path.write_text('{"text": "a\\ud800b\\udc00"}\n{"text": "\\ud83d\\ude42 ok"}\n')
    done = read({"path": str(path)})
    assert done.texts == ["a\ufffdb\ufffd", "🙂 ok"]
    assert done.counts["surrogates_replaced"] == 2
    assert done.said == ["read: 2 lone surrogates replaced by U+FFFD"]
    assert without_surrogates("\ud83d\ude42") == ("🙂", 0)


def test_nan_and_long_integers_beside_the_text_do_not_lose_the_record(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text('{"text": "a", "score": NaN}\n{"text": "b", "id": 123456789012345678901234567890}\n')
    done = read({"path": str(path)})
    assert done.texts == ["a", "b"]
    assert {row["source_id"] for row in done.rows} == {None, "123456789012345678901234567890"}


BAD = [
    (b'{"text": "cut', "bad_json", ""),
    (b"[1, 2]", "not_an_object", ""),
    (b'"text"', "not_an_object", ""),
    (b'{"body": "x"}', "missing_field", "text"),
    (b'{"text": null}', "empty_text", "text"),
    (b'{"text": " \\n "}', "empty_text", "text"),
    (b'{"text": 5}', "wrong_type", "text"),
    (b'{"text": ["a"]}', "wrong_type", "text"),
    (b'{"text": "\xff"}', "not_utf8", ""),
    (b"[" * 100_000, "bad_json", ""),
]


@pytest.mark.parametrize(("line", "problem", "field"), BAD)
def test_a_bad_record_is_set_aside_and_the_rest_is_read(
    read: Any, tmp_path: Path, line: bytes, problem: str, field: str
) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b'{"text": "first"}\n' + line + b'\n{"text": "last"}\n')
    done = read({"path": str(path)})
    assert done.texts == ["first", "last"]
    assert done.counts["set_aside"] == {problem: 1}
    (row,) = done.problems
    assert set(row) == {"path", "line", "field", "problem", "received"}
    assert (row["path"], row["line"], row["field"], row["problem"]) == (str(path), 2, field, problem)
    assert 0 < len(row["received"]) < 300


def test_on_error_fail_stops_at_the_first_bad_record_and_writes_nothing(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text('{"text": "first"}\n{"text": 5}\nnot json\n')
    with pytest.raises(InputError) as caught:
        read({"path": str(path)}, on_error="fail")
    assert str(caught.value) == (
        f"{path}:2: field 'text': wrong type, received int: 5. A text is a string. Name another key in the source's "
        "'text', mend the record, or set on_error: skip"
    )
    assert not [p for p in (tmp_path / "run").rglob("*") if p.is_file()]


def compressed(suffix: str, data: bytes) -> bytes:
    return gzip.compress(data, mtime=0) if suffix == ".gz" else ZSTD.compress(data)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_give_the_plain_rows_whatever_they_are_called(read: Any, tmp_path: Path, suffix: str) -> None:
    plain = write_lines(tmp_path / "plain.jsonl", *ODD).read_bytes()
    half = plain.index(b"\n") + 5  # a record runs over the edge of two members
    (tmp_path / f"a.jsonl{suffix}").write_bytes(compressed(suffix, plain))
    (tmp_path / "members.jsonl").write_bytes(compressed(suffix, plain[:half]) + compressed(suffix, plain[half:]))
    assert texts_of(tmp_path / f"a.jsonl{suffix}") == texts_of(tmp_path / "members.jsonl") == ODD


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("share", [0.6, 0.999])
def test_a_file_cut_short_gives_what_it_has_and_says_so(read: Any, tmp_path: Path, suffix: str, share: float) -> None:
    texts = [f"record {n} {n * 2654435761 % 2**32:x}" for n in range(20_000)]
    whole = compressed(suffix, write_lines(tmp_path / "whole", *texts).read_bytes())
    path = tmp_path / f"cut.jsonl{suffix}"
    path.write_bytes(whole[: int(len(whole) * share)])
    done = read({"path": str(path)})
    assert done.counts["set_aside"] == {"truncated_file": 1}
    assert done.texts == texts[: len(done.texts)]
    assert len(done.texts) > 0.3 * share * len(texts)
    (problem,) = done.problems
    assert problem["line"] == len(done.texts) + 1
    assert done.said == [
        f"read: 1 of {len(done.texts) + 1} records set aside (truncated_file 1): see set_aside/read.jsonl"
    ]
    assert problem["received"] == f"the compressed data ends early; {len(done.texts)} lines read"
    with pytest.raises(InputError, match=r"truncated file, received the compressed data ends early"):
        read({"path": str(path)}, on_error="fail", folder="strict")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_compressed_data_keeps_what_came_before(tmp_path: Path, suffix: str) -> None:
    texts = [f"record {n} {n * 2654435761 % 2**32:x}" for n in range(20_000)]
    whole = bytearray(compressed(suffix, write_lines(tmp_path / "whole", *texts).read_bytes()))
    middle = len(whole) * 2 // 3
    whole[middle : middle + 64] = b"\xff" * 64
    path = tmp_path / f"hurt.jsonl{suffix}"
    path.write_bytes(whole)
    found = list(read_jsonl(str(path), CONFIG))
    problems = [p for p in found if isinstance(p, Problem)]
    assert problems[-1].problem == "truncated_file"
    records = [f.fields["text"] for f in found if isinstance(f, Record)]
    assert records[:5_000] == texts[:5_000]


def test_an_empty_file_beside_a_full_one_is_no_fault(read: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "empty.jsonl").touch()
    write_lines(tmp_path / "in" / "full.jsonl", "a")
    assert read({"path": str(tmp_path / "in")}).texts == ["a"]


def test_a_record_of_many_blocks_is_whole(read: Any, tmp_path: Path) -> None:
    huge = "x y " * 1_500_000
    done = read({"path": str(write_lines(tmp_path / "huge.jsonl", "small", huge, "1"))})
    assert done.texts == ["small", huge, "1"]


LINE = st.one_of(
    st.text(max_size=30).map(lambda text: json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "replace")),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b" ")),
    st.sampled_from([line for line, _, _ in BAD[:-1]]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, max_size=12), end=st.sampled_from([b"\n", b"\r\n"]))
def test_every_line_is_a_record_a_problem_or_blank(tmp_path: Path, lines: list[bytes], end: bytes) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(end.join([b'{"text": "first"}', *lines]))  # a first line that is no compression magic
    found = list(read_jsonl(str(path), CONFIG))
    numbers = [f.line for f in found]
    assert numbers == sorted(set(numbers))
    blank = {n for n, line in enumerate([b"x", *lines], 1) if not line.strip()}
    assert set(numbers) == set(range(1, len(lines) + 2)) - blank
