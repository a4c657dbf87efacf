"""`datamix run`: parse, run the job, say what was done."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING

import click

from datamix.bundled import find_recipe
from datamix.output import emit_json

if TYPE_CHECKING:
    from datamix.run import RunSummary

__all__ = ["command", "execute"]


@click.command()
@click.argument("recipe")
@click.argument("engine_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- ENGINE OPTIONS]")
@click.option("--out", required=True, metavar="RUN", help="Folder of the run: new, empty, or this recipe's own.")
@click.option("--engine", metavar="NAME", help="datatrove or beam (default: the recipe's).")
@click.option("--workers", type=click.IntRange(min=1), help="Local processes (default: the recipe's).")
@click.option("--from", "first", metavar="STEP", help="Run STEP and what follows again; earlier steps must be done.")
@click.option("--until", metavar="STEP", help="Stop after STEP.")
@click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the recipe. Repeatable."
)
@click.option("--update", is_flag=True, help="Go on in the run of an earlier form of this recipe.")
@click.option("--json", "as_json", is_flag=True, help="Print which steps ran, as JSON.")
def command(
    recipe: str,
    engine_options: tuple[str, ...],
    out: str,
    engine: str | None,
    workers: int | None,
    first: str | None,
    until: str | None,
    overrides: tuple[str, ...],
    update: bool,
    as_json: bool,
) -> None:
    """Run a recipe: raw text and tasks to shards and a trained model.

    RECIPE is a YAML file, or the bare name of one in recipes/ (demo, jsonl, …). Interrupted at any moment, the same
    command continues; finished steps are kept. What follows '--' goes to the engine unseen: with --engine beam, flags
    of Beam and of its runner, such as --runner DataflowRunner --project P --region R --temp_location gs://B/tmp.
    """
    if engine_options and not engine_options[0].startswith("-"):
        problem = f"unexpected argument {engine_options[0]!r}: one recipe is run; engine options follow '--'"
        raise click.UsageError(problem)
    summary = execute(
        recipe,
        out,
        engine=engine,
        workers=workers,
        first=first,
        until=until,
        overrides=overrides,
        update=update,
        engine_options=engine_options,
    )
    if as_json:
        emit_json({"run": out, "ran": summary.ran, "kept": summary.kept, "left": summary.left})


def execute(
    recipe: str,
    out: str,
    *,
    engine: str | None = None,
    workers: int | None = None,
    first: str | None = None,
    until: str | None = None,
    overrides: tuple[str, ...] = (),
    update: bool = False,
    engine_options: tuple[str, ...] = (),
) -> RunSummary:
    """Load the recipe with what the command line adds to it, and run it with progress on stderr."""
    if "://" in out:
        raise click.UsageError(
            f"--out {out}: a run folder is a folder of this machine, or a shared one that every worker sees. "
            "A corpus in a bucket is filtered by: python -m pipelines.beam --input … --output … (docs/beam.md)"
        )
    # here, so that --help answers at once: recipes need pydantic, the runner pyarrow
    from datamix.progress import open_progress
    from datamix.run import run_job
    from pipelines.engine import open_engine
    from schemas.recipe import load_recipe

    added = [*overrides]
    if engine is not None:
        added.append(f"engine.name={engine}")
    if workers is not None:
        added.append(f"engine.workers={workers}")
    loaded = load_recipe(find_recipe(recipe), added)
    mover = open_engine(loaded.engine.name, loaded.engine.workers, engine_options)
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        with open_progress() as progress:
            summary = run_job(loaded, out, progress, first=first, until=until, update=update, engine=mover)
            ran = f"ran {', '.join(summary.ran)}" if summary.ran else "nothing to do: every step is done"
            progress.say(f"{out}: {ran}")
    finally:
        signal.signal(signal.SIGTERM, previous)
    return summary


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM (a scheduler's stop) ends a run as Ctrl-C does: workers are ended, nothing half-written counts."""
    raise KeyboardInterrupt
