"""`datamix demo`: the main job on this machine's own text, with the figures at the end."""

from __future__ import annotations

import click

from datamix.bundled import recipes_folder
from datamix.commands.run import execute
from schemas.errors import DatamixError

__all__ = ["command"]


@click.command()
@click.option("--out", default="runs/demo", show_default=True, metavar="RUN", help="Folder of the run.")
@click.option("--workers", type=click.IntRange(min=1), help="Local processes (default: the recipe's).")
@click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the recipe. Repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print the statistics as JSON.")
def command(out: str, workers: int | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Run the whole job on real text found on this machine, in minutes.

    The corpus is the source and documentation of the running Python and its packages; nothing is downloaded.
    """
    execute(str(recipes_folder() / "demo.yaml"), out, workers=workers, overrides=overrides)
    from datamix.output import emit_json, stdout_console
    from datamix.report import write_report
    from datamix.stats import run_stats
    from datamix.stats_view import print_stats

    stats = run_stats(out)
    if as_json:
        emit_json(stats)
    else:
        print_stats(stats, stdout_console())
    try:
        page = write_report(out)
    except DatamixError as error:  # plotly is an extra: the run is whole without it
        click.echo(f"No report: {error}", err=True)
    else:
        click.echo(f"Report: {page}", err=as_json)
