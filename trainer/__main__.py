"""`python -m trainer RECIPE RUN`: train one run, alone or under torchrun.

RUN is no option here as it is in `datamix train`: torchrun would take --run for an abbreviation of its own --run-path.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import click

from schemas.errors import DatamixError, InputError
from schemas.lock import locked
from schemas.progress import Quiet
from schemas.recipe import load_recipe


class _Lines(Quiet):
    """Plain lines on standard error, no bars."""

    def say(self, line: str) -> None:
        """Print the line."""
        click.echo(line, err=True)


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--phase", type=click.Choice(["pretrain", "sft", "all"]), default="all", show_default=True)
@click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the recipe.")
def main(recipe: Path, run: Path, phase: str, overrides: tuple[str, ...]) -> None:
    """Train the looped transformer of RECIPE from RUN/shards; continues where it was stopped."""
    from trainer.train import train

    leads = os.environ.get("RANK", "0") == "0"
    try:
        if not (run / "shards" / "index.json").is_file():  # before the lock makes a folder of a name spelled wrong
            todo = "Write its shards first: datamix run RECIPE --out RUN --until shards"
            raise InputError("no shards/index.json in this run", path=str(run), todo=todo)
        with locked(run) if leads else nullcontext():  # workers go on for a while when torchrun itself is killed
            summary = train(load_recipe(recipe, overrides), run, _Lines(), phase)
    except DatamixError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    if leads:
        click.echo(f"{summary.steps} steps, {summary.parameters:,} parameters: {summary.checkpoint}")


if __name__ == "__main__":
    main(prog_name="python -m trainer")
