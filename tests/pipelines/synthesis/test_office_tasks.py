"""Office tasks: seeded, distinct, with deterministic documents; never solved before anyone began."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.synthesis.environments.base import TaskSpec, open_environment
from pipelines.synthesis.environments.office import OfficeEnvironment
from pipelines.synthesis.environments.offices.accounts import Reconciliation
from pipelines.synthesis.environments.offices.calendars import Clash, blocker
from pipelines.synthesis.environments.offices.documents import (
    Appointment,
    UnreadableDocumentError,
    csv_text,
    make_calendar,
    make_mail,
    make_sheet,
    read_calendar,
    read_csv,
    read_mail,
    read_sheets,
    shown_text,
)
from pipelines.synthesis.environments.offices.letters import states
from pipelines.synthesis.environments.offices.plan import KINDS, target_tokens
from pipelines.synthesis.environments.offices.world import Builder, Goal, same_value
from schemas.errors import UsageError


@pytest.fixture(scope="module")
def environment() -> Iterator[OfficeEnvironment]:
    with open_environment("office") as opened:
        assert isinstance(opened, OfficeEnvironment)
        yield opened


def made(kind: str, seed: int, difficulty: float) -> tuple[Builder, Goal]:
    """One goal of a kind in an office of its own."""
    builder = Builder(random.Random(seed), difficulty)
    return builder, KINDS[kind][0](builder, target_tokens(difficulty))


def test_tasks_differ_in_instruction_and_in_state(environment: OfficeEnvironment) -> None:
    tasks = [environment.generate(seed, 1 + seed % 3) for seed in range(250)]
    assert len({task.data["digest"] for task in tasks}) == 250
    assert len({task.instruction for task in tasks}) == 250
    kinds = Counter(kind for task in tasks for kind in task.data["kinds"])
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 10


def test_nothing_is_met_before_the_work_begins(environment: OfficeEnvironment) -> None:
    for seed in range(40):
        task = environment.generate(seed, 1 + seed % 5)
        assert environment.reset(task) == task.instruction
        outcome = environment.verify()
        assert (outcome.success, outcome.reward) == (False, 0.0)
        verdict = environment.verdict()
        assert (verdict.met, verdict.touched) == (0, [])
        assert verdict.total == task.data["subgoals"] > 0


def test_a_task_is_the_same_in_another_process_and_after_serialising(environment: OfficeEnvironment) -> None:
    task = environment.generate(31, 6)
    assert TaskSpec.from_json(task.to_json()) == task
    program = (
        "from pipelines.synthesis.environments.office import OfficeEnvironment;"
        "print(OfficeEnvironment().generate(31, 6).to_json(), end='')"
    )
    again = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert again.stdout == task.to_json()


def test_a_task_of_another_version_is_refused(environment: OfficeEnvironment) -> None:
    task = environment.generate(1, 1)
    with pytest.raises(UsageError, match="another version"):
        environment.reset(replace(task, data={**task.data, "digest": "0" * 32}))
    for difficulty in (0.9, 10.5):
        with pytest.raises(UsageError, match="1 to 10"):
            environment.generate(1, difficulty)
    with pytest.raises(UsageError, match="reset"):
        OfficeEnvironment().verify()


def test_sizes_grow_with_difficulty(environment: OfficeEnvironment) -> None:
    medians = []
    for difficulty in (1, 4, 7, 10):
        files = sorted(environment.generate(seed, difficulty).data["files"] for seed in range(3))
        medians.append(files[1])
    assert medians == sorted(medians)
    assert medians[0] <= 5
    assert medians[-1] > 150
    assert target_tokens(1) < 2000 < 150_000 < target_tokens(10)


def test_tools_of_a_task_are_those_that_its_goals_need(environment: OfficeEnvironment) -> None:
    for seed in range(20):
        task = environment.generate(seed, 1)
        environment.reset(task)
        names = [tool["function"]["name"] for tool in environment.tools]
        assert names == task.data["tools"]
        assert ("update_database" in names) == ("requests" in task.data["kinds"])
        assert names[:3] == ["list_folder", "read_file", "search_text"]


def test_reports_agree_with_sums_made_from_the_documents(environment: OfficeEnvironment) -> None:
    """The expected report again from nothing but the bytes of the invoices and the ledger."""
    for seed in range(20):
        builder, goal = made("reconcile", seed, 4)
        plan: Reconciliation = goal.plan
        invoiced: dict[str, Fraction] = {}
        for path in plan.invoices:
            rows = read_csv(builder.files[path].decode().replace(";", ","))
            lines = [row for row in rows if len(row) == 3][1:]
            number = plan.invoices[path].number
            assert any(number in row for row in rows)
            invoiced[number] = sum((Fraction(q) * Fraction(p) for _, q, p in lines), Fraction(0))
        if plan.sheet:
            grid, last, _ = read_sheets(builder.files[plan.sheet])[plan.page]
            ledger = [(str(grid[f"B{row}"]), grid[f"D{row}"]) for row in range(2, last + 1)]
        else:
            ledger = [(row[1], row[3]) for row in builder.tables[plan.table].rows]
        booked: dict[str, Fraction] = {}
        for number, value in ledger:
            booked[number] = booked.get(number, Fraction(0)) + Fraction(str(value))
        differing = sorted(n for n in {*invoiced, *booked} if invoiced.get(n, 0) != booked.get(n, 0))
        assert [row[0] for row in plan.rows] == differing != []
        for number, one, other, rest in plan.rows:
            assert Fraction(one) == invoiced.get(number, 0)
            assert Fraction(other) == booked.get(number, 0)
            assert Fraction(rest) == Fraction(one) - Fraction(other)


def test_moved_meetings_clash_no_more_and_no_earlier_start_was_free() -> None:
    for seed in range(12):
        builder, goal = made("clash", seed, 5)
        plan: Clash = goal.plan
        own = {owner.email: list(read_calendar(builder.files[path])[1]) for path, owner in plan.calendars.items()}
        now = {meeting.uid: meeting for meeting in read_calendar(builder.files[plan.path])[1]}
        clashing = {m.uid for m in now.values() if blocker(m, m.start, own, ())}
        assert clashing == {move.meeting.uid for move in plan.moves} != set()
        for move in plan.moves:
            for start, _ in move.tried:
                assert blocker(move.meeting, start, own, now.values()) is not None
            length = move.meeting.end - move.meeting.start
            now[move.meeting.uid] = replace(move.meeting, start=move.start, end=move.start + length)
            assert blocker(now[move.meeting.uid], move.start, own, now.values()) is None
            assert move.start.weekday() < 5
            assert plan.opens <= move.start.hour < plan.closes


def test_documents_read_back_and_depend_on_their_content_only() -> None:
    event = Appointment(
        "u-1", "Stock count", datetime(2026, 3, 4, 9, 30), datetime(2026, 3, 4, 10), ("a@b.example",), "Loft"
    )
    data = make_calendar("a@b.example", [event])
    assert read_calendar(data) == ("a@b.example", (event,))
    assert shown_text("x.ics", data).split("\n")[1] == (
        "2026-03-04 09:30-10:00 | Stock count | Loft | a@b.example | uid u-1"
    )
    sheet = make_sheet({"Hours": [["name", "W10"], ["Ada", 7], ["Bo", None], ["Cy", 1.5]]})
    assert sheet == make_sheet({"Hours": [["name", "W10"], ["Ada", 7], ["Bo", None], ["Cy", 1.5]]})
    assert read_sheets(sheet)["Hours"][0] == {
        "A1": "name",
        "B1": "W10",
        "A2": "Ada",
        "B2": 7,
        "A3": "Bo",
        "A4": "Cy",
        "B4": 1.5,
    }
    assert (
        shown_text("x.xlsx", sheet) == "Sheet Hours\nrow | A | B\n1 | name | W10\n2 | Ada | 7\n3 | Bo | \n4 | Cy | 1.5"
    )
    mail = make_mail({"From": "Zoë <z@b.example>", "Subject": "Größe", "Message-ID": "<1@b.example>"}, "Füße\n")
    headers, body = read_mail(mail)
    assert (headers["subject"], headers["message-id"], body) == ("Größe", "<1@b.example>", "Füße\n")
    with pytest.raises(ValueError, match="header"):
        make_mail({"Subject": "a\nBcc: all@b.example"}, "x")
    for path in ("x.xlsx", "x.ics"):
        with pytest.raises(UnreadableDocumentError):
            shown_text(path, b"not what it says")


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1), min_size=2, max_size=3)
    )
)
def test_csv_rows_come_back(rows: list[list[str]]) -> None:
    assert read_csv("\ufeff" + csv_text(rows)) == rows


@pytest.mark.parametrize(
    ("body", "fact", "stated"),
    [
        ("It costs 1,234.50 today.", "1234.50", True),
        ("It costs 11234.50.", "1234.50", False),
        ("Delivery on 2026-03-04, as said", "2026-03-04", True),
        ("57 pieces", "57", True),
        ("57.5 pieces", "57", False),
        ("order AB1234.", "AB1234", True),
        ("order AB12345", "AB1234", False),
        ("the Zip Bag costs", "zip bag", True),
    ],
)
def test_facts_are_found_as_words_of_their_own(body: str, fact: str, stated: bool) -> None:
    assert states(body, fact) is stated


def test_values_are_equal_to_half_a_cent() -> None:
    assert same_value(1.5, 1.504)
    assert same_value((1, "a"), (1.0, "a"))
    assert not same_value(1.5, 1.51)
    assert not same_value("1.5", 1.5)
    assert not same_value((1,), (1, 2))
    assert not same_value(None, date(2026, 1, 1))
