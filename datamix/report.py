"""One self-contained HTML page about a run: plots, tables, nothing fetched from anywhere.

Every text that comes from the run is escaped. The same run gives the same page, except for the seconds of its steps.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from datamix.stats import run_stats
from schemas.errors import DatamixError
from schemas.files import atomic_path

__all__ = ["REPORT_NAME", "write_report"]

REPORT_NAME = "report.html"

_STYLE = """
:root { color-scheme: light; --ink: #1f2933; --soft: #616e7c; --line: #e4e7eb; --back: #f7f8fa; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 0; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0 0 8px; }
p.sub { color: var(--soft); margin: 0 0 20px; }
section { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 18px 20px; margin: 0 0 18px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; margin: 0 0 18px; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 12px 16px; }
.card b { display: block; font-size: 22px; } .card span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
"""


def write_report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of `run` to `out` (RUN/report.html by default) and return its path.

    Raises DatamixError when plotly is not installed, InputError when `run` is no run folder.
    """
    stats = run_stats(run)
    try:
        from datamix.report_plots import plots
    except ImportError as error:
        raise DatamixError(
            f"the report draws with plotly, which is not installed ({error}). Install it: pip install 'datamix[report]'"
        ) from None
    drawn = plots(Path(run), stats)
    target = Path(run) / REPORT_NAME if out is None else Path(out)
    with atomic_path(target) as temporary:
        temporary.write_text(_page(stats, drawn), encoding="utf-8")
    return target


def _page(stats: dict[str, Any], drawn: Sequence[tuple[str, str]]) -> str:
    """The whole page. `drawn` are (title, HTML of one plot)."""
    title = html.escape(f"datamix run: {stats['recipe']}")
    done = sum(step["done"] for step in stats["steps"].values())
    sections = [f"<section><h2>{html.escape(name)}</h2>{plot}</section>" for name, plot in drawn]
    sections += [
        f'<section><h2>{html.escape(name)}</h2><div class="scroll">{t}</div></section>' for name, t in _tables(stats)
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f'<body><main><h1>{title}</h1><p class="sub">{html.escape(stats["run"])} · {done} of {len(stats["steps"])} '
        f"steps done · recipe digest {html.escape(stats['digest'][:12])}</p>"
        f'<div class="cards">{_cards(stats)}</div>{"".join(sections)}</main></body></html>\n'
    )


def _cards(stats: dict[str, Any]) -> str:
    """The handful of figures that a reader looks for first."""
    cards: list[tuple[str, str]] = []
    if "documents" in stats:
        cards.append((f"{stats['documents']['read']:,}", "documents read"))
        cards.append((f"{stats['documents']['kept']:,}", "documents kept"))
        cards.append((f"{stats['mixture']['tokens']:,}", "tokens in the mixture"))
    if stats["stages"]:
        sft = [stage for stage in stats["stages"] if stage["phase"] == "sft"]
        cards.append((f"{sum(stage['trained_tokens'] for stage in sft):,}", "trained SFT tokens"))
        cards.append((f"{max(stage['longest_segment'] for stage in stats['stages']):,}", "longest segment, tokens"))
    if "training" in stats:
        cards.append((f"{stats['training']['parameters']:,}", "parameters"))
    return "".join(
        f'<div class="card"><b>{html.escape(value)}</b><span>{html.escape(what)}</span></div>' for value, what in cards
    )


def _tables(stats: dict[str, Any]) -> Iterable[tuple[str, str]]:
    if "documents" in stats:
        drops = [
            (step, reason, f"{count:,}")
            for step, reasons in stats["documents"]["dropped"].items()
            for reason, count in reasons.items()
        ]
        yield "Dropped documents by reason", _table(["step", "reason", "documents"], drops)
    if stats["stages"]:
        rows = [
            (
                stage["name"],
                *(f"{stage[key]:,}" for key in ("context_tokens", "rows", "segments", "tokens", "trained_tokens")),
                "" if stage["fill"] is None else f"{stage['fill']:.2%}",
                f"{stage['longest_segment']:,}",
            )
            for stage in stats["stages"]
        ]
        columns = ["stage", "context", "rows", "segments", "tokens", "trained tokens", "fill", "longest segment"]
        yield "Stages", _table(columns, rows)
    steps = [
        (name, "yes" if step["done"] else "no", "" if step["seconds"] is None else f"{step['seconds']:.1f}")
        for name, step in stats["steps"].items()
    ]
    yield "Steps", _table(["step", "done", "seconds"], steps)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
