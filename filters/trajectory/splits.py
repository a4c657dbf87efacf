"""Cutting trajectories: at loops that lead nowhere (R6) and where the model's context was compacted (R15).

A cut never parts a call from its result. What comes out has its own id (the parent's id and the piece's number,
hashed) and a note that names the parent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import xxhash

from filters.trajectory.detectors import Detected, Finding
from filters.trajectory.judge import judge
from schemas.trajectory import Message, Trajectory

__all__ = ["Cut", "LoopVerdict", "cut_loop", "piece_id", "split_compactions"]


class Cut(Enum):
    """What is done about loops: mask the turns that add nothing, cut before the first of them, or drop the run."""

    MASK = "mask"
    CUT = "cut"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class LoopVerdict:
    """`trajectory` is what is left after a cut."""

    kind: Cut
    signal: str = ""
    trajectory: Trajectory | None = None


def piece_id(parent: str, number: int) -> str:
    """Id of piece `number` of a trajectory: 128-bit xxh3 of both, as 32 hex digits."""
    return str(xxhash.xxh3_128_hexdigest(f"{parent}#{number}".encode()))


def cut_loop(trajectory: Trajectory, detected: Detected, *, drop_third_call: bool) -> LoopVerdict:
    """What to do about the last loop that nothing follows.

    A loop is left when a later turn makes another call that works: then its repeats are masked (MASK). Otherwise the
    run is cut before the loop's first repeat, or dropped if the loop is a third equal call after two equal replies
    (`drop_third_call`; four equal pairs hold one too) or nothing would be left to train before it.
    """
    stuck = next((loop for loop in detected.loops if not _left(detected, loop.last, loop.first)), None)
    if stuck is None:
        return LoopVerdict(Cut.MASK)
    if drop_third_call and stuck.signal in ("third_call", "equal_pairs"):
        return LoopVerdict(Cut.DROP, stuck.signal)
    end = stuck.repeats[0]
    notes = [*trajectory.notes, f"cut before message {end}: {stuck.signal}"]
    flags = [*trajectory.flags, f"cut:R6:{stuck.signal}"]
    shorter = replace(
        trajectory, id=piece_id(trajectory.id, 0), messages=trajectory.messages[:end], notes=notes, flags=flags
    )
    return LoopVerdict(Cut.CUT, stuck.signal, shorter)


def _left(detected: Detected, last: int, first: int) -> bool:
    """Whether a call that differs from the loop's works after message `last`."""
    view = detected.view
    looped = {step.key for step in view.steps if first <= step.message <= last}
    return any(
        step.message > last and step.key not in looped and judge(view, step).kind in ("ok", "negative")
        for step in view.steps
    )


def split_compactions(trajectory: Trajectory, places: list[Finding]) -> list[Trajectory]:
    """One trajectory for each stretch of context that the model really saw.

    A stretch after a compaction is: the leading system messages, the messages that the compaction kept (signal
    "kept=N": the N before it; their assistant turns get the author "copied", so they are not trained twice),
    the summary, and what follows up to the next compaction. Returns the trajectory itself when nothing precedes
    the first compaction but system messages or no place is given.
    """
    messages = trajectory.messages
    leading = 0
    while leading < len(messages) and messages[leading].role == "system" and not _is_place(leading, places):
        leading += 1
    indices = [f.message for f in places if f.message is not None]
    cuts = [index for index in indices if any(m.role == "assistant" and not m.author for m in messages[leading:index])]
    if not cuts:
        return [trajectory]
    pieces = [messages[: cuts[0]]]
    for number, start in enumerate(cuts):
        end = cuts[number + 1] if number + 1 < len(cuts) else len(messages)
        kept = [_copied(message) for message in messages[max(leading, start - _kept(messages[start])) : start]]
        while kept and kept[0].role == "tool":
            kept.pop(0)
        pieces.append([*messages[:leading], *kept, *messages[start:end]])
    return [
        replace(
            trajectory,
            id=piece_id(trajectory.id, number),
            messages=piece,
            notes=[*trajectory.notes, f"part {number + 1} of {len(pieces)} of {trajectory.id}, split at compactions"],
            flags=[*trajectory.flags, "split:R15"],
        )
        for number, piece in enumerate(pieces)
    ]


def _is_place(index: int, places: list[Finding]) -> bool:
    return any(finding.message == index for finding in places)


def _kept(message: Message) -> int:
    name, _, value = (message.signal or "").partition("=")
    return int(value) if name == "kept" and value.isdigit() else 0


def _copied(message: Message) -> Message:
    return replace(message, author=message.author or "copied") if message.role == "assistant" else message
