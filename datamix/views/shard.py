"""A shard row for people: decoded text with trained tokens in one colour and masked ones by their reason.

Text from data is shown, never obeyed: control characters are escaped in a terminal, everything is in HTML.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from datamix.provenance import find_run
from pipelines.curriculum.inspect import Row, Span, read_row, row_spans
from pipelines.synthesis.tokens import load_tokenizer
from schemas.errors import UsageError
from schemas.files import atomic_path

__all__ = ["print_row", "row_to_json", "shard_row", "style_of", "visible", "write_row_html"]

# reason: (terminal style, HTML colour, what it means); any other reason is a mask reason of a turn
STYLES = {
    "trained": ("bold green", "#12823b", "predicted and trained on"),
    "header": ("dim", "#8a94a0", "turn headers and line ends, never trained"),
    "segment_start": ("dim", "#8a94a0", "first token of a segment, which nothing precedes"),
    "system": ("blue", "#1d5fbf", "system text and tool list, context only"),
    "user": ("cyan", "#0b7d8c", "user text, context only"),
    "tool": ("yellow", "#9a6b00", "tool results, context only"),
}
MASKED = ("red", "#c0262d", "a turn that is kept in context and not trained")


def shard_row(path: Path, row: int, segment: int | None = None) -> tuple[Row, list[Span]]:
    """The row, and its decoded runs (of one segment, if `segment` is given).

    Raises UsageError for a row or segment that is not there, InputError for what is no shard of a run.
    """
    found = read_row(path, row)
    if segment is not None:
        if not 0 <= segment < len(found.segments):
            raise UsageError(f"{path}:{row} has no segment {segment}: its segments are 0 to {len(found.segments) - 1}")
        found = Row(found.ids, found.mask, [found.segments[segment]])
    return found, row_spans(found, load_tokenizer(find_run(path) / "tokenizer"))


def style_of(reason: str) -> tuple[str, str, str]:
    """Terminal style, HTML colour and meaning of a reason."""
    return STYLES.get(reason, MASKED)


def visible(text: str) -> str:
    """Text in which no character can steer a terminal: C0 and C1 controls and direction marks become escapes."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def row_to_json(path: Path, number: int, row: Row, spans: Sequence[Span]) -> dict[str, Any]:
    """For --json: segments with their runs."""
    by_segment: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        run = {"start": span.start, "tokens": span.tokens, "reason": span.reason, "text": span.text}
        by_segment.setdefault(span.segment_id, []).append(run)
    return {
        "shard": str(path),
        "row": number,
        "tokens": sum(segment.length for segment in row.segments),
        "trained_tokens": sum(span.tokens for span in spans if span.reason == "trained"),
        "segments": [
            {
                "id": segment.segment_id,
                "start": segment.start,
                "tokens": segment.length,
                "runs": by_segment.get(segment.segment_id, []),
            }
            for segment in row.segments
        ],
    }


def print_row(title: str, spans: Sequence[Span], console: Console, limit: int | None) -> None:
    """Print legend and text; after `limit` tokens (None: all) only say how many are left.

    Off a terminal colours are lost, so every run then begins with its reason in brackets.
    """
    _print_legend(title, spans, console)
    shown = 0
    segment: str | None = None
    for span in spans:
        if limit is not None and shown >= limit:
            break
        if span.segment_id != segment:
            segment = span.segment_id
            console.print(Text(f"\n--- segment {segment}, token {span.start}", style="magenta"))
        if console.is_terminal:
            console.print(Text(visible(span.text), style=style_of(span.reason)[0]), end="")
        else:
            console.print(Text(f"[{span.reason}] {visible(span.text)}"))
        shown += span.tokens
    total = sum(span.tokens for span in spans)
    console.print()
    if shown < total:
        console.print(Text(f"... {total - shown:,} more tokens: --tokens 0 shows all, --html FILE writes a page"))


def _print_legend(title: str, spans: Sequence[Span], console: Console) -> None:
    console.print(Text(title, style="bold"))
    total = sum(span.tokens for span in spans)
    counts = _by_reason(spans)
    width = max((len(reason) for reason, _ in counts), default=0)
    for reason, tokens in counts:
        style, _, meaning = style_of(reason)
        console.print(
            Text.assemble((f"  {reason:<{width}}", style), f"{tokens:>10,} tokens {tokens / total:>7.1%}  {meaning}")
        )


def _by_reason(spans: Sequence[Span]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for span in spans:
        counts[span.reason] = counts.get(span.reason, 0) + span.tokens
    order = {reason: number for number, reason in enumerate(STYLES)}
    return sorted(counts.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))


_PAGE_STYLE = """
body { font: 14px/1.5 ui-monospace, monospace; margin: 0 auto; max-width: 1100px; padding: 20px; color: #1f2933; }
h1 { font: 600 20px system-ui, sans-serif; } h2 { font: 600 14px system-ui, sans-serif; margin: 28px 0 6px; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; background: #f7f8fa; border: 1px solid #e4e7eb;
  border-radius: 6px; padding: 10px 12px; }
table { border-collapse: collapse; font: 14px system-ui, sans-serif; } td { padding: 2px 14px 2px 0; }
.trained { background: #e3f6e9; } .masked { background: #fde8e8; }
"""


def write_row_html(title: str, spans: Sequence[Span], out: str | Path) -> Path:
    """Write the whole row as one self-contained page, with a title on every run that says its reason."""
    legend = "".join(
        f'<tr><td style="color:{style_of(reason)[1]}">{html.escape(reason)}</td><td>{tokens:,}</td>'
        f"<td>{html.escape(style_of(reason)[2])}</td></tr>"
        for reason, tokens in _by_reason(spans)
    )
    parts: list[str] = []
    segment: str | None = None
    for span in spans:
        if span.segment_id != segment:
            parts.append(("</div>" if segment is not None else "") + f"<h2>segment {html.escape(span.segment_id)}</h2>")
            parts.append('<div class="text">')
            segment = span.segment_id
        kind = "trained" if span.reason == "trained" else "" if span.reason in STYLES else "masked"
        where = html.escape(f"{span.reason}: tokens {span.start} to {span.start + span.tokens - 1}", quote=True)
        parts.append(
            f'<span class="{kind}" style="color:{style_of(span.reason)[1]}" title="{where}">'
            f"{html.escape(visible(span.text))}</span>"
        )
    parts.append("</div>" if segment is not None else "")
    target = Path(out)
    with atomic_path(target) as temporary:
        temporary.write_text(
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
            f"<style>{_PAGE_STYLE}</style></head><body><h1>{html.escape(title)}</h1><table>{legend}</table>"
            f"{''.join(parts)}</body></html>\n",
            encoding="utf-8",
        )
    return target
