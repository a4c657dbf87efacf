"""`datamix report`: draw, say where the page is."""

from __future__ import annotations

import click

from datamix.output import emit_json
from datamix.report import write_report

__all__ = ["command"]


@click.command()
@click.argument("run")
@click.option("--out", metavar="FILE", help="Where to write the page (default: RUN/report.html).")
@click.option("--json", "as_json", is_flag=True, help="Print where the page is, as JSON.")
def command(run: str, out: str | None, as_json: bool) -> None:
    """Write one self-contained HTML page about a run.

    Shares, drops, stages, lengths and loss curves; needs the extra `report` (plotly). Nothing is fetched when the page
    is opened.
    """
    written = write_report(run, out)
    if as_json:
        emit_json({"report": str(written)})
    else:
        click.echo(written)
