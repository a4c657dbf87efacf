"""What a run reads from outside its folder, as a digest: a changed input file means that the steps after it run again.

The digest depends on paths and bytes, never on modification times. Files are hashed once per content: the result is
remembered in RUN/inputs.json under (size, modification time), which only decides whether to hash again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pipelines.corpus.read.paths import find_files
from pipelines.corpus.read.python_environment import choose_packages
from schemas.errors import UsageError
from schemas.files import canonical_json, digest_of, read_json, sha256_file, write_json
from schemas.progress import Progress
from schemas.recipe import Recipe, SourceConfig

__all__ = ["InputDigests", "expand_path", "step_inputs"]

CACHE_NAME = "inputs.json"
_PATTERN_CHARACTERS = "*?["


def expand_path(pattern: str) -> list[Path]:
    """The files that a file, folder or pattern (`data/**/*.jsonl`) of a recipe names, sorted by path.

    Hidden files are left out of folders and patterns. Raises UsageError when nothing matches.
    """
    path = Path(pattern).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [p for p in path.rglob("*") if p.is_file()]
    elif any(character in pattern for character in _PATTERN_CHARACTERS):
        anchor = Path(path.anchor) if path.is_absolute() else Path()
        found = [p for p in anchor.glob(str(path.relative_to(anchor))) if p.is_file()]
    else:
        raise UsageError(f"{pattern}: no such file or folder. Mend the path in the recipe, or with --set")
    found = [p for p in found if not p.name.startswith(".")]
    if not found:
        raise UsageError(f"{pattern}: no file matches. Mend the path in the recipe, or with --set")
    return sorted(found)


def step_inputs(step: str, recipe: Recipe) -> list[tuple[str, Path]]:
    """Files outside the run that `step` reads, as (name, path): the name enters the step's key.

    Raises UsageError for a path of the recipe that names no file.
    """
    if step == "read":
        sources = [source for source in recipe.sources if source.path is not None]
        return [(f"{s.name}/{file.relative}", Path(file.path)) for s in sources for file in find_files(s)]
    return [(path.as_posix(), path) for pattern in _patterns(step, recipe) for path in expand_path(pattern)]


def _patterns(step: str, recipe: Recipe) -> list[str]:
    """Paths that the recipe gives to a step other than read."""
    if step == "quality":
        return [] if recipe.quality.language is None else [recipe.quality.language.model]
    if step == "dedup":
        return [] if recipe.dedup.against is None else [recipe.dedup.against]
    if step == "classify":
        return [] if recipe.classify.model == "train" else [recipe.classify.model]
    if step in ("decontaminate", "masks"):
        return list(recipe.decontaminate.benchmarks)
    if step == "synthesize":
        return [recorded.path for recorded in recipe.trajectories.recorded]
    if step == "tokenizer":
        return [] if recipe.tokenizer.path is None else [recipe.tokenizer.path]
    return []


class InputDigests:
    """SHA-256 of input files, remembered between invocations of one run."""

    def __init__(self, run: Path, progress: Progress) -> None:
        self._cache_file = run / CACHE_NAME
        self._progress = progress
        self._cache = self._load()

    def _load(self) -> dict[str, list[Any]]:
        try:
            loaded = read_json(self._cache_file)
        except (FileNotFoundError, ValueError):  # a cache: absent or damaged means hash again
            return {}
        return loaded if isinstance(loaded, dict) else {}

    def listing(self, step: str, recipe: Recipe) -> list[Any]:
        """A JSON-able description of everything that `step` reads from outside: it enters the step's key.

        Raises UsageError for a path that names no file. Cost: one read of each new or changed file.
        """
        described: list[Any] = []
        files = step_inputs(step, recipe)
        with self._progress.task(f"{step}: hashing its inputs", len(files)) as advance:
            for name, path in files:
                described.append([name, *self._file(path)])
                advance(1)
        if step == "read":
            described += [_environment(source) for source in recipe.sources if source.kind == "python-environment"]
        self._save()
        return described

    def _file(self, file: Path) -> tuple[int, str]:
        state = file.stat()
        known = self._cache.get(file.as_posix())
        if known and known[:2] == [state.st_size, state.st_mtime_ns]:
            return state.st_size, str(known[2])
        digest = sha256_file(file)
        self._cache[file.as_posix()] = [state.st_size, state.st_mtime_ns, digest]
        return state.st_size, digest

    def _save(self) -> None:
        if self._cache and canonical_json(self._load()) != canonical_json(self._cache):
            write_json(self._cache_file, self._cache)


def _environment(source: SourceConfig) -> list[Any]:
    """The Python and the packages that a python-environment source reads: versions, file names, descriptions.

    Installed files of one version are taken to be the same bytes.
    """
    chosen = choose_packages(source)
    return [source.name, sys.version, [[p.label, digest_of([list(p.files), p.description])] for p in chosen]]
