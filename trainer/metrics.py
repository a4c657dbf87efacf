"""What training writes about itself: metrics.jsonl (the same bytes for the same run), timing.jsonl, TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from schemas.errors import CheckError, DatamixError
from schemas.files import atomic_path

__all__ = ["MetricsLog", "read_metrics", "stage_line", "stage_totals"]

_SUMS = (
    "rows",
    "segments",
    "tokens",
    "trained_tokens",
    "rows_without_target",
    "left_out_segments",
    "left_out_tokens",
    "left_out_trained_tokens",
)


class MetricsLog:
    """Appends one JSON line a step to `folder`/metrics.jsonl and the time it took to timing.jsonl.

    Opened with `keep_bytes`, the length that the checkpoint of a resume recorded: later lines are cut away, from
    timing.jsonl those of `first_step` and later, so that no step is in either file twice.
    TensorBoard files go to `folder`/tensorboard where the tensorboard package is installed.
    """

    def __init__(self, folder: Path, keep_bytes: int, first_step: int) -> None:
        """Raises CheckError when metrics.jsonl is shorter than `keep_bytes`: it is not the file of that checkpoint."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "metrics.jsonl"
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < keep_bytes:
            raise CheckError(
                f"{self.path}: {size} bytes, the checkpoint was saved at {keep_bytes}. "
                f"Restore the file or delete {folder} to train from the start"
            )
        with self._told():
            self._file = open(self.path, "ab")  # noqa: SIM115  (lives as long as the training)
            self._file.truncate(keep_bytes)
            _cut_timing(folder / "timing.jsonl", first_step)
            self._timing = open(folder / "timing.jsonl", "a", encoding="utf-8")  # noqa: SIM115
        self._board = _tensorboard(folder / "tensorboard", first_step)

    def write(self, line: dict[str, Any], seconds: float) -> None:
        """Append the line of one step; `seconds` is its wall time. Raises DatamixError when the disk refuses."""
        speed = line["tokens"] / seconds if seconds > 0 else None
        timing = {"step": line["step"], "seconds": seconds, "tokens_per_second": speed}
        with self._told():
            self._file.write(json.dumps(line).encode("utf-8") + b"\n")
            self._timing.write(json.dumps(timing) + "\n")
        if self._board is not None:
            for name in ("loss", "grad_norm", "learning_rate", "trained_tokens"):
                if line[name] is not None:
                    self._board.add_scalar(f"{line['phase']}/{name}", line[name], line["step"])

    def sync(self) -> int:
        """Make every line durable; returns the length of metrics.jsonl. Raises DatamixError when the disk refuses."""
        with self._told():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._timing.flush()
            return self._file.tell()

    def close(self) -> None:
        """Flush and close everything. Raises DatamixError when the disk refuses."""
        with self._told(), ExitStack() as stack:
            for part in (self._board, self._timing, self._file):
                if part is not None:
                    stack.callback(part.close)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DatamixError(
                f"{self.path}: could not be written ({error}). "
                "Mend that and run again: training goes on from the last whole checkpoint"
            ) from error


def _cut_timing(path: Path, first_step: int) -> None:
    """Keep the lines of steps before `first_step`; one that a kill cut in two goes."""
    if not path.exists():
        return
    kept: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError, KeyError):
            if json.loads(line)["step"] < first_step:
                kept.append(f"{line}\n")
    with atomic_path(path) as temporary:
        temporary.write_text("".join(kept), encoding="utf-8")


def _tensorboard(folder: Path, first_step: int) -> Any:
    """A SummaryWriter that forgets steps from `first_step` on, or None when tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=first_step)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of metrics.jsonl, in step order. Raises CheckError for a line that training did not write."""
    found: list[dict[str, Any]] = []
    with open(path, "rb") as lines:
        for number, raw in enumerate(lines, 1):
            try:
                line = json.loads(raw)
                if line["step"] != number - 1:
                    raise ValueError(f"step {line['step']}, expected {number - 1}")
            except (ValueError, TypeError, KeyError) as error:
                raise CheckError(
                    f"{path}:{number}: not a line of this training ({error}). "
                    f"Restore the file or delete {path.parent} to train from the start"
                ) from None
            found.append(line)
    return found


def stage_totals(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One dict for each stage, in training order: sums over its steps, first and last loss, steps without a target."""
    stages: dict[str, dict[str, Any]] = {}
    for line in lines:
        fresh = {"stage": line["stage"], "phase": line["phase"], "steps": 0, "steps_without_target": 0}
        totals = stages.setdefault(line["stage"], {**fresh, **dict.fromkeys(_SUMS, 0)})
        totals["steps"] += 1
        for name in _SUMS:
            totals[name] += line[name]
        if line["loss"] is None:
            totals["steps_without_target"] += 1
        else:
            totals.setdefault("first_loss", line["loss"])
            totals["last_loss"] = line["loss"]
    return list(stages.values())


def stage_line(totals: dict[str, Any], max_segment_tokens: int | None) -> str:
    """What `stage_totals` gives of one stage, as a line for people."""
    line = (
        f"{totals['stage']}: {totals['steps']} steps, {totals['rows']} rows, {totals['tokens']:,} tokens, "
        f"{totals['trained_tokens']:,} trained"
    )
    if "first_loss" in totals:
        line += f", loss {totals['first_loss']:.3f}"
        line += f" → {totals['last_loss']:.3f}" if totals["steps"] > 1 else " in its one step"
    if totals["left_out_segments"]:
        line += (
            f"; left out {totals['left_out_segments']} segments above train.max_segment_tokens "
            f"{max_segment_tokens}: {totals['left_out_tokens']:,} tokens, {totals['left_out_trained_tokens']:,} trained"
        )
    if totals["rows_without_target"]:
        line += f"; {totals['rows_without_target']} rows had nothing to train"
    if not totals["trained_tokens"]:
        line += "; NOTHING of this stage was trained"
    return line
