"""What a recipe asks for, from the recipe alone and the sizes of its input files: nothing is read or tokenized.

Every figure is arithmetic on the recipe; what only the data can tell (supply by domain, tokens of a trajectory) is
left out or marked as a lower bound.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

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


def plan_recipe(recipe: Recipe) -> dict[str, Any]:
    """Sources, mixture, stages and model of `recipe` as JSON-able figures. Cost: one look at each input's size."""
    vocabulary = _vocabulary(recipe)
    size = model_size(recipe.model, vocabulary)
    stages = _stages(recipe, vocabulary, size["forward_flops_per_token"])
    return {
        "recipe": recipe.name,
        "sources": [_source(source) for source in recipe.sources],
        "mixture": {
            "budget_tokens": recipe.mixture.budget_tokens,
            "method": recipe.mixture.method,
            "max_epochs": recipe.mixture.max_epochs,
            "domains": {
                domain: {"target_share": share, "target_tokens": round(share * recipe.mixture.budget_tokens)}
                for domain, share in sorted(recipe.mixture.shares.items())
            },
        },
        "trajectories": [
            {"family": s.family, "n": s.n, "difficulty": list(s.difficulty), "mistake_rate": s.mistake_rate}
            for s in recipe.trajectories.synthesized
        ],
        "stages": stages,
        "shard_bytes": sum(stage["bytes"] for stage in stages),
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
        planned.append(
            _stage(f"pretrain {number}", "pretrain", stage.context_tokens, stage.budget_tokens, vocabulary, forward)
        )
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
    """What is there of a source: files and bytes, or that none is."""
    described: dict[str, Any] = {"name": source.name, "kind": source.kind, "path": source.path}
    if source.path is not None:
        try:
            files = [Path(file.path) for file in find_files(source)]
        except UsageError:
            files = []
        described["files"] = len(files)
        described["bytes"] = sum(file.stat().st_size for file in files)
    return described
