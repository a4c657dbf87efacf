"""Step `classify`: a domain and a score for every document that is still there.

With `model: train` a classifier is trained first, from the sources' domains corrected by what the texts are
(`filters.text.reference`); else the recipe's `.bin` is used. Tasks are one a partition in both rounds.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filters.text.classify import (
    CARD_NAME,
    DomainModel,
    Example,
    TrainSettings,
    choose_examples,
    train_model,
    training_label,
)
from filters.text.features import feature_lines
from pipelines.context import RunContext, StepOutput
from pipelines.corpus.tables import VERDICT_SCHEMAS, iterate_documents, verdict_part, write_part
from schemas.files import atomic_path, sha256_file, write_json

__all__ = ["step", "train"]

ALIVE_AFTER = ("quality", "dedup")
_EXAMPLES = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("label", pa.string()),
        ("given", pa.string()),
        ("line", pa.large_string()),
    ]
)


@dataclass(frozen=True, slots=True)
class ExamplesTask:
    """Collect training examples of one partition into `path`."""

    run: str
    part: int
    path: str
    labels: tuple[str, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class PredictTask:
    """Classify one partition with the model at `model` (empty: there is nothing to classify)."""

    run: str
    part: int
    model: str


def step(context: RunContext) -> StepOutput:
    """Write verdicts/classify/ and, when a model is trained, classifier/model.bin and card.json.

    Raises RecipeError when a given model has other labels than the recipe, InputError when no document has a label.
    """
    config = context.recipe.classify
    partitions = range(context.recipe.engine.partitions)
    files: list[Path] = []
    counts: dict[str, Any] = {}
    if config.model == "train":
        model, files, counts = train(context)
    else:
        model = config.model
        DomainModel.load(model, config.labels)
        counts = {"model": {"trained": False, "digest": sha256_file(model)}}
    tasks = [PredictTask(str(context.run), part, model) for part in partitions]
    results = context.engine.map(predict_task, tasks, label="classify", progress=context.progress)
    domains: Counter[str] = Counter()
    agree = claimed = 0
    for result in results:
        domains.update(result["domains"])
        agree, claimed = agree + result["agree"], claimed + result["claimed"]
    counts |= {
        "documents_in": sum(domains.values()),
        "domains": dict(sorted(domains.items())),
        "documents_with_source_domain": claimed,
        "as_source_domain": agree,
    }
    return StepOutput([verdict_part(context.run, "classify", part) for part in partitions] + files, counts)


def train(context: RunContext) -> tuple[str, list[Path], dict[str, Any]]:
    """Train from the documents of a run that dedup kept; returns the model's path, its files and counts."""
    labels = tuple(context.recipe.classify.labels)
    settings = TrainSettings(seed=context.recipe.seed)
    folder = context.run / "spill" / "classify"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        tasks = [
            ExamplesTask(str(context.run), part, str(folder / f"examples-{part:05d}.parquet"), labels, settings.seed)
            for part in range(context.recipe.engine.partitions)
        ]
        results = context.engine.map(
            examples_task, tasks, label="classify: collect examples", progress=context.progress
        )
        path = context.run / "classifier" / "model.bin"
        if not sum(result["documents"] for result in results):
            card: dict[str, Any] = {"labels": list(labels), "missing": list(labels), "counts": {}, "digest": None}
            write_json(path.parent / CARD_NAME, card)
            context.progress.say("classify: no documents are left: no model was trained")
            return "", [path.parent / CARD_NAME], {"model": {"trained": False, "digest": None}}
        context.progress.say("classify: training")
        card = train_model(_merged(tasks, settings), labels, settings, path, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    other = Counter[str]()
    for result in results:
        other.update(result["other_labels"])
    _tell(context, card, other)
    heldout = card["heldout"]
    model = {
        "trained": True,
        "digest": card["digest"],
        "missing": card["missing"],
        "relabelled": card["relabelled"],
        "heldout_accuracy": heldout["accuracy"],
        "heldout_macro_f1": heldout["macro_f1"],
        "other_source_domains": dict(sorted(other.items())),
    }
    return str(path), [path, path.parent / CARD_NAME], {"model": model}


def _tell(context: RunContext, card: dict[str, Any], other: Counter[str]) -> None:
    heldout = card["heldout"]
    if heldout["documents"]:
        context.progress.say(
            f"classify: accuracy {heldout['accuracy']:.3f}, macro F1 {heldout['macro_f1']:.3f} on "
            f"{heldout['documents']} held-out documents"
        )
    for label in card["missing"]:
        context.progress.say(f"classify: warning: no document of label {label}: the model cannot give it")
    for name, count in sorted(other.items()):
        context.progress.say(
            f"classify: {count} documents say domain {name!r}, which is not in classify.labels: not trained on"
        )


def examples_task(task: ExamplesTask) -> dict[str, Any]:
    """The examples of one partition, cut to what can be chosen of them. Memory: their feature lines."""
    kept: list[Example] = []
    other: Counter[str] = Counter()
    documents = 0
    limit = TrainSettings().documents_per_label
    columns = ["id", "source", "text", "source_domain"]
    for _, batch, alive in iterate_documents(task.run, task.part, columns, after=ALIVE_AFTER):
        chosen = batch.filter(pa.array(alive))
        documents += chosen.num_rows
        given = chosen.column("source_domain").to_pylist()
        other.update(domain for domain in given if domain is not None and domain not in task.labels)
        known = chosen.filter(pa.array([domain in task.labels for domain in given], pa.bool_()))
        ids, domains = known.column("id").to_pylist(), known.column("source_domain").to_pylist()
        texts = known.column("text").to_pylist()
        labels = [training_label(t, g, task.labels) for t, g in zip(texts, domains, strict=True)]
        lines = feature_lines(known.column("text"), TrainSettings().bytes_read)
        sources = known.column("source").to_pylist()
        kept += [Example(*row) for row in zip(ids, sources, labels, domains, lines, strict=True)]
        kept = [kept[n] for n in choose_examples([(e.id, e.label, e.source) for e in kept], limit, task.seed)]
    rows = [asdict(example) for example in kept]
    with atomic_path(task.path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, _EXAMPLES), temporary)
    return {"documents": documents, "other_labels": dict(other)}


