"""Pools: what a family's tasks draw from, where it lies and who builds it.

A family says so itself by its class attribute `pool`:

    None         nothing: its material is made by the program
    "code"       pool.jsonl: modules of permissively licensed code that run alone (repair.py)
    "documents"  search/: an index over the kept documents (search.py)

Both lie in the folder `trajectories` of a run, and are built once for all families that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pipelines.context import RunContext
from pipelines.synthesis.environments.base import environment_class

__all__ = ["POOL_NAMES", "build_pools", "pool_place"]

POOL_NAMES = {"code": "pool.jsonl", "documents": "search"}
FEWEST_DOCUMENTS, MOST_DOCUMENTS, DOCUMENTS_A_TASK = 300, 1_500, 25  # an index costs: few tasks need a small one
CHARACTERS_A_DOCUMENT = 8_000
Builder = Callable[[RunContext, Path], dict[str, Any]]


def pool_place(folder: Path, family: str) -> Path | None:
    """Where the pool of a family lies in a folder `trajectories`; None for a family that draws from nothing."""
    kind = environment_class(family).pool
    return None if kind is None else folder / POOL_NAMES[kind]


def build_pools(context: RunContext, folder: Path, families: Iterable[str]) -> tuple[list[Path], dict[str, Any]]:
    """Build every pool that one of the families needs: its files, and its counts as `pool` (code) or `search_pool`.

    Nothing is built for families without a pool. Cost: see the builders.
    """
    kinds = sorted({kind for family in families if (kind := environment_class(family).pool) is not None})
    files: list[Path] = []
    counts: dict[str, Any] = {}
    for kind in kinds:
        place = folder / POOL_NAMES[kind]
        name, builder = _BUILDERS[kind]
        counts[name] = builder(context, place)
        files += sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    return files, counts


def _code(context: RunContext, place: Path) -> dict[str, Any]:
    from pipelines.synthesis.pools.repair import build_pool

    return build_pool(context, place)


def _documents(context: RunContext, place: Path) -> dict[str, Any]:
    from pipelines.synthesis.pools.search import build_search_pool

    context.progress.say("synthesize: an index over the documents, for search tasks")
    parts = sorted((context.run / "corpus" / "kept").glob("part-*.parquet"))
    recipe = context.recipe
    drawn = [(config.family, config.n) for config in recipe.trajectories.synthesized]
    drawn.append((recipe.evaluate.family, recipe.evaluate.tasks))
    tasks = sum(n for family, n in drawn if environment_class(family).pool == "documents")
    documents = min(MOST_DOCUMENTS, max(FEWEST_DOCUMENTS, DOCUMENTS_A_TASK * tasks))
    return build_search_pool(parts, place, documents, documents * CHARACTERS_A_DOCUMENT)


_BUILDERS: dict[str, tuple[str, Builder]] = {"code": ("pool", _code), "documents": ("search_pool", _documents)}
