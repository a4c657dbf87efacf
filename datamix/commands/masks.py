"""`datamix masks`: where two policies differ on a trajectory file, and how much each leaves to train."""

from __future__ import annotations

import click

from datamix.output import emit_json, stdout_console, table

__all__ = ["command"]

SHOWN = 50  # rows of the list of differences on a screen


@click.command()
@click.argument("file")
@click.option("--policy", required=True, metavar="A", help="A policy (nanbeige, outcome-only, last-turn, …).")
@click.option("--against", required=True, metavar="B", help="The policy that it is held against.")
@click.option("--tokenizer", metavar="FOLDER", help="Count tokens of this tokenizer too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(file: str, policy: str, against: str, tokenizer: str | None, as_json: bool) -> None:
    """Say where two mask policies differ and how much each leaves to train.

    FILE is a trajectory file (Parquet). Turns are compared by their place in the trajectory as it was read; a
    trajectory that a policy drops has no trained turn under it.
    """
    from datamix.views.masks import compare

    found = compare(file, policy, against, tokenizer)
    if as_json:
        emit_json(found.to_dict())
        return
    console = stdout_console()
    names = [name for name in ("trajectories", "turns", "characters", "tokens") if found.counts(name) is not None]
    rows = [(f"{name} trained", *(found.counts(name) or ())) for name in names]
    console.print(table(f"{file}: what is trained", ("what", policy, against), rows))
    title = f"{len(found.differences):,} turns differ"
    shown = [(d.trajectory, d.message, d.first, d.second) for d in found.differences[:SHOWN]]
    if shown:
        console.print(table(title, ("trajectory", "turn", policy, against), shown, text_columns=4))
    if len(found.differences) > SHOWN:
        click.echo(f"… {len(found.differences) - SHOWN:,} more (--json lists all)", err=True)
    elif not shown:
        console.print("the two policies train the same turns")
