"""Looking at shards: spans spell the row, provenance is exact, and every kind of damage is named."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipelines.context import RunContext
from pipelines.curriculum.inspect import (
    Row,
    Segment,
    check_row,
    check_shards,
    explain_token,
    open_shard,
    read_row,
    row_spans,
)
from pipelines.curriculum.shards import shards
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import CheckError, InputError, UsageError
from schemas.files import read_json, sha256_file, write_json
from schemas.shard import read_index, shard_schema


@pytest.fixture
def run(make_run: Callable[..., RunContext]) -> Path:
    context = make_run()
    shards(context)
    return context.run


def good_row() -> Row:
    ids = np.array([1, 5, 6, 1, 7], dtype=np.uint16)
    mask = np.array([False, True, True, False, True])
    return Row(
        ids, mask, [Segment("a", 0, 3, [(1, "x"), (2, "trained")]), Segment("b", 3, 2, [(1, "x"), (1, "trained")])]
    )


def test_spans_spell_the_row(run: Path, bpe: TextTokenizer) -> None:
    row = read_row(run / "shards" / "sft-1-1024" / "part-00000.arrow", 1)
    spans = row_spans(row, bpe)
    assert "".join(span.text for span in spans) == bpe.decode(row.ids)
    assert sum(span.tokens for span in spans) == len(row.ids)
    assert {span.reason for span in spans} >= {"header", "system", "user", "tool", "R2:exit_code", "trained"}
    assert spans[1].start == 1 and spans[0].segment_id == row.segments[0].segment_id


def test_provenance_of_a_pretraining_token(run: Path, bpe: TextTokenizer) -> None:
    file = run / "shards" / "pretrain-0-64" / "part-00000.arrow"
    row = read_row(file, 2)
    last = row.segments[-1]
    found = explain_token(run / "shards", file, 2, last.start + last.length - 1, bpe)
    assert f"{found.document}@{found.epoch}.{found.piece}" == last.segment_id
    assert (found.phase, found.position, found.trained) == ("pretrain", last.length - 1, True)
    first = explain_token(run / "shards", file, 2, last.start, bpe)
    assert (first.position, first.trained, first.reason) == (0, False, "segment_start")


def test_provenance_of_a_masked_step(run: Path, bpe: TextTokenizer) -> None:
    file = run / "shards" / "sft-1-1024" / "part-00000.arrow"
    span = next(s for s in row_spans(read_row(file, 0), bpe) if s.reason == "R2:exit_code")
    found = explain_token(run / "shards", file, 0, span.start, bpe)
    assert (found.trajectory, found.reason, found.trained) == (span.segment_id, "R2:exit_code", False)
    assert (found.text, found.turn, found.stage) == ("<think>", 2, "sft-1-1024")


@pytest.mark.parametrize(("row", "token"), [(99, 0), (0, 99_999), (0, -1)])
def test_rows_and_tokens_that_do_not_exist(run: Path, bpe: TextTokenizer, row: int, token: int) -> None:
    with pytest.raises(UsageError, match=r"no (row|token)"):
        explain_token(run / "shards", run / "shards" / "sft-1-1024" / "part-00000.arrow", row, token, bpe)


def test_a_shard_of_another_folder_is_refused(run: Path, bpe: TextTokenizer, tmp_path: Path) -> None:
    other = tmp_path / "other.arrow"
    other.write_bytes((run / "shards" / "sft-1-1024" / "part-00000.arrow").read_bytes())
    with pytest.raises(UsageError, match="is not in"):
        explain_token(run / "shards", other, 0, 0, bpe)


def test_a_good_row_has_no_faults() -> None:
    assert check_row(good_row(), vocab_size=8, context_tokens=5) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda row: replace(row, mask=np.array([True, True, True, False, True])), "segment 0 trains its first token"),
        (lambda row: replace(row, mask=np.array([False, True, False, False, True])), "token 2: mask and reason"),
        (lambda row: replace(row, mask=row.mask[:4]), "4 mask values for 5 tokens"),
        (lambda row: replace(row, ids=np.array([1, 5, 6, 1, 8])), "id 8 is outside the vocabulary of 8"),
        (lambda row: replace(row, segments=row.segments[:1]), "do not make 5 tokens"),
        (
            lambda row: replace(row, segments=[row.segments[0], Segment("b", 3, 2, [(1, "x")])]),
            "the reasons cover 4 of 5 tokens",
        ),
    ],
)
def test_every_fault_of_a_row_is_named(change: Callable[[Row], Row], fault: str) -> None:
    faults = check_row(change(good_row()), vocab_size=8, context_tokens=5)
    assert any(fault in found for found in faults)


def test_a_row_above_its_context_is_named() -> None:
    assert check_row(good_row(), vocab_size=8, context_tokens=4) == ["5 tokens, above the stage's 4"]


def test_one_changed_byte_is_named_by_file(run: Path) -> None:
    path = run / "shards" / "sft-0-512" / "part-00001.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    assert check_shards(run / "shards") == [f"{path}: its bytes are not those that the index names"]


def test_a_shard_cut_at_any_byte_is_refused_when_opened(run: Path) -> None:
    path = run / "shards" / "sft-0-512" / "part-00000.arrow"
    size = path.stat().st_size
    # every byte of the two ends, where the file's own structure is, and every 17th of the token data between
    cuts = {*range(400), *range(size - 2_000, size), *range(400, size, 17)}
    for keep in sorted(cuts, reverse=True):
        os.truncate(path, keep)
        with pytest.raises(InputError, match="not a whole Arrow file"):
            open_shard(path)
    assert check_shards(run / "shards") == [f"{path}: its bytes are not those that the index names"]


def test_missing_and_stray_files_are_named(run: Path) -> None:
    folder = run / "shards"
    (folder / "sft-0-512" / "part-00000.arrow").rename(folder / "sft-0-512" / "part-00077.arrow")
    assert check_shards(folder) == [
        f"{folder / 'sft-0-512' / 'part-00077.arrow'}: not in the index. Two runs' shards may be mixed",
        f"{folder / 'sft-0-512' / 'part-00000.arrow'}: missing",
    ]


def test_another_or_smaller_tokenizer_is_named(run: Path) -> None:
    path = run / "tokenizer" / "tokenizer.json"
    raw = json.loads(path.read_text())
    vocab = raw["model"]["vocab"]
    last = max(vocab, key=lambda token: vocab[token])
    del vocab[last]
    raw["model"]["merges"] = [m for m in raw["model"]["merges"] if "".join(m) != last]
    path.write_text(json.dumps(raw))
    faults = check_shards(run / "shards", run / "tokenizer")
    assert len(faults) == 2 and "another tokenizer" in faults[0] and "399 ids, fewer than the 400" in faults[1]


def test_index_totals_and_metadata_are_compared(run: Path) -> None:
    index = read_json(run / "shards" / "index.json")
    index["stages"][1]["files"][0]["trained_tokens"] += 1
    index["recipe_digest"] = "0" * 64
    write_json(run / "shards" / "index.json", index)
    faults = check_shards(run / "shards")
    assert any("trained_tokens, the index says" in fault for fault in faults)
    assert any("datamix.recipe_digest is" in fault for fault in faults)


def rewritten(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The first SFT file with a changed first row, and the index told so."""
    path = run / "shards" / "sft-0-512" / "part-00000.arrow"
    with pa.ipc.open_file(path.read_bytes()) as reader:
        table = reader.read_all()
    rows = table.to_pylist()
    change(rows[0])
    with pa.ipc.new_file(str(path), table.schema) as out:
        out.write_table(pa.Table.from_pylist(rows, schema=table.schema))
    index = read_json(run / "shards" / "index.json")
    entry = index["stages"][1]["files"][0]
    entry["sha256"], entry["bytes"] = sha256_file(path), path.stat().st_size
    entry["trained_tokens"] = sum(sum(row["loss_mask"]) for row in rows)
    write_json(run / "shards" / "index.json", index)


