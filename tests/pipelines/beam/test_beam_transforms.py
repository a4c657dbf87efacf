"""The composite transforms: the same decisions as a recipe's steps, byte for byte, and usable on any batches."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that

from datamix.run import run_job
from filters.text.classify import Example, TrainSettings, train_model
from pipelines.beam import (
    Classify,
    Deduplicate,
    FilterQuality,
    Kept,
    ReadDocuments,
    ReplacePrivate,
    Reweight,
    WriteDocuments,
    WriteSetAside,
    run,
)
from pipelines.corpus.standalone import Inputs, train_classifier
from pipelines.engine import InProcess
from schemas.errors import InputError, UsageError
from schemas.progress import Quiet
from schemas.recipe import Recipe

LOCAL = ["--runner=FnApiRunner"]
WORDS = [f"{a}{b}" for a in ("har", "sil", "mon", "cor", "ta", "pil") for b in ("vest", "ver", "key", "ble", "lem")]


def prose(seed: int, count: int = 150) -> str:
    rng = random.Random(seed)
    words = [rng.choice([*WORDS, "the", "of", "and", "to", "was", "in"]) for _ in range(count)]
    return " ".join(word + ("." if n % 12 == 11 else "") for n, word in enumerate(words))


def corpus() -> list[dict[str, Any]]:
    """Sixty texts: near and exact copies, two domains, two too short to stay."""
    rows = []
    for number in range(60):
        text = prose(number if number % 5 else number - 1 if number else 0)
        text += f" tail{number}" if number % 10 == 5 else ""
        rows.append({"id": f"r{number}", "text": text, "domain": "math" if number % 2 else "web"})
    return [*rows, {"id": "short", "text": "too short"}, {"id": "none", "text": ""}, {"id": "tiny", "text": "a b"}]


def batches_of(rows: list[dict[str, Any]], size: int = 7) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows[n : n + size]) for n in range(0, len(rows), size)]


def collected(rows: list[dict[str, Any]], *transforms: Any, size: int = 7) -> list[dict[str, Any]]:
    """Rows after the transforms, on the local runner."""
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline:
            batches = pipeline | beam.Create(batches_of(rows, size), reshuffle=False)
            for number, transform in enumerate(transforms):
                batches = batches | f"T{number}" >> transform
            assert_that(batches, Taken(folder))
        return taken(folder)


class Taken:
    """Writes the rows of all batches into a folder: what a pipeline runs is pickled, a list would be a copy."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, batches: list[pa.RecordBatch]) -> None:
        rows = [row for batch in batches for row in batch.to_pylist()]
        Path(self.folder, "rows.json").write_text(json.dumps(rows), encoding="utf-8")


