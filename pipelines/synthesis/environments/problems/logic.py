"""Logic puzzles with one solution: knights and knaves, orders from clues, deduced by going through cases."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from pipelines.synthesis.environments.problems.base import Problem, Step, size

__all__ = ["knights", "orders"]

PEOPLE = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana")
Claim = tuple[str, str, Callable[[dict[str, bool]], bool]]  # text, Python expression over t, truth


def knights(g: random.Random, difficulty: float) -> Problem:
    """Knights always tell the truth, knaves always lie; who is what follows from what they say."""
    people = PEOPLE[: size(difficulty, 2, 5)]
    while True:
        claims = {person: _claim(g, person, people) for person in people}
        fits = [case for case in _cases(people) if all(case[p] == claims[p][2](case) for p in people)]
        if len(fits) == 1:
            break
    solution = fits[0]
    steps = []
    for case in _cases(people):
        shown = ", ".join(f"{p} {'knight' if case[p] else 'knave'}" for p in people)
        wrong = next((p for p in people if case[p] != claims[p][2](case)), None)
        if wrong is None:
            steps.append(Step(f"Case {shown}: every statement is as true as its speaker is honest, so this fits"))
        else:
            truth = "true" if claims[wrong][2](case) else "false"
            kind = "knight" if case[wrong] else "knave"
            steps.append(Step(f"Case {shown}: what {wrong} says would be {truth}, which a {kind} cannot say"))
    asked = g.choice(people)
    answer = "knight" if solution[asked] else "knave"
    said = " ".join(f'{p} says: "{claims[p][0]}"' for p in people)
    statement = (
        f"On an island knights always tell the truth and knaves always lie. {said} Is {asked} a knight or a knave?"
    )
    tests = " and ".join(f"t[{p!r}] == ({claims[p][1]})" for p in people)
    program = (
        f"from itertools import product\nfor v in product([True, False], repeat={len(people)}):\n"
        f"    t = dict(zip({list(people)}, v))\n    if {tests}:\n        print('knight' if t[{asked!r}] else 'knave')"
    )
    return Problem("knights", statement, steps, f"Only one case is left: {asked} is a {answer}.", answer, program)


def _cases(people: tuple[str, ...]) -> list[dict[str, bool]]:
    return [dict(zip(people, v, strict=True)) for v in itertools.product([True, False], repeat=len(people))]


def _claim(g: random.Random, speaker: str, people: tuple[str, ...]) -> Claim:
    other = g.choice([p for p in people if p != speaker])
    third = g.choice([p for p in people if p != other])
    kind = g.randrange(5)
    if kind == 0:
        return f"{other} is a knave.", f"not t[{other!r}]", lambda t: not t[other]
    if kind == 1:
        return (
            f"{other} and {third} are of the same kind.",
            f"t[{other!r}] == t[{third!r}]",
            lambda t: t[other] == t[third],
        )
    if kind == 2:
        return (
            f"{other} is a knight or {third} is a knave.",
            f"t[{other!r}] or not t[{third!r}]",
            lambda t: t[other] or not t[third],
        )
    if kind == 3:
        count = g.randint(1, len(people) - 1)
        are = "is a knight" if count == 1 else "are knights"
        return f"Exactly {count} of us {are}.", f"sum(t.values()) == {count}", lambda t: sum(t.values()) == count
    return f"{other} is a knight.", f"t[{other!r}]", lambda t: t[other]


def orders(g: random.Random, difficulty: float) -> Problem:
    """Who stands where in a line, from clues that leave one order."""
    people = list(PEOPLE[: size(difficulty, 3, 6)])
    order = people[:]
    g.shuffle(order)
    clues: list[tuple[str, str]] = []
    while True:
        left = _orders(people, clues)
        if len(left) == 1:
            break
        clue = _clue(g, order)
        if clue not in clues and len(_orders(people, [*clues, clue])) < len(left):
            clues.append(clue)
    steps, used = [], []
    for text, test in clues:
        used.append((text, test))
        remaining = _orders(people, used)
        shown = "; ".join(" ".join(o) for o in remaining[:4])
        more = f" and {len(remaining) - 4} more" if len(remaining) > 4 else ""
        steps.append(Step(f"{text} Orders that are left: {len(remaining)} ({shown}{more})"))
    place = g.randrange(len(people))
    words = ("first", "second", "third", "fourth", "fifth", "sixth")
    statement = (
        f"{', '.join(people[:-1])} and {people[-1]} stand in a line, numbered from "
        f"the front. {' '.join(text for text, _ in clues)} Who is {words[place]}?"
    )
    tests = " and ".join(test for _, test in clues)
    program = (
        f"from itertools import permutations\nfor o in permutations({people}):\n    p "
        f"= {{n: i for i, n in enumerate(o)}}\n    if {tests}:\n        print(o[{place}])"
    )
    return Problem(
        "orders",
        statement,
        steps,
        f"The line is {', '.join(order)}, so {order[place]} is {words[place]}.",
        order[place],
        program,
    )


def _orders(people: list[str], clues: list[tuple[str, str]]) -> list[tuple[str, ...]]:
    compiled = [compile(test, "clue", "eval") for _, test in clues]  # our own texts, made in `_clue`
    found = []
    for candidate in itertools.permutations(people):
        places = {name: index for index, name in enumerate(candidate)}
        if all(eval(test, {"p": places, "abs": abs}) for test in compiled):  # noqa: S307
            found.append(candidate)
    return found


def _clue(g: random.Random, order: list[str]) -> tuple[str, str]:
    """A true statement about the order: (text, Python expression over the places p)."""
    first, second = g.sample(order, 2)
    if order.index(first) > order.index(second):
        first, second = second, first
    gap = order.index(second) - order.index(first)
    kind = g.randrange(4)
    if kind == 0:
        return f"{first} is somewhere before {second}.", f"p[{first!r}] < p[{second!r}]"
    if kind == 1:
        text = (
            f"{second} stands directly behind {first}."
            if gap == 1
            else f"{gap - 1} {'person stands' if gap == 2 else 'people stand'} between {first} and {second}."
        )
        return text, f"p[{second!r}] - p[{first!r}] == 1" if gap == 1 else f"abs(p[{second!r}] - p[{first!r}]) == {gap}"
    if kind == 2:
        return f"{first} is not at the back.", f"p[{first!r}] != {len(order) - 1}"
    return f"{second} is not at the front.", f"p[{second!r}] != 0"
