"""`datamix decontaminate`: benchmark items found in plain files."""

from __future__ import annotations

from typing import Any

import click

from datamix.commands.corpus_steps import input_options, output_options, print_summary, require_files, run_step

__all__ = ["command"]


@click.command()
@input_options
@output_options
@click.option(
    "--benchmark", "benchmarks", multiple=True, required=True, metavar="FILE", help="Benchmark items. Repeatable."
)
@click.option("--shingle-words", type=click.IntRange(3, 50), default=13, help="Words of an n-gram (default 13).")
def command(benchmarks: tuple[str, ...], shingle_words: int, **common: Any) -> None:
    """Drop texts of jsonl or parquet files that hold benchmark items.

    INPUT is a file, a folder or a pattern. A dropped row names the benchmark's item and the text that matched.
    """
    require_files("--benchmark", *benchmarks)
    summary = run_step("decontaminate_files", common, benchmarks=benchmarks, shingle_words=shingle_words)
    print_summary(summary, common)
