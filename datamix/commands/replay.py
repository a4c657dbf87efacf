"""`datamix replay`: whether recorded calls give the recorded observations again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from datamix.output import emit_json, stdout_console, table
from datamix.progress import open_progress

if TYPE_CHECKING:
    from pipelines.synthesis.replays import Replayed

__all__ = ["command"]


@click.command()
@click.argument("file", metavar="TRAJECTORIES")
@click.option("--row", type=click.IntRange(min=0), help="Only this row, from 0 (default: all).")
@click.option("--all", "every", is_flag=True, help="All rows, which is the default.")
@click.option("--run", metavar="RUN", help="Take the pool of this run (default: beside the file, or its own run).")
@click.option("--pool", metavar="PATH", help="The pool itself: pool.jsonl, or the folder search/.")
@click.option("--json", "as_json", is_flag=True, help="Print every row as JSON.")
@click.pass_context
def command(
    ctx: click.Context, file: str, row: int | None, every: bool, run: str | None, pool: str | None, as_json: bool
) -> None:
    """Run the calls of synthesized trajectories again and compare every result.

    TRAJECTORIES is a file of `datamix synth` or of a run's trajectories/raw. Exit code 1 when a result or the verdict
    differs; the first difference of each trajectory is shown.
    """
    from pipelines.synthesis.replays import replay_file
    from schemas.errors import UsageError

    if row is not None and every:
        raise UsageError("--row and --all exclude each other. Give one of them")
    if run is not None and pool is not None:
        raise UsageError("--run and --pool exclude each other. Give one of them")
    found: list[Replayed] = []
    with open_progress() as progress, progress.task("replay") as advance:
        for replayed in replay_file(file, row, Path(pool) if pool else None, Path(run) if run else None):
            found.append(replayed)
            advance(1)
    differing = [replayed for replayed in found if replayed.difference is not None]
    if as_json:
        rows = [replayed.to_row() for replayed in found]
        emit_json({"file": file, "replayed": len(found), "equal": len(found) - len(differing), "rows": rows})
    else:
        _print(file, found, differing)
    ctx.exit(1 if differing else 0)


def _print(file: str, found: list[Replayed], differing: list[Replayed]) -> None:
    counts: dict[str, list[int]] = {}
    for replayed in found:
        of_family = counts.setdefault(replayed.family, [0, 0])
        of_family[0] += 1
        of_family[1] += replayed.difference is not None
    rows = [(family, total, total - wrong, wrong) for family, (total, wrong) in sorted(counts.items())]
    stdout_console().print(table(f"{file}: replays", ("family", "replayed", "equal", "differing"), rows))
    for replayed in differing:
        difference = replayed.difference
        if difference is not None:
            place = "the verdict" if difference.message < 0 else f"message {difference.message}"
            click.echo(f"\nrow {replayed.row}, {replayed.task} ({replayed.id}): {place} differs")
            click.echo(f"  recorded: {difference.recorded[:2000]}\n  replayed: {difference.replayed[:2000]}")
