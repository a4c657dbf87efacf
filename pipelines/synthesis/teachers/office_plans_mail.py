"""Plans of the office teacher for mail and calendars: reply, change requests, schedule clashes."""

from __future__ import annotations

from typing import Any

from pipelines.synthesis.environments.offices.calendars import Clash, Move
from pipelines.synthesis.environments.offices.letters import Ask, Letter, Replies, Requests
from pipelines.synthesis.environments.offices.world import Goal
from pipelines.synthesis.teachers.office_hand import OfficeHand, Wrong, listed, quote
from pipelines.synthesis.teachers.scripted import Plan

__all__ = ["plan_clashes", "plan_replies", "plan_requests"]


def plan_replies(t: OfficeHand, goal: Goal) -> Plan:
    """Read each mail, look up what it asks for, draft the answer."""
    plan: Replies = goal.plan
    yield from t.look(plan.inbox)
    sheet_read = False
    drafts = 0
    for letter in plan.letters:
        yield from t.read(letter.path)
        name = letter.path.rsplit("/", 1)[-1]
        if not letter.asks:
            t.think(
                "{n} asks nothing: no reply.",
                "{s} only informs us in {n}; nothing to answer.",
                "No question in {n}.",
                n=name,
                s=letter.sender.name,
            )
            continue
        orders = [ask for ask in letter.asks if ask.kind == "order"]
        articles = [ask for ask in letter.asks if ask.kind == "article"]
        if orders:
            yield from t.schema()
            numbers = ", ".join(quote(ask.key) for ask in orders)
            condition = f"= {numbers}" if len(orders) == 1 else f"IN ({numbers})"
            sql = f"SELECT number, article, pieces, amount, status, delivery FROM {plan.table} WHERE number {condition}"  # noqa: S608
            why = t.pick(
                "{s} asks about {k}.",
                "I look up {k} for {s}.",
                "{n} is about {k}; the database knows.",
                s=letter.sender.name,
                k=" and ".join(ask.key for ask in orders),
                n=name,
            )
            yield from t.query(sql, why, plan.table)
        if articles and not sheet_read:
            sheet_read = True
            yield from t.read(plan.sheet, "Prices and stock are in {n}.", "For the articles I need {n}.")
        yield from _draft(t, letter, [*orders, *articles])
        drafts += 1
    t.summary.append(f"{plan.inbox}: {drafts} of {len(plan.letters)} mails have a draft.")


def _sentence(t: OfficeHand, ask: Ask) -> str:
    if ask.kind == "article":
        return t.pick("The {a} costs {p}; {s} pieces are in stock.", "{a}: price {p}, in stock {s}.",
                      "For the {a} the price is {p}, and we have {s} of them in stock.",
                      a=ask.key, p=ask.facts[1], s=ask.facts[2])  # fmt: skip
    if "-" in ask.facts[1]:
        return t.pick(
            "Order {o} is due on {d}.",
            "The delivery date of order {o} is {d}.",
            "We deliver order {o} on {d}.",
            o=ask.key,
            d=ask.facts[1],
        )
    return t.pick("The amount of order {o} is {a}.", "Order {o} comes to {a}.", "For order {o} the sum is {a}.",
                  o=ask.key, a=ask.facts[1])  # fmt: skip


