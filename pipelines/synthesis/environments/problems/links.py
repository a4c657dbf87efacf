"""Links of a long sheet: problems about the answers to earlier problems, so that one slip is carried on.

`earlier` are the places on the sheet and the exact answers of problems whose answer is a whole number from 0 on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pipelines.synthesis.environments.problems.base import Problem, Step

__all__ = ["FEWEST_EARLIER", "LARGEST_ANSWER", "LINKS", "make_link"]

Earlier = tuple[int, int]  # place on the sheet, answer
Link = Callable[[random.Random, Sequence[Earlier]], Problem]
FEWEST_EARLIER = 6
LARGEST_ANSWER = 10**12
RECENT = 12  # half of the answers that a link uses are among so many before it, the others anywhere


def make_link(kind: str, key: str, earlier: Sequence[Earlier]) -> Problem:
    """The link of a kind and key over the answers before it (at least six). Same arguments, same problem."""
    return LINKS[kind](random.Random(key), earlier)  # noqa: S311 - seeded on purpose


def _drawn(g: random.Random, earlier: Sequence[Earlier], count: int) -> list[Earlier]:
    """Different earlier answers, in the order of their places."""
    recent = list(earlier[-RECENT:])
    chosen = g.sample(recent, min(len(recent), (count + 1) // 2))
    others = [item for item in earlier if item not in chosen]
    return sorted([*chosen, *g.sample(others, min(len(others), count - len(chosen)))])


def _named(items: Sequence[Earlier]) -> str:
    """problems 3, 17 and 40"""
    places = [str(place) for place, _ in items]
    return f"problems {', '.join(places[:-1])} and {places[-1]}"


def _recalled(items: Sequence[Earlier]) -> Step:
    said = "; ".join(f"problem {place} gave {answer}" for place, answer in items)
    return Step(said[0].upper() + said[1:])


def remainder_of_sum(g: random.Random, earlier: Sequence[Earlier]) -> Problem:
    """A sum of earlier answers, and its remainder."""
    items, modulus = _drawn(g, earlier, g.randint(3, 5)), g.choice([7, 11, 13, 17, 19, 23, 97, 101, 997])
    added = " + ".join(str(answer) for _, answer in items)
    total = sum(answer for _, answer in items)
    steps = [
        _recalled(items),
        Step(f"Their sum is {added}", added, str(total)),
        Step(f"{total} mod {modulus}", f"{total} % {modulus}", str(total % modulus)),
    ]
    statement = g.choice(
        (
            "Add the answers to {p}. What is the remainder of the sum on division by {m}?",
            "Take the answers to {p} together and reduce their sum modulo {m}.",
        )
    ).format(p=_named(items), m=modulus)
    conclusion = f"The remainder is {total % modulus}."
    return Problem("link", statement, steps, conclusion, str(total % modulus), f"print(({added}) % {modulus})")


def weighted_difference(g: random.Random, earlier: Sequence[Earlier]) -> Problem:
    """A multiple of one answer less a multiple of another."""
    (first, a), (second, b) = items = _drawn(g, earlier, 2)
    k, m = g.randint(2, 19), g.randint(2, 19)
    expression = f"{k} * {a} - {m} * {b}"
    value = k * a - m * b
    steps = [
        _recalled(items),
        Step(f"{k} * {a}", f"{k} * {a}", str(k * a)),
        Step(f"{m} * {b}", f"{m} * {b}", str(m * b)),
        Step(f"The difference is {k * a} - {m * b}", f"{k * a} - {m * b}", str(value)),
    ]
    statement = f"What is {k} times the answer to problem {first} less {m} times the answer to problem {second}?"
    return Problem("link", statement, steps, f"That makes {value}.", str(value), f"print({expression})")


def count_of_kind(g: random.Random, earlier: Sequence[Earlier]) -> Problem:
    """How many of several earlier answers have a property, looked at one by one."""
    items = _drawn(g, earlier, min(len(earlier), g.randint(5, 9)))
    bound, divisor = g.randint(5, 200), g.randint(2, 6)
    over = g.random() < 0.5
    asked = f"greater than {bound}" if over else f"divisible by {divisor}"
    steps, count = [], 0
    for place, answer in items:
        fits = answer > bound if over else answer % divisor == 0
        count += fits
        reason = f"{answer} {'>' if fits else '<='} {bound}" if over else f"{answer} mod {divisor} = {answer % divisor}"
        steps.append(Step(f"Problem {place}: {reason}, so {'yes' if fits else 'no'}, {count} so far"))
    numbers = [answer for _, answer in items]
    test = f"n > {bound}" if over else f"n % {divisor} == 0"
    statement = f"How many of the answers to {_named(items)} are {asked}?"
    program = f"print(sum({test} for n in {numbers}))"
    return Problem("link", statement, steps, f"So {count} of them.", str(count), program)


def largest_answer(g: random.Random, earlier: Sequence[Earlier]) -> Problem:
    """Which of several problems has the largest answer (the first of equal ones)."""
    items = _drawn(g, earlier, g.randint(4, 6))
    best = items[0]
    steps = [Step(f"I begin with problem {best[0]}, which gave {best[1]}")]
    for place, answer in items[1:]:
        if answer > best[1]:
            steps.append(Step(f"Problem {place} gave {answer}, more than {best[1]}: the new largest"))
            best = (place, answer)
        else:
            steps.append(Step(f"Problem {place} gave {answer}, not more than {best[1]}"))
    statement = (
        f"Which of {_named(items)} has the largest answer? Give the number of the problem; of equal ones the first."
    )
    program = f"print(max({dict(items)}.items(), key=lambda item: (item[1], -item[0]))[0])"
    return Problem("link", statement, steps, f"The largest is that of problem {best[0]}.", str(best[0]), program)


def common_divisor(g: random.Random, earlier: Sequence[Earlier]) -> Problem:
    """The greatest common divisor of two answers, each made larger by one so that none is zero."""
    items = _drawn(g, earlier, 2)
    a, b = sorted((answer + 1 for _, answer in items), reverse=True)
    steps = [_recalled(items), Step(f"So the two numbers are {a} and {b}")]
    x, y = a, b
    while y:
        steps.append(Step(f"{x} mod {y}", f"{x} % {y}", str(x % y)))
        x, y = y, x % y
    statement = (
        f"Add 1 to the answer to problem {items[0][0]} and 1 to the answer to problem {items[1][0]}. "
        "What is the greatest common divisor of the two numbers?"
    )
    program = f"import math\nprint(math.gcd({a}, {b}))"
    return Problem("link", statement, steps, f"The greatest common divisor is {x}.", str(x), program)


def continued_chain(g: random.Random, earlier: Sequence[Earlier]) -> Problem:
    """A chain modulo a number that starts from an earlier answer."""
    ((place, start),) = _drawn(g, earlier, 1)
    modulus, rounds = g.choice([11, 13, 17, 29, 31, 53, 97]), g.randint(4, 12)
    factor, shift = g.randint(2, modulus - 1), g.randint(1, modulus - 1)
    value, steps = start, [Step(f"Problem {place} gave {start}, which is x_0")]
    for turn in range(1, rounds + 1):
        expression = f"({factor} * {value} + {shift}) % {modulus}"
        value = (factor * value + shift) % modulus
        steps.append(Step(f"x_{turn} = {expression.replace(' % ', ' mod ')}", expression, str(value)))
    statement = (
        f"Let x_0 be the answer to problem {place} and x_(k+1) = ({factor} x_k + {shift}) mod {modulus}. "
        f"What is x_{rounds}?"
    )
    program = f"x = {start}\nfor _ in range({rounds}):\n    x = ({factor} * x + {shift}) % {modulus}\nprint(x)"
    return Problem("link", statement, steps, f"So x_{rounds} = {value}.", str(value), program)


def digit_sums(g: random.Random, earlier: Sequence[Earlier]) -> Problem:
    """The sum of the digits of several answers."""
    items = _drawn(g, earlier, g.randint(2, 4))
    sums = [sum(map(int, str(answer))) for _, answer in items]
    steps = [
        Step(f"Problem {place} gave {answer}: {' + '.join(str(answer))} = {digits}")
        for (place, answer), digits in zip(items, sums, strict=True)
    ]
    added = " + ".join(map(str, sums))
    steps.append(Step(f"In all {added}", added, str(sum(sums))))
    statement = f"Write down the answers to {_named(items)}. What is the sum of all their digits?"
    program = f"print(sum(int(d) for n in {[answer for _, answer in items]} for d in str(n)))"
    return Problem("link", statement, steps, f"The digits add up to {sum(sums)}.", str(sum(sums)), program)


LINKS: dict[str, Link] = {
    "common_divisor": common_divisor,
    "continued_chain": continued_chain,
    "count_of_kind": count_of_kind,
    "digit_sums": digit_sums,
    "largest_answer": largest_answer,
    "remainder_of_sum": remainder_of_sum,
    "weighted_difference": weighted_difference,
}
