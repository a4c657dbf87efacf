"""train.precision auto: what the device computes, and the same to the end of a training that was begun."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from schemas.files import digest_of
from schemas.progress import Quiet
from schemas.recipe import Recipe
from trainer import precision
from trainer.checkpoint import read_state
from trainer.precision import choose_precision, computes_bf16
from trainer.train import train
from trainer.world import World

CPU = torch.device("cpu")


class _Said(Quiet):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def _set(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: MappingProxyType(capabilities))


@pytest.mark.parametrize(
    ("capabilities", "wanted"),
    [
        ({"avx2": True, "avx512_bf16": False}, "fp32"),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, "fp32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True}, "bf16"),
        ({"neon": True, "bf16": True}, "bf16"),
        ({}, "fp32"),
    ],
)
def test_auto_is_bf16_only_where_the_cpu_has_instructions_for_it(
    capabilities: dict[str, bool], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set(monkeypatch, **capabilities)
    assert choose_precision("auto", World()) == wanted


def test_a_named_precision_is_kept_whatever_the_device_and_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, avx2=True)
    assert choose_precision("bf16", World(), before="fp32") == "bf16"
    _set(monkeypatch, amx_bf16=True)
    assert choose_precision("fp32", World(), before="bf16") == "fp32"


def test_this_machine_says_what_its_cpu_has() -> None:
    assert computes_bf16(CPU) == any(torch.cpu.get_capabilities().get(name) for name in precision._CPU_INSTRUCTIONS)


def _train(recipe: Recipe, run: Path, progress: Any = None) -> dict[str, Any]:
    train(recipe, run, progress or Quiet())
    found: dict[str, Any] = json.loads((run / "train" / "summary.json").read_text())
    return found


def test_a_training_goes_on_in_the_precision_that_it_began_with(
    make_shards: Callable[[Path], Any],
    make_recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = make_recipe(precision="auto")
    make_shards(tmp_path / "shards")
    _set(monkeypatch, amx_bf16=True)
    train(recipe, tmp_path, Quiet(), "pretrain")
    _set(monkeypatch, avx2=True)
    said = _Said()
    assert _train(recipe, tmp_path, said)["precision"] == "bf16"
    assert any("bf16 is emulated on this device" in line for line in said.lines)
    assert read_state(tmp_path / "train" / "checkpoints" / "final").precision == "bf16"


def test_auto_gives_the_weights_of_the_precision_that_it_chooses(
    make_shards: Callable[[Path], Any],
    make_recipe: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _set(monkeypatch, avx2=True)
    weights = []
    for name in ("auto", "fp32"):
        make_shards(tmp_path / name / "shards")
        assert _train(make_recipe(precision=name), tmp_path / name)["precision"] == "fp32"
        weights.append((tmp_path / name / "train" / "checkpoints" / "final" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_state_from_before_the_choice_is_still_read(
    make_shards: Callable[[Path], Any], make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    make_shards(tmp_path / "shards")
    train(make_recipe(), tmp_path, Quiet())
    path = tmp_path / "train" / "checkpoints" / "final" / "state.json"
    content = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("precision", "digest")}
    path.write_text(json.dumps({**content, "digest": digest_of(content)}))
    assert read_state(path.parent).precision == ""
