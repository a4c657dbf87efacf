"""Our steps in a foreign datatrove pipeline: over Documents and over record batches, in one task and in several."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datatrove.data import Document
from datatrove.executor.local import LocalPipelineExecutor

from filters.text.mixing import MixtureWish
from pipelines.corpus.batchwise import MixtureWhole
from pipelines.corpus.standalone import Inputs, dedup_files, train_classifier
from pipelines.engine import InProcess
from pipelines.trove.steps import (
    Classify,
    Decontaminate,
    DedupDecide,
    DedupResult,
    DedupSketch,
    FilterQuality,
    ReadBatches,
    ReplacePrivate,
    ReweightCount,
    ReweightDecide,
    ReweightResult,
)
from schemas.errors import CheckError, RecipeError, UsageError
from schemas.progress import Quiet

WORDS = [f"{a}{b}" for a in ("har", "sil", "mon", "cor", "ta", "pil") for b in ("vest", "ver", "key", "ble", "lem")]


def prose(seed: int, count: int = 120) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice([*WORDS, "the", "of", "and", "to", "was"]) for _ in range(count))


def rows() -> list[dict[str, Any]]:
    """Forty texts with near copies (every fifth) and exact ones (every eighth)."""
    made = []
    for n in range(40):
        text = prose(n - 1) + " tail" if n % 5 == 4 else prose(n)
        made.append({"id": f"d{n:02d}", "text": made[-1]["text"] if n % 8 == 7 else text, "url": f"u{n}"})
    return made


def go(steps: list[Any], folder: Path, tasks: int = 1) -> list[Any]:
    """Run a pipeline as many tasks, one after the other; gives what comes out at its end."""
    out: list[Any] = []

    def collect(data: Iterable[Any], rank: int = 0, world_size: int = 1) -> Any:
        out.extend(data)
        yield from ()

    executor = LocalPipelineExecutor([*steps, collect], tasks=1, logging_dir=str(folder), skip_completed=False)
    for rank in range(tasks):
        data = None
        for step in executor.pipeline:
            data = step(data, rank, tasks) if callable(step) else step
        for _ in data or ():
            pass
    return out


class Given:
    """A reader of a foreign pipeline: Documents, document i in task i modulo the number of tasks."""

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> Any:
        for row in rows()[rank::world_size]:
            yield Document(text=row["text"], id=row["id"], metadata={"url": row["url"]})


def standalone(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """What the command gives for the same texts, by id."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    dedup_files(Inputs([str(path)]), tmp_path / "out", InProcess(), Quiet())
    return {row["source_id"]: row for row in pq.read_table(tmp_path / "out/dropped").to_pylist()}


@pytest.mark.parametrize("tasks", [1, 3])
def test_three_stages_over_documents_remove_what_the_command_removes(tmp_path: Path, tasks: int) -> None:
    folder = str(tmp_path / "dedup")
    assert go([Given(), DedupSketch(folder, rows=7)], tmp_path / "1", tasks) == []
    assert go([DedupDecide(folder)], tmp_path / "2") == []
    found = {d.id: d for d in go([DedupResult(folder, keep_dropped=True)], tmp_path / "3", tasks)}
    gone = standalone(tmp_path)
    clusters = {d.metadata.get("cluster") for d in found.values()} - {None}
    assert {name for name, d in found.items() if d.metadata["verdict"] != "keep"}.__len__() == len(gone) >= 8
    assert len(clusters) == len({row["cluster"] for row in gone.values()})
    assert {name: d.metadata["url"] for name, d in found.items()} == {row["id"]: row["url"] for row in rows()}
    near = [d for d in found.values() if d.metadata["verdict"] == "duplicate:near"]
    assert all(d.metadata["duplicate_of"] in found and d.metadata["similarity"] >= 0.8 for d in near)
    kept = go([DedupResult(folder)], tmp_path / "4", tasks)
    assert len(kept) == 40 - len(gone)


