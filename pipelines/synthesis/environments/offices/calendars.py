"""Kind `clash`: meetings that overlap appointments of those invited, to be moved to the first slot that is free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta

from pipelines.synthesis.environments.offices.documents import Appointment, make_calendar
from pipelines.synthesis.environments.offices.words import ROOMS, TOPICS, Person, slug
from pipelines.synthesis.environments.offices.world import Builder, Goal, Want, size_between

__all__ = ["Clash", "Move", "blocker", "first_slot", "make_clashes", "slots"]

HALF = timedelta(minutes=30)
MEETINGS = "meetings.ics"


@dataclass(frozen=True, slots=True)
class Move:
    """A meeting, the appointment (or meeting) that it overlaps, and where it goes."""

    meeting: Appointment
    against: Appointment
    start: datetime
    tried: tuple[tuple[datetime, str], ...]  # starts before it and what stood in the way


@dataclass(frozen=True, slots=True)
class Clash:
    """What the teacher knows. `calendars` are path to owner; opening and closing are hours of the day."""

    folder: str
    path: str
    calendars: dict[str, Person]
    opens: int
    closes: int
    moves: tuple[Move, ...]


def make_clashes(b: Builder, budget: float) -> Goal:
    """Calendars of several people over some weeks and a calendar of meetings, some of which overlap."""
    count = size_between(budget, 900, 470 + 770 * b.detail, 1, 60)
    r, area = b.random, b.area()
    folder = b.folder(f"{area}/{r.choice(('Calendars', 'Calendar', 'Schedules', 'Team calendar'))}")
    people = r.sample(b.staff, min(len(b.staff), max(2, min(10, 2 + count // 2))))
    opens, closes = r.choice(((9, 17), (8, 17), (9, 18), (8, 16)))
    first = b.day(r.randint(1, 11))
    first -= timedelta(days=first.weekday())
    days = [first + timedelta(days=n) for n in range(7 * max(1, round(count / 4))) if n % 7 < 5]
    own = {person.email: _own(b, days, opens, closes) for person in people}
    meetings = _meetings(b, people, days, own, opens, closes, count)
    moves = _moves(meetings, own, opens, closes)
    path = b.add(f"{folder}/{MEETINGS}", make_calendar("meetings", r.sample(meetings, len(meetings))))
    calendars = {}
    for person in people:
        name = b.add(f"{folder}/{slug(person.name)}.ics", make_calendar(person.email, own[person.email]))
        calendars[name] = person
    text = (
        f"{r.choice(('Solve the clashes in', 'Some meetings clash in', 'Please mend the schedule in'))} `{path}`: "
        "every meeting that overlaps an entry in the calendar of one of its attendees (same folder) must move to the "
        "earliest start, on a full or half hour and after its present one, at which all its attendees are free of "
        f"own entries and of other meetings. Meetings lie on Monday to Friday between {opens}:00 and {closes}:00 and "
        "keep 12:00-13:00 free. Move them one after the other in the order of their present start, each keeps its "
        "length; everything else stays."
    )
    wants = tuple(
        Want(
            f"{move.meeting.summary} of {move.meeting.start:%Y-%m-%d %H:%M}",
            {("event", path, move.meeting.uid): _moved(move.meeting, move.start)},
        )
        for move in moves
    )
    plan = Clash(folder, path, calendars, opens, closes, tuple(moves))
    return Goal("clash", text, wants, frozenset({"move_event"}), plan)


def _own(b: Builder, days: Sequence[date], opens: int, closes: int) -> list[Appointment]:
    """A person's entries: one to three a day, not overlapping, a part of the days free."""
    r = b.random
    found: list[Appointment] = []
    for day in days:
        for _ in range(r.choice((0, 1, 1, 2, 2, 3))):
            start = datetime.combine(day, time(r.randint(opens, closes - 1), r.choice((0, 30))))
            end = start + HALF * r.choice((1, 1, 2, 2, 3))
            if end.hour + end.minute / 60 <= closes and not any(e.start < end and start < e.end for e in found):
                found.append(Appointment(b.names.code("?##??##"), r.choice(TOPICS), start, end, (), r.choice(ROOMS)))
    return sorted(found, key=lambda event: event.start)