def test_training_on_a_user_turn_or_half_a_turn_is_named(run: Path) -> None:
    assert check_shards(run / "shards", run / "tokenizer") == []

    def user_turn(row: dict[str, Any]) -> None:
        at = 0
        for part in row["mask_reasons"]:
            if part["reason"] == "user":
                part["reason"] = "trained"
                row["loss_mask"][at : at + part["tokens"]] = [True] * part["tokens"]
                return
            at += part["tokens"]

    def half_a_turn(row: dict[str, Any]) -> None:
        place = next(i for i, part in enumerate(row["mask_reasons"]) if part["reason"] == "trained")
        end = sum(part["tokens"] for part in row["mask_reasons"][: place + 1])
        row["mask_reasons"][place]["tokens"] -= 1
        row["mask_reasons"].insert(place + 1, {"tokens": 1, "reason": "header"})
        row["loss_mask"][end - 1] = False

    def boundary(row: dict[str, Any]) -> None:
        row["segment_lengths"][0] += 1
        row["segment_lengths"][1] -= 1

    pristine = {path: path.read_bytes() for path in (run / "shards").rglob("*") if path.is_file()}
    for change, fault in (
        (user_turn, r"segment 0 trains tokens from \d+ on that follow no assistant header"),
        (half_a_turn, r"segment 0 trains tokens from \d+ on that are not one whole turn"),
        (boundary, "segment 1 does not begin with a turn"),
    ):
        rewritten(run, change)
        faults = check_shards(run / "shards", run / "tokenizer")
        assert len(faults) == 1 and re.search(f"row 0: {fault}$", faults[0])
        for path, data in pristine.items():
            path.write_bytes(data)


def test_a_missing_index_is_a_fault_not_an_exception(tmp_path: Path) -> None:
    assert "no shard index here" in check_shards(tmp_path)[0]


def test_a_newer_shard_and_other_arrow_files_are_refused(tmp_path: Path) -> None:
    schema = shard_schema(400).with_metadata({"datamix.record": "shard", "datamix.version": "99"})
    with pa.ipc.new_file(str(tmp_path / "new.arrow"), schema):
        pass
    with pa.ipc.new_file(str(tmp_path / "plain.arrow"), pa.schema([("a", pa.int8())])):
        pass
    with pytest.raises(CheckError, match="version 99 is newer"):
        open_shard(tmp_path / "new.arrow")
    odd = schema.with_metadata({"datamix.record": "shard", "datamix.version": "1.x"})
    with pa.ipc.new_file(str(tmp_path / "odd.arrow"), odd):
        pass
    with pytest.raises(CheckError, match=r"version 1\.x is newer"):
        open_shard(tmp_path / "odd.arrow")
    with pytest.raises(InputError, match="not a shard"):
        open_shard(tmp_path / "plain.arrow")
    with pytest.raises(InputError, match="no such shard"):
        open_shard(tmp_path / "none.arrow")


def test_the_index_lists_stages_in_training_order(run: Path) -> None:
    phases = [stage.phase for stage in read_index(run / "shards").stages]
    assert phases == ["pretrain", "sft", "sft"]
