"""What a recipe asks for and what will come of it, from the recipe and a sample of its sources: nothing is tokenized.

What only the data can tell exactly (tokens of a trajectory) is left out or marked as a lower bound; what comes from the
sample has its error beside it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from datamix.plan_costs import costs_of
from datamix.plan_mixture import estimate_mixture
from pipelines.corpus.read.paths import find_files
from schemas.errors import InputError, UsageError
from schemas.files import read_json
from schemas.recipe import ModelConfig, Recipe, SourceConfig

__all__ = ["model_size", "plan_recipe"]

# Bytes of one shard token: its id (2 up to 65,536 ids, else 4) and its bit of the loss mask; segments and reasons
# are run-length and measured at about 2 % of that.
_MASK_BYTES = 1 / 8
_RUN_LENGTH_OVERHEAD = 1.02
# Adam in float32: weights, gradients and two moments
_TRAINING_BYTES_PER_PARAMETER = 16


def plan_recipe(recipe: Recipe, places: int = 0, bytes_per_token: float | None = None) -> dict[str, Any]:
    """Sources, mixture, stages, costs and model of `recipe` as JSON-able figures.

    `places` records of each source are looked at (0: only the sizes of files), `bytes_per_token` replaces the measured
    ratios. Cost: a look at each input's size, and some seconds a thousand places.
    """
    vocabulary = _vocabulary(recipe)
    size = model_size(recipe.model, vocabulary)
    stages = _stages(recipe, vocabulary, size["forward_flops_per_token"])
    estimated = estimate_mixture(recipe, vocabulary, places, bytes_per_token)
    sources = [_source(source) | estimated["sources"][source.name] for source in recipe.sources]
    return {
        "recipe": recipe.name,
        "sources": sources,
        "mixture": estimated["mixture"],
        "estimate": estimated["estimate"],
        "warnings": estimated["warnings"],
        "trajectories": [
            {"family": s.family, "n": s.n, "difficulty": list(s.difficulty), "mistake_rate": s.mistake_rate}
            for s in recipe.trajectories.synthesized
        ],
        "stages": stages,
        "shard_bytes": sum(stage["bytes"] for stage in stages),
        "costs": costs_of(recipe, sources, stages),
        "model": size,
    }


def model_size(model: ModelConfig, vocabulary: int) -> dict[str, Any]:
    """Parameters and cost of the looped transformer.

    Weights are counted once however often they run; forward FLOPs count them once per pass (2 per weight, attention
    scores left out, as they depend on the segment's length).
    """
    head = model.head_dim or model.hidden_size // model.num_attention_heads
    queries, keys = model.num_attention_heads * head, model.num_key_value_heads * head
    matrices = model.hidden_size * (2 * queries + 2 * keys + 3 * model.intermediate_size)
    layer = matrices + 2 * model.hidden_size
    embedding = vocabulary * model.hidden_size
    embeddings = embedding if model.tie_word_embeddings else 2 * embedding
    total = model.num_hidden_layers * layer + model.hidden_size + embeddings
    executed = model.num_hidden_layers * model.num_loops
    return {
        "vocab_size": vocabulary,
        "parameters": total,
        "parameters_without_embeddings": total - embeddings,
        "layers": model.num_hidden_layers,
        "num_loops": model.num_loops,
        "executed_layers": executed,
        "forward_flops_per_token": 2 * (executed * matrices + embedding),
        "cache_bytes_per_token": executed * 2 * keys * 2,  # keys and values in bf16
        "checkpoint_bytes": 4 * total,
        "training_state_bytes": _TRAINING_BYTES_PER_PARAMETER * total,
    }


def _vocabulary(recipe: Recipe) -> int:
    """Size of the recipe's vocabulary; a tokenizer folder is asked for its own (added tokens included)."""
    if recipe.tokenizer.train is not None:
        return recipe.tokenizer.train.vocab_size
    path = Path(recipe.tokenizer.path or "") / "tokenizer.json"
    try:
        raw = read_json(path)
        ids = set(raw["model"]["vocab"].values()) | {token["id"] for token in raw.get("added_tokens", [])}
    except FileNotFoundError:
        raise InputError("no such file", path=str(path), todo="Mend tokenizer.path in the recipe") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("not a tokenizer.json", path=str(path), todo="Give a Hugging Face tokenizer folder") from None
    return int(max(ids)) + 1


def _stages(recipe: Recipe, vocabulary: int, forward: int) -> list[dict[str, Any]]:
    """The stages in training order. `rows` of an SFT stage is a lower bound: masked tokens take room too."""
    planned = []
    for number, stage in enumerate(recipe.curriculum.pretrain):
        name = f"pretrain {number}" if stage.name is None else f"pretrain {number} {stage.name}"
        planned.append(_stage(name, "pretrain", stage.context_tokens, stage.budget_tokens, vocabulary, forward))
    for number, sft in enumerate(recipe.curriculum.sft):
        entry = _stage(f"sft {number}", "sft", sft.context_tokens, sft.trained_tokens, vocabulary, forward)
        entry["target_shares"] = dict(sft.shares)
        entry["lower_bound"] = True
        planned.append(entry)
    return planned


def _stage(name: str, phase: str, context: int, tokens: int, vocabulary: int, forward: int) -> dict[str, Any]:
    per_token = (2 if vocabulary <= 65_536 else 4) + _MASK_BYTES
    return {
        "name": name,
        "phase": phase,
        "context_tokens": context,
        "trained_tokens": tokens,
        "rows": math.ceil(tokens / context),
        "bytes": round(tokens * per_token * _RUN_LENGTH_OVERHEAD),
        "training_flops": 3 * forward * tokens,  # the backward pass costs twice the forward pass
    }


def _source(source: SourceConfig) -> dict[str, Any]:
    """What a source is, and how many files and bytes there are of it."""
    described: dict[str, Any] = {"name": source.name, "kind": source.kind, "path": source.path}
    if source.path is not None:
        try:
            files = [Path(file.path) for file in find_files(source)]
        except UsageError:
            files = []
        described["files"] = len(files)
        described["bytes"] = sum(file.stat().st_size for file in files)
    return described
