"""Kind `reconcile`: invoices against what is booked, in a sheet or in the database; the differences go to a report."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.synthesis.environments.offices.contacts import written_rows
from pipelines.synthesis.environments.offices.documents import Cell, make_sheet
from pipelines.synthesis.environments.offices.papers import Invoice, make_invoice
from pipelines.synthesis.environments.offices.words import amount
from pipelines.synthesis.environments.offices.world import Atom, Builder, Final, Goal, Want, size_between

__all__ = ["REPORT_HEADER", "Booking", "Reconciliation", "make_reconciling"]

REPORT_HEADER = ["invoice", "invoiced", "booked", "difference"]


@dataclass(frozen=True, slots=True)
class Booking:
    """A line of the ledger; cents."""

    number: str
    supplier: str
    cents: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What the teacher knows. `sheet` is the ledger's path, or "" and `table` its table; `rows` the report's."""

    folder: str
    invoices: dict[str, Invoice]  # by path
    sheet: str
    page: str
    table: str
    bookings: tuple[Booking, ...]
    report: str
    rows: tuple[tuple[str, str, str, str], ...]


def make_reconciling(b: Builder, budget: float) -> Goal:
    """Some bookings have a slip in the amount, are missing, are there twice, or have no invoice."""
    count = size_between(budget, 350, 150 + 370 * b.detail, 1, 150)
    r, area = b.random, b.area()
    folder = b.folder(f"{area}/{r.choice(('Invoices', 'Supplier invoices', 'Bills', 'Received'))}")
    partners = [b.names.company() for _ in range(min(14, 2 + count // 4))]
    month = r.randint(1, 12)
    invoices: dict[str, Invoice] = {}
    bookings: list[Booking] = []
    for place in range(count):
        invoice = make_invoice(b, r.choice(partners), b.day(month))
        path = b.add(f"{folder}/{invoice.supplier.slug}-{b.names.code('####')}.csv", invoice.text)
        invoices[path] = invoice
        fault = r.random() if place else 0.0
        right = Booking(invoice.number, invoice.supplier.name, invoice.total)
        if fault < 0.2:
            bookings.append(Booking(right.number, right.supplier, _slipped(b, right.cents)))
        elif fault < 0.28:
            continue
        else:
            bookings += [right] * (2 if fault < 0.34 else 1)
    for _ in range(0 if count < 3 else max(1, count // 12)):
        bookings.append(Booking(b.names.code("X-#####"), r.choice(partners).name, b.cents(40, 2000)))
    r.shuffle(bookings)
    invoices = dict(sorted(invoices.items()))
    rows = _differences(list(invoices.values()), bookings)
    report = f"{area}/{r.choice(('differences', 'report', 'reconciliation', 'open-points'))}.csv"
    sheet = page = table = ""
    if r.random() < 0.5:
        page = r.choice(("Ledger", "Bookings", "Journal"))
        sheet = f"{area}/{r.choice(('ledger', 'journal', 'bookings'))}-{b.year}-{month:02d}.xlsx"
        lines: list[list[Cell]] = [["entry", "invoice", "supplier", "amount"]]
        lines += [[n, one.number, one.supplier, one.cents / 100] for n, one in enumerate(bookings, 1)]
        b.add(sheet, make_sheet({page: lines}))
        where = f"the sheet `{sheet}`"
    else:
        columns = "entry INTEGER PRIMARY KEY, invoice TEXT NOT NULL, supplier TEXT NOT NULL, amount REAL NOT NULL"
        values = [(n, one.number, one.supplier, one.cents / 100) for n, one in enumerate(bookings, 1)]
        table = b.table(r.choice(("ledger", "bookings", "journal")), columns, values)
        where = f"the table `{table}` of the database"
    text = (
        f"{r.choice(('Check the invoices in', 'Reconcile the invoices of', 'Compare all invoices in'))} `{folder}` "
        f"with {where}. An invoice's sum is quantity times price over its lines; what is booked is the sum of its "
        f"entries. Write `{report}` with the header `{','.join(REPORT_HEADER)}` and one row for every invoice number "
        "where the two differ, also if only one side has it (the other is 0.00); difference = invoiced less booked, "
        "amounts with two decimals, sorted by invoice number. Change nothing else."
    )
    tools = {"write_file", "delete_file", *(("query_database",) if table else ())}
    plan = Reconciliation(folder, invoices, sheet, page, table, tuple(bookings), report, rows)
    wants = (*(_row_want(report, row) for row in rows), _whole_want(report, rows))
    return Goal("reconcile", text, wants, frozenset(tools), plan)


def _slipped(b: Builder, cents: int) -> int:
    """An amount as it is mistyped: two digits swapped, one digit other, a rounded one."""
    digits = list(str(cents))
    place = b.random.randrange(max(1, len(digits) - 1))
    swapped = digits[:]
    swapped[place : place + 2] = reversed(swapped[place : place + 2])
    candidates = [int("".join(swapped)), cents + b.random.choice((-900, -90, 90, 900, 9000)), cents - cents % 100]
    usable = [value for value in candidates if value > 0 and value != cents]
    return b.random.choice(usable) if usable else cents + 1000


def _differences(invoices: list[Invoice], bookings: list[Booking]) -> tuple[tuple[str, str, str, str], ...]:
    invoiced = {invoice.number: invoice.total for invoice in invoices}
    booked: dict[str, int] = {}
    for booking in bookings:
        booked[booking.number] = booked.get(booking.number, 0) + booking.cents
    return tuple(
        (number, amount(one), amount(other), amount(one - other))
        for number in sorted(invoiced.keys() | booked.keys())
        if (one := invoiced.get(number, 0)) != (other := booked.get(number, 0))
    )


def _same(row: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Number equal, amounts equal by value."""
    if len(row) != len(wanted) or row[0] != wanted[0]:
        return False
    try:
        return all(round(float(a) * 100) == round(float(b) * 100) for a, b in zip(row[1:], wanted[1:], strict=True))
    except (ValueError, OverflowError):
        return False


def _row_want(report: str, row: tuple[str, ...]) -> Want:
    def test(final: Final) -> tuple[str, set[Atom]]:
        found = [one for one in written_rows(final, report) if one[0] == row[0]]
        owned: set[Atom] = {("file", report)}
        if len(found) != 1:
            return f"{row[0]} is reported {len(found)} times", owned
        return ("" if _same(found[0], row) else f"reported as {','.join(found[0])}, not {','.join(row)}"), owned

    return Want(f"{report}: {row[0]}", test=test)


def _whole_want(report: str, rows: tuple[tuple[str, ...], ...]) -> Want:
    def test(final: Final) -> tuple[str, set[Atom]]:
        found = written_rows(final, report)
        owned: set[Atom] = {("file", report)}
        if not found or [value.lower() for value in found[0]] != REPORT_HEADER:
            return f"the header is not {','.join(REPORT_HEADER)}", owned
        given, wanted = [row[0] for row in found[1:]], [row[0] for row in rows]
        if extra := [number for number in given if number not in wanted]:
            return f"{extra[0]} does not differ", owned
        return ("" if given == wanted else "rows missing or not in order"), owned

    return Want(f"{report}: header and order", test=test)
