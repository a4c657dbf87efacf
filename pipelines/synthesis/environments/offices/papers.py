"""Papers that arrive in an office: invoices, mails, notes. Every line of them counts for some rule or sum."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from pipelines.synthesis.environments.offices.documents import csv_text, make_mail
from pipelines.synthesis.environments.offices.words import Company, Person, amount
from pipelines.synthesis.environments.offices.world import Builder

__all__ = ["Invoice", "letter", "mail", "make_invoice", "report_note"]

_LABELS = (
    ("supplier", "invoice", "date", "project", ("item", "quantity", "unit price")),
    ("From", "Invoice no", "Invoice date", "Project", ("Article", "Qty", "Price")),
    ("vendor", "number", "issued", "job", ("description", "units", "price each")),
    ("Sender", "Bill no", "Billed on", "Order for", ("Product", "Count", "Each")),
)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_GREETINGS = ("Hello", "Dear", "Good morning", "Good afternoon", "Hi", "Dear colleague", "Greetings,")
_CLOSINGS = ("Best regards", "Kind regards", "Many thanks", "With best wishes", "Thank you", "Regards", "All the best")


@dataclass(frozen=True, slots=True)
class Invoice:
    """`lines` are (article, quantity, price in cents); the text nowhere says the total."""

    supplier: Company
    number: str
    day: date
    project: str
    lines: tuple[tuple[str, int, int], ...]
    text: str

    @property
    def total(self) -> int:
        """In cents."""
        return sum(quantity * price for _, quantity, price in self.lines)


def make_invoice(b: Builder, supplier: Company, day: date, project: str = "", draft: bool = False) -> Invoice:
    """An invoice of a supplier as CSV, in one of several layouts."""
    r = b.random
    number = b.names.code(r.choice(("??-#####", "######", "R####-##", "?#####", "INV-####?")))
    lines = tuple((name, r.randint(1, 24), b.cents(2, 90)) for name in b.names.goods(b.lines(2, 32)))
    labels = r.choice(_LABELS)
    head = [[labels[0], supplier.name], [labels[1], number], [labels[2], day.isoformat()]]
    if project:
        head.append([labels[3], project])
    if draft:
        head.append(["status", "DRAFT"])
    r.shuffle(head)
    rows: list[Sequence[object]] = [*head, labels[4], *((name, n, amount(price)) for name, n, price in lines)]
    return Invoice(supplier, number, day, project, lines, csv_text(rows, r.choice((",", ";"))))


def letter(r: random.Random, sender: Person, reader: str, paragraphs: Sequence[str], place: str = "") -> str:
    """The body of a mail: greeting, paragraphs, closing, name."""
    greeting = r.choice(_GREETINGS)
    opening = greeting if greeting.endswith((",", "colleague")) else f"{greeting} {reader},"
    signature = [f"{r.choice(_CLOSINGS)},", sender.name, *([place] if place else []), sender.phone]
    return "\n\n".join([opening.rstrip(",") + ",", *paragraphs, "\n".join(signature)])


def mail(
    b: Builder, sender: Person, to: Person, subject: str, body: str, day: date, reply_to: str = ""
) -> tuple[bytes, str]:
    """(bytes, Message-ID) of a mail of a day."""
    r = b.random
    domain = sender.email.split("@")[1]
    identity = f"<{b.names.code('?##?##?#')}.{day:%Y%m%d}@{domain}>"
    headers = {"From": f"{sender.name} <{sender.email}>", "To": f"{to.name} <{to.email}>"}
    if reply_to:
        headers["Reply-To"] = reply_to
    hour = f"{r.randint(7, 18):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}"
    headers["Date"] = f"{_DAYS[day.weekday()]}, {day.day:02d} {_MONTHS[day.month - 1]} {day.year} {hour} +0000"
    headers |= {"Message-ID": identity, "Subject": subject}
    return make_mail(headers, body), identity


def report_note(title: str, facts: Sequence[tuple[str, str]], heading: str, entries: Sequence[str]) -> str:
    """A note: title, facts, then a list under a heading."""
    lines = [f"# {title}", "", *(f"- {name}: {value}" for name, value in facts), "", f"## {heading}", ""]
    return "\n".join([*lines, *(f"- {entry}" for entry in entries), ""])