def test_batches_pass_as_batches_with_their_columns(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for n in range(2):
        pq.write_table(pa.Table.from_pylist(rows()[n::2]), data / f"{n}.parquet")
    folder = str(tmp_path / "dedup")
    steps = [ReadBatches(str(data), rows=8), FilterQuality([], keep_dropped=True), DedupSketch(folder)]
    go(steps, tmp_path / "1", 2)
    go([DedupDecide(folder)], tmp_path / "2")
    found = go([DedupResult(folder)], tmp_path / "3", 2)
    assert all(isinstance(batch, pa.RecordBatch) for batch in found)
    table = pa.Table.from_batches(found)
    assert {"id", "text", "url", "quality", "verdict", "cluster"} <= set(table.column_names)
    assert table.num_rows == 40 - len(standalone(tmp_path))


def test_quality_and_classify_set_metadata_and_leave_dropped_documents_out(tmp_path: Path) -> None:
    data = tmp_path / "labelled.jsonl"
    labelled = [{"text": prose(n) + (" sum" if n % 2 else " shop"), "domain": "ab"[n % 2]} for n in range(40)]
    data.write_text("".join(json.dumps(row) + "\n" for row in labelled), encoding="utf-8")
    train_classifier(Inputs([str(data)]), tmp_path / "m.bin", InProcess(), Quiet())
    documents = [Document(text=prose(1), id="good"), Document(text="a b", id="bad")]
    steps = [documents, FilterQuality(["gopher"]), Classify(str(tmp_path / "m.bin"))]
    (found,) = go(steps, tmp_path / "log")
    assert (found.id, found.metadata["verdict"], found.metadata["domain"] in ("a", "b")) == ("good", "keep", True)
    assert 0 < found.metadata["quality"] <= 1
    counted = {name: stat.total for name, stat in steps[1].stats.stats.items() if name.startswith(("keep", "gopher"))}
    assert counted.pop("keep") == 1
    assert list(counted.values()) == [1]


def test_documents_that_hold_a_benchmark_item_are_named_with_it(tmp_path: Path) -> None:
    benchmark = tmp_path / "bench.jsonl"
    benchmark.write_text(json.dumps({"question": prose(7, 40)}) + "\n", encoding="utf-8")
    documents = [Document(text=prose(1) + " " + prose(7, 40), id="leak"), Document(text=prose(2), id="clean")]
    found = {d.id: d for d in go([documents, Decontaminate([str(benchmark)], keep_dropped=True)], tmp_path / "log")}
    assert found["leak"].metadata["benchmark"].startswith(f"{benchmark}#1")
    assert found["leak"].metadata["matched"]
    assert found["clean"].metadata == {"verdict": "keep"}


@pytest.mark.parametrize("tasks", [1, 3])
def test_reweighting_in_three_stages_chooses_what_beam_chooses(tmp_path: Path, tasks: int) -> None:
    folder = str(tmp_path / "mix")
    given = [
        {"id": f"{n:032x}", "text": "x", "domain": "math" if n % 4 else "web", "tokens": 50 + n % 7, "source": "s"}
        for n in range(200)
    ]
    documents = [
        Document(text=r["text"], id=r["id"], metadata={k: r[k] for k in ("domain", "tokens", "source")}) for r in given
    ]
    go([Spread(documents), ReweightCount(folder, rows=30)], tmp_path / "1", tasks)
    go([ReweightDecide(folder, {"math": 0.5, "web": 0.5}, 4000, heldout_share=0.02)], tmp_path / "2")
    found = go([ReweightResult(folder)], tmp_path / "3", tasks)
    whole = MixtureWhole(MixtureWish({"math": 0.5, "web": 0.5}, 4000, 4, 0.02, 4, 0))
    batch = pa.RecordBatch.from_pylist(given)
    ((_, columns),) = whole.decide([("a", whole.summarise(batch))], lambda _: [batch])
    wanted = {row["id"]: chosen for row, chosen in zip(given, columns.to_pylist(), strict=True)}
    assert {d.id: {name: d.metadata[name] for name in ("tokens", "split", "epochs")} for d in found} == wanted
    assert {d.metadata["split"] for d in found} == {"train", "heldout", "unused"}
    with pytest.raises(CheckError, match="no task of DedupSketch is done"):
        go([DedupDecide(str(tmp_path / "none"))], tmp_path / "4")


class Spread:
    """A reader over Documents: document i in task i modulo the number of tasks."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> Any:
        yield from self.documents[rank::world_size]


def test_private_data_is_replaced_in_documents_and_counted(tmp_path: Path) -> None:
    documents = [
        Document(text="to bo@uni-x.edu at host 131.211.80.17", id="a", metadata={"url": "u"}),
        Document(text="to bo@uni-x.edu", id="b", metadata={"verdict": "gone"}),
    ]
    steps = [documents, ReplacePrivate(["email"], keep_dropped=True)]
    found = {d.id: d for d in go(steps, tmp_path / "log")}
    assert found["a"].text == "to <EMAIL_1> at host 131.211.80.17"
    assert (found["a"].metadata["url"], found["b"].text) == ("u", "to bo@uni-x.edu")
    assert steps[1].stats.stats["email"].total == 1
    with pytest.raises(UsageError, match="kind 'names' is unknown"):
        ReplacePrivate(["names"])


def test_languages_are_judged_by_a_model_and_labels_it_lacks_are_named(tmp_path: Path) -> None:
    data = tmp_path / "labelled.jsonl"
    labelled = [{"text": prose(n) if n % 2 else prose(n)[::-1], "domain": ("de", "en")[n % 2]} for n in range(60)]
    data.write_text("".join(json.dumps(row) + "\n" for row in labelled), encoding="utf-8")
    train_classifier(Inputs([str(data)]), tmp_path / "lid.bin", InProcess(), Quiet())
    documents = [Document(text=prose(901), id="ours"), Document(text=prose(902)[::-1], id="theirs")]
    model = {"language_model": str(tmp_path / "lid.bin"), "min_language_score": 0.5}
    found = {
        d.id: d
        for d in go([documents, FilterQuality([], languages=["en"], keep_dropped=True, **model)], tmp_path / "l")
    }
    assert (found["ours"].metadata["verdict"], found["ours"].metadata["language"]) == ("keep", "en")
    assert (found["theirs"].metadata["verdict"], found["theirs"].metadata["language"]) == ("language:de", "de")
    with pytest.raises(RecipeError, match="has no label 'fr'; its 2 labels are de, en"):
        go([documents, FilterQuality([], languages=["fr"], **model)], tmp_path / "l")


def test_a_missing_or_foreign_stage_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "dedup"
    go([Given(), DedupSketch(str(folder))], tmp_path / "1", 3)
    with pytest.raises(CheckError, match="tasks=1"):
        go([DedupDecide(str(folder))], tmp_path / "2", 2)
    (folder / "tasks/00001.json").unlink()
    with pytest.raises(CheckError, match="task 1 of DedupSketch is not done"):
        go([DedupDecide(str(folder))], tmp_path / "2")
    go([Given(), DedupSketch(str(folder))], tmp_path / "1", 3)
    sketch = sorted((folder / "sketches").iterdir())[0]
    sketch.write_bytes(sketch.read_bytes()[:-67])
    with pytest.raises(CheckError, match=sketch.name):
        go([DedupDecide(str(folder))], tmp_path / "2")
    go([Given(), DedupSketch(str(folder))], tmp_path / "1", 3)
    go([DedupDecide(str(folder))], tmp_path / "2")
    with pytest.raises(CheckError, match="ran as 3 tasks, DedupResult as 2"):
        go([DedupResult(str(folder))], tmp_path / "3", 2)


def test_nothing_goes_through_all_stages(tmp_path: Path) -> None:
    folder = str(tmp_path / "dedup")
    go([[], DedupSketch(folder)], tmp_path / "1")
    go([DedupDecide(folder)], tmp_path / "2")
    assert go([DedupResult(folder)], tmp_path / "3") == []
