"""Speed and memory of the trainer: tokens per CPU second, the cost of a loop, one 262,144-token row.

    python benchmarks/training.py [--json] [--parts speed loops row gpu]

speed   a training step (forward, backward, clipping, AdamW) of 4 × 1,024 tokens of a 3.15M model beside
        `transformers`' Llama at the same shape and precision in the same process (extra hf), and as a share of the
        rate of torch.mm: the seconds that torch.mm takes for all matrix products of the step, in the shapes and layouts
        that the model has them in, over the seconds of the step. share_of_mm counts the products of attention too (two
        of a forward, four of a backward, of which a causal segment needs half); share_of_mm_linear does not.
        Wanted: over_llama at least 1, share_of_mm at least .7.
loops   the same step with 1, 2 and 3 passes, in bf16 where the CPU computes it; wanted: at most 1.05 × passes.
row     one packed row of 262,144 tokens (segments of 200 to 8,192 tokens and one of 32,768) through the `demo` model:
        CPU seconds (80 in bf16, 190 in fp32 with AVX2) and peak memory of a process of its own (wanted: below 6 GiB);
        and the gradient of a row of some 16,000 tokens in groups against the row taken whole.
gpu     recipe `small` at 262,144 tokens a row: tokens a second, share of peak FLOPs, memory. Needs CUDA.

Times are CPU seconds of one thread. On a machine that others use too they vary by ten per cent and more, so what is
compared runs in turn, eleven rounds, and the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from schemas.recipe import load_recipe
from trainer.config import LoopedConfig
from trainer.groups import plan_row
from trainer.kernels import SWIGLU_TOKENS
from trainer.loss import CHUNK_TOKENS
from trainer.memory import keep_freed_memory
from trainer.model import LoopedTransformer
from trainer.optimizer import make_optimizer
from trainer.precision import choose_precision, computes_bf16
from trainer.shards import Row
from trainer.step import StepSettings, gradient_step, group_loss
from trainer.world import World

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
ROWS, CONTEXT, ROUNDS = 4, 1024, 11
ROW_TOKENS, LONG_SEGMENT = 262_144, 32_768
PEAK_FLOPS = 989e12  # H100 and H200, dense bfloat16, as NVIDIA states it


def speed_config(loops: int = 1) -> LoopedConfig:
    """3.15M parameters: the shape of the speed measurements."""
    return LoopedConfig(
        vocab_size=4096,
        hidden_size=192,
        num_hidden_layers=6,
        num_loops=loops,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=512,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        skip_loop_final_norm=False,
        initializer_range=0.02,
    )


def make_row(lengths: list[int], vocab: int, seed: int = 0) -> Row:
    """A row of random ids in which every token but each segment's first is a target."""
    targets = np.ones(sum(lengths), dtype=np.bool_)
    targets[np.cumsum(lengths) - lengths] = False
    ids = np.random.default_rng(seed).integers(0, vocab, sum(lengths))
    return Row("row", ids, targets, lengths, pa.scalar([f"s{i}" for i in range(len(lengths))]))


