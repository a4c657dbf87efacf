"""What `datamix dedup`, `quality`, `classify` and `decontaminate` have in common: options, running, printing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from datamix.output import emit_json, stdout_console, table
from datamix.progress import open_progress

__all__ = ["input_options", "output_options", "print_summary", "require_files", "run_step"]

Command = TypeVar("Command", bound=Callable[..., Any])
_INPUT = ("text", "id", "domain")


def input_options(function: Command) -> Command:
    """INPUT... and the names of its fields."""
    for decorate in reversed(
        [
            click.argument("inputs", nargs=-1, required=True, metavar="INPUT..."),
            click.option("--text", "text_field", default="text", metavar="FIELD", help="Key or column of the text."),
            click.option("--id", "id_field", default="id", metavar="FIELD", help="Key or column of the id."),
            click.option("--fail", is_flag=True, help="Stop at the first bad record instead of setting it aside."),
            click.option("--workers", type=click.IntRange(min=1), default=2, help="Local processes (default 2)."),
            click.option("--engine", default="datatrove", metavar="NAME", help="datatrove or beam."),
            click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
        ]
    ):
        function = decorate(function)
    return function


def output_options(function: Command) -> Command:
    """--out DIR."""
    option = click.option("--out", required=True, metavar="DIR", help="Folder for kept/, dropped/ and summary.json.")
    return option(function)


def run_step(
    name: str,
    common: dict[str, Any],
    *,
    domain: str = "domain",
    **settings: Any,
) -> dict[str, Any]:
    """Call the function `name` of pipelines.corpus.standalone with what `input_options` and --out gave."""
    from pipelines.corpus import standalone
    from pipelines.engine import open_engine

    inputs = standalone.Inputs(
        common["inputs"],
        text=common["text_field"],
        id=common["id_field"],
        domain=domain,
        on_error="fail" if common["fail"] else "skip",
    )
    engine = open_engine(common["engine"], common["workers"])
    with open_progress() as progress:
        summary: dict[str, Any] = getattr(standalone, name)(inputs, common["out"], engine, progress, **settings)
    return summary


def require_files(option: str, *patterns: str) -> None:
    """Say before any text is read that a further file does not exist. Raises UsageError that names the option."""
    from pipelines.corpus.plain import plain_files

    for pattern in patterns:
        plain_files(pattern, option)


def print_summary(summary: dict[str, Any], common: dict[str, Any]) -> None:
    """The summary as JSON or as a table of counts."""
    if common["as_json"]:
        emit_json({"out": common["out"], **summary})
        return
    rows: list[tuple[str, int]] = [("documents in", summary["documents_in"]), ("kept", summary["kept"])]
    rows += [(f"dropped: {reason}", count) for reason, count in summary["dropped"].items()]
    rows += [(f"set aside: {problem}", count) for problem, count in summary["set_aside"].items()]
    rows += [(f"domain: {name}", count) for name, count in summary.get("domains", {}).items()]
    rows += [(f"language: {name}", count) for name, count in summary.get("languages", {}).items()]
    rows += [(f"replaced: {kind}", count) for kind, count in summary.get("replaced", {}).items()]
    stdout_console().print(table(f"{summary['step']}: {common['out']}", ("what", "documents"), rows))
