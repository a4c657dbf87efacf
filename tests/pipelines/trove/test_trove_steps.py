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
)
from schemas.errors import CheckError
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
