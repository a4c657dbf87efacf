"""The step `read`: sources to documents, partitioned by id and sorted, each bad record set aside and counted.

Two passes: a task for every file (or group of packages) writes its documents as sorted runs, then a task for every
partition merges its runs. What is written depends on the records and the number of partitions alone.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from pipelines.context import RunContext, StepOutput
from pipelines.corpus.read.jsonl import read_jsonl
from pipelines.corpus.read.packages import Package
from pipelines.corpus.read.parquet import check_parquet, read_parquet
from pipelines.corpus.read.paths import SourceFile, find_files
from pipelines.corpus.read.python_environment import choose_packages, read_package
from pipelines.corpus.read.records import Document, Problem, Record, to_document
from pipelines.corpus.read.spill import Run, SpillWriter, merge_runs
from pipelines.corpus.tables import documents_part, write_part
from schemas.document import DOCUMENT_SCHEMA
from schemas.errors import InputError
from schemas.files import atomic_path
from schemas.recipe import SourceConfig

__all__ = [
    "MergeTask",
    "ReadTask",
    "aside_of",
    "collect_problems",
    "counts_of_reading",
    "plan_reading",
    "read_records",
    "refuse_useless_sources",
    "say_what_is_odd",
    "step",
]

PACKAGES_PER_TASK = 8
LARGE_PACKAGE_FILES = 400  # a package with more files is a task of its own


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one task reads: files in order, or packages; `limit` documents at most."""

    number: int
    config: SourceConfig
    files: tuple[SourceFile, ...]
    packages: tuple[Package, ...]
    limit: int | None
    partitions: int
    stop_at_problem: bool
    folder: str

    def __repr__(self) -> str:
        what = [file.path for file in self.files] or [package.label for package in self.packages]
        return f"source '{self.config.name}': {', '.join(what)}"


@dataclass(frozen=True, slots=True)
class MergeTask:
    """The runs of one partition and the file they become."""

    target: str
    runs: tuple[Run, ...]


def step(context: RunContext) -> StepOutput:
    """Read every source of the recipe into `documents/` and `set_aside/read.jsonl`.

    Raises UsageError for a path that is not there, InputError for a column that is not there, for a source of which
    no record can be used, and with on_error: fail for the first bad record; nothing is written then.
    """
    folder = context.run / "spill" / "read"
    shutil.rmtree(folder, ignore_errors=True)
    tasks = plan_reading(context, folder)
    folder.mkdir(parents=True)
    try:
        results = context.engine.map(read_task, tasks, label="read", progress=context.progress)
        refuse_useless_sources(tasks, results)
        counts = counts_of_reading(tasks, results)
        say_what_is_odd(context, counts)
        files = _merge(context, tasks, results)
        files.append(collect_problems(context.run / "set_aside" / "read.jsonl", tasks))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    return StepOutput(files, counts)


def plan_reading(context: RunContext, folder: Path) -> list[ReadTask]:
    """Cut all sources into tasks; everything that can be wrong before reading is found here."""
    recipe = context.recipe
    tasks: list[ReadTask] = []

    def add(config: SourceConfig, files: list[SourceFile], packages: list[Package]) -> None:
        tasks.append(
            ReadTask(
                number=len(tasks),
                config=config,
                files=tuple(files),
                packages=tuple(packages),
                limit=config.limit_documents,
                partitions=recipe.engine.partitions,
                stop_at_problem=recipe.on_error == "fail",
                folder=str(folder),
            )
        )

    for config in recipe.sources:
        if config.kind == "python-environment":
            packages = choose_packages(config)
            groups = [packages] if config.limit_documents else _groups(packages)
            for group in groups:
                add(config, [], group)
            continue
        files = find_files(config)
        if config.kind == "parquet":
            for file in files:
                problem = check_parquet(file.path, config)
                if problem is not None and recipe.on_error == "fail":
                    raise problem.error()
        for part in [files] if config.limit_documents else [[file] for file in files]:
            add(config, part, [])
    return tasks


def _groups(packages: list[Package]) -> list[list[Package]]:
    """Packages in name order, the large ones alone."""
    groups: list[list[Package]] = []
    small: list[Package] = []
    for package in packages:
        if len(package.files) > LARGE_PACKAGE_FILES:
            groups.append([package])
        else:
            small.append(package)
    return groups + [small[at : at + PACKAGES_PER_TASK] for at in range(0, len(small), PACKAGES_PER_TASK)]


def read_records(task: ReadTask) -> Iterator[Document | Problem]:
    """The documents and problems of one task in source order; no limit is applied. For any engine."""
    config = task.config
    for file in task.files:
        found = read_jsonl(file.path, config) if config.kind == "jsonl" else read_parquet(file.path, config)
        for record in found:
            yield to_document(record, config, file.path, file.relative) if isinstance(record, Record) else record
    environment = config.model_copy(
        update={"domain_field": "domain", "license_field": "license", "language_field": "language", "text": "text"}
    )
    for package in task.packages:
        for text in read_package(package):
            if isinstance(text, Problem):
                yield text
            else:
                yield to_document(text.record, environment, text.file, text.file)


