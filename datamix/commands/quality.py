"""`datamix quality`: rule sets over plain files."""

from __future__ import annotations

from typing import Any

import click

from datamix.commands.corpus_steps import input_options, output_options, print_summary, run_step

__all__ = ["command"]


@click.command()
@input_options
@output_options
@click.option(
    "--rules",
    default="gopher,code,formula",
    metavar="A,B",
    help="Of gopher, gopher-repetition, c4, fineweb, code, formula (default gopher,code,formula).",
)
def command(rules: str, **common: Any) -> None:
    """Judge texts of jsonl or parquet files by published quality rules.

    INPUT is a file, a folder or a pattern. A prose rule judges prose only: what is code or formula is told from the
    text. A dropped row says which rule it broke.
    """
    chosen = [name.strip() for name in rules.split(",") if name.strip()]
    print_summary(run_step("quality_files", common, rules=chosen), common)
