"""From a path, folder or pattern in a recipe to the files that it means, in an order that is the same everywhere."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import UsageError
from schemas.recipe import SourceConfig

__all__ = ["SourceFile", "find_files"]

SUFFIXES = {
    "jsonl": (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst"),
    "parquet": (".parquet",),
}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to open, and its name relative to what the recipe gave: the part of an origin that travels."""

    path: str
    relative: str


def find_files(config: SourceConfig) -> list[SourceFile]:
    """The files of a jsonl or parquet source, sorted by relative name.

    A file or a pattern is taken at its word; in a folder every file below it with a known suffix is taken, hidden
    ones not. Raises UsageError (exit code 2) when nothing is there.
    """
    given = config.path or ""
    if "://" in given:
        raise UsageError(
            f"source '{config.name}': path {given!r} is not on this machine. A run reads files of this machine or of a "
            "shared folder; corpora in buckets are for: python -m pipelines.beam --input … (docs/beam.md)"
        )
    place = Path(given).expanduser()
    if place.is_file():
        return [SourceFile(str(place), place.name)]
    if place.is_dir():
        suffixes = SUFFIXES[config.kind]
        found = [p for p in place.rglob("*") if p.name.endswith(suffixes) and not _hidden(p.relative_to(place))]
        base, what = place, f"the folder has no file named *{', *'.join(suffixes)}"
    elif glob.has_magic(given):
        base = _base(place)
        found = [Path(p) for p in glob.glob(str(place), recursive=True)]  # noqa: PTH207  (Path.glob refuses '**.x')
        what = f"no file matches (looked from {base if base.is_dir() else f'{base}, which does not exist'})"
    else:
        base, found, what = place, [], "no such file or folder"
    files = sorted({p.relative_to(base).as_posix(): p for p in found if p.is_file()}.items())
    if not files:
        raise UsageError(
            f"source '{config.name}': path {given!r}: {what}. Give a file, a folder or a pattern such as "
            f"data/*{SUFFIXES[config.kind][0]}; relative paths start at {Path.cwd().name or '/'}/, the current folder"
        )
    return [SourceFile(str(path), relative) for relative, path in files]


def _base(pattern: Path) -> Path:
    """The folder before the first part of a pattern that has a wildcard."""
    plain: list[str] = []
    for part in pattern.parts:
        if glob.has_magic(part):
            break
        plain.append(part)
    return Path(*plain)


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)
