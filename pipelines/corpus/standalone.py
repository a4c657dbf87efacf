"""One corpus step alone, on plain files: what `datamix dedup|quality|classify|decontaminate` do.

The inputs are read as the main job reads its sources, into a work folder beside the results; the one step runs there
as it does in a run, and its verdicts are joined with the documents into `kept/` and `dropped/`. So a standalone step
decides as the same step of a recipe does, on every engine and with every number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filters.text.classify import CARD_NAME
from pipelines.context import RunContext, StepOutput
from pipelines.corpus import classify, decontaminate, dedup, quality
from pipelines.corpus.dedup_verdicts import write_verdicts
from pipelines.corpus.read.step import step as read_step
from pipelines.corpus.standalone_files import write_neutral, write_results
from pipelines.corpus.standalone_folder import claim, hand_over, work_folder
from pipelines.corpus.standalone_inputs import PARTITIONS, Inputs, context_of
from pipelines.corpus.tables import documents_part, iterate_batches
from pipelines.corpus.templates import remove_templates
from pipelines.engine import Engine
from schemas.errors import InputError, UsageError
from schemas.progress import Progress

__all__ = [
    "Inputs",
    "classify_files",
    "decontaminate_files",
    "dedup_files",
    "dedup_verdicts",
    "quality_files",
    "template_files",
    "train_classifier",
]


def dedup_files(
    inputs: Inputs,
    out: str | Path,
    engine: Engine,
    progress: Progress,
    *,
    threshold: float = 0.8,
    shingle_words: int = 5,
    permutations: int = 128,
    against: str | None = None,
    against_signatures: str | None = None,
    signatures_out: str | None = None,
) -> dict[str, Any]:
    """Remove exact and near duplicates; returns the summary.

    Of a cluster the longest document stays, then the one with the smallest id; with `against`, documents of the
    reference set are never removed and stay for their duplicates. A dropped row names the kept document
    (`duplicate_of`, and `duplicate_of_source_id` as the input called it) and the measured `similarity`. A field
    `domain` with the value "code" keeps punctuation apart. `signatures_out` and `against_signatures` are files of
    datasketch signatures, see `pipelines.corpus.signatures`. Raises UsageError and InputError as the steps do.
    """
    config = {
        "threshold": threshold,
        "shingle_words": shingle_words,
        "permutations": permutations,
        "against": against,
        "against_signatures": against_signatures,
        "signatures_out": signatures_out,
    }
    return _one_step(inputs, out, engine, progress, "dedup", dedup.step, {"dedup": config})


def dedup_verdicts(
    inputs: Inputs,
    out: str | Path,
    engine: Engine,
    progress: Progress,
    *,
    threshold: float = 0.8,
    shingle_words: int = 5,
    permutations: int = 128,
    against: str | None = None,
) -> dict[str, Any]:
    """The decisions of `dedup_files` without a copy of any text; returns the summary.

    Writes verdicts/NUMBER.parquet for every input file (VERDICTS_ALONE: row of the file, verdict, cluster, similarity,
    duplicate_of, …); `files` of the summary says which is which.
    """
    config = {
        "threshold": threshold,
        "shingle_words": shingle_words,
        "permutations": permutations,
        "against": against,
    }
    target = Path(out)
    claim(target)
    with work_folder(target) as run:
        found = write_verdicts(context_of(inputs, run, engine, progress, {"dedup": config}))
        summary = {"step": "dedup", **found}
        hand_over(run, target, ("verdicts",), summary)
    return summary


def template_files(
    inputs: Inputs, out: str | Path, engine: Engine, progress: Progress, *, unit: str, least_documents: int
) -> dict[str, Any]:
    """Take lines or paragraphs that stand in `least_documents` or more documents out of all of them.

    kept/ has the documents without them (the ids stay those of the whole texts), removed/ each piece with the id of
    its document and its place, dropped/ the documents of which nothing is left. Returns the summary.
    """
    target = Path(out)
    claim(target)
    with work_folder(target) as run:
        context = context_of(inputs, run, engine, progress, {})
        counts = read_step(context).counts
        found = remove_templates(context, unit, least_documents)
        summary = {"step": "templates", **found, "set_aside": counts["set_aside"]}
        hand_over(run, target, ("kept", "dropped", "removed"), summary)
    return summary


def quality_files(
    inputs: Inputs,
    out: str | Path,
    engine: Engine,
    progress: Progress,
    *,
    rules: Sequence[str],
    language: Mapping[str, Any] | None = None,
    pii: Sequence[str] = (),
) -> dict[str, Any]:
    """Drop what the named rule sets refuse; kept and dropped rows have a `quality` score. Returns the summary.

    `language` is `model`, `keep` and `min_score` (see LanguageConfig); kinds of `pii` are replaced in kept texts.
    """
    parts: dict[str, Any] = {"quality": {"rules": list(rules), "language": language}}
    if pii:
        parts["pii"] = {"replace": list(pii)}
    return _one_step(inputs, out, engine, progress, "quality", quality.step, parts)


def decontaminate_files(
    inputs: Inputs,
    out: str | Path,
    engine: Engine,
    progress: Progress,
    *,
    benchmarks: Sequence[str],
    shingle_words: int = 13,
) -> dict[str, Any]:
    """Drop documents that hold items of the benchmark files; dropped rows name `benchmark` and the `matched` text."""
    config = {"benchmarks": list(benchmarks), "shingle_words": shingle_words}
    return _one_step(inputs, out, engine, progress, "decontaminate", decontaminate.step, {"decontaminate": config})


def classify_files(
    inputs: Inputs, out: str | Path, engine: Engine, progress: Progress, *, model: str | Path
) -> dict[str, Any]:
    """Predict `domain` and `domain_score` with a fasttext `.bin`; every document is kept. Returns the summary."""
    from filters.text.classify import DomainModel

    if not Path(model).is_file():
        raise UsageError(
            f"--model {model}: no such file. Train one with: datamix classify train INPUT... --out {model}"
        )
    labels = DomainModel.load(model).labels
    config = {"model": str(model), "labels": labels}
    return _one_step(inputs, out, engine, progress, "classify", classify.step, {"classify": config})


def train_classifier(
    inputs: Inputs,
    out: str | Path,
    engine: Engine,
    progress: Progress,
    *,
    labels: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a classifier on the field `inputs.domain`; writes `out` and card.json beside it, returns the card.

    `labels` defaults to those that occur. Equal inputs and seed give an equal file. Raises InputError when no record
    has a label, UsageError for a label that a recipe could not name.
    """
    target = Path(out)
    if target.is_dir():
        raise UsageError(f"--out {target}: is a folder. Name a file to write, such as {target / 'model.bin'}")
    card = target.parent / CARD_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    with work_folder(target.parent) as run:
        read = _read(inputs, run, engine, progress, {"seed": seed})
        found = _labels(run)
        chosen = list(labels) if labels else found
        if not found or not chosen:
            raise InputError(
                f"no record has a label: {read.counts['documents']} documents were read",
                path=str(inputs.paths[0]),
                field=inputs.domain,
                todo="Name the key or column of the labels with --label-field",
            )
        context = context_of(inputs, run, engine, progress, {"seed": seed, "classify": {"labels": chosen}})
        for step in ("quality", "dedup"):
            write_neutral(run, step, PARTITIONS)
        model, _, _ = classify.train(context)
        os.replace(Path(model).parent / CARD_NAME, card)
        os.replace(model, target)
    described: dict[str, Any] = _read_card(card)
    return described


