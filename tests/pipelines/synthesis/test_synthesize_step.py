"""The step `synthesize` on a small run folder: counts, determinism, splits, recorded runs, set-aside."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.engine import InProcess
from pipelines.synthesis.environments.functions import read_pool, split_of
from pipelines.synthesis.pools import repair as pool_module
from pipelines.synthesis.ranges import spread_difficulties, task_seed
from pipelines.synthesis.replay import task_of
from pipelines.synthesis.rollout import HELDOUT_SEEDS
from pipelines.synthesis.step import step
from schemas.document import DOCUMENT_SCHEMA, document_id, partition_of
from schemas.errors import DatamixError, RecipeError
from schemas.progress import Quiet
from schemas.recipe import Recipe
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

BASE: dict[str, Any] = {
    "name": "small",
    "seed": 5,
    "engine": {"partitions": 2},
    "sources": [{"name": "a", "kind": "jsonl", "path": "a.jsonl"}],
    "mixture": {"method": "proportional", "budget_tokens": 1000},
    "tokenizer": {"train": {"vocab_size": 512}},
    "curriculum": {"pretrain": [], "sft": []},
    "model": {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_loops": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 64,
    },
}
CHUNKS = '''"""Cutting sequences, part {n}. {filler}"""


def chunks_{n}(items, n):
    """Cut items into lists of n."""
    if n <= 0:
        raise ValueError("n must be positive")
    found = []
    for start in range({n}, len(items), n):
        found.append(items[start : start + n])
    return found


def running_total_{n}(values):
    """Sums of all prefixes."""
    total = {n}
    sums = []
    for value in values:
        total += value
        sums.append(total)
    return sums
'''


def make_run(folder: Path, modules: int = 14) -> Path:
    """A run folder whose kept corpus holds a few modules and other texts."""
    rows: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    texts = [(CHUNKS.format(n=n, filler="about lists " * 300), "MIT", "code") for n in range(modules)]
    texts += [(CHUNKS.format(n=99, filler="x" * 4000), "GPL-3.0", "code"), ("prose " * 900, "MIT", "web")]
    texts += [("def f(:\n" + "def g(:\n" * 600, "MIT", "code")]
    for number, (text, license_name, domain) in enumerate(texts):
        key = document_id(text, "a")
        row = {"id": key, "text": text, "source": "a", "origin": f"pkg/m{number}.py#1", "license": license_name}
        rows[partition_of(key, 2)].append({**row, "domain": domain, "verdict": "keep"})
    for part, found in rows.items():
        path = folder / "corpus" / "kept" / f"part-{part:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(sorted(found, key=lambda row: row["id"]), DOCUMENT_SCHEMA), path)
    return folder


@pytest.fixture(autouse=True)
def small_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of this size is enough here: the standard library stays out."""
    monkeypatch.setattr(pool_module, "FEWEST_MODULES", 1)
    monkeypatch.setattr(pool_module, "FEWEST_CHARACTERS", 1)


def recipe(**trajectories: Any) -> Recipe:
    return Recipe.model_validate({**BASE, **trajectories.pop("top", {}), "trajectories": trajectories})


def context(run: Path, of: Recipe) -> RunContext:
    return RunContext(run, of, InProcess(), Quiet())


