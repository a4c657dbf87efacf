"""Documents of the office: made (eml, ics, xlsx, csv), read back, shown as text. Bytes depend on the content only."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.errors import HeaderParseError, MessageError
from email.header import decode_header, make_header
from email.message import EmailMessage
from functools import lru_cache

import icalendar
import openpyxl
from openpyxl.utils import get_column_letter

__all__ = [
    "Appointment",
    "Cell",
    "UnreadableDocumentError",
    "csv_text",
    "make_calendar",
    "make_mail",
    "make_sheet",
    "read_calendar",
    "read_csv",
    "read_mail",
    "read_sheets",
    "shown_text",
]

Cell = str | int | float | None
Grid = dict[str, Cell]  # "B4" -> value
FIRST_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
_MODIFIED = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*(<)")
MAX_CELLS = 50_000


class UnreadableDocumentError(ValueError):
    """Bytes that are not what their name says; the message is for the agent."""


@dataclass(frozen=True, slots=True)
class Appointment:
    """One event. `attendees` are mail addresses, sorted; times have no zone (all are local)."""

    uid: str
    summary: str
    start: datetime
    end: datetime
    attendees: tuple[str, ...] = ()
    place: str = ""


def csv_text(rows: Iterable[Sequence[object]], delimiter: str = ",") -> str:
    """Rows as CSV text with newlines."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def read_csv(text: str) -> list[list[str]]:
    """The rows of a CSV text without blanks around values; empty lines are left out."""
    try:
        rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff")), skipinitialspace=True))
    except csv.Error as error:
        raise UnreadableDocumentError(f"not readable as CSV: {error}") from error
    return [[value.strip() for value in row] for row in rows if any(value.strip() for value in row)]


def make_mail(headers: Mapping[str, str], body: str) -> bytes:
    """A plain-text mail. Headers keep their order. Raises ValueError for headers that cannot be written."""
    message = EmailMessage(policy=policy.default.clone(cte_type="8bit", max_line_length=200))
    try:
        for name, value in headers.items():
            message[name] = value
    except (ValueError, IndexError, MessageError) as error:
        raise ValueError(f"not a usable header: {error}") from error
    message.set_content(body.rstrip("\n") + "\n", cte="8bit")
    return message.as_bytes()


def _decoded(header: str) -> str:
    """A header with its encoded words (=?utf-8?q?...?=) as text; what cannot be decoded stays."""
    if "=?" not in header:
        return header
    try:
        return str(make_header(decode_header(header)))
    except (ValueError, LookupError, HeaderParseError):
        return header


@lru_cache(maxsize=2048)
def read_mail(data: bytes) -> tuple[dict[str, str], str]:
    """(headers by lower-case name, body) of a mail. Never raises: what is not there is absent."""
    message = message_from_bytes(data)  # the old policy: ten times as fast as the one that parses every header
    headers = {name.lower(): " ".join(_decoded(str(value)).split()) for name, value in message.items()}
    payload = message.get_payload(decode=True)
    body = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else str(message.get_payload())
    return headers, body.replace("\r\n", "\n")


def make_calendar(owner: str, events: Iterable[Appointment]) -> bytes:
    """An iCalendar file of events in the order given."""
    calendar = icalendar.Calendar()
    calendar.add("prodid", "-//office//calendar//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", owner)
    for event in events:
        entry = icalendar.Event()
        entry.add("uid", event.uid)
        entry.add("summary", event.summary)
        entry.add("dtstart", event.start)
        entry.add("dtend", event.end)
        for address in event.attendees:
            entry.add("attendee", f"mailto:{address}")
        if event.place:
            entry.add("location", event.place)
        calendar.add_component(entry)
    data: bytes = calendar.to_ical()
    return data


@lru_cache(maxsize=256)
def read_calendar(data: bytes) -> tuple[str, tuple[Appointment, ...]]:
    """(owner, events in file order). Raises UnreadableDocumentError."""
    try:
        calendar = icalendar.Calendar.from_ical(data)
        events = []
        for entry in calendar.walk("VEVENT"):
            raw = entry.get("attendee", [])
            people = [str(one).removeprefix("mailto:") for one in (raw if isinstance(raw, list) else [raw])]
            start, end = entry.decoded("dtstart"), entry.decoded("dtend")
            place, summary = str(entry.get("location", "")), str(entry["summary"])
            events.append(Appointment(str(entry["uid"]), summary, start, end, tuple(sorted(people)), place))
        return str(calendar.get("x-wr-calname", "")), tuple(events)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UnreadableDocumentError("not a readable iCalendar file") from error


