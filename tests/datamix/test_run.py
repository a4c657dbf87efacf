"""The runner: keys decide what runs, manifests come last, a stopped run continues, a foreign folder is refused.

Promise 3 of DESIGN §4, the runner half: stopped anywhere, continued to the same bytes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from datamix.run import run_job
from datamix.steps import STEPS, Step, step_key
from pipelines.context import RunContext, StepOutput
from pipelines.engine import InProcess
from schemas.errors import DatamixError, RecipeError, UsageError
from schemas.files import digest_of
from schemas.lock import locked
from schemas.manifest import read_manifest
from schemas.progress import Quiet
from schemas.recipe import Recipe, parse_recipe

TEXT = """
name: NAME
seed: 1
sources: [{name: mine, kind: jsonl, path: INPUT}]
mixture: {method: proportional, budget_tokens: 1000}
tokenizer: {train: {vocab_size: 300}}
curriculum: {pretrain: [{context_tokens: 64, budget_tokens: 1000}]}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16}
"""

calls: list[str] = []
failures: dict[str, BaseException] = {}


def _write(context: RunContext, name: str, value: object) -> StepOutput:
    path = context.run / name / "out.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return StepOutput([path], {"documents_in": 1})


def read_step(context: RunContext) -> StepOutput:
    calls.append("read")
    source = Path(str(context.recipe.sources[0].path))
    return _write(context, "documents", len(source.read_bytes()))


def dedup_step(context: RunContext) -> StepOutput:
    calls.append("dedup")
    output = _write(
        context, "dedup", [context.recipe.dedup.threshold, (context.run / "documents/out.json").read_text()]
    )
    if "dedup" in failures:
        raise failures.pop("dedup")
    if "kill" in failures:
        (context.run / "dedup" / ".tmp-1-half").write_text("half", encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)
    return output


def train_step(context: RunContext) -> StepOutput:
    """Leaves a checkpoint before it fails, and reports whether it found one."""
    calls.append("train")
    checkpoint = context.run / "train" / "checkpoint"
    found = checkpoint.exists()
    checkpoint.parent.mkdir(exist_ok=True)
    checkpoint.write_text("x", encoding="utf-8")
    if "train" in failures:
        raise failures.pop("train")
    calls.append(f"found={found}")
    return StepOutput([checkpoint], {})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Step, ...]]:
    calls.clear()
    failures.clear()
    functions = {"r": read_step, "d": dedup_step, "t": train_step}
    monkeypatch.setattr(Step, "load", lambda self: functions[self.function])
    yield (
        Step(name="read", function="r", fields=("sources",), owns=("documents",)),
        Step(name="dedup", function="d", upstream=("read",), fields=("dedup",), owns=("dedup",)),
        Step(name="train", function="t", upstream=("dedup",), fields=("train",), owns=("train",), resumes=True),
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n', encoding="utf-8")
    return path


def recipe_for(source: Path, *overrides: str, name: str = "tiny") -> Recipe:
    return parse_recipe(TEXT.replace("INPUT", str(source)).replace("NAME", name), overrides=overrides)


def go(recipe: Recipe, run: Path, steps: tuple[Step, ...], **options: object) -> list[str]:
    """Run and return which step functions were called."""
    calls.clear()
    run_job(recipe, run, Quiet(), steps=steps, engine=InProcess(), **options)  # type: ignore[arg-type]
    return [call for call in calls if not call.startswith("found")]


def tree(run: Path) -> dict[str, bytes]:
    """Every file of a run except the timings."""
    return {
        p.relative_to(run).as_posix(): p.read_bytes()
        for p in sorted(run.rglob("*"))
        if p.is_file() and p.name not in ("timings.json", ".lock", "inputs.json")
    }


def test_second_run_keeps_every_step_and_every_byte(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run, recipe = tmp_path / "run", recipe_for(source)
    assert go(recipe, run, steps) == ["read", "dedup", "train"]
    before = tree(run)
    assert go(recipe, run, steps) == []
    assert tree(run) == before


def test_changed_input_bytes_run_what_depends_on_them(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run, recipe = tmp_path / "run", recipe_for(source)
    go(recipe, run, steps)
    source.touch()
    assert go(recipe, run, steps) == []
    source.write_text('{"text": "longer"}\n', encoding="utf-8")
    assert go(recipe, run, steps) == ["read", "dedup", "train"]


def test_step_that_failed_runs_again_to_the_same_bytes(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    recipe = recipe_for(source)
    failures["dedup"] = DatamixError("disk on fire")
    with pytest.raises(DatamixError, match="disk on fire"):
        go(recipe, tmp_path / "run", steps)
    assert read_manifest(tmp_path / "run", "dedup") is None
    assert go(recipe, tmp_path / "run", steps) == ["dedup", "train"]
    go(recipe, tmp_path / "other", steps)
    assert tree(tmp_path / "run") == tree(tmp_path / "other")


def test_killed_process_leaves_a_run_that_continues_to_the_same_bytes(
    tmp_path: Path, source: Path, steps: tuple[Step, ...]
) -> None:
    run, recipe = tmp_path / "run", recipe_for(source)
    failures["kill"] = DatamixError("in the child only")
    child = multiprocessing.get_context("fork").Process(target=go, args=(recipe, run, steps))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    del failures["kill"]
    assert read_manifest(run, "dedup") is None
    assert go(recipe, run, steps) == ["dedup", "train"]
    go(recipe, tmp_path / "other", steps)
    assert tree(run) == tree(tmp_path / "other")


def test_interrupted_step_that_resumes_finds_its_checkpoint(
    tmp_path: Path, source: Path, steps: tuple[Step, ...]
) -> None:
    run, recipe = tmp_path / "run", recipe_for(source)
    failures["train"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        go(recipe, run, steps)
    go(recipe, run, steps)
    assert calls == ["train", "found=True"]


def test_checkpoint_of_another_recipe_is_not_resumed(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run = tmp_path / "run"
    failures["train"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        go(recipe_for(source), run, steps)
    go(recipe_for(source, "train.learning_rate=0.1"), run, steps, update=True)
    assert calls == ["train", "found=False"]


def test_update_runs_only_what_depends_on_the_change(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run = tmp_path / "run"
    go(recipe_for(source), run, steps)
    assert go(recipe_for(source, "dedup.threshold=0.5"), run, steps, update=True) == ["dedup", "train"]


def test_deleted_output_is_made_again(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run, recipe = tmp_path / "run", recipe_for(source)
    go(recipe, run, steps)
    (run / "dedup/out.json").unlink()
    assert go(recipe, run, steps) == ["dedup"]  # it came back with the same bytes, so train stays


def test_from_runs_that_step_and_those_after_it_afresh(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run, recipe = tmp_path / "run", recipe_for(source)
    go(recipe, run, steps)
    assert go(recipe, run, steps, first="dedup") == ["dedup", "train"]
    assert calls[-1] == "found=False"


def test_from_needs_the_steps_before_it(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    with pytest.raises(UsageError, match="holds no run, so the steps before it are not done"):
        go(recipe_for(source), tmp_path / "run", steps, first="dedup")
    assert not (tmp_path / "run").exists()
    go(recipe_for(source), tmp_path / "run", steps, until="read")
    (tmp_path / "run" / "manifests" / "read.json").unlink()
    with pytest.raises(UsageError, match="the step 'read' before it is not done"):
        go(recipe_for(source), tmp_path / "run", steps, first="dedup")


def test_until_leaves_no_later_step_of_an_earlier_state(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run = tmp_path / "run"
    go(recipe_for(source), run, steps)
    assert go(recipe_for(source, "dedup.threshold=0.5"), run, steps, update=True, until="dedup") == ["dedup"]
    assert read_manifest(run, "train") is None
    assert not (run / "train").exists()
    with pytest.raises(UsageError, match="--from train comes after --until read"):
        go(recipe_for(source), run, steps, first="train", until="read")


def test_run_of_another_recipe_is_refused_and_untouched(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run = tmp_path / "run"
    go(recipe_for(source), run, steps)
    before = tree(run)
    with pytest.raises(UsageError, match=r"holds a run of another recipe, 'tiny', not 'other'\. Give another --out"):
        go(recipe_for(source, name="other"), run, steps)
    with pytest.raises(UsageError, match=r"differs in seed .*Give another --out, or --update"):
        go(recipe_for(source, "seed=2"), run, steps)
    assert tree(run) == before


def test_engine_and_workers_do_not_make_another_recipe(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run = tmp_path / "run"
    go(recipe_for(source), run, steps)
    before = tree(run)
    assert go(recipe_for(source, "engine.workers=7"), run, steps) == []
    assert tree(run) == before


def test_folder_with_other_things_is_refused_and_untouched(
    tmp_path: Path, source: Path, steps: tuple[Step, ...]
) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(UsageError, match="not empty and holds no run"):
        go(recipe_for(source), folder, steps)
    assert [p.name for p in folder.iterdir()] == ["letter.txt"]
    with pytest.raises(UsageError, match="is a file"):
        go(recipe_for(source), folder / "letter.txt", steps)


def test_missing_input_file_is_wrong_usage(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        go(recipe_for(tmp_path / "none.jsonl"), tmp_path / "run", steps)


def _hold(run: Path, ready: object, done: object) -> None:
    with locked(run):
        ready.set()  # type: ignore[attr-defined]
        done.wait(60)  # type: ignore[attr-defined]


def test_two_processes_cannot_write_one_run(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    spawn = multiprocessing.get_context("fork")
    ready, done = spawn.Event(), spawn.Event()
    holder = spawn.Process(target=_hold, args=(tmp_path / "run", ready, done))
    holder.start()
    try:
        assert ready.wait(60)
        with pytest.raises(UsageError, match=f"process {holder.pid} is writing this run"):
            go(recipe_for(source), tmp_path / "run", steps)
    finally:
        done.set()
        holder.join(60)
    assert go(recipe_for(source), tmp_path / "run", steps) == ["read", "dedup", "train"]


def test_manifest_records_every_file_and_leftovers_go(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    run = tmp_path / "run"
    go(recipe_for(source), run, steps, until="read")
    (run / "documents/.tmp-99-part").write_text("half", encoding="utf-8")
    go(recipe_for(source), run, steps, until="read")
    assert not (run / "documents/.tmp-99-part").exists()
    manifest = read_manifest(run, "read")
    assert manifest is not None
    assert [(f.path, f.bytes) for f in manifest.files] == [("documents/out.json", 2)]
    assert manifest.counts == {"documents_in": 1}


def test_every_field_and_upstream_of_the_real_steps_exists(source: Path) -> None:
    seen: set[str] = set()
    recipe = recipe_for(source)
    for step in STEPS:
        assert set(step.upstream) <= seen
        step_key(step, recipe, {name: digest_of(name) for name in step.upstream}, [])
        seen.add(step.name)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trajectories.policy=nanbiege", "trajectories.policy: no policy is called 'nanbiege'"),
        (
            "trajectories.synthesized=[{family: repairs, n: 1}]",
            "synthesized.0.family: 'repairs' is unknown. Did you mean",
        ),
        (
            "trajectories.recorded=[{path: INPUT, format: sharegtp}]",
            "recorded.0.format: 'sharegtp' is unknown. Did you",
        ),
        ("evaluate.family=reson", "evaluate.family: 'reson' is unknown. Did you mean 'reasoning'?"),
    ],
)
def test_unknown_name_is_said_before_anything_is_done(
    tmp_path: Path, source: Path, steps: tuple[Step, ...], override: str, expected: str
) -> None:
    recipe = recipe_for(source, override.replace("INPUT", str(source)))
    with pytest.raises(UsageError) as caught:
        go(recipe, tmp_path / "run", steps)
    assert expected in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_wrong_rules_are_said_before_anything_is_written(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    with pytest.raises(RecipeError, match="acton: unknown threshold; did you mean 'action'"):
        go(recipe_for(source, "trajectories.rules.R5.acton=drop"), tmp_path / "run", steps)
    assert not (tmp_path / "run").exists()


def test_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path, source: Path, steps: tuple[Step, ...]) -> None:
    with pytest.raises(UsageError, match=r"cannot be written \(Not a directory\)"):
        go(recipe_for(source), source / "below" / "a-file", steps)