def _merged(tasks: list[ExamplesTask], settings: TrainSettings) -> Iterator[Example]:
    """The chosen examples of all partitions, in the order of the choice."""
    table = pa.concat_tables([pq.read_table(task.path) for task in tasks])
    keys = list(zip(*[table.column(name).to_pylist() for name in ("id", "label", "source")], strict=True))
    chosen = table.take(pa.array(choose_examples(keys, settings.documents_per_label, settings.seed), pa.int64()))
    for row in chosen.to_pylist():
        yield Example(**row)


def predict_task(task: PredictTask) -> dict[str, Any]:
    """Write the domains of one partition. Memory: one batch of text and the model."""
    model = DomainModel.load(task.model) if task.model else None
    schema = VERDICT_SCHEMAS["classify"]
    domains: Counter[str] = Counter()
    agree = claimed = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal agree, claimed
        columns = ["id", "text", "source_domain"]
        for _, batch, alive in iterate_documents(task.run, task.part, columns, after=ALIVE_AFTER):
            chosen = batch.filter(pa.array(alive))
            found = iter(model.predict(chosen.column("text")) if model is not None else [])
            row_domains: list[str | None] = []
            row_scores: list[float | None] = []
            for here, given in zip(alive.tolist(), batch.column("source_domain").to_pylist(), strict=True):
                domain, score = next(found) if here else (None, None)
                row_domains.append(domain)
                row_scores.append(score)
                if domain is not None:
                    domains[domain] += 1
                    claimed += given is not None
                    agree += given == domain
            yield pa.record_batch(
                [batch.column("id"), pa.array(row_domains, pa.string()), pa.array(row_scores, pa.float32())],
                schema=schema,
            )

    write_part(verdict_part(task.run, "classify", task.part), schema, batches())
    return {"domains": dict(domains), "agree": agree, "claimed": claimed}
