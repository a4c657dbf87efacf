"""`datamix check`: recount, print what is off, exit 1 if anything is."""

from __future__ import annotations

import click

from datamix.checks import CheckResult, check_path
from datamix.output import emit_json
from datamix.progress import open_progress

__all__ = ["command"]


@click.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print faults and counts as JSON.")
@click.pass_context
def command(ctx: click.Context, path: str, as_json: bool) -> None:
    """Verify a run, shard or trajectory file; exit 1 if anything is off.

    PATH is a run folder, a shards folder, a checkpoint, or one .arrow or .parquet file. Of a run, every byte is
    compared with the manifests, and records and tokens are counted again from the files at every step.
    """
    with open_progress() as progress:
        result = check_path(path, progress)
    if as_json:
        emit_json(result.to_json())
    else:
        _print(result)
    if not result.ok:
        ctx.exit(1)


def _print(result: CheckResult) -> None:
    for fault in result.faults:
        click.echo(f"{fault.path}: {fault.problem}")
    for name, value in result.summary.items():
        click.echo(f"{name}: {_flat(value)}")
    verdict = "ok" if result.ok else f"{len(result.faults)} fault{'s' if len(result.faults) > 1 else ''}"
    click.echo(f"{result.target}: {verdict}")


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {_flat(inner)}" if not isinstance(inner, dict) else f"{key} ({_flat(inner)})"
            for key, inner in value.items()
        )
    return f"{value:,}" if isinstance(value, int) else str(value)
