"""`datamix masks`: where two policies differ on a trajectory file, and how much each leaves to train."""

from __future__ import annotations

import click

from datamix.output import emit_json, stdout_console, table
from schemas.errors import UsageError

__all__ = ["command"]

SHOWN = 50  # rows of the list of differences on a screen


@click.command()
@click.argument("file")
@click.option("--policy", required=True, metavar="A", help="A policy (nanbeige, outcome-only, last-turn, …).")
@click.option("--against", metavar="B", help="The policy that it is held against; without: A as it is, before --rule.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE.KEY=VALUE",
    help="Change one rule of A: --rule R5.action=drop, --rule R14.characters=50000. Repeatable.",
)
@click.option("--tokenizer", metavar="FOLDER", help="Count tokens of this tokenizer too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(
    file: str, policy: str, against: str | None, rules: tuple[str, ...], tokenizer: str | None, as_json: bool
) -> None:
    """Say where two mask policies differ and how much each leaves to train.

    FILE is a trajectory file (Parquet). Turns are compared by their place in the trajectory as it was read; a
    trajectory that a policy drops has no trained turn under it.
    """
    from datamix.views.masks import compare
    from filters.trajectory.configure import parse_rule_options

    if against is None and not rules:
        raise UsageError("nothing to compare: give --against B, or change a rule with --rule")
    found = compare(file, policy, against or policy, tokenizer, parse_rule_options(rules))
    if as_json:
        emit_json(found.to_dict())
        return
    console = stdout_console()
    names = [name for name in ("trajectories", "turns", "characters", "tokens") if found.counts(name) is not None]
    rows = [(f"{name} trained", *(found.counts(name) or ())) for name in names]
    console.print(table(f"{file}: what is trained", ("what", found.first, found.second), rows))
    title = f"{len(found.differences):,} turns differ"
    shown = [(d.trajectory, d.message, d.first, d.second) for d in found.differences[:SHOWN]]
    if shown:
        console.print(table(title, ("trajectory", "turn", found.first, found.second), shown, text_columns=4))
    if len(found.differences) > SHOWN:
        click.echo(f"… {len(found.differences) - SHOWN:,} more (--json lists all)", err=True)
    elif not shown:
        console.print("the two policies train the same turns")