def read_task(task: ReadTask) -> dict[str, Any]:
    """Read one task into its spill file and its set-aside file; returns counts and the runs written."""
    problems: Counter[str] = Counter()
    documents = characters = replaced = 0
    with (
        atomic_path(aside_of(task)) as aside_path,
        aside_path.open("wb") as aside,
        SpillWriter(_spill(task), task.partitions) as spill,
    ):
        for found in _limited(task):
            if isinstance(found, Document):
                spill.add(found)
                documents += 1
                characters += len(found.text)
                replaced += found.replaced
            elif task.stop_at_problem:
                raise found.error()
            else:
                problems[found.problem] += 1
                aside.write(orjson.dumps(found.row(), option=orjson.OPT_APPEND_NEWLINE))
    return {
        "documents": documents,
        "characters": characters,
        "replaced": replaced,
        "problems": dict(problems),
        "runs": spill.runs,
    }


def _limited(task: ReadTask) -> Iterator[Document | Problem]:
    """The stream of a task up to its limit of documents."""
    left = task.limit
    for found in read_records(task):
        yield found
        if left is not None and isinstance(found, Document):
            left -= 1
            if left == 0:
                return


def merge_task(task: MergeTask) -> dict[str, Any]:
    """Merge one partition into its documents file."""
    return {"rows": write_part(task.target, DOCUMENT_SCHEMA, merge_runs(list(task.runs)))}


def _merge(context: RunContext, tasks: list[ReadTask], results: list[dict[str, Any]]) -> list[Path]:
    runs: list[list[Run]] = [[] for _ in range(context.recipe.engine.partitions)]
    for task, result in zip(tasks, results, strict=True):
        for number, (part, rows) in enumerate(result["runs"]):
            runs[part].append((str(_spill(task)), number, rows))
    targets = [documents_part(context.run, part) for part in range(len(runs))]
    merges = [MergeTask(str(target), tuple(own)) for target, own in zip(targets, runs, strict=True)]
    for stale in set(targets[0].parent.glob("part-*.parquet")) - set(targets):
        stale.unlink()
    context.engine.map(merge_task, merges, label="read: sort", progress=context.progress)
    return targets


def collect_problems(target: Path, tasks: list[ReadTask]) -> Path:
    """Join the set-aside files of all tasks."""
    with atomic_path(target) as temporary, temporary.open("wb") as whole:
        for task in tasks:
            with aside_of(task).open("rb") as part:
                shutil.copyfileobj(part, whole)
    return target


def counts_of_reading(tasks: list[ReadTask], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures for the manifest from what the tasks counted."""
    problems: Counter[str] = Counter()
    by_source: Counter[str] = Counter()
    for task, result in zip(tasks, results, strict=True):
        problems.update(result["problems"])
        by_source[task.config.name] += result["documents"]
    documents = sum(by_source.values())
    return {
        "records_in": documents + sum(problems.values()),
        "documents": documents,
        "set_aside": dict(sorted(problems.items())),
        "characters": sum(result["characters"] for result in results),
        "surrogates_replaced": sum(result["replaced"] for result in results),
        "documents_by_source": dict(sorted(by_source.items())),
    }


def say_what_is_odd(context: RunContext, counts: dict[str, Any]) -> None:
    """Tell the listener what was not taken as it stood: nothing is skipped quietly."""
    if counts["set_aside"]:
        problems = ", ".join(f"{name} {count}" for name, count in counts["set_aside"].items())
        total = sum(counts["set_aside"].values())
        context.progress.say(
            f"read: {total} of {counts['records_in']} records set aside ({problems}): see set_aside/read.jsonl"
        )
    if counts["surrogates_replaced"]:
        context.progress.say(f"read: {counts['surrogates_replaced']} lone surrogates replaced by U+FFFD")


def refuse_useless_sources(tasks: list[ReadTask], results: list[dict[str, Any]]) -> None:
    """A source with records of which none can be used is a mistake in the recipe, not a quiet success."""
    documents: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    for task, result in zip(tasks, results, strict=True):
        documents[task.config.name] += result["documents"]
        problems[task.config.name] += sum(result["problems"].values())
    for task in tasks:
        name = task.config.name
        if problems[name] and not documents[name]:
            first = next(_problems(name, tasks))
            raise InputError(
                f"source '{name}': none of its {problems[name]} records can be used; the first one: "
                f"{first['problem'].replace('_', ' ')}, received {first['received']}",
                path=first["path"],
                line=first["line"],
                field=first["field"],
                todo="Check the source's path and its 'text' key or column",
            )
    if not any(documents.values()):
        names = ", ".join(sorted({f"'{task.config.name}'" for task in tasks}))
        raise InputError(
            f"no document in any source ({names}): the files hold no record",
            todo="Give sources whose files hold records",
        )


def _problems(source: str, tasks: list[ReadTask]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        if task.config.name == source:
            with aside_of(task).open("rb") as lines:
                yield from map(orjson.loads, lines)


def _spill(task: ReadTask) -> Path:
    return Path(task.folder) / f"task-{task.number:06d}.arrow"


def aside_of(task: ReadTask) -> Path:
    """Where a task writes what is wrong with its records."""
    return Path(task.folder) / f"task-{task.number:06d}.jsonl"
