"""`datamix plan`: the recipe's own arithmetic as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal

from datamix.bundled import find_recipe
from datamix.output import emit_json, stdout_console, table
from datamix.plan import plan_recipe
from datamix.progress import open_progress
from schemas.recipe import Recipe, load_recipe

__all__ = ["command"]


@click.command()
@click.argument("recipe")
@click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the recipe. Repeatable."
)
@click.option("--run", metavar="RUN", help="Plan the SFT stages for this run's trajectories (made --until tokenizer).")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(recipe: str, overrides: tuple[str, ...], run: str | None, as_json: bool) -> None:
    """Say what a recipe asks for before anything is run.

    Shares, budgets, rows, disk and the model's size, from the recipe alone: no text is read. With --run also what its
    masked trajectories give: rows, fill, shares reached and shortfalls of every SFT stage, without writing shards.
    """
    loaded = load_recipe(find_recipe(recipe), overrides)
    plan = plan_recipe(loaded)
    if run is not None:
        plan["sft"] = _preview(loaded, Path(run))
    if as_json:
        emit_json(plan)
    else:
        _print(plan, stdout_console())


def _preview(recipe: Recipe, run: Path) -> dict[str, Any]:
    from pipelines.curriculum.preview import preview_stages
    from pipelines.engine import open_engine

    with open_progress() as progress:
        return preview_stages(recipe, run, open_engine(recipe.engine.name, recipe.engine.workers), progress)


def _print_reached(sft: dict[str, Any], console: Console) -> None:
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


def _print(plan: dict[str, Any], console: Console) -> None:
    sources = [
        (
            s["name"],
            s["kind"],
            s["path"] or "this Python",
            s.get("files"),
            decimal(s["bytes"]) if "bytes" in s else None,
        )
        for s in plan["sources"]
    ]
    console.print(table("Sources", ["name", "kind", "path", "files", "size"], sources, text_columns=3))
    mixture = plan["mixture"]
    console.print(
        table(
            f"Mixture: {mixture['method']}, {mixture['budget_tokens']:,} tokens, "
            f"at most {mixture['max_epochs']:g} epochs",
            ["domain", "share", "tokens"],
            [(d, f"{v['target_share']:.1%}", v["target_tokens"]) for d, v in mixture["domains"].items()],
        )
    )
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
    if "sft" in plan:
        _print_reached(plan["sft"], console)
    model = plan["model"]
    console.print(
        f"Model: {model['parameters']:,} parameters ({model['parameters_without_embeddings']:,} without embeddings), "
        f"{model['layers']} layers x {model['num_loops']} loops, vocabulary {model['vocab_size']:,}; "
        f"checkpoint {decimal(model['checkpoint_bytes'])}, training state {decimal(model['training_state_bytes'])}, "
        f"cache {decimal(model['cache_bytes_per_token'])} a token"
    )
