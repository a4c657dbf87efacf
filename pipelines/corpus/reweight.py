"""Step `reweight`: which documents are trained on, how often, and which are held out.

Tokens are those of the run's tokenizer plus one end-of-text token a document, which training adds: a document's
`tokens` in mixture/ is what one use of it costs in a row. The algebra is in `filters.text.mixture`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from filters.text.mixing import HELDOUT, TRAIN, Mixture, MixtureWish, StagedMixture, mix, mix_stages
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.tables import corpus_part, iterate_batches, part_name, write_part
from pipelines.synthesis.tokens import load_tokenizer
from schemas.errors import CheckError
from schemas.files import atomic_path, write_json
from schemas.recipe import MixtureConfig, Recipe, stage_name

__all__ = [
    "END_OF_TEXT_TOKENS",
    "MIXTURE_SCHEMA",
    "NO_DOMAIN",
    "STAGE_USES",
    "mixture_part",
    "step",
    "wish_of",
    "wishes_of",
]

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
STAGE_USES = pa.field("stage_epochs", pa.list_(pa.int32()))  # uses by pretraining stage, where stages have mixtures


@dataclass(frozen=True, slots=True)
class CountTask:
    """Count the tokens of corpus/kept/part-k into `counts` (a numpy file)."""

    run: str
    part: int
    counts: str


def mixture_part(run: str | Path, part: int) -> Path:
    """Where the mixture of one partition lies: a row for each row of corpus/kept/part-k, in its order."""
    return Path(run) / "mixture" / part_name(part)


def wish_of(recipe: Recipe, mixture: MixtureConfig | None = None) -> MixtureWish:
    """What the recipe asks of the mixture, or of one that a stage has of its own."""
    mixture = mixture or recipe.mixture
    return MixtureWish(
        shares=mixture.shares if mixture.method == "target" else {},
        budget=mixture.budget_tokens,
        max_epochs=mixture.max_epochs,
        heldout_share=recipe.evaluate.heldout_share,
        heldout_documents=recipe.evaluate.heldout_documents,
        seed=recipe.seed,
        method=mixture.method,
        axis=mixture.axis,
        temperature=mixture.temperature or 1.0,
        source_shares=mixture.flat_sources,
        nested_shares=mixture.nested_sources,
        domain_epochs=mixture.max_epochs_by_domain,
        source_epochs=mixture.max_epochs_by_source,
        domain_floors=mixture.min_shares,
        source_floors=mixture.min_shares_by_source,
        min_quality=mixture.min_quality,
    )


def wishes_of(recipe: Recipe) -> dict[str, MixtureWish]:
    """The wishes of the pretraining stages by name, in training order; empty when no stage has one of its own."""
    names = [stage_name(place, stage) for place, stage in enumerate(recipe.curriculum.pretrain)]
    return {name: wish_of(recipe, mixture) for name, mixture in zip(names, recipe.stage_mixtures(), strict=False)}


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
    columns = (
        whole.column("id").to_pylist(),
        whole.column("domain").to_numpy(),
        whole.column("source").to_numpy(),
        np.asarray(whole.column("tokens").to_numpy(), np.int64),
    )
    quality = np.asarray(whole.column("quality").to_numpy(), np.float64)
    wishes = wishes_of(context.recipe)
    mixture = mix_stages(*columns, wishes, quality) if wishes else mix(*columns, wish_of(context.recipe), quality)
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
    """Id, domain, source, quality and tokens of one partition."""
    batches = list(
        iterate_batches(corpus_part(task.run, "kept", task.part), ["id", "domain", "source", "quality"], rows=65_536)
    )
    schema = pa.schema(
        [("id", pa.string()), ("domain", pa.string()), ("source", pa.string()), ("quality", pa.float32())]
    )
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
        done = done.append_column("epochs", pa.array(mixture.epochs[rows], pa.int32())).drop_columns("quality")
        schema = MIXTURE_SCHEMA
        if isinstance(mixture, StagedMixture):
            schema = MIXTURE_SCHEMA.append(STAGE_USES)
            done = done.append_column(STAGE_USES, pa.array(mixture.uses[rows].tolist(), STAGE_USES.type))
        path = mixture_part(run, part)
        write_part(path, schema, done.cast(schema).to_batches())
        files.append(path)
    report = run / "mixture" / "report.json"
    write_json(report, mixture.report)
    return [*files, report]


def _tell(context: RunContext, report: dict[str, Any]) -> None:
    """One line a domain or source whose share is not its target, and one when the budget is not met; by stage."""
    for stage in report.get("stages", [report]):
        place = f"reweight: {stage['name']}: " if "name" in stage else "reweight: "
        for line in _told(stage):
            context.progress.say(place + line)


def _told(report: dict[str, Any]) -> Iterator[str]:
    entries = [("domain", name, entry) for name, entry in report["domains"].items()]
    entries += [("source", name, entry) for name, entry in report["sources"].items()]
    for kind, name, entry in entries:
        if "target_share" not in entry:
            continue
        label = name if kind == "domain" else f"source {name}"
        if entry["limited_by"] in ("supply", "documents", "others"):
            yield (
                f"{label}: target {entry['target_share']:.2%}, reached {entry['share']:.2%} "
                f"({entry['tokens']} tokens, {entry['epochs_mean']:g} epochs), limited by {entry['limited_by']}"
            )
        if entry["target_share"] > 0 and not entry["tokens"]:
            yield f"warning: {label} has a share and gets nothing: {_why_nothing(entry)}"
        if entry["limited_by"] == "no share":
            yield f"{label} has no share: its {entry['documents']} documents are not used"
    totals = report["totals"]
    for domain, sources in report.get("within", {}).items():
        for name, entry in sources.items():
            if entry["shortfall_tokens"] > totals["budget_tokens"] // 1000:
                yield (
                    f"source {name} within {domain}: target {entry['target_share']:.2%}, reached {entry['share']:.2%} "
                    f"({entry['shortfall_tokens']} tokens lacking)"
                )
    if totals["shortfall_tokens"] > totals["budget_tokens"] // 1000:
        yield (
            f"warning: {totals['tokens']} of {totals['budget_tokens']} tokens: the corpus has no more at "
            f"{report['max_epochs']:g} epochs. Add documents, raise mixture.max_epochs or lower budget_tokens"
        )


def _why_nothing(entry: dict[str, Any]) -> str:
    if not entry["documents"]:
        return "it has no documents"
    if not entry["supply_tokens"]:
        return "none of its documents may be used (held out, or below min_quality)"
    if entry["limited_by"] == "supply":
        return "its documents are used as often as max_epochs allows"
    return "no document fits into so few tokens"


def _counts(report: dict[str, Any]) -> dict[str, Any]:
    totals = report["totals"]
    counts = {
        "documents_in": sum(entry["documents"] for entry in report["domains"].values()),
        "train": totals[f"documents_{TRAIN}"],
        "heldout": totals[f"documents_{HELDOUT}"],
        "unused": totals["documents_unused"],
        "tokens": totals["tokens"],
        "end_of_text_tokens_per_document": END_OF_TEXT_TOKENS,
        "domains": {
            name: {key: entry[key] for key in _COUNTED if key in entry} for name, entry in report["domains"].items()
        },
    }
    if "stages" in report:
        counts["stages"] = {stage["name"]: stage["totals"]["tokens"] for stage in report["stages"]}
    return counts


_COUNTED = ("tokens", "share", "target_share", "epochs_mean", "limited_by")
