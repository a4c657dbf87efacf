"""Kind `sheet`: a sheet filled from papers: hours of reports per person and week, or stock from delivery notes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from openpyxl.utils import get_column_letter

from pipelines.synthesis.environments.offices.documents import Cell, csv_text, make_sheet
from pipelines.synthesis.environments.offices.papers import report_note
from pipelines.synthesis.environments.offices.words import GOODS, ROOMS, TOPICS
from pipelines.synthesis.environments.offices.world import Builder, Goal, Want, size_between

__all__ = ["Entry", "Filling", "Source", "make_sheet_goal"]


@dataclass(frozen=True, slots=True)
class Source:
    """A paper; `amounts` are (row name, column name, amount, how it comes about), none when it does not count."""

    path: str
    amounts: tuple[tuple[str, str, int, str], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A cell to be written: its place, what is there at first, the amounts that come in, the value in the end."""

    place: str
    row: str
    before: int | None
    parts: tuple[int, ...]
    value: int


@dataclass(frozen=True, slots=True)
class Filling:
    """What the teacher knows. `at_once`: a paper fills a cell of its own; else cells take the sum of all papers."""

    folder: str
    sheet: str
    page: str
    at_once: bool
    sources: tuple[Source, ...]
    entries: dict[tuple[str, str], Entry]


def make_sheet_goal(b: Builder, budget: float) -> Goal:
    """One of the two sorts."""
    return _hours(b, budget) if b.random.random() < 0.5 else _stock(b, budget)


