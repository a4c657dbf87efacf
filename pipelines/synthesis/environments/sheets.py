"""Sheets of the family `reasoning`: which problems a task has, by its seed, difficulty and tool.

Below difficulty 3 a task is one problem, or two where the topic has few problems of that level (so that no two tasks
are alike); from there on problems are added until the work they make reaches the length of the difficulty. Above 5
every third problem is a link: it is about the answers to earlier problems, near and far.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipelines.synthesis.environments.base import between
from pipelines.synthesis.environments.problems import TOPICS, Problem
from pipelines.synthesis.environments.problems.links import FEWEST_EARLIER, LARGEST_ANSWER, LINKS, make_link

__all__ = ["LINKED_FROM", "TARGET_TOKENS", "draw_mode", "draw_sheet", "problems_from", "target_tokens"]

TARGET_TOKENS = (80, 150, 350, 850, 1_700, 6_000, 16_000, 42_000, 92_000, 190_000)
BYTES_PER_TOKEN = 4
ONE_PROBLEM_BELOW = 3.0
# topics with so many problems already at the lowest level (a million and more) that they can be a task alone
MANY = frozenset({"circuits", "dates", "heat", "linear_system"})
CANDIDATES = 5  # of which the one nearest to the length of the difficulty is taken, where a task is one problem
LINKED_FROM = 5.0  # above: links between the problems, and a tool checks every answer
TOOL_FROM = 7.5  # above: always with a tool
EASIEST, HARDEST = 3.0, 8.0  # problems of a sheet
TURN, CHECK = 60, 130  # characters around a call and its result, and of the words that go with it
MODES = ("none", "none", "calculator", "python")


def target_tokens(difficulty: float) -> float:
    """Tokens (bytes / 4) that a trajectory of this difficulty aims at."""
    return between(TARGET_TOKENS, difficulty)


def draw_mode(generator: random.Random, difficulty: float) -> str:
    """The tool of a task: none (half of them, up to 7.5), calculator or python."""
    return generator.choice(MODES if difficulty <= TOOL_FROM else MODES[2:])


def draw_sheet(
    generator: random.Random, seed: int, difficulty: float, mode: str
) -> tuple[list[dict[str, Any]], list[Problem]]:
    """The problems of a task: how each is made again (plain data), and the problems themselves."""
    raw: list[dict[str, Any]] = []
    problems: list[Problem] = []
    left = target_tokens(difficulty) * BYTES_PER_TOKEN
    if difficulty < ONE_PROBLEM_BELOW:
        first, problem = _one(generator, seed, difficulty, mode, left, 1, TOPICS)
        if first["topic"] in MANY:
            return [first], [problem]
        left = max(0.0, left - work_of(problem, mode, checked=False))
        others = [topic for topic in TOPICS if topic != first["topic"]]
        more, second = _one(generator, seed, difficulty, mode, left, 2, others)
        return [first, more], [problem, second]
    deck: list[str] = []
    while not raw or left > 0:
        place = len(raw) + 1
        earlier = _whole(problems)
        if difficulty > LINKED_FROM and place % 3 == 0 and len(earlier) >= FEWEST_EARLIER:
            kind = generator.choice(sorted(LINKS))
            entry: dict[str, Any] = {"link": kind, "key": f"{seed}:{difficulty:g}:{place}:{kind}"}
            problem = make_link(kind, entry["key"], earlier)
        else:
            if not deck:
                deck = generator.sample(sorted(TOPICS), len(TOPICS))
            entry = _entry(deck.pop(), seed, difficulty, place, generator.uniform(EASIEST, HARDEST))
            problem = _make(entry)
        raw.append(entry)
        problems.append(problem)
        left -= work_of(problem, mode, checked=difficulty > LINKED_FROM)
    return raw, problems


def _one(
    generator: random.Random, seed: int, difficulty: float, mode: str, length: float, place: int, topics: Iterable[str]
) -> tuple[dict[str, Any], Problem]:
    """A problem of these topics whose work is about as long as wanted."""
    entries = [
        _entry(topic, seed, difficulty, place, 1 + 3 * (difficulty - 1))
        for topic in generator.sample(sorted(topics), CANDIDATES)
    ]
    made = [(entry, _make(entry)) for entry in entries]
    return min(made, key=lambda item: abs(work_of(item[1], mode, checked=False) - length))


def _entry(topic: str, seed: int, difficulty: float, place: int, level: float) -> dict[str, Any]:
    key = f"{seed}:{difficulty:g}:{place}:{topic}"
    return {"topic": topic, "key": key, "difficulty": round(level, 2)}


def problems_from(raw: Sequence[dict[str, Any]]) -> list[Problem]:
    """The inverse of `draw_sheet`'s plain data."""
    return list(_remade(raw))


def _remade(raw: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    problems: list[Problem] = []
    for entry in raw:
        linked = "link" in entry
        problems.append(make_link(entry["link"], entry["key"], _whole(problems)) if linked else _make(entry))
        yield problems[-1]


def work_of(problem: Problem, mode: str, *, checked: bool) -> int:
    """Characters that a problem adds to a trajectory without mistakes: statement, derivation, calls, answer line."""
    size = len(problem.statement) + len(problem.conclusion) + len(problem.answer) + 30
    derivation = sum(len(step.plan) + len(step.value or "") + 4 for step in problem.steps)
    if mode == "none":
        return size + derivation
    if mode == "python":
        return size + len(problem.program) + TURN + CHECK + (derivation if checked else 0)
    calls = [step for step in problem.steps if step.expression is not None]
    if checked:
        calls = calls[-1:]
    return size + derivation + sum(len(step.expression or "") + TURN for step in calls) + CHECK * checked


def _make(entry: dict[str, Any]) -> Problem:
    return TOPICS[entry["topic"]](random.Random(entry["key"]), entry["difficulty"])  # noqa: S311 - seeded on purpose


def _whole(problems: Sequence[Problem]) -> list[tuple[int, int]]:
    """(place, answer) of the problems whose answer is a whole number from 0 on, as links use them."""
    return [
        (place, int(problem.answer))
        for place, problem in enumerate(problems, 1)
        if problem.topic != "bases" and problem.answer.isdigit() and int(problem.answer) <= LARGEST_ANSWER
    ]
