"""A trajectory for people: every turn with T (trained), M (masked) or - (context), the rule and the signal.

Text from data is shown, never obeyed: control characters are escaped in a terminal, everything is in HTML.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from datamix.views.shard import visible
from schemas.errors import InputError, UsageError
from schemas.files import atomic_path
from schemas.trajectory import Message, Trajectory

__all__ = [
    "Turn",
    "print_trajectory",
    "read_trajectory",
    "trajectory_html",
    "trajectory_lines",
    "trajectory_to_json",
    "turns_of",
    "write_trajectory_html",
]

Mark = Literal["T", "M", "-", "?"]

# mark: (terminal style, CSS class, meaning)
MARKS: dict[str, tuple[str, str, str]] = {
    "T": ("bold green", "trained", "predicted and trained on"),
    "M": ("red", "masked", "kept in context and not trained"),
    "-": ("cyan", "context", "context, never trained"),
    "?": ("magenta", "undecided", "an assistant turn that no policy has decided about"),
}
DEFAULT_CHARACTERS = 1200  # of one turn on a screen: an observation can hold a million


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as it is shown. `why` joins mask reasons, author and label; `signal` is the source's own."""

    index: int
    role: str
    mark: Mark
    why: str
    signal: str
    name: str
    text: str
    characters: int


def turns_of(trajectory: Trajectory) -> list[Turn]:
    """Every message with its mark, in order."""
    return [_turn(index, message) for index, message in enumerate(trajectory.messages)]


def _turn(index: int, message: Message) -> Turn:
    why = [*message.mask_reasons]
    if message.author:
        why.append(f"author={message.author}")
    if message.label:
        why.append(f"label={message.label}")
    if message.weight is not None and message.train:
        why.append(f"weight={message.weight:g}")
    if message.stop:
        why.append(f"stop={message.stop}")
    signal = message.signal or ("error" if message.error else "")
    text = _text(message)
    return Turn(index, message.role, _mark(message), " ".join(why), signal, message.name or "", text, len(text))


def _mark(message: Message) -> Mark:
    if message.role != "assistant":
        return "-"
    if message.train is None:
        return "?"
    return "T" if message.train else "M"


def _text(message: Message) -> str:
    parts = []
    if message.reasoning is not None:
        parts.append(f"<think>\n{message.reasoning}\n</think>")
    if message.content:
        parts.append(message.content)
    parts.extend(f"→ {call.name}({call.arguments})" for call in message.tool_calls)
    return "\n".join(parts)


def _heading(turn: Turn) -> str:
    extras = [part for part in (turn.name, turn.why, turn.signal and f"signal={turn.signal}") if part]
    return f"{turn.index:>4} {turn.mark} {turn.role:<9} {'  '.join(extras)}".rstrip()


def _facts(trajectory: Trajectory) -> list[tuple[str, str]]:
    outcome = trajectory.outcome
    word = {True: "success", False: "failure", None: "unknown"}[outcome.success]
    reward = "" if outcome.reward is None else f", reward {outcome.reward:g}"
    verified = f", by {outcome.verified_by}" if outcome.verified_by else ""
    turns = turns_of(trajectory)
    counts = {mark: sum(turn.mark == mark for turn in turns) for mark in MARKS}
    told = ", ".join(f"{count} {MARKS[mark][1]}" for mark, count in counts.items() if count)
    rows = [
        ("id", trajectory.id),
        ("source", f"{trajectory.source}, {trajectory.family}"),
        ("origin", trajectory.origin or ""),
        ("task", trajectory.task.id or ""),
        ("outcome", f"{word}{reward}{verified}"),
        ("turns", told),
        ("flags", ", ".join(trajectory.flags)),
        ("notes", "; ".join(trajectory.notes)),
        ("tools", _tool_names(trajectory.tools)),
    ]
    return [(name, value) for name, value in rows if value]


def _tool_names(tools: str) -> str:
    try:
        listed = json.loads(tools)
    except ValueError:
        return "not JSON"
    names = [
        str(tool.get("function", tool).get("name", "?")) if isinstance(tool, dict) else "?"
        for tool in (listed if isinstance(listed, list) else [listed])
    ]
    return ", ".join(names)


def trajectory_lines(trajectory: Trajectory, characters: int | None = DEFAULT_CHARACTERS) -> list[tuple[str, str]]:
    """(line, terminal style) of the whole trajectory; each turn's text is cut after `characters` (None: whole)."""
    lines = [(f"{name:<8} {visible(value)}", "dim") for name, value in _facts(trajectory)]
    lines.append(("", ""))
    for turn in turns_of(trajectory):
        style = MARKS[turn.mark][0]
        lines.append((visible(_heading(turn)), style))
        for line in _cut(turn.text, characters).split("\n"):
            lines.append((f"       {visible(line)}", style if turn.mark != "-" else ""))
    return lines


