"""`datamix stats`: count, print."""

from __future__ import annotations

import click

from datamix.output import emit_json, stdout_console
from datamix.stats import run_stats
from datamix.stats_view import TABLES, print_stats
from schemas.errors import UsageError

__all__ = ["command"]

# Parts of the JSON that belong to one table alone
_PARTS = {
    "domain": ("domains",),
    "source": ("sources",),
    "stage": ("stages", "stage_mixtures", "left_out", "trajectories", "training", "evaluation"),
}


@click.command()
@click.argument("run")
@click.option("--by", default=",".join(TABLES), show_default=True, help="Which tables, separated by commas.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(run: str, by: str, as_json: bool) -> None:
    """Print tokens, documents, shares, drops and stages of a run.

    RUN is the folder that `datamix run --out` wrote; what is not done yet is left out.
    """
    chosen = [name.strip() for name in by.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in TABLES]
    if unknown or not chosen:
        raise UsageError(f"--by {by!r}: give one or more of {', '.join(TABLES)}")
    stats = run_stats(run)
    if as_json:
        hidden = {part for name, parts in _PARTS.items() if name not in chosen for part in parts}
        emit_json({key: value for key, value in stats.items() if key not in hidden})
    else:
        print_stats(stats, stdout_console(), chosen)
