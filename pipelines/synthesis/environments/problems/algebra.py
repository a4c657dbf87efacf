"""Algebra and counting: linear systems, polynomials, fractions, grid paths, selections, draws without replacement."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from pipelines.synthesis.environments.problems.base import Problem, Step, number, size

__all__ = ["draws", "fraction_sum", "grid_paths", "horner", "linear_system", "polynomial", "selections", "series"]


def linear_system(g: random.Random, difficulty: float) -> Problem:
    """Two to four linear equations with a whole solution, by elimination."""
    n = size(difficulty, 2, 4)
    names = "xyzw"[:n]
    solution = [g.randint(-6, 9) for _ in range(n)]
    while True:
        rows = [[Fraction(g.randint(-5, 7)) for _ in range(n)] for _ in range(n)]
        if all(rows[i][i] != 0 for i in range(n)) and _determinant(rows) != 0:
            break
    right = [sum(c * s for c, s in zip(row, solution, strict=True)) for row in rows]
    equations = [f"{_terms(row, names)} = {number(value)}" for row, value in zip(rows, right, strict=True)]
    table, steps = [[*row, Fraction(value)] for row, value in zip(rows, right, strict=True)], []
    for column in range(n):
        pivot = next(i for i in range(column, n) if table[i][column] != 0)
        if pivot != column:
            table[column], table[pivot] = table[pivot], table[column]
            steps.append(Step(f"Swap equations {column + 1} and {pivot + 1} to have {names[column]} in front"))
        for lower in range(column + 1, n):
            ratio = table[lower][column] / table[column][column]
            if ratio:
                table[lower] = [a - ratio * b for a, b in zip(table[lower], table[column], strict=True)]
                left = _terms(table[lower][:n], names)
                steps.append(
                    Step(
                        f"Equation {lower + 1} minus ({number(ratio)}) times equation "
                        f"{column + 1} gives {left} = {number(table[lower][n])}"
                    )
                )
    found: dict[int, Fraction] = {}
    for row in range(n - 1, -1, -1):
        known = "".join(f" - ({number(table[row][k])}) * ({number(found[k])})" for k in range(row + 1, n))
        expression = f"(({number(table[row][n])}){known}) / ({number(table[row][row])})"
        found[row] = (table[row][n] - sum(table[row][k] * found[k] for k in range(row + 1, n))) / table[row][row]
        steps.append(Step(f"{names[row]} = {expression}", expression, number(found[row])))
    asked = g.randrange(n)
    statement = f"Solve the system {'; '.join(equations)}. What is {names[asked]}?"
    program = _system_program([[int(c) for c in row] for row in rows], [int(v) for v in right], asked)
    return Problem(
        "linear_system", statement, steps, f"So {names[asked]} = {solution[asked]}.", str(solution[asked]), program
    )


def _system_program(rows: list[list[int]], right: list[int], asked: int) -> str:
    """Gauss-Jordan elimination: nothing is taken for granted about the solution."""
    table = [[*row, value] for row, value in zip(rows, right, strict=True)]
    n = len(rows)
    return (
        f"from fractions import Fraction as F\nm = [[F(c) for c in row] for row in {table}]\nfor i in range({n}):\n"
        f"    k = next(k for k in range(i, {n}) if m[k][i])\n    m[i], m[k] = m[k], m[i]\n"
        f"    m[i] = [c / m[i][i] for c in m[i]]\n    for j in range({n}):\n        if j != i:\n"
        f"            m[j] = [a - m[j][i] * b for a, b in zip(m[j], m[i])]\nprint(m[{asked}][{n}])"
    )


def _determinant(rows: list[list[Fraction]]) -> Fraction:
    if len(rows) == 1:
        return rows[0][0]
    minors = ([row[:j] + row[j + 1 :] for row in rows[1:]] for j in range(len(rows)))
    return sum(((-1) ** j * rows[0][j] * _determinant(minor) for j, minor in enumerate(minors)), Fraction(0))


def _terms(row: list[Fraction], names: str) -> str:
    parts = [
        f"{'-' if c < 0 else '+'} {'' if abs(c) == 1 else number(abs(c))}{n}"
        for c, n in zip(row, names, strict=True)
        if c
    ]
    return " ".join(parts).removeprefix("+ ") or "0"


def polynomial(coefficients: list[int]) -> str:
    """Written out, the highest power first: [2, 0, -1, 5] -> 2x^3 - x + 5."""
    text = ""
    for power, c in zip(range(len(coefficients) - 1, -1, -1), coefficients, strict=True):
        if c:
            letter = "" if power == 0 else "x" if power == 1 else f"x^{power}"
            factor = "" if abs(c) == 1 and power else str(abs(c))
            sign = ("-" if c < 0 else "") if not text else " - " if c < 0 else " + "
            text += sign + factor + letter
    return text


def horner(g: random.Random, difficulty: float) -> Problem:
    """A polynomial's value by Horner's rule."""
    degree, x = size(difficulty, 3, 9), g.choice([-3, -2, 2, 3, 4, 5])
    coefficients = [g.randint(1, 5), *(g.randint(-6, 6) for _ in range(degree))]
    value, steps = coefficients[0], []
    for coefficient in coefficients[1:]:
        expression = f"({value}) * ({x}) + ({coefficient})"
        value = value * x + coefficient
        steps.append(Step(expression, expression, str(value)))
    statement = f"Let p(x) = {polynomial(coefficients)}. Evaluate p({x})."
    program = f"print(sum(c * ({x}) ** ({degree} - i) for i, c in enumerate({coefficients})))"
    return Problem("horner", statement, steps, f"p({x}) = {value}.", str(value), program)


def fraction_sum(g: random.Random, difficulty: float) -> Problem:
    """Several fractions added and subtracted exactly."""
    parts = [Fraction(g.randint(1, 9), g.randint(2, 12)) * g.choice([1, 1, -1]) for _ in range(size(difficulty, 2, 8))]
    total, steps = parts[0], []
    for part in parts[1:]:
        steps.append(
            Step(
                (
                    f"({number(total)}) + ({number(part)}) over the common "
                    f"denominator {math.lcm(total.denominator, part.denominator)}"
                ),
                f"({number(total)}) + ({number(part)})",
                number(total + part),
            )
        )
        total += part
    statement = "Compute " + " + ".join(f"({number(part)})" for part in parts) + " as a fraction in lowest terms."
    program = "from fractions import Fraction as F\nprint(" + " + ".join(f"F('{part}')" for part in parts) + ")"
    return Problem("fraction_sum", statement, steps, f"The sum is {number(total)}.", number(total), program)


def series(g: random.Random, difficulty: float) -> Problem:
    """The sum of an arithmetic or geometric series."""
    n, first, step = size(difficulty, 5, 60) + g.randint(0, 5), g.randint(1, 20), g.randint(2, 9)
    if g.random() < 0.5:
        last, answer = first + (n - 1) * step, n * (2 * first + (n - 1) * step) // 2
        steps = [
            Step(f"The last of {n} terms is {first} + ({n} - 1) * {step}", f"{first} + ({n} - 1) * {step}", str(last)),
            Step(f"Sum = {n} * ({first} + {last}) / 2", f"{n} * ({first} + {last}) / 2", str(answer)),
        ]
        statement = (
            f"An arithmetic sequence starts at {first} and grows by {step}. What is the sum of its first {n} terms?"
        )
        program = f"print(sum({first} + k * {step} for k in range({n})))"
    else:
        n = min(n, 12)
        power, answer = step**n, first * (step**n - 1) // (step - 1)
        steps = [
            Step(f"{step}^{n}", f"{step} ** {n}", str(power)),
            Step(
                f"Sum = {first} * ({power} - 1) / ({step} - 1)", f"{first} * ({power} - 1) / ({step} - 1)", str(answer)
            ),
        ]
        statement = f"A geometric sequence starts at {first} with ratio {step}. What is the sum of its first {n} terms?"
        program = f"print(sum({first} * {step} ** k for k in range({n})))"
    return Problem("series", statement, steps, f"The sum is {answer}.", str(answer), program)


def grid_paths(g: random.Random, difficulty: float) -> Problem:
    """Paths to the right and up in a grid with blocked crossings, row by row."""
    width, height = size(difficulty, 3, 8), size(difficulty, 2, 7)
    inner = [(x, y) for x in range(width + 1) for y in range(height + 1) if (x, y) not in ((0, 0), (width, height))]
    blocked = set(g.sample(inner, g.randint(1, 3)))
    ways: dict[tuple[int, int], int] = {}
    steps = []
    for y in range(height + 1):
        for x in range(width + 1):
            ways[x, y] = (
                0 if (x, y) in blocked else 1 if (x, y) == (0, 0) else ways.get((x - 1, y), 0) + ways.get((x, y - 1), 0)
            )
        steps.append(Step(f"Row y = {y}, from x = 0 on: {', '.join(str(ways[x, y]) for x in range(width + 1))}"))
    answer = ways[width, height]
    walls = " and ".join(f"({x}, {y})" for x, y in sorted(blocked))
    statement = (
        f"How many lattice paths lead from (0, 0) to ({width}, {height}) "
        f"with unit steps to the right or up, if {walls} must not be visited?"
    )
    steps.insert(
        0,
        Step(
            "Each point is reached from the left or from below, so "
            "its count is the sum of those two; blocked points count 0"
        ),
    )
    program = (
        "from functools import cache\n@cache\ndef w(x, y):\n"
        f"    if (x, y) in {sorted(blocked)} or x < 0 or y < 0:\n        return 0\n"
        f"    return 1 if (x, y) == (0, 0) else w(x - 1, y) + w(x, y - 1)\nprint(w({width}, {height}))"
    )
    return Problem("grid_paths", statement, steps, f"There are {answer} paths.", str(answer), program)


def selections(g: random.Random, difficulty: float) -> Problem:
    """Committees with a least number of one kind."""
    a, b = size(difficulty, 4, 12) + g.randint(0, 3), size(difficulty, 3, 10) + g.randint(0, 3)
    k = g.randint(3, min(6, a + b - 1))
    least = g.randint(1, min(k - 1, a, 3))
    kinds = g.choice(
        [("chemists", "physicists"), ("seniors", "juniors"), ("red cards", "blue cards"), ("violins", "flutes")]
    )
    total, steps, parts = 0, [], []
    for n in range(least, min(k, a) + 1):
        if k - n <= b:
            ways = math.comb(a, n) * math.comb(b, k - n)
            total += ways
            parts.append(str(ways))
            steps.append(
                Step(
                    (
                        f"{n} of {a} {kinds[0]} and {k - n} of {b} {kinds[1]}: C({a}, {n}) "
                        f"* C({b}, {k - n}) = {math.comb(a, n)} * {math.comb(b, k - n)}"
                    ),
                    f"{math.comb(a, n)} * {math.comb(b, k - n)}",
                    str(ways),
                )
            )
    steps.append(Step("Together " + " + ".join(parts), " + ".join(parts), str(total)))
    statement = (
        f"In how many ways can {k} be chosen from {a} {kinds[0]} and {b} {kinds[1]} (all "
        f"distinguishable) so that at least {least} of the {kinds[0]} {'is' if least == 1 else 'are'} among them?"
    )
    program = (
        f"from itertools import combinations\nprint(sum(sum(i < {a} for "
        f"i in c) >= {least} for c in combinations(range({a + b}), {k})))"
    )
    return Problem("selections", statement, steps, f"There are {total} ways.", str(total), program)


def draws(g: random.Random, difficulty: float) -> Problem:
    """The probability of a colour sequence without replacement."""
    red, blue = size(difficulty, 3, 9) + g.randint(0, 3), size(difficulty, 3, 9) + g.randint(0, 3)
    colours = [g.choice(["red", "blue"]) for _ in range(size(difficulty, 2, 5))]
    left, total, steps = {"red": red, "blue": blue}, Fraction(1), []
    if any(colours.count(c) > left[c] for c in left):
        return draws(g, difficulty)
    for turn, colour in enumerate(colours, 1):
        chance = Fraction(left[colour], sum(left.values()))
        steps.append(
            Step(
                (
                    f"Draw {turn}: {left[colour]} of {sum(left.values())} are {colour}, so "
                    f"{number(chance)}; product so far ({number(total)}) * ({number(chance)})"
                ),
                f"({number(total)}) * ({number(chance)})",
                number(total * chance),
            )
        )
        total *= chance
        left[colour] -= 1
    statement = (
        f"An urn holds {red} red and {blue} blue balls. {len(colours)} are drawn one after another "
        "without putting any back. What is the probability of the "
        f"sequence {', '.join(colours)} (as a fraction in lowest terms)?"
    )
    program = (
        f"from fractions import Fraction as F\nleft, p = {{'red': {red}, 'blue': {blue}}}, F(1)\nfor "
        f"c in {colours}:\n    p *= F(left[c], sum(left.values()))\n    left[c] -= 1\nprint(p)"
    )
    return Problem("draws", statement, steps, f"The probability is {number(total)}.", number(total), program)
