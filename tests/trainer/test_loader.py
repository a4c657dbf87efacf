from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import CheckError, InputError, UsageError
from schemas.files import read_json, write_json
from schemas.shard import ShardIndex, read_index, write_index
from trainer.loader import LoaderState, ShardLoader
from trainer.permutation import Permutation
from trainer.shards import StageReader


@settings(max_examples=60, deadline=None)
@given(size=st.integers(0, 300), key=st.text(max_size=5))
def test_permutation_is_a_bijection(size: int, key: str) -> None:
    order = Permutation.of(size, key)
    assert sorted(order[i] for i in range(size)) == list(range(size))


def test_permutation_is_a_pure_function_of_its_key() -> None:
    orders = [[Permutation.of(50, key)[i] for i in range(50)] for key in ("a", "a", "b")]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != list(range(50))
    assert orders[0][:6] == [16, 49, 37, 9, 29, 22]  # the same on every machine and version


@given(size=st.integers(1, 3000), key=st.text(max_size=4), data=st.data())
def test_a_block_of_the_permutation_is_its_places_one_by_one(size: int, key: str, data: st.DataObject) -> None:
    order = Permutation.of(size, key)
    first = data.draw(st.integers(0, size))
    last = data.draw(st.integers(first, size))
    assert order.block(first, last) == [order[i] for i in range(first, last)]


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (3, 2), (0, 11)])
def test_a_block_outside_the_permutation_is_refused(first: int, last: int) -> None:
    with pytest.raises(IndexError, match="not within 10"):
        Permutation.of(10, "k").block(first, last)


def test_permutation_spreads_every_place_evenly() -> None:
    first = np.bincount([Permutation.of(10, str(key))[0] for key in range(5000)], minlength=10)
    assert first.min() > 400 and first.max() < 600


@pytest.mark.parametrize("index", [-1, 5])
def test_permutation_refuses_places_outside(index: int) -> None:
    with pytest.raises(IndexError):
        Permutation.of(5, "a")[index]


def _order(loader: ShardLoader, rows: int = 2) -> list[tuple[int, int, int]]:
    """(stage, epoch, row) of all that is left."""
    found = []
    while (batch := loader.next_batch(rows)) is not None:
        found += [(batch.stage, batch.epoch, row) for row in batch.rows]
    return found


