"""Kinds `reply` and `requests`: mails that ask for facts get a draft, those that ask for changes change the "
"database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parseaddr
from typing import Any

from pipelines.synthesis.environments.offices.documents import Cell, make_sheet
from pipelines.synthesis.environments.offices.papers import letter, mail
from pipelines.synthesis.environments.offices.words import GOODS, Person, amount
from pipelines.synthesis.environments.offices.world import DRAFTS, Atom, Builder, Final, Goal, Want, size_between

__all__ = ["Ask", "Change", "Letter", "Replies", "Requests", "make_replies", "make_requests"]

STATES = ("open", "packed", "shipped", "delayed", "delivered")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@dataclass(frozen=True, slots=True)
class Ask:
    """One question of a mail: about an `order` or an `article`, and the facts that the reply must state."""

    kind: str
    key: str
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One change asked for: column and new value; `granted` False when the rule refuses it."""

    column: str
    value: str | int
    granted: bool = True


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail. `answer_to` is where a reply goes; what it asks is in `asks` or `changes`, if anything."""

    path: str
    sender: Person
    identity: str
    subject: str
    answer_to: str
    asks: tuple[Ask, ...] = ()
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Replies:
    """What the teacher of `reply` knows. `prices` are article to (row, price in cents, pieces)."""

    inbox: str
    sheet: str
    table: str
    letters: tuple[Letter, ...]


@dataclass(frozen=True, slots=True)
class Requests:
    """What the teacher of `requests` knows. `rows` are the customers by address, as they are at first."""

    inbox: str
    table: str
    columns: tuple[str, ...]
    limit: int
    letters: tuple[Letter, ...]
    rows: dict[str, tuple[Any, ...]]


def make_replies(b: Builder, budget: float) -> Goal:
    """Customers ask about orders (in the database) and articles (in a price sheet)."""
    count = size_between(budget, 420, 270 + 135 * b.detail, 1, 120)
    r, area = b.random, b.area()
    inbox = b.folder(f"{area}/{r.choice(('Inbox', 'Customer mail', 'Questions', 'Mail'))}")
    b.folder(DRAFTS)
    articles = r.sample(GOODS, min(len(GOODS), 5 + b.lines(3, 40)))
    prices = {name: (b.cents(2, 240), r.randint(0, 400)) for name in articles}
    lines: list[list[Cell]] = [["article", "price", "in stock"]]
    lines += [[name, price / 100, pieces] for name, (price, pieces) in prices.items()]
    title = r.choice(("prices", "price-list", "articles", "catalogue"))
    sheet = b.add(f"{area}/{title}-{b.year}.xlsx", make_sheet({"Articles": lines}))
    orders: list[tuple[str, str, str, int, float, str, str]] = []
    letters = []
    for place in range(count):
        asks: list[Ask] = []
        company = b.names.company()
        for _ in range(0 if place and r.random() < 0.12 else max(1, b.lines(1, 4))):
            if r.random() < 0.6:
                number, article, pieces = b.names.code("??####"), r.choice(articles), r.randint(1, 60)
                total, day = pieces * prices[article][0], b.day()
                orders.append((number, company.name, article, pieces, total / 100, r.choice(STATES), day.isoformat()))
                asked = day.isoformat() if r.random() < 0.6 else amount(total)
                asks.append(Ask("order", number, (number, asked)))
            else:
                name = r.choice(articles)
                if all(ask.key != name for ask in asks):
                    asks.append(Ask("article", name, (name, amount(prices[name][0]), str(prices[name][1]))))
        letters.append(_question_mail(b, inbox, b.names.person(company.domain), company.name, tuple(asks)))
    for _ in range(max(2, count // 3)):
        values = (r.choice(articles), r.randint(1, 60), b.cents(20, 900) / 100, r.choice(STATES), b.day().isoformat())
        orders.append((b.names.code("??####"), b.names.company().name, *values))
    columns = (
        "number TEXT PRIMARY KEY, customer TEXT NOT NULL, article TEXT NOT NULL, pieces INTEGER NOT NULL, "
        "amount REAL NOT NULL, status TEXT NOT NULL, delivery TEXT NOT NULL"
    )
    table = b.table(r.choice(("orders", "sales_orders", "purchases")), columns, sorted(orders))
    letters.sort(key=lambda one: one.path)
    text = (
        f"{r.choice(('Draft replies to the questions in', 'Answer the mails in', 'Prepare answers to the mails in'))} "
        f"`{inbox}`: orders are in the table `{table}` of the database, articles in `{sheet}`. A reply names every "
        "order number or article that was asked about with the facts asked for (dates as YYYY-MM-DD, amounts with "
        "two decimals, numbers of pieces), goes to the Reply-To address if there is one, else to the sender, and "
        "carries the Message-ID in In-Reply-To. Mails that ask nothing get no reply."
    )
    told = {number: (number,) for number, *_ in orders} | {n: (n, amount(price)) for n, (price, _) in prices.items()}
    ordered = {number: article for number, _, article, *_ in orders}
    wants = tuple(_reply_want(one, told, ordered) for one in letters if one.asks)
    tools = frozenset({"query_database", "draft_mail", "delete_file"})
    return Goal("reply", text, wants, tools, Replies(inbox, sheet, table, tuple(letters)))


def _question_mail(b: Builder, inbox: str, sender: Person, company: str, asks: tuple[Ask, ...]) -> Letter:
    r = b.random
    parts, answer_to = [], ""
    for ask in asks:
        options: tuple[str, ...]
        if ask.kind == "article":
            options = (
                "What does your {k} cost, and how many are in stock?",
                "Please give me price and stock of the {k}.",
            )
        elif "-" in ask.facts[1]:
            options = ("When will our order {k} arrive?", "Which delivery date do you have for order {k}?",
                       "We are waiting for {k}. What is its delivery date?")  # fmt: skip
        else:
            options = ("What is the amount of our order {k}?", "Please confirm the sum for order {k}.")
        parts.append(r.choice(options).format(k=ask.key))
    if not asks:
        parts = [r.choice(("thank you for the quick help last week. Nothing more is needed.",
                           f"our office in {b.firm.city} is closed on {b.day().isoformat()}, for your information.",
                           f"we have moved to {b.names.address()}. No answer is needed."))]  # fmt: skip
    elif r.random() < 0.25:
        colleague = b.names.person(sender.email.split("@")[1])
        answer_to = colleague.email
        parts.append(f"My colleague {colleague.name} takes over from here.")
    subject = r.choice(("Question", "Request", "Our order", "Information wanted", "A short question", "Inquiry"))
    subject = subject if asks else r.choice(("Thank you", "For information", "News"))
    subject += f" ({company})" if r.random() < 0.5 else ""
    data, identity = mail(
        b, sender, b.user, subject, letter(r, sender, b.user.first, parts, company), b.day(), answer_to
    )
    path = b.add(f"{inbox}/{b.names.code('mail-####')}.eml", data)
    return Letter(path, sender, identity, subject, answer_to or sender.email, asks)


def states(body: str, fact: str) -> bool:
    """Whether a text states a fact: as a word of its own, thousands written with or without commas."""
    pattern = rf"(?<![\w.,-]){re.escape(fact)}(?!\w|[.,-]\d)"
    return re.search(pattern, _THOUSANDS.sub("", body), re.I) is not None


def _reply_want(wanted: Letter, told: Mapping[str, tuple[str, ...]], ordered: Mapping[str, str]) -> Want:
    """`told` are all orders and articles with what a text about them states, `ordered` the article of every order.

    A reply that pours out the whole list has every fact asked for in it and answers nothing: it may tell of what was
    asked about, and of the articles of these orders.
    """
    asked = {ask.key for ask in wanted.asks}
    near = asked | {ordered[key] for key in asked if key in ordered}

    def test(final: Final) -> tuple[str, set[Atom]]:
        found = [one for one in final.drafts if one[1].get("in-reply-to", "") == wanted.identity]
        owned: set[Atom] = {("file", path) for path, _, _ in found}
        if len(found) != 1:
            return f"{len(found)} drafts answer it", owned
        _, headers, body = found[0]
        to = parseaddr(headers.get("to", ""))[1].lower()
        if to != wanted.answer_to.lower() or "," in headers.get("to", ""):
            return f"it goes to {to}, not to {wanted.answer_to}", owned
        missing = [fact for ask in wanted.asks for fact in ask.facts if not states(body, fact)]
        if missing:
            return f"it does not state {missing[0]}", owned
        for key in sorted(asked, key=len, reverse=True):  # an article's name may be within another's
            body = body.replace(key, "")
        others = [key for key, facts in told.items() if key not in near and all(states(body, fact) for fact in facts)]
        return (f"it tells of {others[0]}, which nobody asked about" if others else ""), owned

    return Want(f"reply to {wanted.path}", test=test)


def make_requests(b: Builder, budget: float) -> Goal:
    """Mails ask for changes of customer records; only those from the registered address count."""
    count = size_between(budget, 430, 260 + 33 * b.detail, 1, 200)
    r, area = b.random, b.area()
    inbox = b.folder(f"{area}/{r.choice(('Inbox', 'Change requests', 'Customer mail', 'To do'))}")
    limit = r.randrange(10, 60) * 1000
    table = r.choice(("customers", "accounts", "partners"))
    columns = ("id", "company", "contact", "email", "phone", "address", "credit_limit", "status")
    letters: list[Letter] = []
    rows: dict[str, tuple[Any, ...]] = {}
    final: dict[int, tuple[Any, ...]] = {}
    for number, key in enumerate(r.sample(range(101, 999), count + max(2, count // 3))):
        company = b.names.company()
        person = b.names.person(company.domain)
        row = (key, company.name, person.name, person.email, person.phone, b.names.address(), r.randrange(2, 40) * 250,
               "active")  # fmt: skip
        rows[person.email] = row
        if number >= count:
            continue
        foreign = number > 0 and r.random() < 0.14
        changes = _changes(b, row, limit, must=number == 0)
        writer = (
            replace(person, email=f"{person.email.split('@')[0]}@{b.names.company().domain}") if foreign else person
        )
        letters.append(_change_mail(b, inbox, writer, company.name, changes))
        granted = {} if foreign else {change.column: change.value for change in changes if change.granted}
        if granted:
            final[key] = tuple(granted.get(name, value) for name, value in zip(columns, row, strict=True))
    ddl = (
        "id INTEGER PRIMARY KEY, company TEXT NOT NULL, contact TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone "
        "TEXT NOT NULL, address TEXT NOT NULL, credit_limit INTEGER NOT NULL CHECK (credit_limit >= 0), status TEXT "
        "NOT NULL CHECK (status IN ('active', 'paused', 'closed'))"
    )
    table = b.table(table, ddl, sorted(rows.values()))
    letters.sort(key=lambda one: one.path)
    text = (
        f"{r.choice(('Carry out the change requests in', 'Work through the mails in', 'Update our records from'))} "
        f"`{inbox}`: change the sender's row of the table `{table}` in the database as the mail asks. Requests from "
        f"an address that is not the row's email are ignored, credit limits above {limit} are not granted (the mail's "
        "other wishes are). Phone numbers and addresses as written; status is active, paused or closed. Change "
        "nothing else."
    )
    wants = tuple(Want(f"{table} row {key}", {("row", table, str(key)): row}) for key, row in sorted(final.items()))
    plan = Requests(inbox, table, columns, limit, tuple(letters), rows)
    return Goal("requests", text, wants, frozenset({"query_database", "update_database"}), plan)


def _changes(b: Builder, row: tuple[Any, ...], limit: int, must: bool) -> tuple[Change, ...]:
    r = b.random
    names = ["phone", "address", "status", "credit_limit", "contact"]
    made = []
    for name in r.sample(names, max(1, min(len(names), b.lines(1, 3)))):
        if name == "credit_limit":
            value = r.randrange(2, 40) * 250
            high = r.random() < 0.4 and not must
            value = limit + r.randrange(1, 20) * 500 if high else min(value, limit)
            made.append(Change(name, value + 250 if value == row[6] else value, not high))
        elif name == "phone":
            number = f"+{r.randint(20, 98)} {r.randint(10, 999)} {r.randint(1000, 9999)}"
            made.append(Change(name, number))
        elif name == "address":
            made.append(Change(name, b.names.address()))
        elif name == "contact":
            made.append(Change(name, b.names.person("x.example").name))
        else:
            made.append(Change(name, r.choice(("paused", "closed"))))
    return tuple(change for change in made if change.value not in row) or (Change("phone", "+31 20 5550"),)


_WISHES = {
    "phone": (
        "Our new telephone number is {v}.",
        "Please call us on {v} from now on.",
        "The phone number changes to {v}.",
    ),
    "address": (
        "We move to {v}.",
        "Our address is now {v}.",
        "Please send everything to {v} from now on, our new address.",
    ),
    "status": (
        "Please set our account to {v}.",
        "We want the account to be {v}.",
        "From today our account should be {v}.",
    ),
    "credit_limit": (
        "We ask for a credit limit of {v}.",
        "Could our credit limit become {v}?",
        "We need a limit of {v} on credit.",
    ),
    "contact": ("Your contact with us is now {v}.", "{v} is the new contact person.", "Please note {v} as contact."),
}


def _change_mail(b: Builder, inbox: str, sender: Person, company: str, changes: tuple[Change, ...]) -> Letter:
    r = b.random
    parts = [r.choice(_WISHES[change.column]).format(v=change.value) for change in changes]
    subject = r.choice(
        ("Change of our data", "Please update", "Our customer record", "Changes", "News from us", "Record")
    )
    subject = f"{subject}: {company}" if r.random() < 0.6 else subject
    plain = replace(sender, phone="")
    data, identity = mail(b, sender, b.user, subject, letter(r, plain, b.user.first, parts, company).rstrip(), b.day())
    path = b.add(f"{inbox}/{b.names.code('mail-####')}.eml", data)
    return Letter(path, sender, identity, subject, sender.email, (), changes)
