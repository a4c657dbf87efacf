"""Loop ablation: what running one layer six times gives on a task that needs depth.

    python benchmarks/loops.py [--json] [--seeds 0 1 2] [--figure loops.png]

The task is back-reference arithmetic. A sequence has 24 steps, one token a step: a constant (always first, later with
probability .05), or (offset 1 or 2, delta 0 … 2) whose value is that of the step so far back plus delta, mod 6. Every
step is a target and no value is ever in the input, so a step behind h references needs h look-ups in a row. Chance is
.167. The models are `trainer.model` with 64 dimensions:

    equal parameters   1 layer × 1 pass
    looped             1 layer × 6 passes, from scratch
    equal compute      6 layers × 1 pass (5.8 times the parameters)
    retrofit           200 more steps as 1 × 1 first, then the 400 steps of the looped model with a warm-up of their own

All see the same sequences in the same order, 400 steps of 64, AdamW at 3e-3 in float32. Times are CPU seconds, of
training and of testing. The retrofit arm is run with the first seed only, so it shows a case and no mean; accuracy by
number of passes at test time is over fewer sequences than the rest.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from trainer.config import LoopedConfig
from trainer.model import LoopedTransformer

STEPS, BATCH, LENGTH, MODULUS = 400, 64, 24, 6
LEARNING_RATE, WARM_UP, DECAY_SHARE = 3e-3, 50, 0.4
ROOT_SHARE = 0.05
DEPTHS = 15  # hop depths 0 … 13, and 14 and more
TEST_LOOPS = (1, 2, 3, 6, 8)
TEST_SEQUENCES, SWEEP_SEQUENCES = 1024, 256  # 24,576 and 6,144 targets: standard error at most .003 and .006
RETROFIT_SEEDS = 1  # the arm costs the most and is no part of what is claimed
ARMS = {"equal parameters 1x1": (1, 1), "looped 1x6": (1, 6), "equal compute 6x1": (6, 1), "retrofit 1x6": (1, 6)}


def sequences(count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, np.ndarray[Any, Any]]:
    """`count` sequences: input ids, values to predict and hop depths, each (count, LENGTH).

    Ids 0 … 5 are constants, 6 + 3 · (offset − 1) + delta are references.
    """
    root = rng.random((count, LENGTH)) < ROOT_SHARE
    root[:, 0] = True
    offset = rng.integers(1, 3, (count, LENGTH))
    offset[:, 1] = 1
    delta = rng.integers(0, 3, (count, LENGTH))
    values = rng.integers(0, MODULUS, (count, LENGTH))
    ids = np.where(root, values, MODULUS + 3 * (offset - 1) + delta)
    depths = np.zeros((count, LENGTH), dtype=np.int64)
    every = np.arange(count)
    for step in range(1, LENGTH):
        back = step - offset[:, step]
        values[:, step] = np.where(root[:, step], values[:, step], (values[every, back] + delta[:, step]) % MODULUS)
        depths[:, step] = np.where(root[:, step], 0, depths[every, back] + 1)
    return torch.from_numpy(ids), torch.from_numpy(values), depths


def make_model(layers: int, loops: int, seed: int) -> LoopedTransformer:
    """A 64-wide model over 12 tokens. Embeddings have deviation 1: with small ones the task is learned late."""
    config = LoopedConfig(
        vocab_size=2 * MODULUS,
        hidden_size=64,
        num_hidden_layers=layers,
        num_loops=loops,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=192,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=False,
        skip_loop_final_norm=False,
        initializer_range=0.06,
        embedding_initializer_range=1.0,
    )
    model = LoopedTransformer(config)
    model.initialise(seed)
    return model


def logits_of(model: LoopedTransformer, ids: Tensor, loops: int | None = None) -> Tensor:
    """(sequences, LENGTH, MODULUS): every sequence is a segment of one packed row."""
    flat = model(ids.flatten(), [LENGTH] * len(ids), num_loops=loops)
    return flat[:, :MODULUS].unflatten(0, ids.shape)


def train(name: str, seed: int) -> tuple[LoopedTransformer, float]:
    """One arm. Retrofit is given its kinder form: warm-up again after the switch, and no looped step fewer."""
    layers, loops = ARMS[name]
    model = make_model(layers, loops, seed)
    plain = STEPS // 2 if name.startswith("retrofit") else 0
    rng = np.random.default_rng(seed)
    began = time.process_time()
    if plain:
        _phase(model, plain, 1, rng, decay_share=0.0)
    _phase(model, STEPS, loops, rng, decay_share=DECAY_SHARE)
    return model, time.process_time() - began


def _phase(model: LoopedTransformer, steps: int, loops: int, rng: np.random.Generator, decay_share: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(steps):
        fall = (steps - step) / max(1, round(decay_share * steps))
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP, fall if decay_share else 1.0)
        ids, values, _ = sequences(BATCH, rng)
        loss = functional.cross_entropy(logits_of(model, ids, loops).flatten(0, 1), values.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@torch.no_grad()
def test(model: LoopedTransformer, loops: int | None = None, count: int = TEST_SEQUENCES) -> dict[str, Any]:
    """Accuracy over `count` unseen sequences: in all, by hop depth, and of whole sequences."""
    ids, values, depths = sequences(count, np.random.default_rng(10**6))
    right = (logits_of(model, ids, loops).argmax(-1) == values).numpy()
    capped = np.minimum(depths, DEPTHS - 1)
    return {
        "accuracy": float(right.mean()),
        "by_depth": [float(right[capped == depth].mean()) for depth in range(DEPTHS)],
        "whole": float(right.all(axis=1).mean()),
    }


def measure(seeds: list[int]) -> dict[str, Any]:
    """Every arm with every seed; means over seeds beside them."""
    arms: dict[str, Any] = {}
    for name in ARMS:
        found = []
        for seed in seeds[:RETROFIT_SEEDS] if name.startswith("retrofit") else seeds:
            model, seconds = train(name, seed)
            began = time.process_time()
            row = {"seed": seed, **test(model)}
            if model.config.num_loops > 1 or name.startswith("equal compute"):
                swept = {str(loops): test(model, loops, SWEEP_SEQUENCES)["accuracy"] for loops in TEST_LOOPS}
                row["by_test_loops"] = swept
            found.append({**row, "cpu_seconds": seconds + time.process_time() - began})
        arms[name] = {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "accuracy": float(np.mean([row["accuracy"] for row in found])),
            "seeds": found,
        }
    mean = {name: arm["accuracy"] for name, arm in arms.items()}
    equal, looped, compute, retrofit = (mean[name] for name in ARMS)  # the last of the first seed
    return {
        "arms": arms,
        "over_equal_parameters": looped - equal,
        "below_equal_compute": compute - looped,
        "over_retrofit": arms["looped 1x6"]["seeds"][0]["accuracy"] - retrofit,
        "cpu_seconds": sum(row["cpu_seconds"] for arm in arms.values() for row in arm["seeds"]),
        "held": {"over_equal_parameters >= .30": looped - equal >= 0.30, "within .06": compute - looped <= 0.06},
    }


def draw(found: dict[str, Any], path: Path) -> str:
    """Two panels as PNG; returns where, or why not."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plot
    except ImportError:
        return "no figure: matplotlib is not installed (pip install matplotlib)"
    figure, (left, right) = plot.subplots(1, 2, figsize=(11, 4.2))
    for number, (name, arm) in enumerate(found["arms"].items()):
        look = {"label": name, "color": f"C{number}"}  # an arm has one colour in both panels
        left.plot(np.mean([row["by_depth"] for row in arm["seeds"]], axis=0), marker=".", **look)
        if "by_test_loops" in arm["seeds"][0]:
            sweep = [np.mean([row["by_test_loops"][str(n)] for row in arm["seeds"]]) for n in TEST_LOOPS]
            right.plot(TEST_LOOPS, sweep, marker="o", **look)
    left.set(xlabel="references behind a step (14: 14 and more)", ylabel="accuracy", ylim=(0, 1.02))
    right.set(xlabel="passes at test time", ylabel="accuracy", ylim=(0, 1.02))
    for panel in (left, right):
        panel.axhline(1 / MODULUS, color="grey", linestyle=":", label="chance")
        panel.legend(fontsize=8)
    figure.suptitle(f"Back-reference arithmetic, mean of {len(found['arms']['looped 1x6']['seeds'])} seeds")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    return f"figure: {path}"


