"""Measure a trained run: loss on held-out text by domain, and the model acting on held-out tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pipelines.synthesis.tokens import load_tokenizer
from schemas.errors import CheckError, InputError
from schemas.files import write_json
from schemas.progress import Progress
from schemas.recipe import Recipe
from schemas.shard import ShardIndex, read_index
from trainer.agent import agent_results, run_tasks
from trainer.checkpoint import load_model
from trainer.heldout import MAX_TOKENS_A_DOMAIN, HeldoutDomain, model_loss, read_heldout, unigram_log_p, unigram_loss
from trainer.model import LoopedTransformer

__all__ = ["evaluate"]


def evaluate(recipe: Recipe, run: Path, progress: Progress) -> dict[str, Any]:
    """Evaluate `run`/train/checkpoints/final (and `pretrain`, for the loss); writes and returns evaluate/results.json.

    heldout: by domain documents, tokens (predicted), unigram_loss, pretrain_loss (null without pretraining) and loss
    (the final checkpoint's), in nats a token on the same tokens; heldout_total: the same over all domains, weighted by
    tokens; agent: trainer.agent.agent_results, and `problem` when tasks could not be made. Deterministic.

    Raises InputError without a final checkpoint, CheckError when the tokenizer is not that of the shards.
    """
    checkpoints = run / "train" / "checkpoints"
    if not (checkpoints / "final").is_dir():
        raise InputError("no final checkpoint", path=str(checkpoints / "final"), todo="Run the train step to its end")
    index = read_index(run / "shards")
    tokenizer = load_tokenizer(run / "tokenizer")
    if tokenizer.digest != index.tokenizer_digest:
        raise CheckError(
            f"{run / 'tokenizer' / 'tokenizer.json'}: not the tokenizer that the shards were written with "
            f"({tokenizer.digest[:12]}, shards/index.json says {index.tokenizer_digest[:12]}). Restore it"
        )
    before = torch.get_num_threads()
    torch.set_num_threads(recipe.train.threads or 1)
    try:
        final = load_model(checkpoints / "final")
        pretrained = load_model(checkpoints / "pretrain") if (checkpoints / "pretrain").is_dir() else None
        context = _pretrain_context(index)
        heldout = read_heldout(run, tokenizer, context)
        domains = _heldout_losses(recipe, run, index, heldout, final, pretrained, progress)
        pool = run / "trajectories" / "pool.jsonl"
        runs, problem = run_tasks(final, tokenizer, recipe.evaluate, pool, recipe.seed, progress)
    finally:
        torch.set_num_threads(before)
    agent = {"family": recipe.evaluate.family, **agent_results(runs), "problem": problem}
    results = {
        "heldout": domains,
        "heldout_total": _total(domains),
        "heldout_context_tokens": context,
        "heldout_max_tokens_a_domain": MAX_TOKENS_A_DOMAIN,
        "unigram": "counts of the pretraining rows' tokens, plus one for each word of the vocabulary",
        "agent": agent,
    }
    write_json(run / "evaluate" / "results.json", results)
    _say(results, progress)
    return results


def _pretrain_context(index: ShardIndex) -> int:
    """The context of the last pretraining stage; without one, that of the first stage (2,048 without any)."""
    contexts = [stage.context_tokens for stage in index.stages if stage.phase == "pretrain"]
    return contexts[-1] if contexts else next((stage.context_tokens for stage in index.stages), 2048)


def _heldout_losses(
    recipe: Recipe,
    run: Path,
    index: ShardIndex,
    heldout: dict[str, HeldoutDomain],
    final: LoopedTransformer,
    pretrained: LoopedTransformer | None,
    progress: Progress,
) -> dict[str, dict[str, Any]]:
    bf16 = recipe.train.precision == "bf16"
    log_p = unigram_log_p(run / "shards", index)
    domains: dict[str, dict[str, Any]] = {}
    with progress.task("evaluate held-out loss", sum(held.predicted for held in heldout.values())) as advance:
        for name, held in heldout.items():
            if held.predicted:
                domains[name] = {
                    "documents": held.documents,
                    "tokens": held.predicted,
                    "unigram_loss": unigram_loss(log_p, held.pieces),
                    "pretrain_loss": model_loss(pretrained, held.pieces, bf16) if pretrained else None,
                    "loss": model_loss(final, held.pieces, bf16),
                }
            advance(held.predicted)
    return domains


def _total(domains: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Token-weighted means over the domains."""
    tokens = sum(domain["tokens"] for domain in domains.values())
    total: dict[str, Any] = {"documents": sum(d["documents"] for d in domains.values()), "tokens": tokens}
    for name in ("unigram_loss", "pretrain_loss", "loss"):
        known = [d[name] * d["tokens"] for d in domains.values() if d[name] is not None]
        total[name] = sum(known) / tokens if known else None
    return total


def _say(results: dict[str, Any], progress: Progress) -> None:
    for name, domain in [*results["heldout"].items(), ("all", results["heldout_total"])]:
        losses = [f"{label} {domain[key]:.3f}" for label, key in _LOSSES if domain[key] is not None]
        progress.say(f"held-out {name}: {domain['tokens']:,} tokens, loss {', '.join(losses)}")
    agent = results["agent"]
    progress.say(
        f"agent ({agent['family']}): {agent['successes']} of {agent['tasks']} held-out tasks solved"
        + (f"; {agent['problem']}" if agent["problem"] else "")
    )


_LOSSES = (("unigram", "unigram_loss"), ("after pretraining", "pretrain_loss"), ("after SFT", "loss"))
