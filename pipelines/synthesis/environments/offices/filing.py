"""Kinds `file` and `rename`: papers into folders by a rule, papers named by a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from pipelines.synthesis.environments.offices.papers import letter, mail, make_invoice, report_note
from pipelines.synthesis.environments.offices.words import TOPICS, Company, amount
from pipelines.synthesis.environments.offices.world import Builder, Goal, Want, size_between

__all__ = ["Filing", "Paper", "make_filing", "make_renaming"]

TOOLS = frozenset({"move_file", "make_folder", "delete_file"})
INBOXES = ("Inbox", "Incoming", "Scans", "Unsorted", "Post in", "To file")


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper to be filed; `to` is where it goes, None when it stays. `why` says in words what decides."""

    path: str
    to: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Filing:
    """What the teacher of `file` and `rename` knows. `inbox` is the folder of the papers."""

    inbox: str
    papers: tuple[Paper, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    kind: str
    partner: Company
    day: date
    project: str
    draft: bool
    number: str
    data: str | bytes


Rule = Callable[[_Facts], tuple[str, str]]  # (folder below the area, what decides)


def make_filing(b: Builder, budget: float) -> Goal:
    """Papers of three sorts in an inbox, each to be moved where a rule says; drafts stay."""
    count = size_between(budget, 250, 180 + 230 * b.detail, 1, 200)
    r, area = b.random, b.area()
    inbox = f"{area}/{r.choice(INBOXES)}"
    projects = [b.names.project() for _ in range(min(12, 2 + count // 3))]
    partners = [b.names.company() for _ in range(min(12, 2 + count // 3))]
    rule, text, existing = _rule(b, area, projects)
    papers, wants = [], []
    for number in range(count):
        facts = _paper(b, r.choice(partners), r.choice(projects), draft=count > 2 and r.random() < 0.12 and number > 0)
        path = _add(b, inbox, facts)
        if facts.draft:
            papers.append(Paper(path, None, "it is a draft"))
            continue
        folder, why = rule(facts)
        to = f"{area}/{folder}/{path.split('/')[-1]}"
        papers.append(Paper(path, to, why))
        wants.append(_moved(b, path, to))
    for folder in existing:
        b.folder(f"{area}/{folder}")
    r.shuffle(papers)
    ending = r.choice(
        (
            " Keep the file names; make folders where they are missing. Papers marked DRAFT stay where they are.",
            " Names stay as they are, missing folders are to be made, and whatever is marked DRAFT is left in place.",
        )
    )
    opening = r.choice(("File the papers in `{i}`", "Please clear `{i}`", "Sort everything in `{i}`", "Empty `{i}`"))
    return Goal("file", f"{opening.format(i=inbox)}: {text}{ending}", tuple(wants), TOOLS, Filing(inbox, tuple(papers)))


def _rule(b: Builder, area: str, projects: list[str]) -> tuple[Rule, str, list[str]]:
    """(rule, its words, folders that are there already)."""
    r = b.random
    if (kind := r.randrange(4)) == 0:
        rest = r.choice(("Unassigned", "Without project", "General"))
        text = f"each goes to `{area}/PROJECT`, named like the project that it mentions; without a project, to "
        return (
            lambda f: (f.project or rest, f"the project is {f.project}" if f.project else "no project is named"),
            f"{text}`{area}/{rest}`.",
            r.sample(projects, len(projects) // 2),
        )
    if kind == 1:
        return (
            lambda f: (f"{f.partner.slug}/{f.day.year}", f"{f.partner.name} wrote it in {f.day.year}"),
            f"each goes to `{area}/PARTNER/YEAR`, by the company that it comes from or is about (lower case, words "
            "joined by hyphens, without legal form such as Ltd or GmbH) and the year of its date.",
            [],
        )
    a_kind = {"invoice": "an invoice", "mail": "a mail", "note": "a note"}
    names = {"invoice": "Invoices", "mail": "Mail", "note": "Notes"}
    if kind == 2:
        return (
            lambda f: (f"{names[f.kind]}/{f.day:%Y-%m}", f"it is {a_kind[f.kind]} of {f.day:%Y-%m}"),
            f"invoices (csv) go to `{area}/Invoices/YYYY-MM`, mails (eml) to `{area}/Mail/YYYY-MM`, notes (md) to "
            f"`{area}/Notes/YYYY-MM`, by the month of their own date.",
            ["Invoices", "Notes"],
        )
    return (
        lambda f: (f"{f.day.year}-Q{(f.day.month + 2) // 3}/{f.project or 'none'}",
                   f"{f.day.isoformat()} is in quarter {(f.day.month + 2) // 3}, "
                   + (f"project {f.project}" if f.project else "and it names no project")),
        f"each goes to `{area}/YEAR-Qn/PROJECT` by the quarter of its date (say {b.year}-Q3) and the project that it "
        "names, or `none` for PROJECT where it names none.",
        [],
    )  # fmt: skip


def _paper(b: Builder, partner: Company, project: str, draft: bool) -> _Facts:
    r = b.random
    day = b.day() - timedelta(days=r.choice((0, 0, 365, 400)))
    if r.random() < 0.12:
        project = ""
    kind = r.choice(("invoice", "mail", "note"))
    if kind == "invoice":
        invoice = make_invoice(b, partner, day, project, draft)
        return _Facts(kind, partner, day, project, draft, invoice.number, invoice.text)
    topic, number = r.choice(TOPICS), b.names.code("?###")
    if kind == "mail":
        writer = b.names.person(partner.domain)
        about = f"This concerns project {project}." if project else r.choice(("This is not tied to a project.", ""))
        told = [
            f"for {item} we {r.choice(('offer', 'confirm', 'have noted'))} {r.randint(2, 90)} pieces at "
            f"{amount(b.cents(2, 80))}"
            for item in b.names.goods(b.lines(1, 14))
        ]
        marked = ["Status: DRAFT, not final."] if draft else []
        parts = [f"about our {topic.lower()} ({number}): {'; '.join(told)}.", *([about] if about else []), *marked]
        body = letter(r, writer, b.user.first, parts, partner.name)
        data, _ = mail(b, writer, b.user, f"{topic} {number}", body, day)
        return _Facts(kind, partner, day, project, draft, number, data)
    facts = [("date", day.isoformat()), ("company", partner.name), *([("project", project)] if project else [])]
    if draft:
        facts.append(("status", "DRAFT"))
    r.shuffle(facts)
    entries = [
        f"{r.choice(b.staff).name}: {r.choice(TOPICS).lower()}, {r.randint(1, 30)} hours, by {b.day().isoformat()}"
        for _ in range(b.lines(2, 28))
    ]
    return _Facts(
        kind, partner, day, project, draft, number, report_note(f"{topic} {number}", facts, "Actions", entries)
    )


def _add(b: Builder, folder: str, facts: _Facts) -> str:
    ending = {"invoice": "csv", "mail": "eml", "note": "md"}[facts.kind]
    stem = b.random.choice(("scan", "doc", "item", "file", "paper"))
    return b.add(f"{folder}/{stem}-{b.names.code('####')}.{ending}", facts.data)


def _moved(b: Builder, path: str, to: str) -> Want:
    return Want(f"{path} to {to}", {("file", path): None, ("file", to): b.files[path]})


def make_renaming(b: Builder, budget: float) -> Goal:
    """Invoices with names that say nothing, to be named by date, supplier and number; drafts keep theirs."""
    count = size_between(budget, 250, 140 + 190 * b.detail, 1, 200)
    r, area = b.random, b.area()
    folder = b.folder(f"{area}/{r.choice(('Invoices', 'Bills', 'Payables', 'To pay', 'Vouchers'))}")
    shape = r.choice(("%Y-%m-%d", "%Y%m%d", "%d-%m-%Y", "%Y.%m.%d"))
    shown = {"%Y": "YYYY", "%m": "MM", "%d": "DD"}
    pattern = shape
    for mark, letters in shown.items():
        pattern = pattern.replace(mark, letters)
    order = r.sample(("DATE", "SUPPLIER", "NUMBER"), 3)
    joint = r.choice(("_", "__", "~"))
    partners = [b.names.company() for _ in range(min(14, 2 + count // 3))]
    papers, wants = [], []
    for place in range(count):
        draft = count > 2 and place > 0 and r.random() < 0.12
        invoice = make_invoice(b, r.choice(partners), b.day(), "", draft)
        path = b.add(
            f"{folder}/{r.choice(('scan', 'img', 'download', 'copy'))}{b.names.code('####')}.csv", invoice.text
        )
        if draft:
            papers.append(Paper(path, None, "it is a draft"))
            continue
        parts = {"DATE": f"{invoice.day:{shape}}", "SUPPLIER": invoice.supplier.slug, "NUMBER": invoice.number}
        to = f"{folder}/{joint.join(parts[name] for name in order)}.csv"
        papers.append(Paper(path, to, f"{invoice.supplier.name}, {invoice.day.isoformat()}, number {invoice.number}"))
        wants.append(_moved(b, path, to))
    r.shuffle(papers)
    opening = r.choice(
        ("Rename the invoices in `{f}`", "The invoices in `{f}` need proper names", "Name the files in `{f}`")
    )
    text = (
        f"{opening.format(f=folder)}: `{joint.join(order)}.csv`, DATE being the invoice date as {pattern}, SUPPLIER "
        "the company in lower case with hyphens between words and without its legal form (Ltd, GmbH, …), NUMBER the "
        "invoice number as printed. What is marked DRAFT keeps its name."
    )
    return Goal("rename", text, tuple(wants), frozenset({"move_file"}), Filing(folder, tuple(papers)))
