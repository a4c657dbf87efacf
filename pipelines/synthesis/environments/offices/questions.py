"""Kind `answer`: questions whose answers take all notes of a folder; the answers go in the final turn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pipelines.synthesis.environments.offices.papers import report_note
from pipelines.synthesis.environments.offices.words import CITIES, TOPICS, Company, amount
from pipelines.synthesis.environments.offices.world import ANSWERS, Atom, Builder, Final, Goal, Want, size_between
from pipelines.synthesis.environments.problems.base import same_answer

__all__ = ["Inquiry", "Project", "Question", "make_questions"]


@dataclass(frozen=True, slots=True)
class Project:
    """One project note; `entries` are (day, person, hours, work)."""

    path: str
    name: str
    client: Company
    lead: str
    city: str
    budget: int
    deadline: date
    entries: tuple[tuple[date, str, int, str], ...]

    def hours(self, person: str | None = None) -> int:
        """Hours booked, of all or of one person."""
        return sum(hours for _, who, hours, _ in self.entries if person in (None, who))


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its number, its answer and, for the teacher, the parts that the answer is made of."""

    number: int
    text: str
    answer: str
    parts: tuple[tuple[str, str], ...]  # (project, what it contributes)
    how: str


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What the teacher knows."""

    folder: str
    projects: tuple[Project, ...]
    questions: tuple[Question, ...]


def make_questions(b: Builder, budget: float) -> Goal:
    """Project notes and one to five questions about all of them."""
    count = size_between(budget, 300, 110 + 480 * b.detail, 2, 130)
    r, area = b.random, b.area()
    folder = b.folder(f"{area}/{r.choice(('Projects', 'Project notes', 'Status', 'Notes', 'Reports'))}")
    leads = [person.name for person in b.staff[: 2 + min(6, count // 3)]]
    projects = tuple(sorted((_project(b, folder, leads) for _ in range(count)), key=lambda project: project.path))
    makers = r.sample(_MAKERS, min(len(_MAKERS), 1 + round(b.detail * 5)))
    questions = []
    for maker in makers:
        number = b.question()
        text, answer, parts, how = maker(b, projects)
        questions.append(Question(number, text, answer, tuple(parts), how))
    told = " ".join(f"({q.number}) {q.text}" for q in questions)
    last = f"`{ANSWERS} {questions[0].number}: …`" + (
        f" to `{ANSWERS} {questions[-1].number}: …`" if len(questions) > 1 else ""
    )
    opening = r.choice(
        ("From the notes in `{f}`:", "Read the project notes in `{f}` and tell me:", "I need to know from `{f}`:")
    )
    text = (
        f"{opening.format(f=folder)} {told} Give each in a line of its own at the end of your final message: {last}. "
    )
    text += "Dates as YYYY-MM-DD, amounts with two decimals, names as written. Change nothing there."
    wants = tuple(_want(question) for question in questions)
    return Goal("answer", text, wants, frozenset(), Inquiry(folder, projects, tuple(questions)))


def _project(b: Builder, folder: str, leads: list[str]) -> Project:
    r = b.random
    name, client = b.names.project(), b.names.company()
    people = r.sample([person.name for person in b.staff], 2 + round(2 * b.detail))
    entries = tuple(
        sorted((b.day(), r.choice(people), r.randint(1, 9), r.choice(TOPICS).lower()) for _ in range(b.lines(3, 40)))
    )
    lead, city, budget, deadline = r.choice(leads), r.choice(CITIES), b.cents(900, 60_000), b.day()
    facts = [
        ("client", client.name), ("lead", lead), ("site", city), ("budget", amount(budget)),
        ("deadline", deadline.isoformat()),
    ]  # fmt: skip
    r.shuffle(facts)
    lines = [f"{day.isoformat()} {who}: {hours} h, {work}" for day, who, hours, work in entries]
    path = f"{folder}/{name.lower().replace(' ', '-')}.md"
    b.add(path, report_note(f"Project {name}", facts, "Hours", lines))
    return Project(path, name, client, lead, city, budget, deadline, entries)


Made = tuple[str, str, list[tuple[str, str]], str]


def _hours_of_person(b: Builder, projects: tuple[Project, ...]) -> Made:
    who = b.random.choice(sorted({entry[1] for project in projects for entry in project.entries}))
    parts = [(p.name, str(p.hours(who))) for p in projects if p.hours(who)]
    return f"how many hours did {who} book in all?", str(sum(p.hours(who) for p in projects)), parts, "sum"


def _budget_of_lead(b: Builder, projects: tuple[Project, ...]) -> Made:
    lead = b.random.choice(sorted({project.lead for project in projects}))
    parts = [(p.name, amount(p.budget)) for p in projects if p.lead == lead]
    answer = amount(sum(p.budget for p in projects if p.lead == lead))
    return f"what do the budgets of the projects led by {lead} add up to?", answer, parts, "sum"


def _latest_deadline(b: Builder, projects: tuple[Project, ...]) -> Made:
    late = b.random.random() < 0.5
    found = sorted(projects, key=lambda p: (p.deadline, p.name), reverse=late)[0].deadline
    parts = [(p.name, p.deadline.isoformat()) for p in projects]
    return f"what is the {'latest' if late else 'earliest'} deadline?", found.isoformat(), parts, "the extreme"


def _most_hours(b: Builder, projects: tuple[Project, ...]) -> Made:
    most = max(p.hours() for p in projects)
    parts = [(p.name, str(p.hours())) for p in projects]
    return "how many hours were booked on the project with the most hours?", str(most), parts, "the extreme"


def _due_before(b: Builder, projects: tuple[Project, ...]) -> Made:
    limit = b.day()
    parts = [(p.name, p.deadline.isoformat()) for p in projects if p.deadline < limit]
    return f"how many projects have a deadline before {limit.isoformat()}?", str(len(parts)), parts, "the count"


def _largest_budget(b: Builder, projects: tuple[Project, ...]) -> Made:
    found = max(projects, key=lambda p: (p.budget, p.name))
    if sum(p.budget == found.budget for p in projects) > 1:
        return _most_hours(b, projects)
    parts = [(p.name, amount(p.budget)) for p in projects]
    return "which client has the project with the largest budget?", found.client.name, parts, "the extreme"


_MAKERS = (_hours_of_person, _budget_of_lead, _latest_deadline, _most_hours, _due_before, _largest_budget)


def _want(question: Question) -> Want:
    def test(final: Final) -> tuple[str, set[Atom]]:
        given = final.answers.get(question.number, "")
        right = same_answer(given, question.answer)
        return ("" if right else f"answered {given[:60]!r}, not {question.answer}"), set()

    return Want(f"question {question.number}", test=test)
