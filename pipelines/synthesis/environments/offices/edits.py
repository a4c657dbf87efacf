"""Edits of sheets and calendars: the new bytes, or why the edit is refused."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import openpyxl
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from openpyxl.utils import column_index_from_string, get_column_letter

from pipelines.synthesis.environments.offices.documents import (
    Cell,
    UnreadableDocumentError,
    make_calendar,
    read_calendar,
    read_sheets,
    saved,
)

__all__ = ["EditRefusedError", "move_event", "set_cells"]

SHOWN_CELLS = 12
MOST_TEXT, MOST_NUMBER = 1_000, 1e15


class EditRefusedError(Exception):
    """An edit that cannot be made; `kind` is the tool's signal. Told to the agent."""

    def __init__(self, message: str, kind: str = "tool_error") -> None:
        super().__init__(message)
        self.kind = kind


def set_cells(path: str, data: bytes, page: str, cells: Sequence[dict[str, Any]]) -> tuple[bytes, str]:
    """Set cells of a page: all or none. Rows are added only directly below the table, columns and headers stay.

    A column of numbers takes numbers, one of text takes text. Raises EditRefusedError, UnreadableDocumentError.
    """
    if not path.endswith(".xlsx"):
        raise EditRefusedError(f"{path} is not an xlsx sheet")
    pages = read_sheets(data)
    if page not in pages:
        raise EditRefusedError(f"{path} has no sheet {page!r}. Sheets: {', '.join(pages)}", "not_found")
    grid, rows, columns = pages[page]
    now = dict(grid)
    for one in cells:
        place, value = str(one["cell"]), one["value"]
        column, row = _split(place)
        if row == 1:
            raise EditRefusedError(f"{place} is in the header row, which stays as it is")
        if column_index_from_string(column) > columns or row > rows + 1:
            corner = f"A1 to {get_column_letter(columns)}{rows}"
            raise EditRefusedError(f"{place} is outside the table ({corner}); row {rows + 1} may be added", "not_found")
        _check_value(place, value)
        _check_sort(grid, column, place, value)
        rows = max(rows, row)
        now[place] = value
    if {key: value for key, value in now.items() if value is not None} == grid:
        raise EditRefusedError("the cells have these values already; nothing was changed", "no_change")
    book = openpyxl.load_workbook(io.BytesIO(data))
    for one in cells:
        book[page][one["cell"]].value = one["value"]
    told = ", ".join(f"{one['cell']} = {one['value']}" for one in cells[:SHOWN_CELLS])
    more = f" and {len(cells) - SHOWN_CELLS} more" if len(cells) > SHOWN_CELLS else ""
    return saved(book), f"{path}, {page}: {told}{more}"


def _split(place: str) -> tuple[str, int]:
    column = place.rstrip("0123456789")
    return column, int(place[len(column) :])


def _check_value(place: str, value: Cell) -> None:
    """Raises EditRefusedError for what a cell of these sheets cannot hold."""
    if isinstance(value, str):
        if value.startswith("="):
            raise EditRefusedError(f"{place}: give the value, not a formula")
        if len(value) > MOST_TEXT or ILLEGAL_CHARACTERS_RE.search(value):
            raise EditRefusedError(
                f"{place}: text of a cell has at most {MOST_TEXT} characters and no control characters"
            )
    elif value is not None and not abs(value) <= MOST_NUMBER:  # also true of NaN
        raise EditRefusedError(f"{place}: a number of a cell is finite and at most {MOST_NUMBER:g}")


def _check_sort(grid: dict[str, Cell], column: str, place: str, value: Cell) -> None:
    """Raises EditRefusedError for text in a column of numbers and a number in one of text."""
    if value is None:
        return
    below = [one for key, one in grid.items() if re.fullmatch(rf"{column}(?!1$)\d+", key)]
    if not below:
        return
    if isinstance(value, str) and all(isinstance(one, int | float) for one in below):
        raise EditRefusedError(
            f"{place}: column {column} ({grid.get(column + '1')}) holds numbers, received text {value!r}"
        )
    if isinstance(value, int | float) and all(isinstance(one, str) for one in below):
        raise EditRefusedError(
            f"{place}: column {column} ({grid.get(column + '1')}) holds text, received the number {value}"
        )


def move_event(path: str, data: bytes, uid: str, start: str) -> tuple[bytes, str]:
    """Give an event another start, keeping its length. Raises EditRefusedError, UnreadableDocumentError."""
    if not path.endswith(".ics"):
        raise EditRefusedError(f"{path} is not a calendar (ics)")
    owner, events = read_calendar(data)
    found = [event for event in events if event.uid == uid]
    if not found:
        raise EditRefusedError(f"{path} has no event with the uid {uid!r}", "not_found")
    if len(found) > 1:
        raise UnreadableDocumentError(f"{path} has several events with the uid {uid!r}")
    try:
        begin = datetime.fromisoformat(start)
        moved = replace(found[0], start=begin, end=begin + (found[0].end - found[0].start))
    except (ValueError, OverflowError) as error:
        raise EditRefusedError(f"{start!r} is not a date and time: {error}", "bad_arguments") from error
    if moved == found[0]:
        raise EditRefusedError("the event starts then already; nothing was changed", "no_change")
    text = f"{moved.summary} is now {moved.start:%Y-%m-%d %H:%M} to {moved.end:%H:%M}"
    return make_calendar(owner, [moved if event.uid == uid else event for event in events]), text