REPAIRS = {"family": "repair", "n": 6, "mistake_rate": 0.3, "difficulty": [1, 3]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    run = make_run(tmp_path_factory.mktemp("run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_module, "FEWEST_MODULES", 1)
        patch.setattr(pool_module, "FEWEST_CHARACTERS", 1)
        output = step(context(run, recipe(synthesized=[REPAIRS])))
    assert sorted(output.files) == sorted(path for path in (run / "trajectories").rglob("*") if path.is_file())
    return run, output.counts


def trajectories(run: Path) -> list[Trajectory]:
    files = sorted((run / "trajectories" / "raw").glob("*.parquet"))
    assert all(pq.read_schema(path).equals(TRAJECTORY_SCHEMA) for path in files)
    return [Trajectory.from_row(row) for path in files for row in pq.read_table(path).to_pylist()]


def test_counts_are_what_the_files_hold(finished: tuple[Path, dict[str, Any]]) -> None:
    run, counts = finished
    found = trajectories(run)
    labels = [m.label or "" for t in found for m in t.messages if m.role == "assistant"]
    assert counts["tasks"] == counts["trajectories"] == len(found) == 6
    assert counts["solved"] == sum(t.outcome.success is True for t in found)
    assert counts["steps"] == len(labels)
    assert counts["mistakes"] == sum(label.startswith("mistake") for label in labels)
    assert counts["recoveries"] == labels.count("recovery")
    assert counts["by_family"] == {"repair": {k: counts[k] for k in counts["by_family"]["repair"]}}
    assert counts["rejected"] == {}
    assert counts["pool"]["modules"] == len(read_pool(run / "trajectories" / "pool.jsonl")) == 14
    assert counts["pool"]["left_out"] == {"not_alone": 1}


def test_training_tasks_use_low_seeds_and_the_training_split(finished: tuple[Path, dict[str, Any]]) -> None:
    run, _ = finished
    modules = {module.id: module for module in read_pool(run / "trajectories" / "pool.jsonl")}
    for trajectory in trajectories(run):
        task = task_of(trajectory)
        assert task.seed < HELDOUT_SEEDS
        assert {split_of(modules[raw["module"]]) for raw in task.data["files"]} == {"train"}


def test_difficulties_are_spread_with_both_ends(finished: tuple[Path, dict[str, Any]]) -> None:
    run, _ = finished
    assert [t.task.difficulty for t in trajectories(run)] == [1, 1.4, 1.8, 2.2, 2.6, 3]
    assert spread_difficulties(1, 4, 9) == [4]
    assert spread_difficulties(2, 1, 10) == [1, 10]
    assert spread_difficulties(10, 1, 10) == list(range(1, 11))


def test_seeds_differ_between_entries_and_stay_below_the_heldout_ones() -> None:
    seeds = [task_seed(2**62, position, number) for position in range(3) for number in range(500)]
    assert len(set(seeds)) == 1500
    assert max(seeds) < HELDOUT_SEEDS


def test_two_recipes_with_different_seeds_share_no_task() -> None:
    starts = sorted(task_seed(seed, position, 0) for seed in range(1, 11) for position in range(64))
    nearest = min(after - before for before, after in pairwise([*starts, starts[0] + HELDOUT_SEEDS]))
    assert nearest == 733_290  # tasks that an entry may have
    assert task_seed(1, 0, 9) - task_seed(1, 0, 0) == 9


def test_same_recipe_same_bytes(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run, _ = finished
    again = make_run(tmp_path)
    step(context(again, recipe(synthesized=[REPAIRS])))
    for path in sorted((run / "trajectories").rglob("*")):
        if path.is_file():
            assert (again / path.relative_to(run)).read_bytes() == path.read_bytes()


def test_a_task_that_cannot_be_made_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "FEWEST_MODULES", 0)
    monkeypatch.setattr(pool_module, "FEWEST_CHARACTERS", 0)
    run = make_run(tmp_path, modules=0)
    output = step(context(run, recipe(synthesized=[REPAIRS])))
    assert output.counts["trajectories"] == 0
    assert output.counts["rejected"] == {"no_task": 6}
    rows = [json.loads(line) for line in (run / "trajectories" / "set_aside.jsonl").read_text().splitlines()]
    assert [row["problem"] for row in rows] == ["no_task"] * 6
    assert "0 modules" in rows[0]["detail"]
    with pytest.raises(DatamixError, match="no_task"):
        step(context(run, recipe(synthesized=[REPAIRS], top={"on_error": "fail"})))


def test_a_poor_corpus_gets_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "FEWEST_MODULES", 20)
    monkeypatch.setattr(pool_module, "LIBRARY_TASKS", 60)  # then one task of them is a sixtieth of it

    def only_two(function: Any, tasks: Any, **options: Any) -> list[dict[str, Any]]:
        chosen = tasks if len(tasks) < 60 else tasks[:2]
        for task in tasks[len(chosen) :]:
            Path(task.out).write_text("")
        return [function(task) for task in chosen]

    engine = InProcess()
    monkeypatch.setattr(engine, "map", only_two)
    counts = pool_module.build_pool(RunContext(make_run(tmp_path), recipe(), engine, Quiet()), tmp_path / "pool.jsonl")
    assert counts["standard_library"] > 0
    assert counts["modules"] == 14 + counts["standard_library"]


def test_recorded_runs_are_read_and_broken_ones_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    chat = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    (folder / "good.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    (folder / "mixed.jsonl").write_text(json.dumps({"messages": chat}) + "\n{broken\n")
    run = make_run(tmp_path / "run", modules=1)
    wanted = recipe(recorded=[{"path": str(folder / "*.jsonl")}], top={"evaluate": {"tasks": 0}})
    output = step(context(run, wanted))
    assert output.counts["recorded"] == {"files": 2, "trajectories": 2, "set_aside": 1}
    assert "pool" not in output.counts
    assert [path.name for path in output.files] == [
        "recorded-0-00000.parquet",
        "recorded-0-00001.parquet",
        "set_aside.jsonl",
    ]
    assert len((run / "trajectories" / "set_aside.jsonl").read_text().splitlines()) == 1
    assert not list((run / "trajectories" / "raw").glob("*.aside"))
    strict = recipe(recorded=[{"path": str(folder)}], top={"evaluate": {"tasks": 0}, "on_error": "fail"})
    with pytest.raises(DatamixError, match=r"mixed\.jsonl"):
        step(context(run, strict))


def test_wrong_entries_name_their_field(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"trajectories\.synthesized\.1\.mistake_rate: 0\.9.*0 to 0\.6"):
        step(context(tmp_path, recipe(synthesized=[REPAIRS, {**REPAIRS, "mistake_rate": 0.9}])))
    with pytest.raises(RecipeError, match=r"trajectories\.synthesized\.0\.family.*'poetry'.*repair"):
        step(context(tmp_path, recipe(synthesized=[{**REPAIRS, "family": "poetry"}])))