def _draft(t: OfficeHand, letter: Letter, asks: list[Ask]) -> Plan:
    sentences = [_sentence(t, ask) for ask in asks]
    closing = t.pick("Best regards", "Kind regards", "With best wishes", "Regards")
    greeting = (
        t.pick("Hello,", "Good day,", "Dear customer,")
        if letter.answer_to != letter.sender.email
        else f"Dear {letter.sender.name},"
    )
    thanks = t.pick(
        "thank you for your mail.", "thanks for asking.", "here is what you asked for.", "to your question:"
    )
    body = "\n\n".join([greeting, thanks, *sentences, f"{closing}\n{t.world.user}"]) + "\n"
    subject = f"Re: {letter.subject}"
    arguments = {"to": letter.answer_to, "subject": subject, "body": body, "in_reply_to": letter.identity}
    facts = [", ".join(ask.facts) for ask in asks]
    where = "the Reply-To address" if letter.answer_to != letter.sender.email else "the sender"
    why = t.pick(
        "The facts are {f} The reply goes to {w}, {a}.",
        "To state: {f} It has to go to {w} ({a}).",
        "Now I can answer {s}: {f} Recipient: {w}, {a}.",
        f=listed(facts), w=where, a=letter.answer_to, s=letter.sender.name,
    )  # fmt: skip
    wrong: Wrong = [
        ("wrong_message", {**arguments, "in_reply_to": letter.identity.strip("<>")}),
        ("wrong_message", {**arguments, "in_reply_to": letter.path.rsplit("/", 1)[-1]}),
        ("wrong_address", {**arguments, "to": letter.sender.name}),
    ]
    yield from t.go("draft_mail", arguments, why, wrong)


def plan_requests(t: OfficeHand, goal: Goal) -> Plan:
    """Read each mail, check the sender against the database, change the row."""
    plan: Requests = goal.plan
    yield from t.look(plan.inbox)
    changed = 0
    for letter in plan.letters:
        yield from t.read(letter.path)
        yield from t.schema()
        address = letter.sender.email
        why = t.pick(
            "Whose address is {a}?",
            "Is {a} registered?",
            "The row of {a}, if there is one.",
            "I look {a} up.",
            a=address,
        )
        yield from t.query(f"SELECT * FROM {plan.table} WHERE email = {quote(address)}", why, plan.table)  # noqa: S608
        row = plan.rows.get(address)
        if row is None:
            t.think("No row has {a}: the request is ignored.", "{a} is not registered, so nothing is changed.",
                    "An address that we do not know ({a}); by the rule I ignore the mail.", a=address)  # fmt: skip
            continue
        refused = [change for change in letter.changes if not change.granted]
        granted = [change for change in letter.changes if change.granted]
        for change in refused:
            t.think(
                "A limit of {v} is above {l}: not granted.",
                "{v} exceeds {l}, so the limit stays.",
                v=change.value,
                l=plan.limit,
            )
        if not granted:
            continue
        values = {change.column: change.value for change in granted}
        changed += 1
        yield from _update(t, plan, row, values)
    t.summary.append(f"{plan.inbox}: {changed} of {len(plan.letters)} requests carried out in {plan.table}.")


def _update(t: OfficeHand, plan: Requests, row: tuple[Any, ...], values: dict[str, str | int]) -> Plan:
    sets = ", ".join(f"{name} = {quote(v) if isinstance(v, str) else v}" for name, v in values.items())
    told = [f"{name} {row[plan.columns.index(name)]} becomes {value}" for name, value in values.items()]
    why = t.pick(
        "Row {i} ({c}): {x}",
        "{c} has the id {i}. {x}",
        "The sender is {c}, id {i}: {x}",
        "So in row {i}: {x}",
        i=row[0], c=row[1], x=listed(told),
    )  # fmt: skip
    sql = f"UPDATE {plan.table} SET {sets} WHERE id = {row[0]}"  # noqa: S608
    column = next(iter(values))
    other = {
        "phone": "telephone",
        "address": "street",
        "status": "state",
        "credit_limit": "limit_amount",
        "contact": "person",
    }
    wrong: Wrong = [
        ("bad_sql", {"sql": sql.partition(" WHERE")[0]}),
        ("bad_sql", {"sql": sql.replace(f"{column} =", f"{other[column]} =", 1)}),
        ("no_such_row", {"sql": sql.replace(f"id = {row[0]}", f"id = {row[0] + 2000}")}),
        ("no_such_row", {"sql": sql.replace(f"id = {row[0]}", f"company = {quote(row[1].upper() + ' ')}")}),
        ("bad_sql", {"sql": sql.replace(" WHERE", ", status = 'changed' WHERE")}),
    ]
    yield from t.go("update_database", {"sql": sql}, why, wrong)


