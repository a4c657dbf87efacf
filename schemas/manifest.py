"""Manifest: what one finished step of a run read, wrote and counted.

A step is done when `RUN/manifests/STEP.json` exists and its key equals the key computed from the recipe and the
manifests upstream; the presence of output files says nothing. Paths are relative to the run folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from schemas.files import digest_of, read_json, sha256_file, write_json

__all__ = ["FileEntry", "Manifest", "describe_files", "manifest_path", "read_manifest", "write_manifest"]


@dataclass(slots=True)
class FileEntry:
    """One output file and its SHA-256."""

    path: str
    sha256: str
    bytes: int


@dataclass(slots=True)
class Manifest:
    """One finished step.

    `counts` holds what `datamix check` recounts. For a step that judges documents:
    {"documents_in": n, "kept": n, "dropped": {reason: n}}.
    """

    step: str
    key: str
    files: list[FileEntry]
    counts: dict[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """Changes when any output byte or count does."""
        return digest_of(asdict(self))


def manifest_path(run: str | Path, step: str) -> Path:
    """Where the manifest of `step` lies."""
    return Path(run) / "manifests" / f"{step}.json"


def describe_files(run: str | Path, paths: list[Path]) -> list[FileEntry]:
    """Entries of output files (sorted by path); reads every byte once."""
    root = Path(run)
    return [
        FileEntry(path=p.relative_to(root).as_posix(), sha256=sha256_file(p), bytes=p.stat().st_size)
        for p in sorted(paths)
    ]


def write_manifest(run: str | Path, manifest: Manifest) -> None:
    """Write the manifest atomically: from here on the step counts as done."""
    write_json(manifest_path(run, manifest.step), asdict(manifest))


def read_manifest(run: str | Path, step: str) -> Manifest | None:
    """The manifest of `step`, or None when the step was not finished or its manifest is damaged: it is done again."""
    try:
        raw = read_json(manifest_path(run, step))
        return Manifest(raw["step"], raw["key"], [FileEntry(**f) for f in raw["files"]], raw.get("counts", {}))
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