def taken(folder: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(folder, "rows.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    data = folder / "labelled.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in corpus()[:60]), encoding="utf-8")
    train_classifier(Inputs([str(data)]), folder / "m.bin", InProcess(), Quiet())
    return folder / "m.bin"


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model that calls our prose en and the words backwards de."""
    folder = tmp_path_factory.mktemp("languages")
    settings = TrainSettings(dimensions=8, epochs=20, buckets=1000)
    texts = {"en": lambda n: prose(n, 60), "de": lambda n: prose(n, 60)[::-1]}
    examples = [Example(f"{n}", "s", label, label, make(500 + n)) for n in range(40) for label, make in texts.items()]
    train_model(examples, ["de", "en"], settings, folder / "lid.bin", folder / "work")
    (folder / "card.json").unlink()
    return folder / "lid.bin"


def test_one_pipeline_writes_the_bytes_of_a_recipe(model: Path, languages: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rows = corpus()
    rows[1]["text"] += " Write to bo@uni-x.edu at host 131.211.80.17."
    rows += [{"id": f"g{n}", "text": prose(700 + n)[::-1]} for n in range(3)]
    for number in range(2):
        lines = [json.dumps(row) for row in rows[number::2]] + ["{broken", '{"id": "no text"}', '{"text": 7}']
        (data / f"{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    benchmark = tmp_path / "bench.jsonl"
    benchmark.write_text(json.dumps({"question": prose(7)[:300]}) + "\n", encoding="utf-8")
    recipe = Recipe.model_validate(
        {
            "name": "r",
            "seed": 1,
            "engine": {"partitions": 3},
            "sources": [{"name": "mine", "kind": "jsonl", "path": str(data), "domain_field": "domain"}],
            "quality": {"language": {"model": str(languages), "keep": ["en"], "min_score": 0.5}},
            "dedup": {"threshold": 0.7},
            "pii": {"replace": ["email", "ip"]},
            "decontaminate": {"benchmarks": [str(benchmark)]},
            "classify": {"model": str(model), "labels": ["math", "web"]},
            "mixture": {"method": "proportional", "budget_tokens": 1000},
            "tokenizer": {"train": {}},
            "curriculum": {},
            "model": {
                "hidden_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "num_key_value_heads": 1,
                "intermediate_size": 8,
            },
        }
    )
    run_job(recipe, tmp_path / "run", Quiet(), until="corpus", engine=InProcess())
    result = run(
        [
            *(f"--input={data}", f"--output={tmp_path / 'out'}", "--source=mine", "--domain=domain"),
            *("--threshold=0.7", f"--model={model}", "--partitions=3", "--runner=FnApiRunner"),
            *(f"--benchmark={benchmark}", "--pii=email,ip"),
            *(f"--language_model={languages}", "--languages=en", "--min_language_score=0.5"),
        ]
    )
    for kind in ("kept", "dropped"):
        for part in range(3):
            name = f"{kind}/part-{part:05d}.parquet"
            ours, recipes = pq.read_table(tmp_path / "out" / name), pq.read_table(tmp_path / "run/corpus" / name)
            # a recipe classifies what dedup kept and leaves out what quality dropped: so does the pipeline
            assert ours.equals(recipes), name
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "run/corpus" / name).read_bytes(), name
    aside = (tmp_path / "out/set_aside.jsonl").read_bytes()
    assert aside == (tmp_path / "run/set_aside/read.jsonl").read_bytes()
    assert len(aside.splitlines()) == 7
    counters = {c.key.metric.name: c.committed for c in result.metrics().query()["counters"]}
    assert counters["read:empty_text"] == 1
    assert counters["quality:language:de"] == 3
    assert (counters["pii:email"], counters["pii:ip"]) == (1, 1)
    assert counters["decontaminate:contaminated"] == 1
    assert counters["dedup:duplicate:exact"] > 3
    assert counters["dedup:duplicate:near"] > 3


def test_dedup_of_foreign_batches_names_what_stays_and_how_similar_it_is() -> None:
    text = prose(1)
    rows = [
        {"id": "a", "text": text, "mine": 1},
        {"id": "b", "text": text + " more", "mine": 2},
        {"id": "c", "text": prose(2), "mine": 3},
        {"id": "d", "text": text, "mine": 4},
    ]
    every = {row["id"]: row for row in collected(rows, Deduplicate(keep_dropped=True), size=1)}
    assert {name: row["verdict"] for name, row in every.items()} == {
        "a": "duplicate:near",
        "b": "keep",
        "c": "keep",
        "d": "duplicate:near",
    }
    assert every["a"]["duplicate_of"] == every["d"]["duplicate_of"] == every["a"]["cluster"] == "b"
    assert every["a"]["similarity"] == pytest.approx(146 / 147)
    assert every["c"]["similarity"] is None
    assert {name: row["mine"] for name, row in every.items()} == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert sorted(row["id"] for row in collected(rows, Deduplicate())) == ["b", "c"]


@pytest.mark.parametrize("size", [1, 5, 100])
def test_dedup_does_not_depend_on_how_rows_come_in_batches(size: int) -> None:
    rows = corpus()[:60]
    shuffled = random.Random(size).sample(rows, len(rows))
    found = collected(shuffled, Deduplicate(0.7, keep_dropped=True), size=size)
    first = collected(rows, Deduplicate(0.7, keep_dropped=True))

    def by_id(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(table, key=lambda row: row["id"])

    assert json.dumps(by_id(found)) == json.dumps(by_id(first))


def test_reference_rows_are_never_removed_nor_given_out(tmp_path: Path) -> None:
    with beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline:
        old = pipeline | "Old" >> beam.Create(batches_of([{"id": "old", "text": prose(1)}]), reshuffle=False)
        rows = [{"id": "new", "text": prose(1) + " and more"}, {"id": "other", "text": prose(2)}]
        new = pipeline | "New" >> beam.Create(batches_of(rows), reshuffle=False)
        assert_that(new | Deduplicate(reference=old, keep_dropped=True), Taken(str(tmp_path)))
    found = taken(str(tmp_path))
    assert {r["id"]: (r["verdict"], r["duplicate_of"]) for r in found} == {
        "new": ("duplicate:near", "old"),
        "other": ("keep", None),
    }


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_rows_and_large_batches_go_through(count: int) -> None:
    rows = corpus()[1 : 1 + count]
    assert len(collected(rows, Deduplicate(), Kept(), size=100)) == count


def test_bad_records_are_the_second_output_of_reading(tmp_path: Path) -> None:
    data = tmp_path / "in.jsonl"
    data.write_text('{"text": "good words"}\n{broken\n{"text": ""}\n', encoding="utf-8")
    with beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline:
        documents, set_aside = pipeline | ReadDocuments(str(data))
        assert_that(documents, Taken(str(tmp_path)))
        _ = set_aside | WriteSetAside(str(tmp_path / "aside.jsonl"))
    assert [row["text"] for row in taken(str(tmp_path))] == ["good words"]
    rows = [json.loads(line) for line in (tmp_path / "aside.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["path"], row["line"], row["problem"]) for row in rows] == [
        (str(data), 2, "bad_json"),
        (str(data), 3, "empty_text"),
    ]
    with pytest.raises(Exception, match=r"in\.jsonl:2"), beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline:
        _ = pipeline | ReadDocuments(str(data), on_error="fail")


def test_private_data_is_replaced_in_rows_that_are_still_there() -> None:
    rows = [
        {"id": "a", "text": "to bo@uni-x.edu", "verdict": "keep", "mine": 1},
        {"id": "b", "text": "to bo@uni-x.edu", "verdict": "gone", "mine": 2},
    ]
    found = {row["id"]: row for row in collected(rows, ReplacePrivate(["email"]))}
    assert (found["a"]["text"], found["b"]["text"], found["a"]["mine"]) == ("to <EMAIL_1>", "to bo@uni-x.edu", 1)
    with pytest.raises(UsageError, match="kind 'names' is unknown"):
        ReplacePrivate(["names"])
    with pytest.raises(UsageError, match="go together"):
        FilterQuality(languages=["en"])


def test_quality_and_classify_pass_dropped_rows_by(model: Path) -> None:
    rows = [{"id": "good", "text": prose(3)}, {"id": "bad", "text": "a b"}]
    found = {r["id"]: r for r in collected(rows, FilterQuality(keep_dropped=True), Classify(str(model)))}
    assert found["good"]["verdict"] == "keep" and found["good"]["domain"] in ("math", "web")
    assert found["bad"]["verdict"].startswith("gopher:") and found["bad"]["domain"] is None
    assert [r["id"] for r in collected(rows, FilterQuality())] == ["good"]


def test_reweight_reaches_the_shares_in_tokens() -> None:
    rows = [
        {"id": f"{n:032x}", "text": "x", "domain": "math" if n % 4 else "web", "tokens": 50 + n % 7, "source": "s"}
        for n in range(400)
    ]
    found = collected(rows, Reweight({"math": 0.5, "web": 0.5}, 8000, heldout_share=0.02))
    used = {d: sum(r["tokens"] * r["epochs"] for r in found if r["domain"] == d) for d in ("math", "web")}
    assert abs(used["math"] / sum(used.values()) - 0.5) < 0.001
    assert sum(used.values()) == pytest.approx(8000, abs=60)
    assert {r["split"] for r in found} == {"train", "heldout", "unused"}
    again = collected(rows[::-1], Reweight({"math": 0.5, "web": 0.5}, 8000, heldout_share=0.02), size=50)
    assert sorted(map(json.dumps, again)) == sorted(map(json.dumps, found))


def test_writing_foreign_batches_fills_missing_columns_and_every_part(tmp_path: Path) -> None:
    rows = [{"id": f"{n:015x}", "text": f"text {n}", "verdict": "x:y" if n == 2 else "keep"} for n in range(5)]
    stale = tmp_path / "out/kept/part-00007.parquet"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier run with eight parts")
    with beam.Pipeline(options=PipelineOptions(LOCAL)) as pipeline:
        batches = pipeline | beam.Create(batches_of(rows, 2), reshuffle=False)
        _ = batches | WriteDocuments(str(tmp_path / "out"), partitions=4)
    kept = [pq.read_table(p) for p in sorted((tmp_path / "out/kept").iterdir())]
    assert [t.num_rows for t in kept] == [2, 1, 0, 1]
    assert [t.column("license").null_count for t in kept] == [2, 1, 0, 1]
    assert pq.read_table(tmp_path / "out/dropped").column("verdict").to_pylist() == ["x:y"]


def test_batches_without_text_are_refused_by_name() -> None:
    with pytest.raises((InputError, RuntimeError), match="field 'text': a batch has no such column; it has: id, body"):
        collected([{"id": "a", "body": "x"}], FilterQuality())
    numpy_ids = pa.RecordBatch.from_arrays([pa.array(np.arange(2)), pa.array(["x y", "z w"])], names=["id", "text"])
    assert len(collected(numpy_ids.to_pylist(), Deduplicate())) == 2
