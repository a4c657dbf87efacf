"""Plain files as the sources of a recipe: what the standalone steps read, and the run in which they read it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.context import RunContext
from pipelines.corpus.plain import plain_files
from pipelines.engine import Engine
from schemas.errors import InputError, UsageError
from schemas.progress import Progress
from schemas.recipe import Recipe

__all__ = ["PARTITIONS", "Inputs", "context_of"]

PARTITIONS = 8
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


def context_of(inputs: Inputs, run: Path, engine: Engine, progress: Progress, parts: dict[str, Any]) -> RunContext:
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
    """One source for every input (two for a folder with files of both kinds), in the order of their paths."""
    sources: list[dict[str, Any]] = []
    names: set[str] = set()
    for given in sorted(inputs.paths):  # names go into ids, so the order of the command line must not count
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
