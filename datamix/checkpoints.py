"""Which checkpoint a user means, and which run it belongs to."""

from __future__ import annotations

from pathlib import Path

from schemas.errors import InputError

__all__ = ["find_checkpoint", "run_of_checkpoint"]


def find_checkpoint(place: str | Path) -> Path:
    """The checkpoint folder at `place`: the folder itself, or train/checkpoints/final of a run.

    Raises InputError when neither holds a config.json.
    """
    path = Path(place)
    for folder in (path, path / "train" / "checkpoints" / "final"):
        if (folder / "config.json").is_file():
            return folder
    if (path / "run.json").is_file() or (path / "shards").is_dir():
        there = sorted(found.parent.name for found in path.glob("train/checkpoints/*/config.json"))
        named = f", or give one of train/checkpoints/: {', '.join(there)}" if there else ""
        problem, todo = "no final checkpoint in this run", f"Train it to its end{named}"
    else:
        problem, todo = "no checkpoint (no config.json)", "Give a checkpoint's folder, or a run that is trained"
    raise InputError(problem, path=str(path), todo=todo)


def run_of_checkpoint(checkpoint: Path) -> Path | None:
    """The run folder that `checkpoint` lies in (RUN/train/checkpoints/NAME), or None for one that lies elsewhere."""
    folder = checkpoint.resolve()
    inside = folder.parent.name == "checkpoints" and folder.parent.parent.name == "train"
    return folder.parents[2] if inside and (folder.parents[2] / "shards").is_dir() else None
