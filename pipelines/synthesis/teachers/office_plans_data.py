"""Plans of the office teacher for numbers: reconcile, answer, fill a sheet."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from pipelines.synthesis.environments.offices.accounts import REPORT_HEADER, Reconciliation
from pipelines.synthesis.environments.offices.documents import csv_text
from pipelines.synthesis.environments.offices.papers import Invoice
from pipelines.synthesis.environments.offices.questions import Inquiry, Project, Question
from pipelines.synthesis.environments.offices.sheets import Entry, Filling, Source
from pipelines.synthesis.environments.offices.words import amount
from pipelines.synthesis.environments.offices.world import Goal
from pipelines.synthesis.teachers.office_hand import OfficeHand, Wrong, listed
from pipelines.synthesis.teachers.scripted import Plan

__all__ = ["plan_questions", "plan_reconciling", "plan_sheet"]

CELLS_A_CALL = 20
ROWS_A_QUERY = 100


def plan_reconciling(t: OfficeHand, goal: Goal) -> Plan:
    """Sum every invoice, look up what is booked, compare, write the report."""
    plan: Reconciliation = goal.plan
    yield from t.look(plan.folder)
    for path, invoice in plan.invoices.items():
        yield from t.read(path)
        _sum_invoice(t, invoice)
    if plan.table:
        yield from t.schema()
        numbers = {booking.number for booking in plan.bookings}
        for offset in range(0, len(numbers), ROWS_A_QUERY):
            sql = f"SELECT invoice, COUNT(*) AS entries, SUM(amount) AS booked FROM {plan.table} GROUP BY invoice ORDER BY invoice"  # noqa: S608, E501
            if len(numbers) > ROWS_A_QUERY:
                sql += f" LIMIT {ROWS_A_QUERY} OFFSET {offset}"
            why = t.pick(
                "What is booked for each invoice?",
                "Now the booked sums from {p}.",
                "The entries of {p}, added up.",
                p=plan.table,
            )
            yield from t.query(sql, why, plan.table)
    else:
        yield from t.read(
            plan.sheet, "Now the bookings in {n}.", "The other side is in {n}.", "And what does {n} have?"
        )
    _compare(t, plan)
    content = csv_text([REPORT_HEADER, *plan.rows])
    folder, _, name = plan.report.rpartition("/")
    wrong: Wrong = [
        ("wrong_folder", {"path": f"{folder}/reports/{name}", "content": content}),
        ("wrong_format", {"path": f"{folder}/{name.removesuffix('.csv')}.xlsx", "content": content}),
        ("target_taken", {"path": t.random.choice(list(plan.invoices)), "content": content}),
    ]
    why = t.pick("{n} numbers differ; they go into {p}.", "I write {p} with {n} rows.", "So {p} gets {n} rows.",
                 n=len(plan.rows), p=plan.report)  # fmt: skip
    yield from t.go("write_file", {"path": plan.report, "content": content}, why, wrong)
    t.summary.append(f"{plan.report}: {len(plan.rows)} invoice numbers differ; {len(plan.invoices)} invoices read.")


def _sum_invoice(t: OfficeHand, invoice: Invoice) -> None:
    products = [quantity * price for _, quantity, price in invoice.lines]
    worked = [f"{q} x {amount(p)} = {amount(q * p)}" for _, q, p in invoice.lines]
    if len(products) > 3 and t.random.random() < 0.5:
        sums = ", ".join(amount(value) for value in accumulate(products))
        how = f"{', '.join(worked)}; running sum {sums}"
    else:
        how = ", ".join(worked)
    t.think(
        "{n} of {s}: {h}. Total {v}.",
        "Invoice {n}: {h}; together {v}.",
        "{h}. So {n} comes to {v}.",
        "Line by line for {n}: {h}. The sum is {v}.",
        n=invoice.number, s=invoice.supplier.name, h=how, v=amount(invoice.total),
    )  # fmt: skip


def _compare(t: OfficeHand, plan: Reconciliation) -> None:
    entries: dict[str, list[str]] = {}
    for booking in plan.bookings:
        entries.setdefault(booking.number, []).append(amount(booking.cents))
    invoiced = {invoice.number: amount(invoice.total) for invoice in plan.invoices.values()}
    differing = {row[0]: row for row in plan.rows}
    if plan.table:  # the query shows how many entries there are and their sum
        several = {number: f" ({len(parts)} entries)" for number, parts in entries.items() if len(parts) > 1}
        sums = {number: amount(sum(b.cents for b in plan.bookings if b.number == number)) for number in several}
        entries |= {number: [sums[number] + several[number]] for number in several}
    lines = []
    for number in sorted(invoiced.keys() | entries.keys()):
        one, other = invoiced.get(number, "no invoice"), " + ".join(entries.get(number, ["not booked"]))
        verdict = f"difference {differing[number][3]}" if number in differing else "equal"
        lines.append(f"{number}: {one} against {other}, {verdict}")
    t.think(
        "Side by side:\n{l}", "Comparing:\n{l}", "Number by number, invoiced against booked:\n{l}", l="\n".join(lines)
    )


def plan_questions(t: OfficeHand, goal: Goal) -> Plan:
    """Read every note, keep what the questions need, then put it together."""
    plan: Inquiry = goal.plan
    yield from t.look(plan.folder)
    for project in plan.projects:
        yield from t.read(project.path)
        _note_project(t, project, plan.questions)
    for question in plan.questions:
        parts = [f"{name} {value}" for name, value in question.parts]
        if question.how == "sum":
            how = (
                f"{' + '.join(value for _, value in question.parts)} = {question.answer}" if parts else question.answer
            )
            t.think(
                "Question {q}: {p} {h}.",
                "({q}) {p} Added up: {h}.",
                q=question.number,
                p=listed(parts) if parts else "",
                h=how,
            )
        elif not parts:
            t.think(
                "Question {q}: no project is one of these, so {a}.",
                "({q}) None fits: {a}.",
                q=question.number,
                a=question.answer,
            )
        else:
            t.think(
                "Question {q}: {p} That gives {a}.",
                "({q}) {p} So it is {a}.",
                "For question {q} I go through {p} The answer is {a}.",
                q=question.number,
                p=listed(parts),
                a=question.answer,
            )
        t.answers[question.number] = question.answer
    t.summary.append(f"{plan.folder}: read {len(plan.projects)} notes.")


def _note_project(t: OfficeHand, project: Project, questions: tuple[Question, ...]) -> None:
    facts = [f"lead {project.lead}", f"budget {amount(project.budget)}", f"deadline {project.deadline.isoformat()}"]
    t.random.shuffle(facts)
    hours = [entry[2] for entry in project.entries]
    text = f"hours {' + '.join(map(str, hours))} = {project.hours()}"
    asked = [q.text for q in questions if "hours did" in q.text]
    for person in sorted({entry[1] for entry in project.entries}):
        if any(person in question for question in asked):
            own = [entry[2] for entry in project.entries if entry[1] == person]
            text += f"; of these {person} {' + '.join(map(str, own))} = {sum(own)}"
    t.think(
        "{n}: {f}; {h}.",
        "Noted for {n}: {f}. The {h}.",
        "{n} has {f}; {h}.",
        "So {n} ({c}): {f}, {h}.",
        n=project.name, f=", ".join(facts), h=text, c=project.client.name,
    )  # fmt: skip


def plan_sheet(t: OfficeHand, goal: Goal) -> Plan:
    """Read the sheet and the papers; a paper with a cell of its own is entered at once, sums come at the end."""
    plan: Filling = goal.plan
    yield from t.look(plan.folder)
    yield from t.read(plan.sheet, "The sheet first: {n}.", "What does {n} look like?", "I need the layout of {n}.")
    waiting: list[Source] = []
    for source in plan.sources:
        yield from t.read(source.path)
        name = source.path.rsplit("/", 1)[-1]
        if not source.amounts:
            t.think(
                "{n} does not count, by the rule.",
                "{n} is not valid any more, so it is left out.",
                "I skip {n}, as asked.",
                n=name,
            )
        elif plan.at_once:
            row, column, _, how = source.amounts[0]
            entry = plan.entries[row, column]
            why = t.pick(
                "{r}, {c}: {h}. That is cell {p}.",
                "{h} hours for {r} in {c}, cell {p}.",
                "{n} adds up to {h}; it goes to {p}.",
                r=row,
                c=column,
                h=how,
                p=entry.place,
                n=name,
            )
            yield from _edit(t, plan, [entry], why)
        else:
            waiting.append(source)
            moves = ", ".join(f"{row} {how}" for row, _, _, how in source.amounts)
            t.think("{n}: {m}.", "From {n}: {m}.", "{n} books {m}.", n=name, m=moves)
    entries = list(plan.entries.values()) if not plan.at_once else []
    for first in range(0, len(entries), CELLS_A_CALL):
        group = entries[first : first + CELLS_A_CALL]
        lines = [
            f"{one.row} ({one.place}): {one.before}{''.join(f' {part:+d}' for part in one.parts)} = {one.value}"
            for one in group
        ]
        t.think("The new stock:\n{l}", "Article by article:\n{l}", "Sums:\n{l}", l="\n".join(lines))
        yield from _edit(
            t, plan, group, t.pick("I enter these.", "Into the sheet with them.", "These cells are to be set.")
        )
    t.summary.append(f"{plan.sheet}: {len(plan.entries)} cell{'s' if len(plan.entries) != 1 else ''} entered.")


def _edit(t: OfficeHand, plan: Filling, entries: list[Entry], why: str) -> Plan:
    cells = [{"cell": entry.place, "value": entry.value} for entry in entries]
    arguments: dict[str, Any] = {"path": plan.sheet, "sheet": plan.page, "cells": cells}
    row = entries[0].place.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    column = entries[0].place.removesuffix(row)

    def instead(place: str) -> dict[str, Any]:
        return {**arguments, "cells": [{"cell": place, "value": entries[0].value}, *cells[1:]]}

    wrong: Wrong = [
        ("wrong_column", instead(f"A{row}")),
        ("missing_cell", instead(f"{column}{int(row) + 400}")),
        ("wrong_column", instead(f"{column}1")),
        ("wrong_sheet", {**arguments, "sheet": "Sheet1"}),
        ("wrong_path", {**arguments, "path": plan.sheet.rsplit("/", 1)[-1]}),
    ]
    yield from t.go("edit_sheet", arguments, why, wrong)