def _cut(text: str, characters: int | None) -> str:
    if characters is None or len(text) <= characters:
        return text
    head = characters * 2 // 3
    left_out = len(text) - characters
    return f"{text[:head]}\n… {left_out:,} characters left out …\n{text[len(text) - (characters - head) :]}"


def print_trajectory(trajectory: Trajectory, console: Console, characters: int | None = DEFAULT_CHARACTERS) -> None:
    """Print the lines of `trajectory_lines`; off a terminal the marks say what colours say on one."""
    for line, style in trajectory_lines(trajectory, characters):
        console.print(Text(line, style=style), soft_wrap=True)


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """For --json: facts and turns."""
    return {
        "id": trajectory.id,
        "source": trajectory.source,
        "origin": trajectory.origin,
        "task": asdict(trajectory.task),
        "outcome": asdict(trajectory.outcome),
        "flags": trajectory.flags,
        "notes": trajectory.notes,
        "turns": [asdict(turn) for turn in turns_of(trajectory)],
    }


_PAGE_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1100px; padding: 20px; color: #1f2933; }
h1 { font-size: 20px; } table { border-collapse: collapse; } td { padding: 2px 14px 2px 0; vertical-align: top; }
.turn { border: 1px solid #e4e7eb; border-left-width: 6px; border-radius: 6px; margin: 10px 0; padding: 8px 12px; }
.turn h2 { font: 600 13px ui-monospace, monospace; margin: 0 0 6px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: 13px/1.45 ui-monospace, monospace; }
.trained { border-left-color: #12823b; background: #f1faf4; }
.masked { border-left-color: #c0262d; background: #fdf2f2; }
.context { border-left-color: #0b7d8c; } .undecided { border-left-color: #8a3ab9; background: #f8f2fb; }
details pre { max-height: 60vh; overflow: auto; }
.legend { display: inline-block; padding: 2px 10px; margin: 0 6px 0 0; }
"""
LONG_TURN = 6000  # characters above which a turn is folded in the page


def trajectory_html(*trajectories: Trajectory) -> str:
    """One self-contained page of a trajectory or its pieces: every turn in full, folded when long, all escaped."""
    title = html.escape(f"Trajectory {trajectories[0].task.id or trajectories[0].id}")
    legend = "".join(
        f'<span class="turn legend {kind}">{mark} {html.escape(meaning)}</span>'
        for mark, (_, kind, meaning) in MARKS.items()
    )
    sections = "".join(_section_html(trajectory, piece) for piece, trajectory in enumerate(trajectories))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_PAGE_STYLE}</style></head><body><h1>{title}</h1><p>{legend}</p>{sections}</body></html>\n"
    )


def _section_html(trajectory: Trajectory, piece: int) -> str:
    """Facts and turns of one trajectory; `piece` keeps the anchors of several apart."""
    facts = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(visible(value))}</td></tr>"
        for name, value in _facts(trajectory)
    )
    anchor = f"piece-{piece}-turn" if piece else "turn"
    turns = "".join(_turn_html(turn, anchor) for turn in turns_of(trajectory))
    return f"<table>{facts}</table>{turns}"


def _turn_html(turn: Turn, anchor: str) -> str:
    body = f"<pre>{html.escape(visible(turn.text))}</pre>"
    if turn.characters > LONG_TURN:
        body = f"<details><summary>{turn.characters:,} characters</summary>{body}</details>"
    heading = html.escape(visible(_heading(turn)))
    return f'<div class="turn {MARKS[turn.mark][1]}" id="{anchor}-{turn.index}"><h2>{heading}</h2>{body}</div>'


def write_trajectory_html(trajectory: Trajectory, out: str | Path, *more: Trajectory) -> Path:
    """Write the page of a trajectory (and `more` pieces) atomically; returns its path."""
    target = Path(out)
    with atomic_path(target) as temporary:
        temporary.write_text(trajectory_html(trajectory, *more), encoding="utf-8")
    return target


def read_trajectory(path: str | Path, row: int) -> Trajectory:
    """Row `row` (from 0) of a trajectory file; reads one row group.

    Raises InputError for what is no trajectory file, UsageError for a row that is not there.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    todo = "Give a trajectory file, as `datamix ingest` writes it"
    try:
        table = pq.ParquetFile(path)
    except FileNotFoundError:
        raise InputError("there is no such file", path=str(path), todo="Check the path") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"not a Parquet file ({error})", path=str(path), todo=todo) from None
    with table:
        if "messages" not in table.schema_arrow.names:
            raise InputError("no trajectory file: the column messages is missing", path=str(path), todo=todo)
        left = row
        for group in range(table.metadata.num_row_groups):
            count = table.metadata.row_group(group).num_rows
            if left < count:
                return Trajectory.from_row(_at(table.read_row_group(group), left))
            left -= count
    raise UsageError(f"{path} has {row - left} trajectories, rows 0 to {row - left - 1}: there is no row {row}")


def _at(group: Any, row: int) -> dict[str, Any]:
    rows: Sequence[dict[str, Any]] = group.slice(row, 1).to_pylist()
    return rows[0]
