"""The statistics of a run as tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rich.console import Console

from datamix.output import table

__all__ = ["TABLES", "print_stats"]

TABLES = ("domain", "source", "stage")


def print_stats(stats: dict[str, Any], console: Console, by: Collection[str] = TABLES) -> None:
    """Print what `datamix.stats.run_stats` gave; `by` chooses among TABLES."""
    undone = [name for name, step in stats["steps"].items() if not step["done"]]
    done = len(stats["steps"]) - len(undone)
    console.print(
        f"Run {stats['run']}: recipe {stats['recipe']}, {done} of {len(stats['steps'])} steps done", markup=False
    )
    if undone:
        console.print(f"Not done: {', '.join(undone)}", markup=False)
    if "documents" in stats:
        _documents(stats, console)
        if "domain" in by:
            _groups("Domains", stats["domains"], console)
        if "source" in by:
            _groups("Sources", stats["sources"], console)
    if "stage" in by:
        _trajectories(stats["trajectories"], console)
        _stages(stats["stages"], console)
        _stage_mixtures(stats.get("stage_mixtures", []), console)
        _stage_shares(stats["stages"], console)
        _left_out(stats["left_out"], console)
        _training(stats, console)
        if "evaluation" in stats:
            _evaluation(stats["evaluation"], console)


def _documents(stats: dict[str, Any], console: Console) -> None:
    documents = stats["documents"]
    rows: list[tuple[object, ...]] = [("read", "", documents["read"])]
    for step, reasons in documents["dropped"].items():
        rows += [(step, reason, -count) for reason, count in reasons.items()]
    rows.append(("kept", "", documents["kept"]))
    rows += [("placeholders in kept text", kind, count) for kind, count in documents.get("replaced", {}).items()]
    if documents["set_aside"]:
        rows.append(("set aside while reading", "see set_aside/read.jsonl", documents["set_aside"]))
    console.print(table("Documents", ["step", "drop reason", "documents"], rows, text_columns=2))


def _groups(title: str, groups: dict[str, dict[str, Any]], console: Console) -> None:
    """Documents left after every step; tokens and shares once there is a mixture."""
    if not groups:
        return
    first = next(iter(groups.values()))
    name = title.lower()[:-1]
    steps = list(first["documents"])
    rows: list[list[object]] = [[key, *(entry["documents"][step] for step in steps)] for key, entry in groups.items()]
    console.print(table(f"{title}: documents left after each step", [name, *steps], rows))
    if "tokens" not in first:
        return
    wanted = any("target_share" in entry for entry in groups.values())
    columns = [name, "supply", "tokens", "epochs", "share", *(["wanted", "|diff|", "limit"] if wanted else [])]
    rows = []
    for key, entry in groups.items():
        row: list[object] = [key, entry["supply_tokens"], entry["tokens"], f"{entry['epochs']:.2f}"]
        row.append(f"{entry['share']:.2%}")
        if wanted:
            row += [_percent(entry.get("target_share")), _percent(entry.get("difference")), entry.get("limit")]
        rows.append(row)
    console.print(table(f"{title}: tokens", columns, rows))


def _trajectories(trajectories: dict[str, dict[str, Any]], console: Console) -> None:
    """Counts of each step, one a row, and what a family came to as a row of its own table."""
    for step, counts in trajectories.items():
        rows = [row for name, value in counts.items() if name != "by_family" for row in _counted(name, value)]
        if rows:
            console.print(table(f"Trajectories: {step}", ["count", "value"], rows))
        families = counts.get("by_family")
        if families:
            columns = list(next(iter(families.values())))
            lines = [(family, *(figures.get(name) for name in columns)) for family, figures in families.items()]
            console.print(table(f"Families: {step}", ["family", *columns], lines))


def _counted(name: str, value: Any) -> list[tuple[str, object]]:
    """One row, or for counts by name a row for each: `pool: left_out: dull`."""
    if not isinstance(value, dict):
        return [(name, f"{len(value)} entries" if isinstance(value, list) else value)]
    return [row for key, inner in value.items() for row in _counted(f"{name}: {key}", inner)]


def _stages(stages: list[dict[str, Any]], console: Console) -> None:
    if not stages:
        return
    rows = [
        (
            stage["name"],
            stage["context_tokens"],
            stage["rows"],
            stage["segments"],
            stage["tokens"],
            stage["trained_tokens"],
            None if stage["fill"] is None else f"{stage['fill']:.2%}",
            stage["longest_segment"],
        )
        for stage in stages
    ]
    columns = ["stage", "context", "rows", "segments", "tokens", "trained tokens", "fill", "longest segment"]
    console.print(table("Stages", columns, rows))


def _stage_mixtures(stages: list[dict[str, Any]], console: Console) -> None:
    """Tokens of each pretraining stage that has a mixture of its own, by domain and by source."""
    rows = [
        (
            stage["name"],
            f"{kind} {name}",
            entry["supply_tokens"],
            entry["tokens"],
            f"{entry['epochs_mean']:.2f}",
            f"{entry['share']:.2%}",
            _percent(entry.get("target_share")),
            entry.get("shortfall_tokens"),
            entry.get("limited_by"),
        )
        for stage in stages
        for kind, group in (("domain", "domains"), ("source", "sources"))
        for name, entry in stage[group].items()
    ]
    if rows:
        columns = ["stage", "of", "supply", "tokens", "epochs", "share", "wanted", "tokens lacking", "limited by"]
        console.print(table("Mixtures of the pretraining stages", columns, rows, text_columns=2))


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{abs(share):.2%}"


def _stage_shares(stages: list[dict[str, Any]], console: Console) -> None:
    """Trained tokens of each SFT stage by kind, wanted and reached."""
    rows = []
    for stage in stages:
        for kind, share in stage["shares"].items():
            wanted, feasible = share["target_share"], share["feasible_share"]
            rows.append(
                (
                    stage["name"],
                    kind,
                    share["trained_tokens"],
                    f"{share['share']:.2%}",
                    None if wanted is None else f"{wanted:.2%}",
                    None if feasible is None else f"{feasible:.2%}",
                    share["shortfall_tokens"],
                    share["limit"],
                )
            )
    if rows:
        columns = ["stage", "kind", "trained tokens", "share", "wanted", "feasible", "tokens lacking", "limit"]
        console.print(table("Trained tokens by kind", columns, rows, text_columns=2))


def _left_out(left_out: list[dict[str, Any]], console: Console) -> None:
    rows = [
        (entry["record"], entry["reason"], entry["records"], entry["copies"], entry["tokens"], entry["trained_tokens"])
        for entry in left_out
    ]
    if rows:
        columns = ["record", "reason", "records", "copies", "tokens", "trained tokens"]
        console.print(table("In no shard (shards/audit.parquet)", columns, rows, text_columns=2))


def _training(stats: dict[str, Any], console: Console) -> None:
    if "training" in stats:
        rows = [
            (
                stage["stage"],
                stage["steps"],
                stage["tokens"],
                stage["trained_tokens"],
                stage["left_out_segments"],
                stage["left_out_tokens"],
                _loss(stage.get("first_loss")),
                _loss(stage.get("last_loss")),
            )
            for stage in stats["training"]["stages"]
        ]
        columns = ["stage", "steps", "tokens", "trained", "left out", "its tokens", "first loss", "last loss"]
        console.print(table(f"Training: {stats['training']['parameters']:,} parameters", columns, rows))


def _evaluation(evaluation: dict[str, Any], console: Console) -> None:
    """Held-out losses beside the unigram model's, and how the model did as an agent."""
    rows = [
        (name, domain["documents"], domain["tokens"], *(_loss(domain[key]) for key in _LOSSES))
        for name, domain in [*evaluation["heldout"].items(), ("all", evaluation["heldout_total"])]
    ]
    columns = ["domain", "documents", "tokens", "unigram", "after pretraining", "after SFT"]
    console.print(table("Held-out loss, nats a token", columns, rows))
    agent = evaluation["agent"]
    problem = f" ({agent['problem']})" if agent.get("problem") else ""
    console.print(f"Agent: {agent['successes']} of {agent['tasks']} held-out {agent['family']} tasks solved{problem}")


_LOSSES = ("unigram_loss", "pretrain_loss", "loss")


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
