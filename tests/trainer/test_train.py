from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from schemas.errors import CheckError, DatamixError, UsageError
from schemas.files import sha256_file
from schemas.progress import Quiet
from schemas.recipe import Recipe
from schemas.shard import ShardIndex, write_index
from trainer import checkpoint
from trainer.checkpoint import load_model, read_state
from trainer.metrics import read_metrics
from trainer.optimizer import learning_rate_at
from trainer.signals import TrainingStopped
from trainer.step import NonFiniteError
from trainer.train import train

# make_shards has steps 0-3 (pretrain-0: 2, 2, 2, 1 rows), 4-6 (pretrain-1: 1 row each), 7-10 (sft-0: 1 row each)
STEPS, PRETRAIN = 11, 7


class _StopAt(Quiet):
    """Ends the process' work when so many tokens have been trained, by an exception or by a signal."""

    def __init__(self, tokens: int, by: signal.Signals | None = None) -> None:
        self.left, self.by, self.said = tokens, by, []

    def say(self, line: str) -> None:
        self.said.append(line)

    @contextmanager
    def task(self, label: str, total: float | None = None) -> Iterator[Any]:
        def advance(amount: float) -> None:
            self.left -= amount
            if self.left <= 0:
                self.left = 10**9
                if self.by is None:
                    raise _DiedError
                os.kill(os.getpid(), self.by)

        yield advance


class _DiedError(Exception):
    pass


def _outputs(run: Path) -> dict[str, str]:
    """Digests of everything that must be the same for the same recipe."""
    names = ["train/metrics.jsonl", "train/summary.json"]
    for folder in ("pretrain", "final"):
        names += [f"train/checkpoints/{folder}/{f}" for f in ("model.safetensors", "config.json", "state.json")]
    return {name: sha256_file(run / name) for name in names}


@pytest.fixture
def uninterrupted(tmp_path: Path, make_shards: Any, make_recipe: Any) -> dict[str, str]:
    make_shards(tmp_path / "whole/shards")
    train(make_recipe(), tmp_path / "whole", Quiet())
    return _outputs(tmp_path / "whole")