def _read_card(path: Path) -> dict[str, Any]:
    from schemas.files import read_json

    return dict(read_json(path))


def _labels(run: Path) -> list[str]:
    """The values of the label field that occur, sorted."""
    labels: set[str] = set()
    for part in range(PARTITIONS):
        for batch in iterate_batches(documents_part(run, part), ["source_domain"], rows=65_536):
            labels.update(value for value in batch.column(0).unique().to_pylist() if value is not None)
    return sorted(labels)


def _one_step(
    inputs: Inputs,
    out: str | Path,
    engine: Engine,
    progress: Progress,
    name: str,
    step: Callable[[RunContext], StepOutput],
    parts: dict[str, Any],
) -> dict[str, Any]:
    """Read, run one step with its part of a recipe, write kept/, dropped/ and summary.json."""
    target = Path(out)
    claim(target)
    with work_folder(target) as run:
        context = context_of(inputs, run, engine, progress, parts)
        counts = read_step(context).counts
        for other in ("quality", "dedup", "classify", "decontaminate"):
            if other != name:
                write_neutral(run, other, PARTITIONS)
        found = step(context).counts
        kept, dropped, replaced = write_results(context, name)
        summary = {
            "step": name,
            "documents_in": kept + sum(dropped.values()),
            "kept": kept,
            "dropped": dropped,
            "set_aside": counts["set_aside"],
            **{key: value for key, value in found.items() if key not in ("documents_in", "kept", "dropped")},
            **({"replaced": replaced} if replaced else {}),
        }
        hand_over(run, target, ("kept", "dropped"), summary)
    return summary


def _read(inputs: Inputs, run: Path, engine: Engine, progress: Progress, parts: dict[str, Any]) -> StepOutput:
    return read_step(context_of(inputs, run, engine, progress, parts))
