"""What a training writes and says about itself, also when it is resumed or the disk is full."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import CheckError, DatamixError
from schemas.progress import Quiet
from trainer.metrics import MetricsLog
from trainer.train import train

STEPS = 11  # of make_shards


def test_a_damaged_line_of_the_metrics_is_named(pretrained: Path, make_recipe: Any) -> None:
    path = pretrained / "train/metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 1', '"step" 1 ', 1))
    with pytest.raises(CheckError, match=r"metrics\.jsonl:2: not a line of this training"):
        train(make_recipe(), pretrained, Quiet())


def test_no_step_is_twice_in_the_metrics_or_the_times(pretrained: Path, make_recipe: Any) -> None:
    shutil.rmtree(pretrained / "train/checkpoints/step-7")  # step 6 was written down and is done again
    with open(pretrained / "train/timing.jsonl", "a") as file:
        file.write('{"step": 7, "sec')  # cut by a kill
    train(make_recipe(), pretrained, Quiet())
    for name in ("metrics.jsonl", "timing.jsonl"):
        lines = (pretrained / "train" / name).read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(STEPS))


def test_a_full_disk_under_the_metrics_names_them(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    log = MetricsLog(tmp_path, 0, 0)
    os.dup2(os.open("/dev/full", os.O_WRONLY), log._file.fileno())
    line = {"step": 0, "phase": "pretrain", "tokens": 4, "loss": 1.0, "grad_norm": 1.0, "learning_rate": 0.1}
    log.write({**line, "trained_tokens": 4}, 0.1)
    with pytest.raises(DatamixError, match=r"metrics\.jsonl: could not be written .*No space left.*run again"):
        log.sync()
    with suppress(DatamixError):
        log.close()


class _Bars(Quiet):
    """Remembers what was said and how far each bar went."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.bars: dict[str, tuple[float, float | None]] = {}

    def say(self, line: str) -> None:
        self.said.append(line)

    @contextmanager
    def task(self, label: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
        def advance(amount: float) -> None:
            self.bars[label] = (self.bars.get(label, (0, total))[0] + amount, total)

        yield advance


def test_a_bar_of_a_stage_goes_on_where_it_was(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    train(make_recipe(), tmp_path, Quiet())
    shutil.rmtree(tmp_path / "train/checkpoints/step-11")  # one of the four steps of the last stage is done again
    listener = _Bars()
    train(make_recipe(), tmp_path, listener)
    assert listener.bars == {"train sft-0": (384, 384)}


def test_a_stage_of_which_everything_is_left_out_says_so(tmp_path: Path, make_shards: Any, make_recipe: Any) -> None:
    make_shards(tmp_path / "shards")
    listener = _Bars()
    train(make_recipe(max_segment_tokens=40), tmp_path, listener)
    nothing = [line.split(":")[0] for line in listener.said if line.endswith("; NOTHING of this stage was trained")]
    assert nothing == ["pretrain-1"]
