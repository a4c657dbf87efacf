"""`datamix train`: train from the shards of a run, say where the checkpoint is."""

from __future__ import annotations

from pathlib import Path

import click

from datamix.bundled import find_recipe
from datamix.output import emit_json
from datamix.progress import open_progress
from schemas.errors import InputError
from schemas.files import sha256_file
from schemas.lock import locked
from schemas.recipe import load_recipe

__all__ = ["command"]


@click.command()
@click.argument("recipe")
@click.option("--run", required=True, metavar="RUN", help="Run folder with shards/ in it; RUN/train is written.")
@click.option(
    "--phase", type=click.Choice(["pretrain", "sft", "all"]), default="all", show_default=True, help="What to train."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the recipe. Repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was trained, as JSON.")
def command(recipe: str, run: str, phase: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Train the looped model of a recipe from the shards of a run.

    RECIPE is a YAML file, or the name of a bundled one. Stopped at any moment (even by kill -9), the same command
    goes on from the last checkpoint and ends with the same weights. SIGTERM saves first and exits 0; Ctrl-C saves
    first too, a second one stops at once. For several processes: torchrun --nproc-per-node N -m trainer RECIPE RUN.
    """
    folder = Path(run)
    if not (folder / "shards" / "index.json").is_file():
        todo = "Write its shards first: datamix run RECIPE --out RUN --until shards"
        raise InputError("no shards/index.json in this run", path=run, todo=todo)
    loaded = load_recipe(find_recipe(recipe), overrides)
    from trainer.train import train

    with locked(folder), open_progress() as progress:
        summary = train(loaded, folder, progress, phase)
    weights = sha256_file(Path(summary.checkpoint) / "model.safetensors")
    if as_json:
        stages = summary.stages
        told = {"steps": summary.steps, "parameters": summary.parameters, "stages": stages}
        emit_json({**told, "checkpoint": summary.checkpoint, "sha256": weights})
        return
    click.echo(f"{summary.checkpoint}: {summary.steps} steps, {summary.parameters:,} parameters, sha256 {weights}")
