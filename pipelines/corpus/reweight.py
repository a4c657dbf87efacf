"""Step `reweight`: which documents are trained on, how often, and which are held out.

Tokens are those of the run's tokenizer plus one end-of-text token a document, which training adds: a document's
`tokens` in mixture/ is what one use of it costs in a row. The algebra is in `filters.text.mixture`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from filters.text.mixing import HELDOUT, TRAIN, Mixture, MixtureWish, mix
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.tables import corpus_part, iterate_batches, part_name, write_part
from pipelines.synthesis.tokens import load_tokenizer
from schemas.errors import CheckError
from schemas.files import atomic_path, write_json
from schemas.recipe import Recipe

__all__ = ["END_OF_TEXT_TOKENS", "MIXTURE_SCHEMA", "NO_DOMAIN", "mixture_part", "step", "wish_of"]

END_OF_TEXT_TOKENS = 1  # added to every document
NO_DOMAIN = "unknown"  # how documents without a domain are counted
MIXTURE_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("domain", pa.string()),
        ("source", pa.string()),
        ("tokens", pa.int64()),  # with end-of-text
        ("split", pa.string()),  # train, heldout or unused
        ("epochs", pa.int32()),  # how many times it is used; 0 for heldout and unused
    ]
)


@dataclass(frozen=True, slots=True)
class CountTask:
    """Count the tokens of corpus/kept/part-k into `counts` (a numpy file)."""

    run: str
    part: int
    counts: str


def mixture_part(run: str | Path, part: int) -> Path:
    """Where the mixture of one partition lies: a row for each row of corpus/kept/part-k, in its order."""
    return Path(run) / "mixture" / part_name(part)


def wish_of(recipe: Recipe) -> MixtureWish:
    """What the recipe asks of the mixture."""
    return MixtureWish(
        shares=recipe.mixture.shares if recipe.mixture.method == "target" else {},
        budget=recipe.mixture.budget_tokens,
        max_epochs=recipe.mixture.max_epochs,
        heldout_share=recipe.evaluate.heldout_share,
        heldout_documents=recipe.evaluate.heldout_documents,
        seed=recipe.seed,
    )


def step(context: RunContext) -> StepOutput:
    """Write mixture/part-k.parquet and mixture/report.json. Memory: about 200 bytes a document."""
    partitions = range(context.recipe.engine.partitions)
    folder = context.run / "spill" / "reweight"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        tasks = [CountTask(str(context.run), part, str(folder / f"tokens-{part:05d}.npy")) for part in partitions]
        context.engine.map(count_task, tasks, label="reweight: count tokens", progress=context.progress)
        tables = [_described(task) for task in tasks]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    whole = pa.concat_tables(tables)
    mixture = mix(
        whole.column("id").to_pylist(),
        whole.column("domain").to_numpy(),
        whole.column("source").to_numpy(),
        np.asarray(whole.column("tokens").to_numpy(), np.int64),
        wish_of(context.recipe),
    )
    files = _write(context.run, tables, mixture)
    _tell(context, mixture.report)
    return StepOutput(files, _counts(mixture.report))


def count_task(task: CountTask) -> dict[str, Any]:
    """Tokens of every kept document of one partition, end-of-text included. Memory: one batch of text."""
    tokenizer = load_tokenizer(Path(task.run) / "tokenizer")
    counts: list[int] = []
    for batch in iterate_batches(corpus_part(task.run, "kept", task.part), ["text"], rows=256):
        counts += tokenizer.count_batch(batch.column("text").to_pylist())
    with atomic_path(task.counts) as temporary, open(temporary, "wb") as sink:
        np.save(sink, np.array(counts, np.int64) + END_OF_TEXT_TOKENS, allow_pickle=False)
    return {"documents": len(counts)}


def _described(task: CountTask) -> pa.Table:
    """Id, domain, source and tokens of one partition."""
    batches = list(iterate_batches(corpus_part(task.run, "kept", task.part), ["id", "domain", "source"], rows=65_536))
    schema = pa.schema([("id", pa.string()), ("domain", pa.string()), ("source", pa.string())])
    table = pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)
    tokens = np.load(task.counts, allow_pickle=False)
    if len(tokens) != table.num_rows:
        raise CheckError(
            f"{corpus_part(task.run, 'kept', task.part)}: {table.num_rows} documents, {len(tokens)} were counted. "
            "It changed meanwhile: run the step corpus again"
        )
    domains = table.column("domain").fill_null(NO_DOMAIN)
    return table.set_column(1, "domain", domains).append_column("tokens", pa.array(tokens))


def _write(run: Path, tables: Sequence[pa.Table], mixture: Mixture) -> list[Path]:
    files: list[Path] = []
    first = 0
    for part, table in enumerate(tables):
        rows = slice(first, first + table.num_rows)
        first += table.num_rows
        done = table.append_column("split", pa.array(mixture.splits[rows], pa.string()))
        done = done.append_column("epochs", pa.array(mixture.epochs[rows], pa.int32()))
        path = mixture_part(run, part)
        write_part(path, MIXTURE_SCHEMA, done.cast(MIXTURE_SCHEMA).to_batches())
        files.append(path)
    report = run / "mixture" / "report.json"
    write_json(report, mixture.report)
    return [*files, report]


def _tell(context: RunContext, report: dict[str, Any]) -> None:
    """One line a domain whose share is not its target, and one when the budget is not met."""
    totals = report["totals"]
    for name, entry in report["domains"].items():
        if entry["limited_by"] in ("supply", "documents", "others"):
            context.progress.say(
                f"reweight: {name}: target {entry['target_share']:.2%}, reached {entry['share']:.2%} "
                f"({entry['tokens']} tokens, {entry['epochs_mean']:g} epochs), limited by {entry['limited_by']}"
            )
        if entry["target_share"] > 0 and not entry["tokens"]:
            why = "it has no documents" if not entry["documents"] else "no document fits into so few tokens"
            context.progress.say(f"reweight: warning: {name} has a share and gets nothing: {why}")
        if entry["limited_by"] == "no share":
            context.progress.say(f"reweight: {name} has no share: its {entry['documents']} documents are not used")
    if totals["shortfall_tokens"] > totals["budget_tokens"] // 1000:
        context.progress.say(
            f"reweight: warning: {totals['tokens']} of {totals['budget_tokens']} tokens: the corpus has no more at "
            f"{report['max_epochs']:g} epochs. Add documents, raise mixture.max_epochs or lower budget_tokens"
        )


def _counts(report: dict[str, Any]) -> dict[str, Any]:
    totals = report["totals"]
    return {
        "documents_in": sum(entry["documents"] for entry in report["domains"].values()),
        "train": totals[f"documents_{TRAIN}"],
        "heldout": totals[f"documents_{HELDOUT}"],
        "unused": totals["documents_unused"],
        "tokens": totals["tokens"],
        "end_of_text_tokens_per_document": END_OF_TEXT_TOKENS,
        "domains": {
            name: {key: entry[key] for key in ("tokens", "share", "target_share", "epochs_mean", "limited_by")}
            for name, entry in report["domains"].items()
        },
    }
