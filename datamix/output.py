"""What commands print with: JSON on stdout, tables on stdout, news on stderr.

JSON is ASCII-escaped where stdout is not UTF-8, so it is valid in any code page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["emit_json", "stdout_console", "table"]

# Columns of a table that goes to a file or pipe: rich would cut at 80
PIPE_WIDTH = 160


def emit_json(value: Any) -> None:
    """Print `value` as one indented JSON document on stdout; NaN and infinities are refused (not JSON)."""
    wide = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=not wide, allow_nan=False) + "\n")


def stdout_console() -> Console:
    """A console on stdout: coloured on a terminal, plain and 160 wide elsewhere."""
    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, width=None if terminal else PIPE_WIDTH, highlight=False, soft_wrap=not terminal)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, text_columns: int = 1) -> Table:
    """A table whose first `text_columns` columns are left-aligned and the rest right-aligned.

    Integers get thousands separators, floats keep what the caller formatted, None is an empty cell. Cell text is
    printed as it is (no markup is read from data).
    """
    built = Table(title=Text(title), title_justify="left", header_style="bold")
    for position, column in enumerate(columns):
        built.add_column(Text(column), justify="left" if position < text_columns else "right", overflow="fold")
    for row in rows:
        built.add_row(*[Text(_cell(value)) for value in row])
    return built


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
