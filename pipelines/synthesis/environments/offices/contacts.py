"""Kind `merge`: several contact lists, with doubles, into one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta

from pipelines.synthesis.environments.offices.documents import UnreadableDocumentError, csv_text, read_csv
from pipelines.synthesis.environments.offices.words import Company, Person
from pipelines.synthesis.environments.offices.world import Atom, Builder, Final, Goal, Want, size_between

__all__ = ["HEADER", "Entry", "Merge", "make_merging"]

HEADER = ["name", "email", "phone"]
_HEADS = (
    (("name", "email", "phone", "updated"), (0, 1, 2, 3), ","),
    (("Updated", "Full name", "Telephone", "E-mail"), (3, 0, 2, 1), ";"),
    (("E-Mail", "Contact", "Last change", "Phone number"), (1, 0, 3, 2), ","),
    (("mail", "phone", "who", "as of"), (1, 2, 0, 3), ";"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a contact list."""

    name: str
    email: str
    phone: str
    updated: date

    @property
    def key(self) -> str:
        """Equal for entries of one person."""
        return self.email.lower()


@dataclass(frozen=True, slots=True)
class Merge:
    """What the teacher knows: the lists by path, the target, the entries kept in the order wanted."""

    lists: dict[str, tuple[Entry, ...]]
    target: str
    kept: tuple[Entry, ...]
    rows: tuple[tuple[str, str, str], ...]


def make_merging(b: Builder, budget: float) -> Goal:
    """Lists of customers with doubles: of a person's entries the one changed last is kept."""
    count = size_between(budget, 330, 80, 3, 260)
    r, area = b.random, b.area()
    folder = b.folder(f"{area}/{r.choice(('Contacts', 'Address lists', 'Mailing', 'Partners'))}")
    lists_wanted = max(2, min(9, count // 12))
    lists: list[list[Entry]] = [[] for _ in range(lists_wanted)]
    companies = [b.names.company() for _ in range(max(2, count // 6))]
    for number in range(count):
        entry = _entry(b, r.choice(companies))
        times = 2 if number == 0 else r.choice((1, 1, 1, 2, 2, 3))
        days = r.sample(range(1, 700), times)
        for place, ago in zip(r.sample(range(lists_wanted), min(times, lists_wanted)), days, strict=False):
            lists[place].append(_variant(b, entry, ago))
    names = r.sample(("fair", "newsletter", "crm-export", "phone-list", "old-system", "event", "web-form", "sales",
                      "support"), lists_wanted)  # fmt: skip
    written: dict[str, tuple[Entry, ...]] = {}
    for name, entries in zip(names, lists, strict=True):
        if not entries:
            entries.append(_entry(b, companies[0]))
        r.shuffle(entries)
        vcf = r.random() < 0.25
        path = f"{folder}/{name}.{'vcf' if vcf else 'csv'}"
        written[b.add(path, _vcards(entries) if vcf else _table(b, entries))] = tuple(entries)
    kept: dict[str, Entry] = {}
    for entry in (entry for entries in written.values() for entry in entries):
        if entry.key not in kept or kept[entry.key].updated < entry.updated:
            kept[entry.key] = entry
    by_name = r.random() < 0.5
    ordered = sorted(kept.values(), key=lambda e: e.name if by_name else e.key)
    target = f"{folder}/{r.choice(('all', 'merged', 'contacts', 'master', 'combined'))}.csv"
    rows = tuple((e.name, e.key, e.phone) for e in ordered)
    text = (
        f"{r.choice(('Merge the contact lists in', 'Make one list of all contacts in', 'Combine the lists of'))} "
        f"`{folder}` into `{target}` with the header `{','.join(HEADER)}`. Entries with the same mail address (upper "
        "and lower case aside) are one person: keep the entry that was changed last, with its name and phone as "
        f"written there. Mail addresses in lower case, rows sorted by {'name' if by_name else 'email'}. Leave the "
        "lists as they are."
    )
    wants = (*(_row_want(target, row) for row in rows), _whole_want(target, rows))
    return Goal(
        "merge", text, wants, frozenset({"write_file", "delete_file"}), Merge(written, target, tuple(ordered), rows)
    )


def _entry(b: Builder, company: Company) -> Entry:
    person: Person = b.names.person(company.domain)
    return Entry(person.name, person.email, person.phone, date(b.year, 12, 20))


def _variant(b: Builder, entry: Entry, ago: int) -> Entry:
    """An entry as another list has it: other case, an older number, a name with an initial."""
    r = b.random
    email = r.choice((entry.email, entry.email, entry.email.upper(), entry.email.title()))
    phone = entry.phone if r.random() < 0.5 else f"+{r.randint(20, 98)} {r.randint(10, 999)} {r.randint(1000, 9999)}"
    first, _, last = entry.name.partition(" ")
    name = r.choice((entry.name, entry.name, f"{first} {r.choice('ABCDEFGHJKLMNPRST')}. {last}"))
    return replace(entry, name=name, email=email, phone=phone, updated=entry.updated - timedelta(days=ago))


def _table(b: Builder, entries: list[Entry]) -> str:
    head, order, delimiter = b.random.choice(_HEADS)
    rows = [[e.name, e.email, e.phone, e.updated.isoformat()] for e in entries]
    return csv_text([head, *([row[place] for place in order] for row in rows)], delimiter)


def _vcards(entries: list[Entry]) -> str:
    cards = []
    for e in entries:
        first, _, last = e.name.rpartition(" ")
        cards.append(
            f"BEGIN:VCARD\nVERSION:3.0\nN:{last};{first};;;\nFN:{e.name}\nEMAIL:{e.email}\nTEL:{e.phone}\n"
            f"REV:{e.updated.isoformat()}\nEND:VCARD\n"
        )
    return "".join(cards)


def written_rows(final: Final, target: str) -> list[tuple[str, ...]]:
    """The rows of a CSV file that the run wrote, [] when it is not there or not CSV."""
    data = final.changed.get(("file", target), (None, None))[1]
    if not isinstance(data, bytes):
        return []
    try:
        return [tuple(row) for row in read_csv(data.decode("utf-8", "replace"))]
    except UnreadableDocumentError:
        return []


def _row_want(target: str, row: tuple[str, ...]) -> Want:
    def test(final: Final) -> tuple[str, set[Atom]]:
        count = written_rows(final, target).count(row)
        return "" if count == 1 else f"the row is there {count} times", {("file", target)}

    return Want(f"{target}: {row[0]}", test=test)


def _whole_want(target: str, rows: tuple[tuple[str, ...], ...]) -> Want:
    """Header, order, and no row too many."""

    def test(final: Final) -> tuple[str, set[Atom]]:
        found = written_rows(final, target)
        owned: set[Atom] = {("file", target)}
        if not found or [value.lower() for value in found[0]] != HEADER:
            return f"the header is not {','.join(HEADER)}", owned
        extra = [row for row in found[1:] if row not in set(rows)]
        if extra:
            return f"a row too many: {','.join(extra[0])}", owned
        return ("" if tuple(found[1:]) == rows else "rows missing or not in order"), owned

    return Want(f"{target}: header and order", test=test)
