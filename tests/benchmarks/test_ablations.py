"""The tasks and the arithmetic of the ablations; what they measure is for `python benchmarks/…`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_back_reference_values_and_depths_follow_from_the_ids_alone() -> None:
    loops = load("loops")
    ids, values, depths = loops.sequences(50, np.random.default_rng(3))
    for row in range(50):
        wanted: list[int] = []
        deep: list[int] = []
        for step, token in enumerate(ids[row].tolist()):
            if token < 6:
                wanted.append(token)
                deep.append(0)
            else:
                offset, delta = 1 + (token - 6) // 3, (token - 6) % 3
                wanted.append((wanted[step - offset] + delta) % 6)
                deep.append(deep[step - offset] + 1)
        assert values[row].tolist() == wanted
        assert depths[row].tolist() == deep
    assert int(ids.max()) == 11
    assert depths.max() >= 10


def test_looped_and_equal_parameters_are_the_same_model_but_for_passes() -> None:
    loops = load("loops")
    plain, looped = loops.make_model(1, 1, 0), loops.make_model(1, 6, 0)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, looped.state_dict()[name])
    ids, _, _ = loops.sequences(4, np.random.default_rng(0))
    assert torch.equal(loops.logits_of(plain, ids), loops.logits_of(looped, ids, 1))
    assert loops.logits_of(looped, ids).shape == (4, 24, 6)


def test_phi_is_one_at_the_deep_model_nought_at_the_plain_one_and_undefined_without_a_gap() -> None:
    gaps = load("language")._gaps
    assert gaps([4.0, 3.5, 3.5])["phi"] == pytest.approx(1.0)
    assert gaps([4.0, 4.0, 3.5])["phi"] == 0.0
    half = gaps([4.0, 3.8, 3.5])
    assert (half["phi"], half["between"]) == (pytest.approx(0.4), True)
    assert gaps([4.0, 4.2, 3.5])["between"] is False
    assert gaps([4.0, 3.9, 4.0])["phi"] is None


def test_the_long_row_is_full_and_has_the_lengths_that_its_figure_names() -> None:
    training = load("training")
    lengths = training.long_row_lengths()
    assert sum(lengths) == 262_144
    assert lengths[0] == 32_768
    assert min(lengths) >= 200 and max(lengths[1:]) <= 8192
    row = training.make_row([3, 2], 10)
    assert row.targets.tolist() == [False, True, True, False, True]


def test_matrices_of_a_forward_are_those_of_the_model() -> None:
    training = load("training")
    from trainer.model import LoopedTransformer

    config = training.speed_config(loops=2)
    model = LoopedTransformer(config)
    layers = sum(p.numel() for p in model.model.layers.parameters() if p.dim() > 1)
    head = config.vocab_size * config.hidden_size
    assert sum(n * a * b for n, a, b, _ in training.matrix_shapes(config)) == 2 * layers + head


def test_the_products_beside_a_step_are_all_of_it_and_none_is_larger_than_the_model_makes_it() -> None:
    training = load("training")
    config, tokens = training.speed_config(), 2048
    products = training.linear_products(config, tokens, torch.float32)
    multiplied = sum(times * left.shape[0] * left.shape[1] * right.shape[1] for times, left, right in products)
    forward = tokens * sum(n * a * b for n, a, b, _ in training.matrix_shapes(config))
    assert multiplied == 3 * forward
    logits = {left.shape[0] for _, left, right in products if right.shape[1] == config.vocab_size}
    # whole, their 64 MiB would be mapped anew for each product, which takes longer than the model's chunks
    assert logits == {training.CHUNK_TOKENS}
