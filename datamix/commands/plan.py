"""`datamix plan`: the recipe's own arithmetic as a table."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal

from datamix.bundled import find_recipe
from datamix.output import emit_json, stdout_console, table
from datamix.plan import plan_recipe
from schemas.recipe import load_recipe

__all__ = ["command"]


@click.command()
@click.argument("recipe")
@click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the recipe. Repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(recipe: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say what a recipe asks for before anything is run.

    Shares, budgets, rows, disk and the model's size, from the recipe alone: no text is read.
    """
    plan = plan_recipe(load_recipe(find_recipe(recipe), overrides))
    if as_json:
        emit_json(plan)
    else:
        _print(plan, stdout_console())


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
    model = plan["model"]
    console.print(
        f"Model: {model['parameters']:,} parameters ({model['parameters_without_embeddings']:,} without embeddings), "
        f"{model['layers']} layers x {model['num_loops']} loops, vocabulary {model['vocab_size']:,}; "
        f"checkpoint {decimal(model['checkpoint_bytes'])}, training state {decimal(model['training_state_bytes'])}, "
        f"cache {decimal(model['cache_bytes_per_token'])} a token"
    )