def _hours(b: Builder, budget: float) -> Goal:
    people = [person.name for person in b.staff]
    count = size_between(budget, 350, 150 + 130 * b.detail, 1, 10 * len(people))
    r, area = b.random, b.area()
    folder = b.folder(f"{area}/{r.choice(('Reports', 'Week reports', 'Timesheets', 'Hours'))}")
    weeks = -(-count // len(people)) + r.randint(1, 2)
    first = r.randint(2, 50 - weeks)
    names = [f"W{first + n:02d}" for n in range(weeks)]
    places = r.sample(
        [(person, week) for person in people for week in names], min(count, len(people) * (weeks - 1) or 1)
    )
    wanted = set(places)
    grid: dict[tuple[str, str], int] = {
        (person, week): r.randint(4, 44) for person in people for week in names if (person, week) not in wanted
    }
    sources, entries = [], {}
    for person, week in places:
        worked = _worked(b, int(week[1:]))
        replaced = len(places) > 3 and r.random() < 0.1  # by a second version
        if replaced:
            sources.append(Source(_report(b, folder, person, week, _worked(b, int(week[1:])), 1), ()))
        path = _report(b, folder, person, week, worked, 2 if replaced else 0)
        hours = [amount for _, amount, _ in worked]
        total = sum(hours)
        how = f"{' + '.join(map(str, hours))} = {total}" if len(hours) > 1 else str(total)
        sources.append(Source(path, ((person, week, total, how),)))
        place = f"{get_column_letter(2 + names.index(week))}{2 + people.index(person)}"
        entries[person, week] = Entry(place, person, None, (total,), total)
    rows: list[list[Cell]] = [["person", *names]]
    rows += [[who, *(grid.get((who, week)) for week in names)] for who in people]
    page = r.choice(("Hours", "Overview", "Year"))
    sheet = b.add(f"{area}/{r.choice(('hours', 'timesheet', 'workload'))}-{b.year}.xlsx", make_sheet({page: rows}))
    text = (
        f"{r.choice(('Enter the week reports of', 'Fill in the hours from', 'Put the hours reported in'))} `{folder}` "
        f"into `{sheet}`: for each report the sum of its hours in the row of the person and the column of the week. "
        "Where a report has a version 2, only that one counts. Leave all other cells."
    )
    return _goal(text, Filling(folder, sheet, page, True, tuple(sorted(sources, key=_path)), entries))


def _path(source: Source) -> str:
    return source.path


def _stem(person: str, week: str) -> str:
    return f"{person.lower().replace(' ', '-')}-{week.lower()}"


def _worked(b: Builder, week: int) -> list[tuple[date, int, str]]:
    monday = date.fromisocalendar(b.year, week, 1)
    count = b.lines(1, 26)
    days = sorted(b.random.randrange(5) for _ in range(count))
    return [(monday + timedelta(days=day), b.random.randint(1, 8), b.random.choice(TOPICS).lower()) for day in days]


def _report(b: Builder, folder: str, person: str, week: str, worked: list[tuple[date, int, str]], version: int) -> str:
    facts = [("person", person), ("week", week), *([("version", str(version))] if version else [])]
    b.random.shuffle(facts)
    lines = [f"{day.isoformat()}: {hours} h {work}" for day, hours, work in worked]
    ending = f"-v{version}" if version else ""
    return b.add(f"{folder}/{_stem(person, week)}{ending}.md", report_note("Week report", facts, "Work", lines))


def _stock(b: Builder, budget: float) -> Goal:
    count = size_between(budget, 450, 150 + 130 * b.detail, 1, 180)
    r, area = b.random, b.area()
    folder = b.folder(f"{area}/{r.choice(('Delivery notes', 'Movements', 'Slips', 'Goods'))}")
    articles = r.sample(GOODS, min(len(GOODS), 4 + min(60, count) + b.lines(2, 10)))
    stock = {name: r.randint(120, 900) * 5 for name in articles}
    sums: dict[str, list[int]] = {}
    sources = []
    for place in range(count):
        incoming, void = r.random() < 0.5, place > 0 and count > 3 and r.random() < 0.1
        lines = [(name, r.randint(1, 24)) for name in r.sample(articles, min(len(articles), b.lines(1, 22)))]
        sort = r.choice(("delivery", "goods in") if incoming else ("withdrawal", "goods out"))
        head = [["slip", b.names.code("S-####")], ["date", b.day().isoformat()], ["sort", sort]]
        if void:
            head.append(["status", "VOID"])
        r.shuffle(head)
        path = b.add(f"{folder}/slip-{b.names.code('####')}.csv", csv_text([*head, ["article", "pieces"], *lines]))
        signed = [(name, pieces if incoming else -pieces) for name, pieces in lines]
        sources.append(Source(path, () if void else tuple((name, "stock", n, f"{n:+d}") for name, n in signed)))
        for name, pieces in [] if void else signed:
            sums.setdefault(name, []).append(pieces)
    page = r.choice(("Stock", "Articles", "Inventory"))
    rows: list[list[Cell]] = [["article", "shelf", "stock"]]
    rows += [[name, f"{r.choice(ROOMS)} {r.randint(1, 40)}", stock[name]] for name in articles]
    sheet = b.add(f"{area}/{r.choice(('stock', 'inventory', 'warehouse'))}.xlsx", make_sheet({page: rows}))
    entries = {
        (name, "stock"): Entry(
            f"C{2 + articles.index(name)}", name, stock[name], tuple(parts), stock[name] + sum(parts)
        )
        for name, parts in sums.items()
        if sum(parts)
    }
    text = (
        f"{r.choice(('Book the slips of', 'Update the stock from', 'Enter the goods movements of'))} `{folder}` in "
        f"`{sheet}`: deliveries and goods in add to the stock of an article, withdrawals and goods out take from it; "
        "an article may be on several slips. Slips with the status VOID do not count. Leave all other cells."
    )
    return _goal(text, Filling(folder, sheet, page, False, tuple(sorted(sources, key=_path)), entries))


def _goal(text: str, plan: Filling) -> Goal:
    wants = tuple(
        Want(f"{plan.sheet} {entry.place} ({entry.row})", {("cell", plan.sheet, plan.page, entry.place): entry.value})
        for entry in plan.entries.values()
    )
    return Goal("sheet", text, wants, frozenset({"edit_sheet"}), plan)
