"""`datamix plan`: what a recipe will come to, estimated and printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datamix.output import emit_json, stdout_console

if TYPE_CHECKING:
    from schemas.recipe import Recipe

__all__ = ["command"]


@click.command()
@click.argument("recipe")
@click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the recipe. Repeatable."
)
@click.option("--run", metavar="RUN", help="Plan the SFT stages for this run's trajectories (made --until tokenizer).")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="N",
    help="Places of each source to look at; 0 reads nothing.",
)
@click.option(
    "--bytes-per-token",
    type=click.FloatRange(min=0.5, max=20),
    metavar="R",
    help="The tokenizer's ratio, where it is known; else a measured one by domain and vocabulary.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(
    recipe: str,
    overrides: tuple[str, ...],
    run: str | None,
    sample: int,
    bytes_per_token: float | None,
    as_json: bool,
) -> None:
    """Say what a recipe will come to before anything is run.

    Shares, epochs and shortfalls by domain, source and stage, rows, disk, time and the model's size, from a sample of
    the sources: nothing is tokenized, nothing is written. With --run also what its masked trajectories give: rows,
    fill, shares reached and shortfalls of every SFT stage, without writing shards.
    """
    from datamix.bundled import find_recipe
    from datamix.plan import plan_recipe
    from datamix.plan_view import print_plan
    from schemas.recipe import load_recipe

    loaded = load_recipe(find_recipe(recipe), overrides)
    plan = plan_recipe(loaded, sample, bytes_per_token)
    if run is not None:
        plan["sft"] = _preview(loaded, Path(run))
    if as_json:
        emit_json(plan)
    else:
        print_plan(plan, stdout_console())


def _preview(recipe: Recipe, run: Path) -> dict[str, Any]:
    from datamix.progress import open_progress
    from pipelines.curriculum.preview import preview_stages
    from pipelines.engine import open_engine

    with open_progress() as progress:
        return preview_stages(recipe, run, open_engine(recipe.engine.name, recipe.engine.workers), progress)
