"""`datamix dedup`: exact and near duplicates of plain files."""

from __future__ import annotations

from typing import Any

import click

from datamix.commands.corpus_steps import input_options, output_options, print_summary, require_files, run_step
from schemas.errors import UsageError

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
@click.option("--signatures-out", metavar="FILE", help="Write datasketch signatures of the kept texts (Parquet).")
@click.option("--against-signatures", metavar="FILE", help="Drop what is similar to a stored signature, by estimate.")
@click.option(
    "--unit",
    type=click.Choice(["document", "line", "paragraph"]),
    default="document",
    help="line and paragraph take out what stands in many documents, instead of whole documents.",
)
@click.option(
    "--min-documents",
    type=click.IntRange(min=2),
    default=10,
    help="With --unit line or paragraph: in how many documents a piece has to stand (default 10).",
)
@click.option("--verdicts-only", is_flag=True, help="Write verdicts/ (one row a document) and copy no text.")
def command(
    threshold: float,
    shingle_words: int,
    permutations: int,
    against: str | None,
    signatures_out: str | None,
    against_signatures: str | None,
    unit: str,
    min_documents: int,
    verdicts_only: bool,
    **common: Any,
) -> None:
    """Remove exact and near duplicates from jsonl or parquet files.

    INPUT is a file, a folder or a pattern. Candidates are verified by exact similarity before anything is removed; a
    dropped row names the row that stays for it and how similar the two are.

    With --unit line (or paragraph) no document is compared with another: lines that stand in --min-documents or more
    documents are taken out of all of them, and kept in removed/ with their document and place.
    """
    files = {"--signatures-out": signatures_out, "--against-signatures": against_signatures}
    given = [name for name, value in {**files, "--against": against}.items() if value is not None]
    if unit != "document":
        if given or verdicts_only:
            raise UsageError(f"--unit {unit} does not take {(given or ['--verdicts-only'])[0]}: leave it out")
        summary = run_step("template_files", common, unit=unit, least_documents=min_documents)
        print_summary(summary, common)
        return
    settings: dict[str, Any] = {}
    if verdicts_only:
        signatures = [name for name in given if name in files]
        if signatures:
            raise UsageError(f"--verdicts-only does not take {signatures[0]}: leave one of them out")
    else:
        settings = {"signatures_out": signatures_out, "against_signatures": against_signatures}
    if against is not None:
        require_files("--against", against)
    summary = run_step(
        "dedup_verdicts" if verdicts_only else "dedup_files",
        common,
        threshold=threshold,
        shingle_words=shingle_words,
        permutations=permutations,
        against=against,
        **settings,
    )
    print_summary(summary, common)
