"""Measure a trained run: loss on held-out text by domain, and the model acting on held-out tasks."""

from __future__ import annotations

from collections.abc import Sequence
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
from trainer.precision import choose_precision
from trainer.world import World, own_device

__all__ = ["LOOPS", "LOOP_TOKENS", "evaluate", "measure"]

LOOPS = 8
LOOP_TOKENS = 4096  # all passes together cost 18 times as much as this many tokens of a two-pass model


def evaluate(recipe: Recipe, run: Path, progress: Progress) -> dict[str, Any]:
    """Measure `run`/train/checkpoints/final into evaluate/results.json; figures and errors are those of `measure`."""
    checkpoint = run / "train" / "checkpoints" / "final"
    results = measure(recipe, run, checkpoint, progress, recipe.evaluate.families)
    write_json(run / "evaluate" / "results.json", results)
    return results


def measure(
    recipe: Recipe, run: Path, checkpoint: Path, progress: Progress, families: Sequence[str] = ()
) -> dict[str, Any]:
    """Measure one checkpoint on the held-out text and tasks of `run`; writes nothing, says the figures. Deterministic.

    heldout: by domain documents, tokens (predicted), unigram_loss, pretrain_loss (the run's `pretrain` checkpoint, null
    without one) and loss, in nats a token on the same tokens; heldout_total: the same over all domains, weighted by
    tokens; loops: loss by number of passes at test time on the first LOOP_TOKENS of it; agent: of the recipe's family,
    trainer.agent.agent_results, and `problem` when tasks could not be made; agents: the same of each of `families`.
    Runs on the CUDA device where there is one, else on the CPU.

    Raises InputError without the checkpoint, CheckError when the tokenizer is not that of the shards.
    """
    if not checkpoint.is_dir():
        raise InputError("no final checkpoint", path=str(checkpoint), todo="Run the train step to its end")
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
        model = load_model(checkpoint).to(own_device())
        if model.config.vocab_size != index.vocab_size:
            raise CheckError(
                f"{checkpoint / 'config.json'}: vocab_size {model.config.vocab_size}, the shards of {run} have "
                f"{index.vocab_size}. Give a checkpoint of this run"
            )
        pretrain = run / "train" / "checkpoints" / "pretrain"
        pretrained = load_model(pretrain).to(own_device()) if pretrain.is_dir() else None
        context = _pretrain_context(index)
        heldout = read_heldout(run, tokenizer, context)
        domains = _heldout_losses(recipe, run, index, heldout, model, pretrained, progress)
        loops = _loop_losses(model, heldout, _bf16(recipe), progress)
        folder = run / "trajectories"
        agents: dict[str, Any] = {}
        for family in families or [recipe.evaluate.family]:
            config = recipe.evaluate.model_copy(update={"family": family})
            runs, problem = run_tasks(model, tokenizer, config, folder, recipe.seed, progress)
            agents[family] = {"family": family, **agent_results(runs), "problem": problem}
    finally:
        torch.set_num_threads(before)
    results = {
        "heldout": domains,
        "heldout_total": _total(domains),
        "heldout_context_tokens": context,
        "heldout_max_tokens_a_domain": MAX_TOKENS_A_DOMAIN,
        "unigram": "counts of the pretraining rows' tokens, plus one for each word of the vocabulary",
        "loops": loops,
        "agent": next(iter(agents.values())),
        **({"agents": agents} if families else {}),
    }
    _say(results, progress)
    return results


def _loop_losses(
    model: LoopedTransformer, heldout: dict[str, HeldoutDomain], bf16: bool, progress: Progress
) -> dict[str, Any]:
    """Loss by passes 1 … 8 on the first pieces of every domain, LOOP_TOKENS predicted tokens in all."""
    share = LOOP_TOKENS // max(1, len(heldout))
    pieces = []
    for held in heldout.values():
        room = share
        for piece in held.pieces:
            if room > 0:
                pieces.append(piece[: room + 1])
                room -= len(pieces[-1]) - 1
    tokens = sum(len(piece) - 1 for piece in pieces)
    losses: dict[str, float] = {}
    with progress.task("evaluate by passes", LOOPS) as advance:
        for loops in range(1, LOOPS + 1) if tokens else ():
            losses[str(loops)] = model_loss(model, pieces, bf16, num_loops=loops)
            advance(1)
    return {"trained_loops": model.config.num_loops, "tokens": tokens, "loss": losses}


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
    bf16 = _bf16(recipe)
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


def _bf16(recipe: Recipe) -> bool:
    """Evaluation takes the training's precision, or what the device that it runs on computes."""
    return choose_precision(recipe.train.precision, World(device=own_device())) == "bf16"


def _total(domains: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Token-weighted means over the domains."""
    tokens = sum(domain["tokens"] for domain in domains.values())
    total: dict[str, Any] = {"documents": sum(d["documents"] for d in domains.values()), "tokens": tokens}
    for name in ("unigram_loss", "pretrain_loss", "loss"):
        known = [d[name] * d["tokens"] for d in domains.values() if d[name] is not None]
        total[name] = sum(known) / tokens if known else None
    return total


def _say(results: dict[str, Any], progress: Progress) -> None:
    if not results["heldout"]:
        progress.say("held-out: the run's mixture/ has no held-out documents, so no loss is measured")
    for name, domain in [*results["heldout"].items(), ("all", results["heldout_total"])] if results["heldout"] else ():
        losses = [f"{label} {domain[key]:.3f}" for label, key in _LOSSES if domain[key] is not None]
        progress.say(f"held-out {name}: {domain['tokens']:,} tokens, loss {', '.join(losses)}")
    loops = results["loops"]
    if loops["loss"]:
        shown = ", ".join(f"{number}: {loss:.3f}" for number, loss in loops["loss"].items())
        progress.say(f"held-out loss by passes (trained with {loops['trained_loops']}): {shown}")
    for agent in results.get("agents", {"": results["agent"]}).values():
        progress.say(
            f"agent ({agent['family']}): {agent['successes']} of {agent['tasks']} held-out tasks solved"
            + (f"; {agent['problem']}" if agent["problem"] else "")
        )


_LOSSES = (("unigram", "unigram_loss"), ("after pretraining", "pretrain_loss"), ("this checkpoint", "loss"))
