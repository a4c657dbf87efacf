"""What a training goes on from: changed recipes by field, folders that somebody renamed, linked or damaged."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import CheckError, InputError, UsageError
from schemas.files import digest_of, read_json, sha256_file, write_json
from schemas.progress import Quiet
from schemas.shard import ShardIndex, write_index
from trainer import __main__ as program
from trainer import train as training
from trainer.checkpoint import load_model, read_state
from trainer.metrics import read_metrics
from trainer.signals import TrainingStopped, listen_for_signals
from trainer.train import train

STEPS = 11  # of make_shards


def _flip(path: Path) -> None:
    """Change the last byte, in a file of its own: checkpoints share files by hard links."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(bytes(data))


def _weights(run: Path) -> str:
    return sha256_file(run / "train/checkpoints/final/model.safetensors")


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        ("train", {"learning_rate": 0.1}, "train.learning_rate was 0.003, is 0.1"),
        ("train", {"loss": "sample-mean"}, "train.loss was token-mean, is sample-mean"),
        ("train", {"max_segment_tokens": 20}, "train.max_segment_tokens was None, is 20"),
        ("model", {"num_loops": 3}, "model.num_loops was 2, is 3"),
        ("model", {"rope_theta": 5.0}, "rope_theta of stage pretrain-0 was 10000.0, is 5.0"),
    ],
)
def test_a_field_that_makes_another_training_is_named(
    pretrained: Path, make_recipe: Any, part: str, change: dict[str, Any], told: str
) -> None:
    recipe = make_recipe(change) if part == "model" else make_recipe(**change)
    with pytest.raises(UsageError, match=re.escape(told)):
        train(recipe, pretrained, Quiet())


def test_other_shards_are_told_from_another_recipe(pretrained: Path, make_shards: Any, make_recipe: Any) -> None:
    index = make_shards(pretrained / "shards")
    write_index(pretrained / "shards", ShardIndex(index.vocab_size, "tokenizer", "recipe", index.stages[:2]))
    with pytest.raises(UsageError, match=r"another training \(rope_theta of stage sft-0 was .*; shards was \w{12}, is"):
        train(make_recipe(), pretrained, Quiet())


@pytest.mark.parametrize("change", [{"activation_checkpointing": True}, {"group_tokens": 16}])
def test_what_lies_in_memory_at_once_may_change(
    pretrained: Path, tmp_path: Path, make_recipe: Any, change: dict[str, Any]
) -> None:
    shutil.copytree(pretrained, tmp_path / "other")
    train(make_recipe(), pretrained, Quiet())
    assert train(make_recipe(**change), tmp_path / "other", Quiet()).steps == STEPS
    if "activation_checkpointing" in change:  # recomputed, so the same bits
        assert _weights(tmp_path / "other") == _weights(pretrained)
    losses = [
        [line["loss"] for line in read_metrics(run / "train/metrics.jsonl")] for run in (pretrained, tmp_path / "other")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_the_rate_of_sft_may_be_chosen_after_pretraining_and_not_later(
    pretrained: Path, tmp_path: Path, make_shards: Any, make_recipe: Any
) -> None:
    make_shards(tmp_path / "whole/shards")
    train(make_recipe(sft_learning_rate=0.01), tmp_path / "whole", Quiet())
    train(make_recipe(sft_learning_rate=0.01), pretrained, Quiet())
    assert _weights(pretrained) == _weights(tmp_path / "whole")
    with pytest.raises(UsageError, match=r"train\.sft_learning_rate was 0\.01, is 0\.02"):
        train(make_recipe(sft_learning_rate=0.02), pretrained, Quiet())


def test_a_precision_that_the_device_chose_may_be_named(pretrained: Path, make_recipe: Any) -> None:
    with pytest.raises(UsageError, match=r"another training \(train\.precision was fp32, is bf16\)"):
        train(make_recipe(precision="bf16"), pretrained, Quiet())
    assert train(make_recipe(precision="auto"), pretrained, Quiet()).steps == STEPS  # keeps what it began with
    assert read_json(pretrained / "train/summary.json")["precision"] == "fp32"


def test_a_checkpoint_without_the_recipe_in_it_is_still_resumed(pretrained: Path, make_recipe: Any) -> None:
    path = pretrained / "train/checkpoints/step-7/state.json"
    state = {name: value for name, value in read_json(path).items() if name not in ("digest", "made_with")}
    write_json(path, {**state, "digest": digest_of(state)})
    with pytest.raises(UsageError, match=r"another training \(the recipe or the shards\)"):
        train(make_recipe(learning_rate=0.1), pretrained, Quiet())
    assert train(make_recipe(), pretrained, Quiet()).steps == STEPS


def test_a_checkpoint_under_the_number_of_another_step_is_refused(pretrained: Path, make_recipe: Any) -> None:
    checkpoints = pretrained / "train/checkpoints"
    shutil.copytree(checkpoints / "step-6", checkpoints / "step-999")
    with pytest.raises(CheckError, match=r"step-999: holds the checkpoint after 6 steps.*Name it step-6 again"):
        train(make_recipe(keep_checkpoints=1), pretrained, Quiet())
    assert (checkpoints / "step-7").is_dir()


def test_what_is_no_folder_is_no_checkpoint(pretrained: Path, make_recipe: Any) -> None:
    (pretrained / "train/checkpoints/step-99").write_text("a note")
    (pretrained / "train/checkpoints/.tmp-9").write_text("left by a copy")
    assert train(make_recipe(), pretrained, Quiet()).steps == STEPS
    assert (pretrained / "train/checkpoints/step-99").read_text() == "a note"


def test_a_checkpoint_that_lies_elsewhere_is_used_and_never_deleted(pretrained: Path, make_recipe: Any) -> None:
    checkpoints, elsewhere = pretrained / "train/checkpoints", pretrained / "elsewhere"
    elsewhere.mkdir()
    for name in ("step-6", "step-7"):
        (checkpoints / name).rename(elsewhere / name)
        (checkpoints / name).symlink_to(elsewhere / name)
    train(make_recipe(), pretrained, Quiet())
    assert sorted(path.name for path in checkpoints.iterdir()) == ["final", "pretrain", "step-10", "step-11"]
    assert read_state(elsewhere / "step-6").step == 6
    assert (elsewhere / "step-7/optimizer.safetensors").is_file()


@pytest.mark.parametrize("damage", ["flipped", "no state", "a file"])
def test_a_damaged_final_checkpoint_is_published_again(pretrained: Path, make_recipe: Any, damage: str) -> None:
    train(make_recipe(), pretrained, Quiet())
    final, before = pretrained / "train/checkpoints/final", _weights(pretrained)
    if damage == "flipped":
        _flip(final / "model.safetensors")
    elif damage == "no state":
        (final / "state.json").unlink()
    else:
        shutil.rmtree(final)
        final.write_text("")
    train(make_recipe(), pretrained, Quiet())
    assert _weights(pretrained) == before
    assert read_state(final).step == STEPS


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "optimizer.safetensors", "state.json"])
def test_every_file_of_a_checkpoint_is_checked_before_going_on(pretrained: Path, make_recipe: Any, name: str) -> None:
    path = pretrained / "train/checkpoints/step-7" / name
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data.replace(b"1", b"2", 1) if name.endswith(".json") else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckError, match=rf"step-7/{re.escape(name)}: .*Delete the folder .*step-7"):
        train(make_recipe(), pretrained, Quiet())


