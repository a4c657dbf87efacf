"""What goes wrong around a training, and what it writes beside the model: kills, full disks, foreign ids, events."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from datamix.commands.train import command
from schemas.errors import CheckError, DatamixError
from schemas.files import sha256_file
from schemas.progress import Quiet
from schemas.shard import ShardIndex, write_index
from trainer import evaluate
from trainer import train as training
from trainer.checkpoint import CheckpointState, save_checkpoint
from trainer.metrics import read_metrics
from trainer.optimizer import make_optimizer
from trainer.train import train


def in_a_child(work: Callable[[], int]) -> int:
    """Start `work` in a fork of this process, which ends with the code that it gives; returns its id."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return child


def ended(child: int) -> int:
    """The exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _digest(run: Path) -> str:
    return sha256_file(run / "train/checkpoints/final/model.safetensors")


def test_the_command_killed_twice_ends_with_the_weights_of_one_that_was_not(
    tmp_path: Path, make_shards: Any, make_recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "killed"):
        make_shards(tmp_path / name / "shards")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(make_recipe().model_dump(mode="json")))
    real = training.gradient_step

    def slow(*arguments: Any) -> Any:
        time.sleep(0.2)
        return real(*arguments)

    def work() -> int:
        monkeypatch.setattr(training, "gradient_step", slow)
        command([str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / "killed")], standalone_mode=False)
        return 0

    for step in (2, 6):
        child = in_a_child(work)
        until = time.monotonic() + 100
        while not (tmp_path / f"killed/train/checkpoints/step-{step}").exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        assert ended(child) == -signal.SIGKILL
        assert not (tmp_path / "killed/train/checkpoints/final").exists()
    for name in ("whole", "killed"):
        command([str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / name)], standalone_mode=False)
    assert _digest(tmp_path / "killed") == _digest(tmp_path / "whole")
    lines = [(tmp_path / name / "train/metrics.jsonl").read_bytes() for name in ("whole", "killed")]
    assert lines[0] == lines[1]


def test_files_that_cannot_grow_leave_the_last_whole_checkpoint(
    tmp_path: Path, make_shards: Any, make_recipe: Any
) -> None:
    """The kernel refuses the bytes, as on a full disk: half of a file is written, then an error."""
    for name in ("whole", "full"):
        make_shards(tmp_path / name / "shards")

    def work() -> int:
        train(make_recipe(), tmp_path / "full", Quiet(), "pretrain")
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
        try:
            train(make_recipe(), tmp_path / "full", Quiet())
        except DatamixError as error:
            (tmp_path / "told").write_text(str(error))
            return error.exit_code
        return 0

    assert ended(in_a_child(work)) == 1
    told = (tmp_path / "told").read_text()
    assert "step-8: the checkpoint could not be saved" in told
    assert "run again: training goes on from the last whole checkpoint" in told
    checkpoints = tmp_path / "full/train/checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["pretrain", "step-6", "step-7"]
    train(make_recipe(), tmp_path / "full", Quiet())
    train(make_recipe(), tmp_path / "whole", Quiet())
    assert _digest(tmp_path / "full") == _digest(tmp_path / "whole")


def test_a_step_takes_the_memory_that_the_last_one_freed() -> None:
    code = """
import resource, torch
from trainer.memory import keep_freed_memory
def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        held = [torch.ones(2**20) for _ in range(4)]  # 4 MiB each
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
taken = keep_freed_memory()
faults(40)  # the heap finds its size
print(int(taken), faults(20))
"""
    root = Path(__file__).parents[2]
    shown = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True).stdout
    taken, faults = map(int, shown.split())
    assert faults < 100 or not taken  # thousands where blocks go back to the system


def test_a_token_outside_the_vocabulary_is_named_with_its_row(
    tmp_path: Path, write_stage: Any, make_recipe: Any
) -> None:
    rows = [[([5, 6, 64], [False, True, True])]]
    stage = write_stage(tmp_path / "shards", "p", "pretrain", 32, rows)
    write_index(tmp_path / "shards", ShardIndex(64, "tokenizer", "recipe", [stage]))
    with pytest.raises(CheckError, match=r"p/part-00000\.arrow:0: token 64 in input_ids, the vocabulary has 64"):
        train(make_recipe(), tmp_path, Quiet())


def test_a_checkpoint_with_another_vocabulary_than_the_shards_is_not_measured(
    tmp_path: Path, make_shards: Any, make_recipe: Any, make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_shards(tmp_path / "shards")
    other = make_model(vocab_size=65)
    state = CheckpointState(1, "sft", "key", {}, 0)
    save_checkpoint(tmp_path / "other", other, make_optimizer(other, 0.1), state)
    monkeypatch.setattr(evaluate, "load_tokenizer", lambda folder: SimpleNamespace(digest="tokenizer"))
    with pytest.raises(CheckError, match=r"config\.json: vocab_size 65, the shards of .* have 64"):
        evaluate.measure(make_recipe(), tmp_path, tmp_path / "other", Quiet())


def test_the_mixture_may_change_inside_the_stable_phase(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    """Warm-up, stable rate and decay belong to the phase: the edge between its stages is not seen in the rate."""
    make_shards(tmp_path / "shards")
    train(make_recipe(), tmp_path, Quiet(), "pretrain")
    lines = read_metrics(tmp_path / "train/metrics.jsonl")
    rates = [(line["stage"], line["learning_rate"]) for line in lines]
    assert rates == [("pretrain-0", 3e-3)] * 4 + [("pretrain-1", 3e-3)] * 2 + [("pretrain-1", 1.5e-3)]


def test_tensorboard_has_the_losses_and_training_goes_on_without_it(
    tmp_path: Path, make_shards: Any, make_recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in ("with", "without"):
        make_shards(tmp_path / name / "shards")
    train(make_recipe(), tmp_path / "with", Quiet())
    written = EventAccumulator(str(tmp_path / "with/train/tensorboard")).Reload()
    lines = read_metrics(tmp_path / "with/train/metrics.jsonl")
    for phase in ("pretrain", "sft"):
        wanted = [(line["step"], line["loss"]) for line in lines if line["phase"] == phase]
        found = [(event.step, event.value) for event in written.Scalars(f"{phase}/loss")]
        assert [step for step, _ in found] == [step for step, _ in wanted]
        assert [loss for _, loss in found] == pytest.approx([loss for _, loss in wanted], rel=1e-6)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    train(make_recipe(), tmp_path / "without", Quiet())
    assert not (tmp_path / "without/train/tensorboard").exists()
    assert _digest(tmp_path / "with") == _digest(tmp_path / "without")


def test_a_trained_first_token_of_a_segment_has_nothing_before_it_and_is_not_trained(
    tmp_path: Path, write_stage: Any, make_recipe: Any
) -> None:
    rows = [[([5, 6, 7], [True, False, False]), ([9], [True])]]
    write_index(
        tmp_path / "shards",
        ShardIndex(64, "tokenizer", "recipe", [write_stage(tmp_path / "shards", "p", "pretrain", 32, rows)]),
    )
    train(make_recipe(), tmp_path, Quiet())
    (line,) = read_metrics(tmp_path / "train/metrics.jsonl")
    assert (line["loss"], line["trained_tokens"], line["rows_without_target"]) == (None, 0, 1)
