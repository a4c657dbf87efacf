"""Pools: what a family's tasks draw from, where it lies and who builds it.

A family says so itself by its class attribute `pool`:

    None         nothing: its material is made by the program
    "code"       pool.jsonl: modules of permissively licensed code that run alone (pool.py)
    "documents"  search/: an index over the kept documents (search_pool.py)

Both lie in the folder `trajectories` of a run, and are built once for all families that need them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines.context import RunContext
from pipelines.synthesis.environments.base import environment_class

__all__ = ["POOLS", "build_pools", "pool_place"]

POOLS = {
    "code": ("pool.jsonl", "pipelines.synthesis.pool:build_pool"),
    "documents": ("search", "pipelines.synthesis.search_pool:build_search_pool"),
}
"""Kind of pool: its name in the folder, and the function (context, place) that builds it and returns its counts."""


def pool_place(folder: Path, family: str) -> Path | None:
    """Where the pool of a family lies in a folder `trajectories`; None for a family that draws from nothing."""
    kind = environment_class(family).pool
    return None if kind is None else folder / POOLS[kind][0]


def build_pools(context: RunContext, folder: Path, families: Iterable[str]) -> tuple[list[Path], dict[str, Any]]:
    """Build every pool that one of the families needs: its files, and its counts as `pool` (code) or `pool_documents`.

    Nothing is built for families without a pool. Cost: see the builders.
    """
    kinds = sorted({kind for family in families if (kind := environment_class(family).pool) is not None})
    files: list[Path] = []
    counts: dict[str, Any] = {}
    for kind in kinds:
        name, builder = POOLS[kind]
        module, _, attribute = builder.partition(":")
        place = folder / name
        built = getattr(importlib.import_module(module), attribute)(context, place)
        counts["pool" if kind == "code" else f"pool_{kind}"] = built
        files += sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    return files, counts
