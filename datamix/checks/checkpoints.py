"""Checkpoints against their own state.json, which names their files: reading them needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datamix.checks.result import CheckResult
from schemas.files import digest_of, read_json, sha256_file

__all__ = ["CHECKPOINT_STATE", "check_checkpoint", "check_resumable"]

CHECKPOINT_STATE = "state.json"


def check_resumable(run: Path, result: CheckResult) -> None:
    """The checkpoints that training goes on from: they depend on where it was stopped, so no manifest names them."""
    for folder in sorted((run / "train" / "checkpoints").glob("step-*")):
        check_checkpoint(folder, f"{folder.relative_to(run).as_posix()}/", result)


def check_checkpoint(folder: Path, prefix: str, result: CheckResult) -> dict[str, Any]:
    """Compare the files of one checkpoint with its state; returns {"step", "files"}, or {} when that is unreadable.

    `prefix` is how faults name `folder`.
    """
    try:
        state = read_json(folder / CHECKPOINT_STATE)
        files: dict[str, str] = dict(state["files"])
        step = int(state["step"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        result.fault(f"{prefix}{CHECKPOINT_STATE}", f"cannot be read as the state of a checkpoint ({error!r})")
        return {}
    if state.pop("digest", "") not in ("", digest_of(state)):
        result.fault(f"{prefix}{CHECKPOINT_STATE}", "its content differs from the digest in it")
    for name, digest in sorted(files.items()):
        if not (folder / name).is_file():
            result.fault(f"{prefix}{name}", "is missing")
        elif sha256_file(folder / name) != digest:
            result.fault(f"{prefix}{name}", f"its bytes differ from the SHA-256 in {CHECKPOINT_STATE}")
    if not (folder / "config.json").is_file():
        result.fault(f"{prefix}config.json", "is missing")
    return {"step": step, "files": len(files)}
