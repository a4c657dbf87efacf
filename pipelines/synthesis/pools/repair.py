"""The repair pool of a run: modules of the kept corpus whose functions could be run and recorded.

Every part of corpus/kept gives its share, in the order of its rows (by document id, so as good as random), and stops
when it is full: the pool's size and cost are bounded whatever the corpus is. A corpus with too little Python gets the
running interpreter's standard library added; without any corpus the pool comes from that library alone.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from pipelines.context import RunContext
from pipelines.synthesis.environments.base import environment_class
from pipelines.synthesis.environments.functions import (
    PoolModule,
    Source,
    is_permissive,
    open_probe_sandbox,
    probe_source,
    read_pool,
    standard_library,
    write_pool,
)
from schemas.files import atomic_path
from schemas.recipe import Recipe

__all__ = ["build_pool"]

ENOUGH_MODULES, ENOUGH_CHARACTERS = 72, 950_000  # of the whole pool: a part stops when it has its share of both
MOST_MODULES = 160
LEAST_FILE, LARGEST_FILE = 3_000, 100_000  # characters: files for whole-file tasks, whose functions serve small ones
TRIES_A_MODULE = 30  # files a part looks at for every module that it may give
FEWEST_MODULES, FEWEST_CHARACTERS = 48, 850_000  # with less the standard library is added
LIBRARY_TASKS = 4
SMALL_POOL, FEW_TASKS, EASY = 0.35, 200, 5.0
_FUNCTION = re.compile(r"^def \w", re.M)
_COLUMNS = ["text", "origin", "license", "domain", "source_domain"]


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of the corpus (or, with `corpus` None, every `of`-th file of the standard library) and its share.

    `size` is the part of a whole pool that is enough; None means that everything is taken.
    """

    corpus: str | None
    out: str
    number: int
    of: int
    size: float | None = 1.0


def build_pool(context: RunContext, out: Path) -> dict[str, Any]:
    """Write the pool; returns {modules, functions, characters, tried, left_out {reason: n}, standard_library}."""
    parts = sorted((context.run / "corpus" / "kept").glob("part-*.parquet"))
    folder = out.parent / "raw" / "pool"
    tasks = [
        _Part(str(path), str(folder / path.with_suffix(".jsonl").name), n, len(parts)) for n, path in enumerate(parts)
    ]
    results = context.engine.map(
        _probe_part, tasks, label="synthesize: functions of the corpus", progress=context.progress
    )
    library: list[dict[str, Any]] = []
    characters, modules = sum(r["characters"] for r in results), sum(r["modules"] for r in results)
    if modules < FEWEST_MODULES or characters < FEWEST_CHARACTERS:
        if parts:
            context.progress.say(f"synthesize: {modules} usable modules in the corpus; the standard library is added")
        extra = [
            _Part(
                None,
                str(folder / f"library-{n}.jsonl"),
                n,
                LIBRARY_TASKS,
                None if parts else _library_size(context.recipe),
            )
            for n in range(LIBRARY_TASKS)
        ]
        label = "synthesize: functions of the standard library"
        library = context.engine.map(_probe_part, extra, label=label, progress=context.progress)
        tasks += extra
    gaps = sorted({gap for result in [*results, *library] for gap in result["gaps"]})
    if gaps:
        context.progress.say(
            f"sandbox: no {', '.join(gaps)} isolation on this machine; see the sandbox's documentation"
        )
    pool = [module for task in tasks for module in read_pool(task.out)]
    written = write_pool(out, pool)
    shutil.rmtree(folder, ignore_errors=True)
    left_out: Counter[str] = Counter()
    for result in [*results, *library]:
        left_out.update(result["left_out"])
    return {
        "modules": written,
        "functions": sum(len(module.functions) for module in {m.id: m for m in pool}.values()),
        "characters": sum(len(module.source) for module in {m.id: m for m in pool}.values()),
        "tried": sum(r["tried"] for r in [*results, *library]),
        "left_out": dict(sorted(left_out.items())),
        "standard_library": sum(r["modules"] for r in library),
    }


def _probe_part(part: _Part) -> dict[str, Any]:
    """Probe the Python files of one part until its share is full; writes the modules found, atomically."""
    sources = _library(part) if part.corpus is None else _corpus(Path(part.corpus))
    left_out: Counter[str] = Counter()
    found: list[PoolModule] = []
    characters = tried = 0
    with open_probe_sandbox() as sandbox:
        workspace = sandbox.workspace()
        for source in sources:
            if part.size is not None and _is_full(part, part.size, len(found), characters, tried):
                break
            tried += 1
            result = probe_source(source, sandbox, workspace)
            if isinstance(result, str):
                left_out[result] += 1
            else:
                found.append(result)
                characters += len(result.source)
        gaps = list(sandbox.gaps)
    with atomic_path(part.out) as temporary, open(temporary, "w", encoding="utf-8") as handle:
        for module in found:
            handle.write(module.to_json() + "\n")
    return {
        "modules": len(found),
        "characters": characters,
        "tried": tried,
        "left_out": dict(left_out),
        "gaps": gaps,
    }


def _library_size(recipe: Recipe) -> float:
    """How much of a whole pool a few easy tasks need when there is no corpus to draw from."""
    wanted = [config for config in recipe.trajectories.synthesized if environment_class(config.family).pool == "code"]
    small = sum(config.n for config in wanted) <= FEW_TASKS and all(c.difficulty[1] <= EASY for c in wanted)
    return SMALL_POOL if small and not recipe.evaluate.tasks else 1.0


def _is_full(part: _Part, size: float, modules: int, characters: int, tried: int) -> bool:
    most = ceil(MOST_MODULES * size / part.of)
    enough = modules >= ceil(ENOUGH_MODULES * size / part.of) and characters >= ENOUGH_CHARACTERS * size / part.of
    return enough or modules >= most or tried >= TRIES_A_MODULE * most


def _library(part: _Part) -> Iterator[Source]:
    for number, source in enumerate(standard_library()):
        if number % part.of == part.number:
            yield source


def _corpus(path: Path) -> Iterable[Source]:
    """The permissively licensed code of a corpus part that looks like a Python module, row by row."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=64, columns=_COLUMNS):
            for row in batch.to_pylist():
                code = "code" in (row["domain"], row["source_domain"])
                fits = LEAST_FILE <= len(row["text"]) <= LARGEST_FILE and len(_FUNCTION.findall(row["text"])) >= 2
                if code and fits and is_permissive(row["license"]):
                    yield Source(row["text"], row["origin"], row["license"])
