"""`datamix ingest`: recorded runs to one file of canonical trajectories, with a row of counts for every source file."""

from __future__ import annotations

from typing import Any

import click

from datamix.output import emit_json, stdout_console, table
from datamix.progress import open_progress

__all__ = ["command"]

_COLUMNS = ("file", "format", "trajectories", "turns", "calls", "errors", "set aside")


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--out", required=True, metavar="FILE", help="Parquet file to write.")
@click.option("--format", "format_name", default="auto", metavar="NAME", help="auto (by content) or one format's name.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def command(paths: tuple[str, ...], out: str, format_name: str, as_json: bool) -> None:
    """Read recorded agent runs of many formats into canonical trajectories.

    PATHS are files, folders or patterns. What cannot be read is listed, with its reason, in FILE.set_aside.jsonl.
    Exit code 1 when no file holds a trajectory.
    """
    from pipelines.synthesis.ingest.store import ingest_to_file

    with open_progress() as progress, progress.task("ingest") as advance:
        reports = ingest_to_file(paths, out, format=format_name, on_file=lambda _report: advance(1))
    rows = [report.to_row() for report in reports]
    if as_json:
        emit_json({"out": out, **_totals(rows), "files": rows})
        return
    cells = [
        (row["file"], row["format"] or next(iter(row["problems"]), ""), *(row[name] for name in _COUNTS))
        for row in rows
    ]
    totals = _totals(rows)
    cells.append(("all", "", *(totals[name] for name in _COUNTS)))
    stdout_console().print(table(f"ingested into {out}", _COLUMNS, cells, text_columns=2))
    if totals["copies"]:
        said = "are the same as an earlier one (equal ids) and are in the file too: a run trains the first of them"
        click.echo(f"{totals['copies']} trajectories {said}", err=True)
    if totals["set_aside"]:
        click.echo(f"{totals['set_aside']} set aside: {out}.set_aside.jsonl", err=True)


_COUNTS = ("trajectories", "turns", "calls", "errors", "set_aside")
_TOTALS = (*_COUNTS, "copies")


def _totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in _TOTALS}