def test_every_row_of_every_stage_and_epoch_once_with_exact_edges(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    order = _order(ShardLoader(tmp_path, seed=1, epochs=2))
    assert [(s, e) for s, e, _ in order] == [
        *[(0, 0)] * 7, *[(0, 1)] * 7, *[(1, 0)] * 3, *[(1, 1)] * 3, *[(2, 0)] * 4, *[(2, 1)] * 4,
    ]  # fmt: skip
    assert sorted(order) == [(s, e, r) for s, rows in enumerate((7, 3, 4)) for e in range(2) for r in range(rows)]
    by_epoch = [[r for s, e, r in order if (s, e) == (0, epoch)] for epoch in range(2)]
    assert by_epoch[0] != by_epoch[1]


def test_a_batch_never_crosses_an_epoch(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    loader = ShardLoader(tmp_path, seed=1, epochs=2)
    sizes = []
    while (batch := loader.next_batch(3)) is not None:
        sizes.append(len(batch.rows))
    assert sizes == [3, 3, 1, 3, 3, 1, 3, 3, 3, 1, 3, 1]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_resuming_after_any_batch_goes_on_in_the_same_order(tmp_path: Path, make_shards: Any, rows: int) -> None:
    make_shards(tmp_path)
    whole = _order(ShardLoader(tmp_path, seed=1, epochs=2), rows)
    loader, seen = ShardLoader(tmp_path, seed=1, epochs=2), []
    while (batch := loader.next_batch(rows)) is not None:
        seen += [(batch.stage, batch.epoch, row) for row in batch.rows]
        state = json.dumps(loader.state.to_json())
        assert len(state) < 1000
        fresh = ShardLoader(tmp_path, seed=1, epochs=2)
        fresh.seek(LoaderState(**json.loads(state)))
        assert seen + _order(fresh, rows) == whole


@pytest.mark.parametrize("rows", [1, 4])
def test_one_then_three_then_two_ranks_keep_one_global_order(tmp_path: Path, make_shards: Any, rows: int) -> None:
    """Stopped after any batch, and once more after any later one: with batches of one row, at every row."""
    make_shards(tmp_path)
    whole = _order(ShardLoader(tmp_path, seed=1), rows)
    loaders = [ShardLoader(tmp_path, seed=1) for _ in range(3)]
    start, steps = loaders[0].state, len(whole)
    for first in range(steps):
        for second in range(0, steps - first, 3):
            state, seen = start, []
            for world, batches in ((1, first), (3, second), (2, steps)):
                state, part = _ranks(
                    loaders[:world], LoaderState(**json.loads(json.dumps(state.to_json()))), rows, batches
                )
                seen += part
            assert seen == whole


def _ranks(
    loaders: list[ShardLoader], state: LoaderState, rows: int, batches: int
) -> tuple[LoaderState, list[tuple[int, int, int]]]:
    """What the ranks read of up to `batches` batches from `state` on, put together in global order."""
    world, seen = len(loaders), []
    for loader in loaders:
        loader.seek(state)
    for _ in range(batches):
        parts = [loader.next_batch(rows) for loader in loaders]
        if parts[0] is None:
            break
        shares = [part.share(rank, world) for rank, part in enumerate(parts) if part is not None]
        assert len({row for share in shares for row in share}) == sum(map(len, shares))
        merged = [shares[i % world][i // world] for i in range(sum(map(len, shares)))]
        seen += [(parts[0].stage, parts[0].epoch, row) for row in merged]
    assert all(loader.state == loaders[0].state for loader in loaders)
    return loaders[0].state, seen


def test_order_changes_with_the_seed_and_with_the_shards(tmp_path: Path, make_shards: Any) -> None:
    index = make_shards(tmp_path)
    first, other_seed = (_order(ShardLoader(tmp_path, seed=seed)) for seed in (1, 2))
    index.stages[0].report = {"made": "otherwise"}
    write_index(tmp_path, index)
    assert first != other_seed
    assert first != _order(ShardLoader(tmp_path, seed=1))


def test_phases_select_stages(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    assert [s.name for s in ShardLoader(tmp_path, seed=1, phases=["sft"]).stages] == ["sft-0"]


def test_rows_come_as_they_were_written_whatever_the_batches(
    tmp_path: Path, make_shards: Any, random_rows: Any
) -> None:
    index = make_shards(tmp_path)
    written = random_rows(7, [20, 12])
    reader = StageReader(tmp_path, index.stages[0], index.vocab_size)
    assert len(reader) == 7
    for number, segments in enumerate(written):
        row = reader[number]
        assert row.input_ids.tolist() == [i for ids, _ in segments for i in ids]
        assert row.targets.tolist() == [m for _, mask in segments for m in mask]
        assert row.segment_lengths == [20, 12]
        assert row.segment_name(1) == f"pretrain-0-{number}.1"
        assert row.name == f"pretrain-0/part-{number // 3:05d}.arrow:{number % 3}"
    with pytest.raises(IndexError):
        reader[7]


def test_the_first_token_of_a_segment_is_never_a_target(tmp_path: Path, write_stage: Any) -> None:
    stage = write_stage(tmp_path, "s", "sft", 8, [[([1, 2, 3], [True] * 3), ([4, 5], [True] * 2)]])
    assert StageReader(tmp_path, stage, 64)[0].targets.tolist() == [False, True, True, False, True]


def test_shards_are_only_read(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.rglob("*.arrow")}
    loader = ShardLoader(tmp_path, seed=1)
    while (batch := loader.next_batch(2)) is not None:
        for row in batch.rows:
            batch.read(row).input_ids[:] = 0
    assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.rglob("*.arrow")}


def test_a_missing_shard_is_named(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    (tmp_path / "sft-0/part-00001.arrow").unlink()
    with pytest.raises(CheckError, match=r"sft-0/part-00001\.arrow: the shard is missing"):
        ShardLoader(tmp_path, seed=1)


def test_a_shard_cut_at_any_byte_is_named(tmp_path: Path, make_shards: Any) -> None:
    index = make_shards(tmp_path)
    path = tmp_path / "pretrain-1/part-00000.arrow"
    for kept in reversed(range(path.stat().st_size)):
        os.truncate(path, kept)
        with pytest.raises(CheckError, match=rf"pretrain-1/part-00000\.arrow: {kept} bytes, the index says \d+"):
            StageReader(tmp_path, index.stages[1], index.vocab_size)


@pytest.mark.parametrize("kept", [0, 9, 300, -1])
def test_a_cut_shard_that_the_index_knows_by_that_size_is_named(tmp_path: Path, make_shards: Any, kept: int) -> None:
    make_shards(tmp_path)
    path = tmp_path / "pretrain-1/part-00000.arrow"
    path.write_bytes(path.read_bytes()[:kept])
    _change_index(tmp_path, lambda raw: raw["stages"][1]["files"][0].update(bytes=path.stat().st_size))
    with pytest.raises(CheckError, match=r"pretrain-1/part-00000\.arrow: not an Arrow IPC file"):
        ShardLoader(tmp_path, seed=1)


@pytest.mark.parametrize("key", ["tokenizer_digest", "recipe_digest"])
def test_a_shard_of_another_run_in_the_place_of_ours_is_named(tmp_path: Path, make_shards: Any, key: str) -> None:
    make_shards(tmp_path)
    _change_index(tmp_path, lambda raw: raw.update({key: "f" * 64}))
    with pytest.raises(CheckError, match=rf"{key} is .* the index says 'ffff.*two runs' shards are mixed"):
        ShardLoader(tmp_path, seed=1)


def test_a_changed_byte_is_named_when_digests_are_asked_for(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    path = tmp_path / "pretrain-0/part-00000.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CheckError, match=r"pretrain-0/part-00000\.arrow: its SHA-256"):
        ShardLoader(tmp_path, seed=1, verify=True)


def test_a_file_of_the_right_size_that_is_no_shard_is_named(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    path = tmp_path / "pretrain-0/part-00000.arrow"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(CheckError, match=r"part-00000\.arrow: not an Arrow IPC file"):
        ShardLoader(tmp_path, seed=1)


def _change_index(folder: Path, change: Any) -> ShardIndex:
    raw = read_json(folder / "index.json")
    change(raw)
    write_json(folder / "index.json", raw)
    return read_index(folder)


def test_an_index_with_other_row_counts_or_vocabulary_is_refused(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    _change_index(tmp_path, lambda raw: raw["stages"][0]["files"][0].update(rows=2))
    with pytest.raises(CheckError, match=r"part-00000\.arrow: 3 rows, the index says 2"):
        ShardLoader(tmp_path, seed=1)
    _change_index(tmp_path, lambda raw: (raw["stages"][0]["files"][0].update(rows=3), raw.update(vocab_size=99)))
    with pytest.raises(CheckError, match=r"vocab_size is '64', the index says '99': two runs' shards are mixed"):
        ShardLoader(tmp_path, seed=1)


def test_no_index_and_a_newer_index_are_refused(tmp_path: Path, make_shards: Any) -> None:
    with pytest.raises(InputError, match="no shard index here"):
        ShardLoader(tmp_path, seed=1)
    make_shards(tmp_path)
    raw = read_json(tmp_path / "index.json") | {"version": "99"}
    write_json(tmp_path / "index.json", raw)
    with pytest.raises(CheckError, match="newer"):
        ShardLoader(tmp_path, seed=1)


def test_a_shard_of_a_newer_version_is_refused_by_name(tmp_path: Path, make_shards: Any) -> None:
    make_shards(tmp_path)
    path = tmp_path / "sft-0/part-00000.arrow"
    with pa.ipc.open_file(path.read_bytes()) as reader:
        table = reader.read_all()
    schema = table.schema.with_metadata({**table.schema.metadata, b"datamix.version": b"99"})
    with pa.ipc.new_file(str(path), schema) as out:
        for batch in table.cast(schema).to_batches():
            out.write_batch(batch)
    _change_index(tmp_path, lambda raw: raw["stages"][2]["files"][0].update(bytes=path.stat().st_size))
    with pytest.raises(CheckError, match=r"sft-0/part-00000\.arrow: shard version '99' is newer than 1"):
        ShardLoader(tmp_path, seed=1)


def test_a_row_without_any_target_is_handed_out_like_every_other(tmp_path: Path, write_stage: Any) -> None:
    rows = [[([5, 6, 7], [False] * 3)], [([5, 6], [False, True])]]
    write_index(tmp_path, ShardIndex(64, "tokenizer", "recipe", [write_stage(tmp_path, "p", "sft", 8, rows)]))
    loader = ShardLoader(tmp_path, seed=1)
    batch = loader.next_batch(2)
    assert batch is not None and sorted(batch.rows) == [0, 1]
    assert batch.read(0).targets.tolist() == [False] * 3


def test_a_state_of_other_shards_or_another_seed_is_refused(tmp_path: Path, make_shards: Any) -> None:
    index = make_shards(tmp_path)
    loader = ShardLoader(tmp_path, seed=1)
    with pytest.raises(CheckError, match="the loader state belongs to shards 0000"):
        loader.seek(LoaderState("0000", 1))
    with pytest.raises(UsageError, match="seed 2, the recipe has 1"):
        loader.seek(LoaderState(index.digest(), 2))
    with pytest.raises(UsageError, match="lies outside"):
        loader.seek(LoaderState(index.digest(), 1, 0, 0, 99))
