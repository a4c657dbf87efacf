"""`datamix dedup`: exact and near duplicates of plain files."""

from __future__ import annotations

from typing import Any

import click

from datamix.commands.corpus_steps import input_options, output_options, print_summary, run_step

__all__ = ["command"]


@click.command()
@input_options
@output_options
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.8,
    help="Jaccard similarity of word shingles from which on two texts are duplicates (default 0.8).",
)
@click.option("--shingle-words", type=click.IntRange(1, 50), default=5, help="Words of a shingle (default 5).")
@click.option("--permutations", type=click.IntRange(16, 1024), default=128, help="Values of a signature (default 128).")
@click.option("--against", metavar="REFERENCE", help="Files of an older set: it loses nothing, its copies go.")
@click.option("--verdicts-only", is_flag=True, help="Write verdicts/ (one row a document) and copy no text.")
def command(
    threshold: float,
    shingle_words: int,
    permutations: int,
    against: str | None,
    verdicts_only: bool,
    **common: Any,
) -> None:
    """Remove exact and near duplicates from jsonl or parquet files.

    INPUT is a file, a folder or a pattern. Candidates are verified by exact similarity before anything is removed; a
    dropped row names the row that stays for it and how similar the two are.
    """
    summary = run_step(
        "dedup_verdicts" if verdicts_only else "dedup_files",
        common,
        threshold=threshold,
        shingle_words=shingle_words,
        permutations=permutations,
        against=against,
    )
    print_summary(summary, common)