def test_trains_every_stage_in_order_and_counts(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    summary = train(make_recipe(), tmp_path, Quiet())
    assert (summary.steps, summary.checkpoint) == (STEPS, str(tmp_path / "train/checkpoints/final"))
    lines = read_metrics(tmp_path / "train/metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(STEPS))
    assert [line["stage"] for line in lines] == ["pretrain-0"] * 4 + ["pretrain-1"] * 3 + ["sft-0"] * 4
    assert [line["rows"] for line in lines] == [2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]
    assert [(s["stage"], s["tokens"]) for s in summary.stages] == [
        ("pretrain-0", 7 * 32), ("pretrain-1", 3 * 48), ("sft-0", 4 * 96),
    ]  # fmt: skip
    assert summary.stages[0]["trained_tokens"] == 7 * 30
    assert all(path.is_file() for path in summary.files)
    kept = sorted(path.name for path in (tmp_path / "train/checkpoints").iterdir())
    assert kept == ["final", "pretrain", "step-10", "step-11"]
    assert not (tmp_path / "train/checkpoints/final").is_symlink()


def test_it_learns(tmp_path: Path, write_stage: Any, make_recipe: Any) -> None:
    cycle = [[([i % 5 for i in range(32)], [False] + [True] * 31)] for _ in range(40)]
    write_index(
        tmp_path / "shards",
        ShardIndex(64, "tokenizer", "recipe", [write_stage(tmp_path / "shards", "p", "pretrain", 32, cycle)]),
    )
    summary = train(make_recipe(learning_rate=0.02, tokens_per_step=32), tmp_path, Quiet())
    assert summary.stages[0]["first_loss"] > 4 and summary.stages[0]["last_loss"] < 0.5


@pytest.mark.parametrize("tokens", [1, 40, 150, 224, 300, 368, 500, 752])
def test_killed_anywhere_it_ends_with_the_same_bytes(
    tmp_path: Path, make_shards: Any, make_recipe: Any, uninterrupted: dict[str, str], tokens: int
) -> None:
    make_shards(tmp_path / "shards")
    with pytest.raises(_DiedError):
        train(make_recipe(), tmp_path, _StopAt(tokens))
    train(make_recipe(), tmp_path, Quiet())
    assert _outputs(tmp_path) == uninterrupted


@pytest.mark.parametrize("tokens", [40, 224, 500])
@pytest.mark.parametrize(("sent", "name", "code"), [(signal.SIGTERM, "SIGTERM", 0), (signal.SIGINT, "Ctrl-C", 130)])
def test_a_signal_saves_leaves_with_its_exit_code_and_goes_on(
    tmp_path: Path,
    make_shards: Any,
    make_recipe: Any,
    uninterrupted: dict[str, str],
    tokens: int,
    sent: signal.Signals,
    name: str,
    code: int,
) -> None:
    make_shards(tmp_path / "shards")
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(TrainingStopped, match=f"stopped by {name} after .*all saved") as stopped:
        train(make_recipe(), tmp_path, _StopAt(tokens, sent))
    assert stopped.value.exit_code == code
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    listener = _StopAt(10**9)
    train(make_recipe(), tmp_path, listener)
    assert listener.said[0].startswith("resumed from")
    assert _outputs(tmp_path) == uninterrupted


def test_kill_minus_nine_twice_while_saving_and_while_training(
    tmp_path: Path, make_shards: Any, make_recipe: Any, uninterrupted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_shards(tmp_path / "shards")
    real = checkpoint.save_file

    def killed(function: Callable[[], Any]) -> bool:
        """Run `function` in a child process; whether it died of signal 9."""
        child = os.fork()
        if child == 0:
            function()
            os._exit(0)
        return os.WIFSIGNALED(status := os.waitpid(child, 0)[1]) and os.WTERMSIG(status) == signal.SIGKILL

    def save_half(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        real(tensors, path, metadata)
        if path.parent.name.endswith("step-4"):
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", save_half)
        assert killed(lambda: train(make_recipe(), tmp_path, Quiet()))
    assert [path.name for path in (tmp_path / "train/checkpoints").glob("step-*")] == ["step-2"]
    assert killed(lambda: train(make_recipe(), tmp_path, _StopAt(300, signal.SIGKILL)))
    assert not killed(lambda: train(make_recipe(), tmp_path, Quiet()))
    assert _outputs(tmp_path) == uninterrupted
    assert not list((tmp_path / "train/checkpoints").glob(".tmp-*"))


def test_phases_one_after_the_other_equal_all_at_once(
    tmp_path: Path, make_shards: Any, make_recipe: Any, uninterrupted: dict[str, str]
) -> None:
    make_shards(tmp_path / "shards")
    with pytest.raises(UsageError, match="0 of 7 pretraining steps are done, so SFT cannot begin"):
        train(make_recipe(), tmp_path, Quiet(), "sft")
    pretrained = train(make_recipe(), tmp_path, Quiet(), "pretrain")
    assert (pretrained.steps, pretrained.checkpoint) == (PRETRAIN, str(tmp_path / "train/checkpoints/pretrain"))
    assert not (tmp_path / "train/checkpoints/final").exists()
    train(make_recipe(), tmp_path, Quiet(), "sft")
    assert _outputs(tmp_path) == uninterrupted


def test_trained_again_it_changes_nothing(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    train(make_recipe(), tmp_path, Quiet())
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "train/checkpoints").rglob("*") if p.is_file()}
    train(make_recipe(), tmp_path, Quiet())
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "train/checkpoints").rglob("*") if p.is_file()}


def test_saving_more_often_changes_no_weight_but_another_recipe_is_refused(
    tmp_path: Path, make_shards: Any, make_recipe: Any
) -> None:
    make_shards(tmp_path / "shards")
    with pytest.raises(_DiedError):
        train(make_recipe(), tmp_path, _StopAt(300))
    with pytest.raises(UsageError, match="this is another training"):
        train(make_recipe(learning_rate=0.1), tmp_path, Quiet())
    assert train(make_recipe(checkpoint_every=3, keep_checkpoints=1), tmp_path, Quiet()).steps == STEPS


def test_what_is_too_long_is_counted_by_stage_and_said(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    listener = _StopAt(10**9)
    summary = train(make_recipe(max_segment_tokens=40), tmp_path, listener)
    left = {s["stage"]: (s["left_out_segments"], s["left_out_tokens"]) for s in summary.stages}
    assert left == {"pretrain-0": (0, 0), "pretrain-1": (3, 144), "sft-0": (4, 200)}
    assert summary.stages[1]["rows_without_target"] == 3
    assert summary.stages[1]["steps_without_target"] == 3
    assert "left out 3 segments above train.max_segment_tokens 40: 144 tokens, 141 trained" in listener.said[1]


def test_groups_do_not_change_the_training(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    losses = []
    for name, group_tokens in (("a", 16), ("b", 10_000)):
        make_shards(tmp_path / name / "shards")
        train(make_recipe(group_tokens=group_tokens), tmp_path / name, Quiet())
        losses.append([line["loss"] for line in read_metrics(tmp_path / name / "train/metrics.jsonl")])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_a_loss_that_is_not_finite_stops_with_the_row_and_a_saved_state(
    tmp_path: Path, make_shards: Any, make_recipe: Any
) -> None:
    make_shards(tmp_path / "shards")
    recipe = make_recipe(learning_rate=1e30, clip_norm=1e30, warmup_steps=0)
    with pytest.raises(
        NonFiniteError, match=r"step \d+ of stage pretrain-0, .*pretrain-0/part-.*state saved after (\d+)"
    ) as stop:
        train(recipe, tmp_path, Quiet())
    assert stop.value.exit_code == 1
    steps = int(str(stop.value).rsplit("after ", 1)[1].split()[0])
    assert read_state(tmp_path / f"train/checkpoints/step-{steps}").step == steps


def test_a_stage_longer_than_the_model_is_refused(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    with pytest.raises(UsageError, match=r"context_tokens 96, above model\.max_position_embeddings 64"):
        train(make_recipe({"max_position_embeddings": 64}), tmp_path, Quiet())


def test_a_changed_checkpoint_is_named(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    with pytest.raises(_DiedError):
        train(make_recipe(), tmp_path, _StopAt(300))
    weights = tmp_path / "train/checkpoints/step-4/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(CheckError, match=r"step-4/model\.safetensors: missing or changed"):
        train(make_recipe(), tmp_path, Quiet())


def test_metrics_shorter_than_the_checkpoint_are_refused(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    with pytest.raises(_DiedError):
        train(make_recipe(), tmp_path, _StopAt(300))
    (tmp_path / "train/metrics.jsonl").write_text("")
    with pytest.raises(CheckError, match=r"metrics\.jsonl: 0 bytes, the checkpoint was saved at \d+"):
        train(make_recipe(), tmp_path, Quiet())


def test_a_disk_that_refuses_leaves_no_half_checkpoint(
    tmp_path: Path, make_shards: Any, make_recipe: Any, monkeypatch: pytest.MonkeyPatch, uninterrupted: dict[str, str]
) -> None:
    make_shards(tmp_path / "shards")

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("trainer.checkpoint.save_file", full)
        with pytest.raises(DatamixError, match=r"step-2: the checkpoint could not be saved .*No space left"):
            train(make_recipe(), tmp_path, Quiet())
    assert list((tmp_path / "train/checkpoints").iterdir()) == []
    train(make_recipe(), tmp_path, Quiet())
    assert _outputs(tmp_path) == uninterrupted


def test_the_tokenizer_is_copied_and_the_final_model_loads(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer/tokenizer.json").write_text("{}")
    train(make_recipe(), tmp_path, Quiet())
    final = tmp_path / "train/checkpoints/final"
    assert (final / "tokenizer.json").read_text() == "{}"
    config = json.loads((final / "config.json").read_text())
    assert (config["model_type"], config["num_loops"], config["num_hidden_layers"]) == ("nanbeige", 2, 2)
    assert load_model(final)(torch.arange(5)).shape == (5, 64)


def test_the_rotary_base_changes_at_a_stage_edge_and_survives_a_resume(
    tmp_path: Path, make_shards: Any, make_recipe: Any
) -> None:
    recipe: Recipe = make_recipe()
    changed = recipe.model_dump(mode="json")
    changed["curriculum"]["pretrain"] = [
        {"context_tokens": 32, "budget_tokens": 1}, {"context_tokens": 48, "budget_tokens": 1, "rope_theta": 5e5},
    ]  # fmt: skip
    changed["curriculum"]["sft"] = [{"context_tokens": 96, "trained_tokens": 1}]
    recipe = Recipe.model_validate(changed)
    outputs = []
    for name, stop in (("a", None), ("b", 260)):
        make_shards(tmp_path / name / "shards")
        if stop:
            with pytest.raises(_DiedError):
                train(recipe, tmp_path / name, _StopAt(stop))
            first = json.loads((tmp_path / name / "train/checkpoints/step-4/config.json").read_text())
            assert first["rope_theta"] == 1e4
        train(recipe, tmp_path / name, Quiet())
        outputs.append(_outputs(tmp_path / name))
    assert outputs[0] == outputs[1]
    for name in ("pretrain", "final"):
        config = json.loads((tmp_path / f"a/train/checkpoints/{name}/config.json").read_text())
        assert config["rope_theta"] == 5e5
    del changed["curriculum"]["pretrain"][1]
    changed["curriculum"]["sft"][0]["rope_theta"] = 1e6
    with pytest.raises(UsageError, match=r"stage pretrain-1: curriculum\.pretrain has 1 stages, the shards have more"):
        train(Recipe.model_validate(changed), tmp_path / "a", Quiet())


def test_bf16_and_activation_checkpointing_train(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    train(make_recipe(precision="bf16", activation_checkpointing=True), tmp_path, Quiet())
    assert load_model(tmp_path / "train/checkpoints/final").output_weight.dtype == torch.float32


def test_learning_rate_warms_up_stays_and_decays() -> None:
    rates = [learning_rate_at(s, 20, peak=1.0, warmup_steps=2, decay_share=0.2) for s in range(20)]
    assert rates == [0.5, *[1.0] * 16, 0.75, 0.5, 0.25]
    short = [learning_rate_at(s, 5, peak=1.0, warmup_steps=100, decay_share=0.0) for s in range(5)]
    assert short == [1.0] * 5


@pytest.mark.parametrize("name", ["state.json", "config.json"])
def test_a_changed_file_of_a_checkpoint_is_refused(
    tmp_path: Path, make_shards: Any, make_recipe: Any, name: str
) -> None:
    make_shards(tmp_path / "shards")
    with pytest.raises(_DiedError):
        train(make_recipe(), tmp_path, _StopAt(300))
    path = checkpoint.latest_checkpoint(tmp_path / "train/checkpoints")
    assert path is not None
    text = (path / name).read_text(encoding="utf-8")
    (path / name).write_text(re.sub(r'("(?:cursor|vocab_size)": )\d+', r"\g<1>1", text), encoding="utf-8")
    with pytest.raises(CheckError, match=name):
        train(make_recipe(), tmp_path, Quiet())
