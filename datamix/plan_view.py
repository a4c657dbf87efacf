"""A plan as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.filesize import decimal

from datamix.output import table

__all__ = ["print_plan"]


def print_plan(plan: dict[str, Any], console: Console) -> None:
    """Print what `datamix.plan.plan_recipe` gave; `sft`, if there, is what a run's trajectories give."""
    _sources(plan["sources"], console)
    mixture, estimate = plan["mixture"], plan["estimate"]
    title = (
        f"Mixture: {mixture['method']}, {mixture['budget_tokens']:,} tokens, at most {mixture['max_epochs']:g} epochs"
    )
    console.print(table(title, ["domain or source", *_COLUMNS], _shares(mixture)))
    for stage in mixture.get("stages", []):
        quality = f", quality at least {stage['min_quality']:g}" if "min_quality" in stage else ""
        said = f"{stage['name']}: {stage['method']}, {stage['budget_tokens']:,} tokens{quality}"
        console.print(table(said, ["domain or source", *_COLUMNS], _shares(stage)))
    if estimate["bytes_per_token"]:
        ratios = ", ".join(f"{domain} {ratio:.2f}" for domain, ratio in estimate["bytes_per_token"].items())
        console.print(
            f"Bytes a token ({estimate['bytes_per_token_from']}): {ratios}, give or take "
            f"{estimate['bytes_per_token_error']:.0%}. Supply is before dedup and decontamination: an upper bound."
        )
    _stages(plan, console)
    if "sft" in plan:
        _reached(plan["sft"], console)
    _costs(plan, console)
    for warning in plan["warnings"]:
        console.print(f"Warning: {warning}", markup=False)


_COLUMNS = ("wanted", "tokens wanted", "supply", "+/-", "share", "epochs", "tokens lacking", "limited by")


def _shares(mixture: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for kind in ("domain", "source"):
        for name, entry in mixture[f"{kind}s"].items():
            known = entry["supply"] != "unknown"
            yield (
                f"{kind} {name}",
                _percent(entry["target_share"]),
                entry["target_tokens"],
                entry["supply_tokens"] if known else "unknown",
                None if entry["supply_error"] is None else f"{entry['supply_error']:.0%}",
                _percent(entry["share"]),
                f"{entry['epochs']:.2f}" if entry["epochs"] is not None else "unknown",
                entry["shortfall_tokens"],
                entry["limited_by"],
            )
    for domain, sources in mixture.get("within", {}).items():
        for name, entry in sources.items():
            wanted, reached = _percent(entry["target_share"]), _percent(entry["share"])
            epochs, lacking = f"{entry['epochs_mean']:.2f}", entry["shortfall_tokens"]
            supply, target = entry["supply_tokens"], entry["target_tokens"]
            yield (f"{name} within {domain}", wanted, target, supply, None, reached, epochs, lacking, None)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%}"


def _sources(sources: list[dict[str, Any]], console: Console) -> None:
    rows = [
        (
            s["name"],
            s["kind"],
            s["path"] or "this Python",
            s.get("files"),
            decimal(s["bytes"]) if "bytes" in s else None,
            decimal(s["text_bytes"]) if s["text_bytes"] else None,
            s["documents"] or None,
            f"{sum(s['dropped_bytes'].values()):.1%}" if s["places"] else None,
            s["tokens"],
        )
        for s in sources
    ]
    columns = ["name", "kind", "path", "files", "size", "text", "documents", "dropped by quality", "tokens"]
    console.print(table("Sources (estimated from a sample)", columns, rows, text_columns=3))


def _costs(plan: dict[str, Any], console: Console) -> None:
    costs, model = plan["costs"], plan["model"]
    disk = costs["disk_bytes"]
    if costs["cpu_seconds"]:
        slow = sorted(costs["cpu_seconds"].items(), key=lambda item: -item[1])[:4]
        said = ", ".join(f"{step} {seconds:,.0f} s" for step, seconds in slow)
        console.print(
            f"Corpus: {sum(costs['cpu_seconds'].values()):,.0f} CPU seconds ({said}, ...), "
            f"{costs['hours_with_workers']:g} hours with {costs['workers']} workers; "
            f"disk: {decimal(disk['documents and corpus'])} documents and corpus"
        )
    console.print(
        f"Shards: {decimal(disk['shards'])} (as much again while they are written). Training: "
        f"{costs['training_flops']:.2e} FLOPs, {costs['accelerator_hours']:,} hours of an accelerator that does "
        f"{costs['accelerator_flops_per_second']:.0e} a second"
    )
    console.print(
        f"Model: {model['parameters']:,} parameters ({model['parameters_without_embeddings']:,} without embeddings), "
        f"{model['layers']} layers x {model['num_loops']} loops, vocabulary {model['vocab_size']:,}; "
        f"checkpoint {decimal(model['checkpoint_bytes'])}, training state {decimal(model['training_state_bytes'])}, "
        f"cache {decimal(model['cache_bytes_per_token'])} a token"
    )


def _stages(plan: dict[str, Any], console: Console) -> None:
    stages = [
        (
            s["name"],
            s["context_tokens"],
            s["trained_tokens"],
            (">= " if s.get("lower_bound") else "") + f"{s['rows']:,}",
            (">= " if s.get("lower_bound") else "") + decimal(s["bytes"]),
            f"{s['training_flops']:.2e}",
            ", ".join(f"{kind} {share:.1%}" for kind, share in s.get("target_shares", {}).items()),
        )
        for s in plan["stages"]
    ]
    columns = ["stage", "context", "trained tokens", "rows", "shards", "FLOPs", "shares of trained tokens"]
    console.print(table("Stages", columns, stages))


def _reached(sft: dict[str, Any], console: Console) -> None:
    rows = [
        (
            stage["name"],
            stage["rows"],
            None if stage["fill"] is None else f"{stage['fill']:.2%}",
            stage["budget_trained_tokens"],
            stage["trained_tokens"],
            ", ".join(_share(kind, share) for kind, share in stage["shares"].items()),
            ", ".join(
                f"{kind} {share['shortfall']:,}" for kind, share in stage["shares"].items() if share["shortfall"]
            ),
        )
        for stage in sft["stages"]
    ]
    columns = ["stage", "rows", "fill", "budget", "trained tokens", "shares (wanted)", "short of trained tokens"]
    console.print(table(f"SFT stages with the {sft['records']:,} trajectories of {sft['run']}", columns, rows))
    left = [(why, bill["records"], bill["tokens"], bill["trained_tokens"]) for why, bill in sft["left_out"].items()]
    console.print(table("In no stage", ["reason", "trajectories", "tokens", "trained tokens"], left))


def _share(kind: str, share: dict[str, Any]) -> str:
    wanted = "" if share["wanted"] is None else f" ({share['wanted']:.1%})"
    return f"{kind} {share['reached']:.1%}{wanted}"
