"""`datamix dedup` in its other forms: verdicts alone, stored signatures, lines that stand in many documents."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasketch import LeanMinHash

from datamix.cli import main

NOTICE = "This site uses cookies, press accept to go on."
COLUMNS = ("verdict", "cluster", "similarity", "duplicate_of", "source_id", "duplicate_of_source_id")


def prose(seed: int, count: int = 80) -> str:
    rng = random.Random(seed)
    return " ".join(
        f"{rng.choice(['the', 'river', 'town', 'proof', 'group'])}{rng.randrange(60)}" for _ in range(count)
    )


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def call(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in ("dedup", *arguments, "--workers", 1, "--json")])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def summary_of(*arguments: object, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code, out, err = call(*arguments, capsys=capsys)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def table(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return rows


def mixed_inputs(folder: Path) -> list[Path]:
    """Parquet and jsonl with exact and near duplicates, within and across, and records that cannot be used."""
    rng = random.Random(1)
    texts = [prose(n % 25) + rng.choice(["", " tail", " another tail", "\r\n", "  "]) for n in range(70)]
    texts += ["", "   ", "!!!", "!!!", "x", "nul \0 inside", "line\u2028sep", "Å é", "A\u030a e\u0301", "ﬁ"]
    first = [{"id": f"p{n}", "text": t, "domain": ["code", "web", None][n % 3]} for n, t in enumerate(texts)]
    first.append({"id": "null", "text": None, "domain": None})
    pq.write_table(pa.Table.from_pylist(first), folder / "a.parquet", row_group_size=16)
    lines = write(folder / "b.jsonl", [{"id": n, "text": t + " end"} for n, t in enumerate(texts[:40])])
    with lines.open("a", encoding="utf-8") as sink:
        sink.write('not json\n{"id": 1}\n{"text": "lone \\ud800 surrogate", "id": ""}\n')
    return [folder / "a.parquet", lines]


@pytest.mark.parametrize("against", [False, True])
def test_verdicts_alone_are_those_of_the_whole_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], against: bool
) -> None:
    inputs = mixed_inputs(tmp_path)
    old = write(tmp_path / "old.jsonl", [{"id": f"o{n}", "text": prose(n) + " tail"} for n in (3, 4, 400)])
    more = ["--against", old] if against else []
    whole = summary_of(*inputs, *more, "--out", tmp_path / "whole", capsys=capsys)
    alone = summary_of(*inputs, *more, "--verdicts-only", "--out", tmp_path / "alone", capsys=capsys)
    files = alone.pop("files")
    assert {k: v for k, v in alone.items() if k != "out"} == {k: v for k, v in whole.items() if k != "out"}
    assert [Path(file["path"]).name for file in files] == ["a.parquet", "b.jsonl"]
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for kind in ("kept", "dropped"):
        for row in table(tmp_path / "whole" / kind):
            name, _, line = row["origin"].rpartition("#")
            rows[row["id"], name, int(line)] = row
    count = 0
    for file in files:
        found = table(tmp_path / "alone" / file["verdicts"])
        assert len(found) == file["documents"]
        for row in found:
            other = rows[row["id"], Path(file["path"]).name, row["row"]]
            assert [row[name] for name in COLUMNS] == [other.get(name) for name in COLUMNS]
        count += len(found)
    assert count == len(rows) == whole["documents_in"]
    aside = [(tmp_path / name / "set_aside.jsonl").read_text(encoding="utf-8") for name in ("whole", "alone")]
    assert sorted(aside[0].splitlines()) == sorted(aside[1].splitlines())
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == [
        "set_aside.jsonl",
        "summary.json",
        "verdicts",
    ]


def test_bytes_that_are_not_utf8_give_the_same_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = [b"plain text of some words here", b"bad \xff\xfe bytes in a text", b"bad \xff\xfe bytes in a text", b"\xc3"]
    offsets = pa.array(raw, pa.binary()).buffers()
    texts = pa.StringArray.from_buffers(4, offsets[1], offsets[2])
    pq.write_table(pa.table({"id": pa.array(list("abcd")), "text": texts}), tmp_path / "a.parquet")
    whole = summary_of(tmp_path / "a.parquet", "--out", tmp_path / "whole", capsys=capsys)
    summary_of(tmp_path / "a.parquet", "--verdicts-only", "--out", tmp_path / "alone", capsys=capsys)
    assert whole["dropped"] == {"duplicate:exact": 1}
    found = {row["source_id"]: row["id"] for row in table(tmp_path / "alone" / "verdicts")}
    expected = {r["source_id"]: r["id"] for kind in ("kept", "dropped") for r in table(tmp_path / "whole" / kind)}
    assert found == expected


def test_a_damaged_parquet_gives_what_stands_before_the_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": str(n), "text": prose(n, 400)} for n in range(60)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=10, compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    middle = pq.ParquetFile(path).metadata.row_group(3).column(1).data_page_offset
    data[middle : middle + 200] = b"\0" * 200
    path.write_bytes(bytes(data))
    whole = summary_of(path, "--out", tmp_path / "whole", capsys=capsys)
    alone = summary_of(path, "--verdicts-only", "--out", tmp_path / "alone", capsys=capsys)
    assert whole["set_aside"] == alone["set_aside"] == {"truncated_file": 1}
    assert 30 <= whole["documents_in"] == alone["documents_in"] < 60
    code, _, err = call(path, "--verdicts-only", "--fail", "--out", tmp_path / "failed", capsys=capsys)
    assert code == 1 and "a.parquet" in err and "truncated" in err


def test_files_without_a_usable_record_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = write(tmp_path / "a.jsonl", [{"id": 1, "body": "text"}])
    code, _, err = call(empty, "--verdicts-only", "--out", tmp_path / "o", capsys=capsys)
    assert code == 1 and "missing field" in err and "body" in err


def test_signatures_are_written_and_taken_as_a_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old.jsonl", [{"id": f"o{n}", "text": prose(n)} for n in [*range(6), 0]])
    new = write(tmp_path / "new.jsonl", [{"id": f"n{n}", "text": prose(n) + " x"} for n in (2, 5, 77)])
    stored = tmp_path / "signatures.parquet"
    first = summary_of(old, "--signatures-out", stored, "--out", tmp_path / "one", capsys=capsys)
    assert (first["kept"], first["dropped"]) == (6, {"duplicate:exact": 1})
    rows = table(stored)
    kept = {row["id"]: row["source_id"] for row in table(tmp_path / "one" / "kept")}
    assert sorted(row["id"] for row in rows) == sorted(kept)
    assert LeanMinHash.deserialize(rows[0]["signature"], "<").scheme == "affine32"
    out = tmp_path / "two"
    second = summary_of(new, "--against-signatures", stored, "--out", out, capsys=capsys)
    assert (second["kept"], second["dropped"]) == (1, {"duplicate:signature": 2})
    assert [row["source_id"] for row in table(out / "kept")] == ["n77"]
    dropped = {row["source_id"]: row for row in table(out / "dropped")}
    assert {name: kept[row["duplicate_of"]] for name, row in dropped.items()} == {"n2": "o2", "n5": "o5"}
    assert all(0.9 < row["similarity"] <= 1 for row in dropped.values())
    code, _, err = call(new, "--against-signatures", stored, "--shingle-words", 3, "--out", out, capsys=capsys)
    assert code == 1 and "5 words" in err and "cannot be mixed" in err
    pq.write_table(pq.read_table(stored).replace_schema_metadata({}), tmp_path / "untagged.parquet")
    code, _, err = call(new, "--against-signatures", tmp_path / "untagged.parquet", "--out", out, capsys=capsys)
    assert code == 1 and "which scheme" in err and "untagged.parquet" in err
    code, _, err = call(new, "--against-signatures", tmp_path / "none.parquet", "--out", out, capsys=capsys)
    assert code == 2 and "no such file" in err


def test_lines_of_many_documents_are_taken_out_and_kept_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": f"d{n}", "text": f"{NOTICE}\n\n{prose(n)}\n}}\n"} for n in range(12)]
    rows += [{"id": "only", "text": f"  {NOTICE} "}, {"id": "none", "text": prose(500)}]
    data, out = write(tmp_path / "a.jsonl", rows), tmp_path / "out"
    found = summary_of(data, "--unit", "line", "--min-documents", 13, "--out", out, capsys=capsys)
    assert (found["documents_in"], found["kept"], found["dropped"]) == (14, 13, {"template:nothing_left": 1})
    assert (found["templates"], found["pieces_removed"], found["documents_changed"]) == (1, 12, 12)
    assert found["most_frequent"] == [{"documents": 13, "text": NOTICE}]
    kept = {row["source_id"]: row["text"] for row in table(out / "kept")}
    assert kept["d3"] == f"\n{prose(3)}\n}}\n" and kept["none"] == prose(500)
    assert [row["text"] for row in table(out / "dropped")] == [f"  {NOTICE} "]
    removed = {row["source_id"]: row for row in table(out / "removed")}
    assert (removed["d3"]["at"], removed["d3"]["text"]) == (0, NOTICE + "\n")
    less = summary_of(data, "--unit", "line", "--min-documents", 14, "--out", out, capsys=capsys)
    assert (less["templates"], less["kept"], less["pieces_removed"]) == (0, 14, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unit", "line", "--verdicts-only"], "--unit line does not take --verdicts-only"),
        (["--unit", "paragraph", "--signatures-out", "f"], "does not take --signatures-out"),
        (["--verdicts-only", "--against-signatures", "f"], "--verdicts-only does not take --against-signatures"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    data = write(tmp_path / "a.jsonl", [{"id": 1, "text": "some text"}])
    code, _, err = call(data, *arguments, "--out", tmp_path / "o", capsys=capsys)
    assert code == 2 and message in err
    assert not (tmp_path / "o").exists()