def make_sheet(sheets: Mapping[str, Sequence[Sequence[Cell]]]) -> bytes:
    """A workbook of tables (rows of values, the first a header)."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in sheets.items():
        page = book.create_sheet(title)
        for row in rows:
            page.append(list(row))
    return saved(book)


def saved(book: openpyxl.Workbook) -> bytes:
    """The bytes of a workbook without the times that openpyxl and zip put in, uncompressed."""
    raw, out = io.BytesIO(), io.BytesIO()
    book.save(raw)
    with zipfile.ZipFile(raw) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(source.namelist()):
            data = source.read(name)
            if name == "docProps/core.xml":
                data = _MODIFIED.sub(rb"\g<1>2000-01-01T00:00:00Z\2", data)
            target.writestr(zipfile.ZipInfo(name, FIRST_ZIP_DATE), data)
    return out.getvalue()


@lru_cache(maxsize=64)
def read_sheets(data: bytes) -> dict[str, tuple[Grid, int, int]]:
    """Title to (filled cells, last row, last column) of each page; not to be changed. Raises "
    "UnreadableDocumentError."""
    try:
        book = openpyxl.load_workbook(io.BytesIO(data))
    except Exception as error:  # openpyxl has no base class of its own for bad files
        raise UnreadableDocumentError("not a readable xlsx file") from error
    pages: dict[str, tuple[Grid, int, int]] = {}
    for page in book.worksheets:
        if page.max_row * page.max_column > MAX_CELLS:
            raise UnreadableDocumentError(f"page {page.title} has more than {MAX_CELLS} cells")
        grid: Grid = {}
        for row in page.iter_rows():
            for cell in row:
                if cell.value is not None:
                    value = cell.value
                    grid[cell.coordinate] = value if isinstance(value, str | int | float) else str(value)
        pages[page.title] = (grid, page.max_row, page.max_column)
    return pages


@lru_cache(maxsize=1024)
def shown_text(path: str, data: bytes) -> str:
    """What read_file shows: text as it is, mail with its main headers, one line an event, one line a row of a sheet.

    Raises UnreadableDocumentError.
    """
    kind = path.rpartition(".")[2].lower()
    if kind == "eml":
        headers, body = read_mail(data)
        names = ("From", "Reply-To", "To", "Cc", "Date", "Message-ID", "In-Reply-To", "Subject")
        top = [f"{name}: {headers[name.lower()]}" for name in names if name.lower() in headers]
        return "\n".join([*top, "", body.rstrip("\n")])
    if kind == "ics":
        owner, events = read_calendar(data)
        return "\n".join([f"Calendar of {owner}", *map(event_line, events)])
    if kind == "xlsx":
        return "\n".join(
            line for title, page in read_sheets(data).items() for line in [f"Sheet {title}", *_sheet_lines(*page)]
        )
    return data.decode("utf-8", "replace").rstrip("\n")


def event_line(event: Appointment) -> str:
    """An event in one line: 2026-03-04 09:30-10:15 | Budget review | place | attendees | uid."""
    end = event.end.strftime("%H:%M" if event.end.date() == event.start.date() else "%Y-%m-%d %H:%M")
    who = ", ".join(event.attendees) or "-"
    return f"{event.start:%Y-%m-%d %H:%M}-{end} | {event.summary} | {event.place or '-'} | {who} | uid {event.uid}"


def _sheet_lines(grid: Grid, rows: int, columns: int) -> list[str]:
    letters = [get_column_letter(number) for number in range(1, columns + 1)]
    lines = [" | ".join(["row", *letters])]
    for row in range(1, rows + 1):
        values = [grid.get(f"{letter}{row}") for letter in letters]
        lines.append(" | ".join([str(row), *("" if value is None else str(value) for value in values)]))
    return lines