def test_weights_that_are_no_numbers_are_named(pretrained: Path, make_model: Any) -> None:
    from safetensors.torch import load_file, save_file

    folder = pretrained / "train/checkpoints/pretrain"
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    (folder / "state.json").unlink()
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(
        InputError, match=r"model\.safetensors: field 'model\.norm\.weight': holds values that are no finite"
    ):
        load_model(folder)


def test_sigterm_after_the_last_step_stops_what_would_come_next(
    tmp_path: Path, make_shards: Any, make_recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_shards(tmp_path / "shards")
    real = training.publish_checkpoint

    def publish(source: Path, target: Path) -> None:
        real(source, target)
        if target.name == "final":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training, "publish_checkpoint", publish)
    with pytest.raises(TrainingStopped, match="after 11 of 11 steps, all saved"):
        train(make_recipe(), tmp_path, Quiet())
    assert (tmp_path / "train/summary.json").is_file()
    assert train(make_recipe(), tmp_path, Quiet()).steps == STEPS


def test_a_second_ctrl_c_interrupts_at_once_and_ignored_signals_stay_ignored() -> None:
    with pytest.raises(KeyboardInterrupt), listen_for_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        os.kill(os.getpid(), signal.SIGINT)
    with listen_for_signals(second_interrupts=False) as stop:  # as torchrun does
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with listen_for_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop.asked
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_stage_without_a_trained_token_is_refused_before_the_first_step(
    tmp_path: Path, write_stage: Any, random_rows: Any, make_recipe: Any
) -> None:
    stages = [
        write_stage(tmp_path / "shards", "pretrain-0", "pretrain", 32, random_rows(2, [32])),
        write_stage(tmp_path / "shards", "sft-0", "sft", 32, random_rows(2, [20, 12], share=0.0)),
    ]
    write_index(tmp_path / "shards", ShardIndex(64, "tokenizer", "recipe", stages))
    with pytest.raises(UsageError, match=r"stage sft-0: its 2 rows have no trained token"):
        train(make_recipe(), tmp_path, Quiet())
    assert not (tmp_path / "train").exists()


def test_shards_without_a_row_are_refused(tmp_path: Path, write_stage: Any, make_recipe: Any) -> None:
    stage = write_stage(tmp_path / "shards", "pretrain-0", "pretrain", 32, [])
    write_index(tmp_path / "shards", ShardIndex(64, "tokenizer", "recipe", [stage]))
    with pytest.raises(UsageError, match="these shards have no row in any stage"):
        train(make_recipe(), tmp_path, Quiet())


def test_a_run_spelled_wrong_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        program.main([str(tmp_path / "recipe.yaml"), str(tmp_path / "typo")], standalone_mode=False)
    assert left.value.code == 1
    assert "typo: no shards/index.json in this run" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_a_row_longer_than_its_stage_is_named(
    tmp_path: Path, write_stage: Any, random_rows: Any, make_recipe: Any
) -> None:
    stage = write_stage(tmp_path / "shards", "pretrain-0", "pretrain", 32, random_rows(1, [30, 3]))
    write_index(tmp_path / "shards", ShardIndex(64, "tokenizer", "recipe", [stage]))
    with pytest.raises(
        CheckError, match=r"pretrain-0/part-00000\.arrow:0: 33 tokens, the index says context_tokens 32"
    ):
        train(make_recipe(), tmp_path, Quiet())
