"""`datamix explain`: look one token up, print what is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from datamix.output import emit_json
from datamix.provenance import explain_token

__all__ = ["command"]


@click.command()
@click.argument("place", metavar="SHARD:ROW:TOKEN")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(place: str, as_json: bool) -> None:
    """Say where one token of a shard came from.

    SHARD is an .arrow file of a run; ROW and TOKEN count from 0. A document's token leads to its source file and row,
    scores, cluster and epoch; a trajectory's to its task, message and mask reason.
    """
    found = explain_token(place)
    if as_json:
        emit_json(found)
        return
    lines = list(_lines(found))
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        click.echo(f"{name:<{width}} {value}")


def _lines(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as `a.b` lines, texts quoted so that white space shows, nothing for what is unknown."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{name}.")
        elif value is not None and value != []:
            yield f"{prefix}{name}", repr(value) if name in ("text", "before", "after") else str(value)
