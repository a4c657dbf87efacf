"""One corpus step alone, on plain files: what `datamix dedup|quality|classify|decontaminate` do.

The inputs are read as the main job reads its sources, into a work folder beside the results; the one step runs there
as it does in a run, and its verdicts are joined with the documents into `kept/` and `dropped/`. So a standalone step
decides as the same step of a recipe does, on every engine and with every number of workers.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filters.text.classify import CARD_NAME
from pipelines.context import RunContext, StepOutput
from pipelines.corpus import classify, decontaminate, dedup, quality
from pipelines.corpus.dedup_verdicts import write_verdicts
from pipelines.corpus.plain import plain_files
from pipelines.corpus.read.step import step as read_step
from pipelines.corpus.standalone_files import write_neutral, write_results
from pipelines.corpus.tables import documents_part, iterate_batches
from pipelines.corpus.templates import remove_templates
from pipelines.engine import Engine
from schemas.errors import InputError, UsageError
from schemas.files import TEMPORARY_PREFIX, write_json
from schemas.progress import Progress
from schemas.recipe import Recipe

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

PARTITIONS = 8
OUTPUTS = ("kept", "dropped", "removed", "verdicts", "summary.json", "set_aside.jsonl")
_UNUSED_HALF: dict[str, Any] = {  # a recipe has a training half; no step here looks at it
    "mixture": {"method": "proportional", "budget_tokens": 1},
    "tokenizer": {"train": {}},
    "curriculum": {},
    "model": {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "intermediate_size": 8,
    },
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files, folders or patterns of jsonl (plain, gzip, zstandard) and parquet, and the names of their fields."""

    paths: Sequence[str]
    text: str = "text"
    id: str = "id"
    domain: str = "domain"
    on_error: str = "skip"


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
    _claim(target)
    with _work_folder(target) as run:
        found = write_verdicts(_context(inputs, run, engine, progress, {"dedup": config}))
        summary = {"step": "dedup", **found}
        _hand_over(run, target, ("verdicts",), summary)
    return summary


def template_files(
    inputs: Inputs, out: str | Path, engine: Engine, progress: Progress, *, unit: str, least_documents: int
) -> dict[str, Any]:
    """Take lines or paragraphs that stand in `least_documents` or more documents out of all of them.

    kept/ has the documents without them (the ids stay those of the whole texts), removed/ each piece with the id of
    its document and its place, dropped/ the documents of which nothing is left. Returns the summary.
    """
    target = Path(out)
    _claim(target)
    with _work_folder(target) as run:
        context = _context(inputs, run, engine, progress, {})
        counts = read_step(context).counts
        found = remove_templates(context, unit, least_documents)
        summary = {"step": "templates", **found, "set_aside": counts["set_aside"]}
        _hand_over(run, target, ("kept", "dropped", "removed"), summary)
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
    card = target.parent / CARD_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    with _work_folder(target.parent) as run:
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
        context = _context(inputs, run, engine, progress, {"seed": seed, "classify": {"labels": chosen}})
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
    _claim(target)
    with _work_folder(target) as run:
        context = _context(inputs, run, engine, progress, parts)
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
        _hand_over(run, target, ("kept", "dropped"), summary)
    return summary


def _hand_over(run: Path, target: Path, folders: Sequence[str], summary: dict[str, Any]) -> None:
    """Put the results of a work folder in place of older ones."""
    for output in OUTPUTS:
        _remove(target / output)
    for folder in folders:
        os.replace(run / "out" / folder, target / folder)
    aside = run / "set_aside" / "read.jsonl"
    if aside.stat().st_size:
        os.replace(aside, target / "set_aside.jsonl")
    write_json(target / "summary.json", summary)


def _read(inputs: Inputs, run: Path, engine: Engine, progress: Progress, parts: dict[str, Any]) -> StepOutput:
    return read_step(_context(inputs, run, engine, progress, parts))


def _context(inputs: Inputs, run: Path, engine: Engine, progress: Progress, parts: dict[str, Any]) -> RunContext:
    """A run in `run` of a recipe that holds `parts` and the inputs as sources."""
    try:
        recipe = Recipe.model_validate(
            {
                "name": "standalone",
                "seed": 0,
                "on_error": inputs.on_error,
                "engine": {"partitions": PARTITIONS},
                "sources": _sources(inputs),
                **_UNUSED_HALF,
                **parts,
            }
        )
    except ValueError as error:  # pydantic's ValidationError
        raise UsageError(_explained(error)) from None
    return RunContext(run, recipe, engine, progress)


def _explained(error: ValueError) -> str:
    """The first problem of a validation error as one line, without the model's name."""
    details = error.errors() if hasattr(error, "errors") else []
    if not details:
        return str(error)
    first = details[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{place}: {first['msg']}, received {first['input']!r}. Mend the option or the label of that name"


def _sources(inputs: Inputs) -> list[dict[str, Any]]:
    """One source for every input (two for a folder with files of both kinds)."""
    sources: list[dict[str, Any]] = []
    names: set[str] = set()
    for given in inputs.paths:
        files = plain_files(given, "INPUT")
        kinds = {kind: [f for f in files if _kind(f) == kind] for kind in ("jsonl", "parquet")}
        folder = Path(given).expanduser().is_dir()
        if all(kinds.values()) and not folder:
            raise UsageError(f"{given!r} matches jsonl and parquet files. Give one pattern for each")
        for kind, found in kinds.items():
            if found:
                name = _name(Path(given), names)
                names.add(name)
                sources.append({"name": name, "kind": kind, "path": str(given), **_fields(inputs, kind, found)})
    return sources


def _kind(path: Path) -> str:
    with open(path, "rb") as handle:
        return "parquet" if handle.read(4) == b"PAR1" else "jsonl"


def _fields(inputs: Inputs, kind: str, files: Sequence[Path]) -> dict[str, Any]:
    """The fields to read. Of Parquet files only columns that all of them have, for a missing one is an error there."""
    fields: dict[str, Any] = {"text": inputs.text, "id": inputs.id, "domain_field": inputs.domain}
    if kind == "parquet":
        columns = set.intersection(*(set(_columns(path)) for path in files))
        fields = {key: value for key, value in fields.items() if key == "text" or value in columns}
    return {**fields, "language_field": "language"} if kind == "jsonl" else fields


def _columns(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be read as Parquet ({str(error)[:200]})", path=str(path), todo="Give a whole Parquet file"
        ) from None


def _name(given: Path, taken: set[str]) -> str:
    """A source's name from its path: the file's name without endings, in the characters a recipe allows."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", given.name.split(".")[0]).strip("-_") or "input"
    name, number = stem[:60], 2
    while name in taken:
        name, number = f"{stem[:60]}-{number}", number + 1
    return name


def _claim(target: Path) -> None:
    """Raises UsageError for a folder that holds anything but results of such a command."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"--out {target}: is a file. Give a folder, new or empty")
    foreign = [p.name for p in target.iterdir() if p.name not in OUTPUTS] if target.is_dir() else []
    foreign = sorted(name for name in foreign if not name.startswith(TEMPORARY_PREFIX))
    if foreign:
        raise UsageError(f"--out {target}: holds {foreign[0]!r}, which is not a result of this. Give a new folder")
    target.mkdir(parents=True, exist_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _work_folder(parent: Path) -> Iterator[Path]:
    """A folder on the results' own file system, gone at the end; one that a killed process left is removed too."""
    for left in parent.glob(f"{TEMPORARY_PREFIX}work-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY_PREFIX}work-", dir=parent) as folder:
        yield Path(folder)
