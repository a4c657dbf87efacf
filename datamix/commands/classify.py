"""`datamix classify`: domains of plain files by a model; `datamix classify train` makes the model."""

from __future__ import annotations

from typing import Any

import click

from datamix.commands.corpus_steps import input_options, output_options, print_summary, run_step
from datamix.output import emit_json, stdout_console, table

__all__ = ["command"]


class _PredictUnlessTrain(click.Group):
    """`classify train …` trains; everything else after `classify` goes to predict."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the default subcommand in."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["predict", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_PredictUnlessTrain)
def command() -> None:
    """Give texts of jsonl or parquet files a domain, or train the model for it.

    \b
    datamix classify INPUT... --model MODEL.bin --out DIR                   adds domain and domain_score
    datamix classify train INPUT... --label-field FIELD --out MODEL.bin     makes MODEL.bin and card.json

    Options of the first form: datamix classify predict --help
    """


@command.command("predict", hidden=True)
@input_options
@output_options
@click.option("--model", required=True, metavar="MODEL.bin", help="A fasttext model: 'classify train' makes one.")
def predict(model: str, **common: Any) -> None:
    """Give every text a domain.

    INPUT is a file, a folder or a pattern. Every document is kept, with `domain` and `domain_score`.
    """
    print_summary(run_step("classify_files", common, model=model), common)


@command.command("train")
@input_options
@click.option("--label-field", default="domain", metavar="FIELD", help="Key or column of the label (default domain).")
@click.option("--labels", metavar="A,B", help="Labels to learn (default: all that occur).")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed: the same gives the same file.")
@click.option("--out", required=True, metavar="MODEL.bin", help="The model; card.json is written beside it.")
def train(label_field: str, labels: str | None, seed: int, **common: Any) -> None:
    """Train a domain classifier from labelled texts.

    INPUT is a file, a folder or a pattern. One document in ten is held out and measured; the card says how well.
    """
    chosen = [name.strip() for name in labels.split(",") if name.strip()] if labels else None
    card = run_step("train_classifier", common, domain=label_field, labels=chosen, seed=seed)
    if common["as_json"]:
        emit_json({"out": common["out"], **card})
        return
    f1 = card["heldout"]["f1"]
    rows = [(name, card["counts"][name], card["trained"][name], f1.get(name)) for name in card["labels"]]
    title = f"{common['out']}: held-out accuracy {card['heldout']['accuracy']}, macro F1 {card['heldout']['macro_f1']}"
    stdout_console().print(table(title, ("label", "documents", "trained on", "held-out F1"), rows))
