"""Dedup and classify at their limits: groups that bound memory, tags that are no numbers, labels of foreign models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filters.text.dedup.minhash import SignatureScheme, signatures_of
from pipelines.corpus import dedup_tasks
from pipelines.corpus.batchwise import DedupWhole
from pipelines.corpus.signatures import read_signatures, write_signatures
from pipelines.corpus.standalone import train_classifier
from pipelines.corpus.standalone_inputs import Inputs, _sources
from schemas.errors import InputError, UsageError
from schemas.recipe.corpus import ClassifyConfig


def test_candidates_are_taken_in_groups_of_so_many_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_tasks, "_GROUP_HASHES", 10)
    monkeypatch.setattr(dedup_tasks, "_BATCH_ROWS", 3)
    sizes = [4, 6, 1, 25, 2, 0, 0, 0, 9]
    ends = np.cumsum(sizes)
    spans = np.stack([np.arange(9), ends - sizes, ends], 1)
    groups = list(dedup_tasks._groups(spans))
    assert [group[:, 0].tolist() for group in groups] == [[0, 1], [2], [3], [4, 5, 6], [7, 8]]
    assert list(dedup_tasks._groups(spans[:0])) == []


def test_large_reference_texts_are_taken_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup_tasks, "_BATCH_CHARACTERS", 100)
    path = tmp_path / "old.jsonl"
    path.write_text("".join(f'{{"text": "{letter * 60}"}}\n' for letter in "abcde"))
    batches = list(dedup_tasks._reference_batches(str(path)))
    assert [batch.rows.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert batches[2].texts.to_pylist() == ["e" * 60]


@pytest.mark.parametrize("name", ["seed", "permutations", "shingle_words"])
@pytest.mark.parametrize("value", [None, "x", "-4", "100000000000000000", "²"])
def test_a_tag_without_a_usable_number_is_refused_by_its_name(tmp_path: Path, name: str, value: Any) -> None:
    scheme = SignatureScheme(permutations=16)
    path = tmp_path / "signatures.parquet"
    write_signatures(path, ["a"], signatures_of(["one two three four five six"], scheme), scheme)
    assert read_signatures(path, 5)[2] == scheme
    table = pq.read_table(path)
    tag = {key.decode(): text.decode() for key, text in table.schema.metadata.items()}
    tag.pop(f"datasketch.{name}")
    pq.write_table(table.replace_schema_metadata(tag | ({} if value is None else {f"datasketch.{name}": value})), path)
    with pytest.raises(InputError, match=f"datasketch.{name}.*whole number"):
        read_signatures(path, 5)


def test_the_order_of_the_inputs_does_not_change_their_names(tmp_path: Path) -> None:
    paths = [str(tmp_path / folder / "same.jsonl") for folder in ("x", "y")]
    for path in paths:
        Path(path).parent.mkdir()
        Path(path).write_text('{"text": "one"}\n')
    assert _sources(Inputs(paths)) == _sources(Inputs(paths[::-1]))


def test_labels_of_foreign_models_may_have_any_characters_but_white_space() -> None:
    assert ClassifyConfig(model="m.bin", labels=["Arts/Hum.&x", "L:a", "</s>"]).labels[0] == "Arts/Hum.&x"
    for label in ("", "pure math", "a\nb", "a\0b"):
        with pytest.raises(ValueError, match="pattern"):
            ClassifyConfig(labels=[label])


@pytest.mark.parametrize(("largest", "dropped"), [(1000, 5), (5, 3)])
def test_the_size_of_a_giant_cluster_can_be_set_for_whole_collections(largest: int, dropped: int) -> None:
    chain = [" ".join(f"w{n}" for n in range(15 * k + 1000, 15 * k + 1200)) for k in range(6)]
    batch = pa.record_batch({"id": [f"{n}" for n in range(6)], "text": chain})
    whole = DedupWhole(largest_cluster=largest)
    ((_, columns),) = whole.decide([(0, whole.summarise(batch))], lambda _: [batch])
    assert sum(verdict != "keep" for verdict in columns.column("verdict").to_pylist()) == dropped


def test_a_model_is_not_trained_for_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder.*model\.bin"):
        train_classifier(Inputs(["x.jsonl"]), tmp_path, None, None)  # type: ignore[arg-type]