def plan_clashes(t: OfficeHand, goal: Goal) -> Plan:
    """Read all calendars, then for each clash look at the days in question and move the meeting."""
    plan: Clash = goal.plan
    yield from t.look(plan.folder)
    yield from t.read(plan.path, "First the meetings: {n}.", "Which meetings are there? {n} has them.")
    for path in sorted(plan.calendars):
        yield from t.read(path)
        owner = plan.calendars[path]
        mine = [
            move for move in plan.moves if move.against in _entries(t, path) and owner.email in move.meeting.attendees
        ]
        for move in mine:
            t.think(
                "{o}: {e} at {s:%Y-%m-%d %H:%M} clashes with {m}.",
                "{m} overlaps {e} of {o} on {s:%Y-%m-%d}, {s:%H:%M}.",
                o=owner.name,
                e=move.against.summary,
                s=move.against.start,
                m=move.meeting.summary,
            )
    if len(plan.moves) > 1:
        order = [f"{move.meeting.summary} ({move.meeting.start:%m-%d %H:%M})" for move in plan.moves]
        t.think(
            "To be moved, in this order: {o}",
            "{c} meetings clash. In order of start: {o}",
            o=listed(order),
            c=len(order),
        )
    for move in plan.moves:
        yield from _reschedule(t, plan, move)
    t.summary.append(f"{plan.path}: {len(plan.moves)} meeting{'s' if len(plan.moves) != 1 else ''} moved.")


def _entries(t: OfficeHand, path: str) -> set[Any]:
    from pipelines.synthesis.environments.offices.documents import read_calendar

    return set(read_calendar(t.world.files[path])[1])


def _reschedule(t: OfficeHand, plan: Clash, move: Move) -> Plan:
    meeting = move.meeting
    days = sorted({day.date().isoformat() for day in (meeting.start, move.start, *(start for start, _ in move.tried))})
    for day in days:
        why = t.pick(
            "What is on {d}, for {m}?",
            "All entries of {d}, to find room for {m}.",
            "{m}: I look at {d}.",
            "The day {d}.",
            d=day,
            m=meeting.summary,
        )
        near: Wrong = [("wrong_path", {"text": day, "path": f"{plan.folder}s"})]
        yield from t.go("search_text", {"text": day, "path": plan.folder}, why, near)
    tried = [f"{start:%m-%d %H:%M} meets {what}" for start, what in move.tried]
    length = int((meeting.end - meeting.start).total_seconds() // 60)
    minutes = f"{length} minutes with {', '.join(meeting.attendees)}"
    how = f"{listed(tried)} " if tried else ""
    why = t.pick(
        "{m} needs {l}. {h}Free for all is {s:%Y-%m-%d %H:%M}.",
        "For {m} ({l}): {h}The first start that works is {s:%Y-%m-%d %H:%M}.",
        "{l}: {h}So {m} goes to {s:%Y-%m-%d %H:%M}.",
        m=meeting.summary, l=minutes, h=how, s=move.start,
    )  # fmt: skip
    arguments = {"path": plan.path, "uid": meeting.uid, "start": f"{move.start:%Y-%m-%d %H:%M}"}
    own = t.random.choice(sorted(plan.calendars))
    wrong: Wrong = [
        ("wrong_event", {**arguments, "uid": meeting.summary}),
        ("wrong_calendar", {**arguments, "path": own}),
        ("wrong_argument", {**arguments, "start": f"{move.start:%H:%M}"}),
        ("wrong_argument", {**arguments, "start": f"{move.start:%d.%m.%Y %H:%M}"}),
    ]
    yield from t.go("move_event", arguments, why, wrong)
