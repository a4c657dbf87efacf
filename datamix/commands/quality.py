"""`datamix quality`: rule sets, languages and personal data over plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from datamix.commands.corpus_steps import input_options, output_options, print_summary, run_step
from schemas.errors import UsageError

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
@click.option("--language-model", metavar="MODEL.bin", help="Judge the language of prose by a fasttext model.")
@click.option("--languages", metavar="A,B", help="Its labels that stay, for example en,de.")
@click.option(
    "--min-language-score",
    type=click.FloatRange(0, 1),
    default=0.65,
    help="Prose of a lower score goes (default 0.65).",
)
@click.option("--pii", metavar="A,B", help="Replace in kept texts: of email, ip, phone, key; or all.")
def command(
    rules: str,
    language_model: str | None,
    languages: str | None,
    min_language_score: float,
    pii: str | None,
    **common: Any,
) -> None:
    """Judge texts of jsonl or parquet files by published quality rules.

    INPUT is a file, a folder or a pattern. A prose rule judges prose only: what is code or formula is told from the
    text, and the language model is not asked about it. A dropped row says which rule it broke. With --pii, e-mail
    addresses, public IP addresses, phone numbers and keys in kept texts become placeholders and are counted.
    """
    if (language_model is None) != (languages is None):
        raise click.UsageError("--language-model and --languages go together: a model, and its labels that stay")
    language = None
    if language_model is not None:
        if not Path(language_model).is_file():
            raise UsageError(f"--language-model {language_model}: no such file. Give a fasttext language model")
        language = {"model": language_model, "keep": _names(languages), "min_score": min_language_score}
    kinds = ["email", "ip", "phone", "key"] if pii == "all" else _names(pii)
    print_summary(run_step("quality_files", common, rules=_names(rules), language=language, pii=kinds), common)


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]
