"""`datamix show`: one row of a shard, or one trajectory, in colour."""

from __future__ import annotations

from pathlib import Path

import click

from datamix.output import emit_json, stdout_console
from schemas.errors import UsageError

__all__ = ["command"]

DEFAULT_TOKENS = 4096  # a row can hold 262,144: a screen cannot


@click.command()
@click.argument("file", metavar="SHARD|TRAJECTORIES")
@click.option("--row", type=click.IntRange(min=0), default=0, show_default=True, help="Which row, from 0.")
@click.option("--segment", type=click.IntRange(min=0), help="Only this segment of a shard's row, from 0.")
@click.option(
    "--tokens",
    type=click.IntRange(min=0),
    default=DEFAULT_TOKENS,
    show_default=True,
    help="Stop after so many tokens of a shard's row; 0 prints all.",
)
@click.option("--policy", metavar="NAME", help="Decide a trajectory's masks with this policy first (nanbeige, …).")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE.KEY=VALUE",
    help="Change one rule of the policy: --rule R5.action=drop, --rule R14.characters=50000. Repeatable.",
)
@click.option("--html", "page", metavar="FILE", help="Write a page instead, with the whole row.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(
    file: str,
    row: int,
    segment: int | None,
    tokens: int,
    policy: str | None,
    rules: tuple[str, ...],
    page: str | None,
    as_json: bool,
) -> None:
    """Print a shard row or a trajectory with what is trained in colour.

    SHARD is an .arrow file of a run, TRAJECTORIES a .parquet file. Masked turns are coloured by their reason, and a
    legend says how many tokens each reason has. A trajectory that a policy drops is shown with the reason among its
    flags; one that it splits piece by piece, kept ones first.
    """
    path = Path(file)
    if path.suffix == ".parquet":
        _show_trajectory(path, row, policy, rules, page, as_json)
    elif policy is not None or rules:
        raise UsageError("--policy and --rule go with a trajectory file: a shard's masks are already made")
    elif path.suffix == ".arrow":
        _show_shard(path, row, segment, tokens or None, page, as_json)
    else:
        raise UsageError(f"{file}: give a shard (.arrow) or a trajectory file (.parquet)")


def _show_shard(path: Path, row: int, segment: int | None, limit: int | None, page: str | None, as_json: bool) -> None:
    from datamix.views.shard import print_row, row_to_json, shard_row, write_row_html

    found, spans = shard_row(path, row, segment)
    total = sum(part.length for part in found.segments)
    title = f"{path}, row {row}: {total:,} tokens in {len(found.segments)} segments"
    if page is not None:
        click.echo(write_row_html(title, spans, page))
    elif as_json:
        emit_json(row_to_json(path, row, found, spans))
    else:
        print_row(title, spans, stdout_console(), limit)


def _show_trajectory(
    path: Path, row: int, policy: str | None, rules: tuple[str, ...], page: str | None, as_json: bool
) -> None:
    from datamix.views.trajectory import print_trajectory, read_trajectory, trajectory_to_json, write_trajectory_html
    from filters.trajectory.configure import configured_policy, parse_rule_options
    from filters.trajectory.decide import decide

    if rules and policy is None:
        raise UsageError("--rule changes a policy: give --policy too, for example --policy nanbeige")
    shown = [read_trajectory(path, row)]
    if policy is not None:
        decision = decide(shown[0], configured_policy(policy, parse_rule_options(rules), place="--rule ")).decision
        shown = [*decision.trajectories, *(dropped for dropped, _ in decision.dropped)]
    if page is not None:
        click.echo(write_trajectory_html(shown[0], page, *shown[1:]))
    elif as_json:
        emit_json(trajectory_to_json(shown[0]) if policy is None else [trajectory_to_json(piece) for piece in shown])
    else:
        for number, piece in enumerate(shown):
            click.echo("\n" if number else "", nl=False)
            print_trajectory(piece, stdout_console())