def _meetings(
    b: Builder,
    people: Sequence[Person],
    days: Sequence[date],
    own: dict[str, list[Appointment]],
    opens: int,
    closes: int,
    clashing: int,
) -> list[Appointment]:
    """Meetings that are free of one another; `clashing` of them overlap an own entry of an attendee."""
    r = b.random
    made: list[Appointment] = []
    clashes = quiet = attempts = 0
    while clashes < clashing or (quiet < clashing // 2 + 1 and attempts < clashing * 60):
        attempts += 1
        invited = r.sample(people, min(len(people), r.choice((2, 2, 3, 3, 4))))
        start = datetime.combine(r.choice(days), time(r.randint(opens, closes - 1), r.choice((0, 30))))
        length = HALF * r.choice((1, 2, 2, 3))
        addresses = tuple(sorted(person.email for person in invited))
        title = f"{r.choice(TOPICS)} {b.names.project()}"
        if attempts > clashing * 40 and own[addresses[0]]:  # crowded weeks: begin where someone has an entry
            start = r.choice(own[addresses[0]]).start
        meeting = Appointment(b.names.code("m-##??##"), title, start, start + length, addresses, r.choice(ROOMS))
        if not _within(meeting.start, length, opens, closes):
            continue
        if blocker(meeting, start, {}, made) is not None:
            if attempts > 400 * (clashing + 1):
                raise ValueError("no room for the meetings of this task")
            continue
        against = blocker(meeting, start, own, ())
        if against is not None and clashes < clashing:
            clashes += 1
            made.append(meeting)
        elif against is None and quiet < clashing // 2 + 1:
            quiet += 1
            made.append(meeting)
    return made


def _within(start: datetime, length: timedelta, opens: int, closes: int) -> bool:
    """Whether a slot lies on a working day within hours and off the lunch hour."""
    day = start.replace(hour=0, minute=0)
    end = start + length
    lunch = (day + timedelta(hours=12), day + timedelta(hours=13))
    return (
        start.weekday() < 5
        and day + timedelta(hours=opens) <= start
        and end <= day + timedelta(hours=closes)
        and not (start < lunch[1] and lunch[0] < end)
    )


def blocker(
    meeting: Appointment, start: datetime, own: dict[str, list[Appointment]], others: Iterable[Appointment]
) -> Appointment | None:
    """What overlaps a meeting at a start: an own entry of an attendee, or another meeting with one of them; or None."""
    end = start + (meeting.end - meeting.start)
    for address in meeting.attendees:
        for entry in own.get(address, ()):
            if entry.start < end and start < entry.end:
                return entry
    for other in others:
        shared = set(other.attendees) & set(meeting.attendees)
        if shared and other.uid != meeting.uid and other.start < end and start < other.end:
            return other
    return None


def slots(meeting: Appointment, opens: int, closes: int) -> Iterable[datetime]:
    """Starts after the present one that lie within working hours, in order."""
    start = meeting.start + HALF
    while True:
        if _within(start, meeting.end - meeting.start, opens, closes):
            yield start
        start += HALF


def first_slot(
    meeting: Appointment, own: dict[str, list[Appointment]], others: Sequence[Appointment], opens: int, closes: int
) -> tuple[datetime, list[tuple[datetime, str]]]:
    """(the first free start, starts tried before it with what is there)."""
    tried: list[tuple[datetime, str]] = []
    for start in slots(meeting, opens, closes):
        against = blocker(meeting, start, own, others)
        if against is None:
            return start, tried
        tried.append((start, against.summary))
    raise AssertionError("slots never end")


def _moves(meetings: Sequence[Appointment], own: dict[str, list[Appointment]], opens: int, closes: int) -> list[Move]:
    """What is to be moved, in order; a moved meeting counts at its new place for those after it."""
    now = {meeting.uid: meeting for meeting in meetings}
    moves = []
    for meeting in sorted(meetings, key=lambda one: (one.start, one.uid)):
        against = blocker(meeting, meeting.start, own, ())
        if against is not None:
            start, tried = first_slot(meeting, own, list(now.values()), opens, closes)
            now[meeting.uid] = _moved(meeting, start)
            moves.append(Move(meeting, against, start, tuple(tried)))
    return moves


def _moved(meeting: Appointment, start: datetime) -> Appointment:
    return replace(meeting, start=start, end=start + (meeting.end - meeting.start))