def main() -> None:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--figure", type=Path, help="Where to draw the PNG.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options.seeds)
    drawn = draw(found, options.figure) if options.figure else "no figure was asked for (--figure loops.png)"
    if options.json:
        print(json.dumps({**found, "figure": drawn}, indent=1))
        return
    for name, arm in found["arms"].items():
        seeds = " ".join(f"{row['accuracy']:.3f}" for row in arm["seeds"])
        print(f"{name:22} {arm['parameters']:8,} parameters  accuracy {arm['accuracy']:.3f}  ({seeds})")
        depth = np.mean([row["by_depth"] for row in arm["seeds"]], axis=0)
        print(f"{'':22} by depth  {' '.join(f'{value:.2f}' for value in depth)}")
        if "by_test_loops" in arm["seeds"][0]:
            sweep = {n: np.mean([row["by_test_loops"][str(n)] for row in arm["seeds"]]) for n in TEST_LOOPS}
            print(f"{'':22} by passes {' '.join(f'{n}: {value:.3f}' for n, value in sweep.items())}")
    print(
        f"looped − equal parameters {found['over_equal_parameters']:+.3f} (wanted ≥ +.30); equal compute − looped "
        f"{found['below_equal_compute']:+.3f} (wanted ≤ +.06); looped − retrofit, first seed, "
        f"{found['over_retrofit']:+.3f}; {found['cpu_seconds']:.0f} CPU s"
    )
    print(drawn)


if __name__ == "__main__":
    main()
