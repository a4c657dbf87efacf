"""The scripted teacher of the family `search`: question by question, hop by hop, then one sheet of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.environments.search import MOST_RESULTS, RESULTS, questions_of
from pipelines.synthesis.environments.search_questions import ABSENT, Hop, Question
from pipelines.synthesis.teachers import phrases
from pipelines.synthesis.teachers.scripted import Plan, ScriptedTeacher
from schemas.trajectory import Message

__all__ = ["SearchTeacher"]

FIRST = ("Question {n} first. ", "I begin with question {n}: ", "Number {n}. ")
ON = ("Question {n}. ", "On to question {n}: ", "Number {n}. ")
LOOKING = ("{d} looks right; which line is it?", "I look into {d}.", "The line in {d}, please.", "Where in {d}?")
CHECKING = ("Does {d} have it?", "Now {d}.", "And {d}?", "I check {d}.", "Next, {d}.")
FOUND = {  # what a question came to, by its kind: {a} is the answer, {n} the number of documents looked into
    "gap": ("The gap is {a}.", "It has {a} in that place.", "So {a} is what is missing."),
    "default": ("The default is {a}.", "It has the default {a}.", "{a} stands behind the equals sign."),
    "constant": ("The value is {a}.", "So {a} is assigned.", "It is set to {a}."),
    "parameters": ("Counted in the signature: {a}.", "The parentheses hold {a}.", "Number of parameters: {a}."),
    "file": ("It is defined in {a}.", "The definition stands in {a}.", "So it is {a}."),
    "methods": ("Functions in its body: {a}.", "I count {a} in the body.", "Counted: {a}."),
    "chain": ("The end of the chain gives {a}.", "So the answer is {a}.", "That leads to {a}."),
    "compare": ("Both are known now: it is {a}.", "Side by side, {a} is right.", "So {a}."),
    "bridge": (
        "The other document with the word is {a}.",
        "So the other one is {a}.",
        "Beside it only {a} has the word.",
    ),
    "count": ("Of {n} documents {a} have it.", "That makes {a} of {n}.", "{a} of the {n} have the word."),
    "absent": ("Nothing has that name: {a}.", "No document knows it, so {a}.", "No hit for the name itself: {a}."),
    "absent_parameter": (
        "The signature has no such parameter: {a}.",
        "That parameter does not exist there, so {a}.",
        "No parameter of that name: {a}.",
    ),
}
Wrong = list[tuple[str, Mapping[str, Any]]]
_PAGES = re.compile(r", page \d+ of (\d+)$")


class SearchTeacher(ScriptedTeacher):
    """Knows which documents answer, but finds them with the tools before it names them."""

    def __init__(self, environment: Environment, task: TaskSpec, mistake_rate: float = 0.0, seed: int = 0) -> None:
        super().__init__(environment, task, mistake_rate, seed)
        self._questions = questions_of(task)
        self._found = ""  # what the question before came to, for the next turn

    def plan(self) -> Plan:
        """See `ScriptedTeacher.plan`."""
        r = self.random
        stop = r.randrange(len(self._questions)) if self.fails else None
        many = len(self._questions) > 1
        for number, question in enumerate(self._questions):
            if number == stop:
                yield from self._stop_early(number)
                return
            yield from self._solve(number, question)
        last = ("All questions are settled.", "That was the last one.") if many else ("That settles it.",)
        why = self._found + phrases.pick(r, "I have what I need.", *last)
        yield from self.answer("\n".join(self._lines(len(self._questions))), why)

    def _lines(self, count: int) -> list[str]:
        """The answers of the first `count` questions."""
        many = len(self._questions) > 1
        return [
            f"Answer {n}: {q.answer}" if many else f"Answer: {q.answer}"
            for n, q in enumerate(self._questions[:count], 1)
        ]

    def _solve(self, number: int, question: Question) -> Plan:
        """Every hop of a question; the thought before a hop takes up what the one before it gave."""
        r = self.random
        many = len(self._questions) > 1
        said = self._found + (phrases.pick(r, *(ON if number else FIRST), n=number + 1) if many else "")
        for place, hop in enumerate(question.hops):
            if place and question.hops[place - 1].says:
                said = phrases.pick(
                    r,
                    "So far: {s}. ",
                    "That gives {s}. ",
                    "It is {s}. ",
                    s=phrases.quoted(question.hops[place - 1].says, 60),
                )
            if hop.query:
                yield from self._look_up(hop, said)
                said = ""
            if hop.document:
                yield from self._inspect(hop, question, said)
                said = ""
        said = phrases.pick(r, *FOUND[question.kind], a=question.answer, n=len(question.hops))
        self._found = said + ("\n" if many else " ")

    def _look_up(self, hop: Hop, said: str) -> Plan:
        """Search; once more, wider, when the document is not among the results."""
        r = self.random
        arguments: dict[str, Any] = {"query": hop.query}
        if r.random() < 0.5:
            arguments["k"] = r.choice((RESULTS, RESULTS + 1, RESULTS + 2))
        why = phrases.pick(
            r,
            "I search for {q}.",
            "Where does {q} occur?",
            "The index may know {q}.",
            "A search for {q}.",
            "I look for {q}.",
            q=phrases.quoted(hop.query, 60),
        )
        wrong: Wrong = [
            ("bad_argument", {**arguments, "k": r.choice((0, 50, 100))}),
            ("bad_argument", {**arguments, "k": "all"}),
            ("empty_query", {**arguments, "query": r.choice(("...", "?", "“”", "--"))}),
        ]
        result = yield from self.do("search", arguments, said + why, wrong)
        if not hop.document:
            if r.random() < 0.6:
                parts = " ".join(re.findall(r"[A-Z][a-z]+", hop.query))
                why = phrases.pick(r, "Nothing. Perhaps its parts occur.", "No hit; I try the parts of the name.")
                yield from self.do("search", {"query": parts, "k": 3}, why)
        elif f" {hop.document} " not in result.content:
            why = phrases.pick(r, "Not among these. More results.", "I look further down the list.")
            yield from self.do("search", {"query": hop.query, "k": MOST_RESULTS}, why)

    def _inspect(self, hop: Hop, question: Question, said: str) -> Plan:
        """Find the line, read the pages."""
        r = self.random
        pages = hop.pages
        found = not pages or len(pages) == 1 or pages[0] > 1 or r.random() < 0.5
        if found:  # only then is known where in a document the place is
            wordings = CHECKING if question.kind == "count" else LOOKING
            why = phrases.pick(r, *wordings, d=hop.document)
            arguments = {"document": hop.document, "pattern": hop.pattern}
            yield from self.do("find", arguments, said + why, self._wrong_finds(hop, arguments))
            said = ""
        total: int | None = None
        for place, page in enumerate(pages):
            arguments_: dict[str, Any] = {"document": hop.document, "page": page}
            if page == 1 and r.random() < 0.5:
                del arguments_["page"]
            wrong = self._wrong_documents(hop, arguments_)
            if total is not None:
                wrong.append(("bad_page", {**arguments_, "page": total + r.randint(1, 9)}))
            one = ("Page {p} of {d} has the place.", "To be sure I read page {p} of {d}.")
            first = phrases.pick(
                r,
                "I read {d}, page {p}.",
                "I open {d} at page {p}.",
                *(one if found and len(pages) == 1 else ("I read {d} from page {p} on.",)),
                d=hop.document,
                p=page,
            )
            on = phrases.pick(r, "It goes on: page {p}.", "The next page.", "On with page {p}.", p=page)
            result = yield from self.do("open", arguments_, said + (on if place else first), wrong)
            said, total = "", _pages_in(result)

    def _wrong_documents(self, hop: Hop, arguments: Mapping[str, Any]) -> Wrong:
        """The call with an id that is not one: a letter off, the title, a number."""
        r = self.random
        slip = hop.document[:-1] + r.choice("0123456789abcdef".replace(hop.document[-1], ""))
        named = [slip, hop.document.upper(), f"doc {hop.document[1:3]}", f"{r.randint(1, 9)}"]
        return [
            ("wrong_document", {**arguments, "document": name}) for name in r.sample(named, 2) if name != hop.document
        ]

    def _wrong_finds(self, hop: Hop, arguments: Mapping[str, Any]) -> Wrong:
        wrong = self._wrong_documents(hop, arguments)
        broken = rf"({hop.pattern}", hop.pattern + "[", "*" + hop.pattern, hop.pattern + "(?"
        wrong += [("bad_regex", {**arguments, "pattern": text}) for text in self.random.sample(broken, 2)]
        return wrong

    def _stop_early(self, done: int) -> Plan:
        """Guess the rest, or give up: the verdict shows that it was wrong."""
        r = self.random
        lines = self._lines(done)
        found = self._found
        if r.random() < 0.6:
            for number, question in enumerate(self._questions[done:], done + 1):
                guess = ABSENT if question.answer != ABSENT else str(r.randint(1, 40))
                lines.append(f"Answer {number}: {guess}" if len(self._questions) > 1 else f"Answer: {guess}")
            yield from self.answer(
                "\n".join(lines), found + "I can tell the rest without looking.", "mistake:premature_answer"
            )
        else:
            text = f"I could not find out number {done + 1} and what follows."
            yield from self.answer(
                "\n".join([*lines, text]), found + "I do not know where else to look.", "mistake:gave_up"
            )


def _pages_in(result: Message) -> int | None:
    """How many pages an opened document says that it has."""
    found = _PAGES.search(result.content.split("\n")[0])
    return int(found[1]) if found else None