def median_seconds(calls: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """The median CPU seconds of each call over ROUNDS rounds in which all run in turn, after a round that warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            began = time.process_time()
            call()
            seconds[name].append(time.process_time() - began)
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def our_step(config: LoopedConfig, bf16: bool) -> Callable[[], None]:
    """One optimizer step of the project's own trainer over ROWS rows of CONTEXT tokens."""
    model = LoopedTransformer(config)
    model.initialise(0)
    optimizer = make_optimizer(model, 0.1)
    optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 1e-4
    plans = [plan_row(make_row([CONTEXT] * ROWS, config.vocab_size), ROWS * CONTEXT)]
    settings = StepSettings("token-mean", 1.0, bf16)

    def step() -> None:
        gradient_step(model, optimizer, plans, settings, World(), lambda _: None)

    return step


def llama_step(config: LoopedConfig, bf16: bool) -> Callable[[], None] | None:
    """The same step with transformers' Llama, its usual loop; None without transformers."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return None
    names = LlamaConfig().to_dict()
    model = LlamaForCausalLM(LlamaConfig(**{name: getattr(config, name) for name in names if hasattr(config, name)}))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.from_numpy(make_row([CONTEXT] * ROWS, config.vocab_size).input_ids).view(ROWS, CONTEXT)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def matrix_shapes(config: LoopedConfig) -> list[tuple[int, int, int, int | None]]:
    """(how often, in, out, tokens at a time) of the matrices that a token meets in one forward; None: all of a row.

    What is split is what float32 training on a CPU splits: torch.mm is up to a fifth slower on the head taken whole.
    """
    width, inner = config.hidden_size, config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    passes = config.num_hidden_layers * config.num_loops
    return [
        (passes, width, inner, None),
        (2 * passes, width, keys, None),
        (passes, inner, width, None),
        (2 * passes, width, config.intermediate_size, SWIGLU_TOKENS),
        (passes, config.intermediate_size, width, SWIGLU_TOKENS),
        (1, width, config.vocab_size, CHUNK_TOKENS),
    ]


Products = list[tuple[int, Tensor, Tensor]]  # how often, left, right


def linear_products(config: LoopedConfig, tokens: int, dtype: torch.dtype) -> Products:
    """The products of the linear layers in a step of `tokens` tokens: x @ W.T forward, g @ W and g.T @ x backward."""
    found = []
    for times, inside, outside, some in matrix_shapes(config):
        rows = some or tokens
        x, w, g = (torch.randn(size, dtype=dtype) for size in ((rows, inside), (outside, inside), (rows, outside)))
        found += [(times * (tokens // rows), *pair) for pair in ((x, w.T), (g, w), (g.T, x))]
    return found


def attention_products(config: LoopedConfig, tokens: int, dtype: torch.dtype) -> Products:
    """The products of attention in a step, per head and segment of CONTEXT tokens.

    q @ k.T and p @ v forward, g @ v.T, s @ k, s.T @ q and p.T @ g backward: two of each kind, of which the causal half
    counts, so each kind once.
    """
    head, scores = torch.randn(CONTEXT, config.head_dim, dtype=dtype), torch.randn(CONTEXT, CONTEXT, dtype=dtype)
    heads = tokens // CONTEXT * config.num_attention_heads * config.num_hidden_layers * config.num_loops
    return [(heads, head, head.T), (heads, scores, head), (heads, scores.T, head)]


def multiply(products: Products) -> None:
    """Compute them all by torch.mm."""
    for times, left, right in products:
        for _ in range(times):
            torch.mm(left, right)


def speed() -> dict[str, Any]:
    """Tokens per CPU second in float32 and, where the CPU computes it, bfloat16, beside Llama and torch.mm."""
    tokens, config = ROWS * CONTEXT, speed_config()
    found: dict[str, Any] = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        if name == "bf16" and not computes_bf16(torch.device("cpu")):
            continue
        calls: dict[str, Callable[[], None]] = {
            "ours": our_step(config, dtype == torch.bfloat16),
            "linear": partial(multiply, linear_products(config, tokens, dtype)),
            "attention": partial(multiply, attention_products(config, tokens, dtype)),
        }
        other = llama_step(config, dtype == torch.bfloat16)
        if other is not None:
            calls["llama"] = other
        seconds = median_seconds(calls)
        ours, llama = seconds["ours"], seconds.get("llama")
        found[name] = {
            "tokens_per_cpu_second": tokens / ours,
            "llama_tokens_per_cpu_second": tokens / llama if llama else None,
            "over_llama": llama / ours if llama else None,
            "share_of_mm": (seconds["linear"] + seconds["attention"]) / ours,
            "share_of_mm_linear": seconds["linear"] / ours,
        }
    return found


def loop_cost() -> dict[str, Any]:
    """Seconds of a step with L passes over L times those with one."""
    bf16 = computes_bf16(torch.device("cpu"))
    seconds = median_seconds({str(loops): our_step(speed_config(loops), bf16) for loops in (1, 2, 3)})
    return {str(loops): seconds[str(loops)] / (loops * seconds["1"]) for loops in (2, 3)}


def long_row_lengths() -> list[int]:
    """Segments of 200 to 8,192 tokens and one of 32,768 that fill the row."""
    rng = np.random.default_rng(0)
    lengths, left = [LONG_SEGMENT], ROW_TOKENS - LONG_SEGMENT
    while left:
        length = int(np.clip(rng.lognormal(7.6, 1.0), 200, 8192))
        length = left if left - length < 200 else length
        lengths.append(length)
        left -= length
    return lengths


def demo_model(seed: int = 0) -> tuple[LoopedTransformer, Any]:
    recipe = load_recipe(RECIPES / "demo.yaml")
    vocab = recipe.tokenizer.train.vocab_size if recipe.tokenizer.train else 4096
    model = LoopedTransformer(LoopedConfig.from_recipe(recipe.model, vocab))
    model.initialise(seed)
    return model, recipe.train


def long_row() -> dict[str, Any]:
    """One training step over the row, in this process; nothing is left out."""
    keep_freed_memory()
    model, train = demo_model()
    row = make_row(long_row_lengths(), model.config.vocab_size)
    optimizer = make_optimizer(model, train.weight_decay)
    plans = [plan_row(row, train.group_tokens)]
    began = time.process_time()
    settings = StepSettings(train.loss, train.clip_norm, choose_precision(train.precision, World()) == "bf16")
    counts = gradient_step(model, optimizer, plans, settings, World(), lambda _: None)
    return {
        "tokens": counts.tokens,
        "segments": counts.segments,
        "longest": max(row.segment_lengths),
        "groups": len(plans[0].groups),
        "loss": counts.loss,
        "cpu_seconds": time.process_time() - began,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def group_difference() -> float:
    """Largest difference between the gradient in groups and whole, over the largest entry; float32, demo model."""
    rng = np.random.default_rng(1)
    lengths = [4096, *rng.integers(200, 2048, 10).tolist()]
    gradients = []
    for group_tokens in (2048, 10**9):
        model, train = demo_model()
        plan = plan_row(make_row(lengths, model.config.vocab_size), group_tokens)
        for group in plan.groups:
            group_loss(
                model, group, StepSettings(train.loss, train.clip_norm, bf16=False), plan.trained_tokens
            ).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    return float((gradients[0] - gradients[1]).abs().max() / gradients[1].abs().max())


def row() -> dict[str, Any]:
    """The long row in a process of its own, so that the peak is its own; and groups against whole."""
    code = (
        "import json, runpy, torch; torch.set_num_threads(1)\n"
        f"print(json.dumps(runpy.run_path({__file__!r})['long_row']()))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "gradient_difference": group_difference()}


def gpu() -> dict[str, Any]:
    """Recipe `small`, one row of 262,144 tokens, on a CUDA device; a message where there is none."""
    if not torch.cuda.is_available():
        return {"skipped": "no CUDA device here"}
    recipe = load_recipe(RECIPES / "small.yaml")
    assert recipe.tokenizer.train is not None
    config = LoopedConfig.from_recipe(recipe.model, recipe.tokenizer.train.vocab_size)
    model = LoopedTransformer(config, recipe.train.activation_checkpointing)
    model.initialise(0)
    device = torch.device("cuda", 0)
    model.to(device)
    lengths = long_row_lengths()
    plans = [plan_row(make_row(lengths, config.vocab_size), recipe.train.group_tokens)]
    optimizer = make_optimizer(model, recipe.train.weight_decay)
    settings = StepSettings(recipe.train.loss, recipe.train.clip_norm, bf16=True)
    seconds = []
    for _ in range(4):
        torch.cuda.synchronize()
        began = time.perf_counter()
        gradient_step(model, optimizer, plans, settings, World(device=device), lambda _: None)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    linear = 6 * ROW_TOKENS * sum(times * inside * outside for times, inside, outside, _ in matrix_shapes(config))
    slots, inner = config.num_hidden_layers * config.num_loops, config.num_attention_heads * config.head_dim
    attention = 6 * slots * inner * sum(length**2 for length in lengths)  # causal: half of 12 · slots · inner · length²
    return {
        "device": torch.cuda.get_device_name(device),
        "tokens_per_second": ROW_TOKENS / min(seconds[1:]),
        "model_flops_utilisation": (linear + attention) / min(seconds[1:]) / PEAK_FLOPS,
        "peak_gib": torch.cuda.max_memory_allocated(device) / 2**30,
    }


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"speed": speed, "loops": loop_cost, "row": row, "gpu": gpu}


def main() -> None:
    """Measure the parts that were asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training does; for Llama and torch.mm too
    found = {name: PARTS[name]() for name in options.parts}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, figures in found.items():
        for key, value in figures.items():
            print(f"{name:6} {key:22} {_shown(value)}")
    if any(figures["llama_tokens_per_cpu_second"] is None for figures in found.get("speed", {}).values()):
        print("transformers is not installed: install the extra hf to see Llama beside")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(inner)}" for key, inner in value.items())
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


if __name__ == "__main__":
    main()
