"""Number problems: modular chains, fast powers, Euclid, remainders, bases, divisors, recurrences."""

from __future__ import annotations

import math
import random

from pipelines.synthesis.environments.problems.base import Problem, Step, number, size

__all__ = ["bases", "divisors", "euclid", "modular_chain", "modular_power", "recurrence", "remainders"]


def modular_chain(g: random.Random, difficulty: float) -> Problem:
    """x becomes (m x + c) mod p, several times."""
    modulus, count = g.choice([7, 11, 13, 17, 23, 29, 31, 97, 101]), size(difficulty, 3, 24)
    factor, shift, start = g.randint(2, modulus - 1), g.randint(1, modulus - 1), g.randint(0, modulus - 1)
    value = start
    steps: list[Step] = []
    for turn in range(1, count + 1):
        expression = f"({factor} * {value} + {shift}) % {modulus}"
        value = (factor * value + shift) % modulus
        steps.append(
            Step(
                f"x_{turn} = ({factor} * {steps[-1].value if steps else start} + {shift}) mod {modulus}",
                expression,
                str(value),
            )
        )
    statement = g.choice(
        (
            "Let x_0 = {s} and x_(k+1) = ({f} x_k + {c}) mod {m}. What is x_{n}?",
            "A counter starts at {s}. In every round it is multiplied by {f}, {c} is added, and only the remainder "
            "modulo {m} is kept. What does it show after {n} rounds?",
        )
    ).format(s=start, f=factor, c=shift, m=modulus, n=count)
    program = f"x = {start}\nfor _ in range({count}):\n    x = ({factor} * x + {shift}) % {modulus}\nprint(x)"
    return Problem("modular_chain", statement, steps, f"So x_{count} = {value}.", str(value), program)


def modular_power(g: random.Random, difficulty: float) -> Problem:
    """a^b mod m by repeated squaring."""
    modulus, base = g.choice([11, 13, 19, 37, 41, 101, 103, 997]), g.randint(2, 9)
    exponent = g.randint(2 ** size(difficulty, 3, 14), 2 ** size(difficulty, 4, 16))
    bits = bin(exponent)[2:]
    steps = [
        Step(
            f"In binary the exponent {exponent} is {bits}. Reading it from "
            f"the left, each digit squares, each 1 also multiplies by {base}"
        )
    ]
    value = 1
    for digit in bits:
        old = value
        value = value * value % modulus
        text, expression = f"digit {digit}: {old}^2", f"{old} * {old}"
        if digit == "1":
            value = value * base % modulus
            text, expression = f"{text} * {base}", f"{expression} * {base}"
        steps.append(Step(f"{text} mod {modulus}", f"({expression}) % {modulus}", str(value)))
    statement = g.choice(("What is the remainder of {b}^{e} divided by {m}?", "Compute {b}^{e} modulo {m}.")).format(
        b=base, e=exponent, m=modulus
    )
    return Problem(
        "modular_power",
        statement,
        steps,
        f"The remainder is {value}.",
        str(value),
        f"print(pow({base}, {exponent}, {modulus}))",
    )


def euclid(g: random.Random, difficulty: float) -> Problem:
    """Greatest common divisor or least common multiple."""
    factor, top = g.randint(2, 40), 10 ** size(difficulty, 1, 6)
    a, b = factor * g.randint(top // 2 + 2, top * 2 + 3), factor * g.randint(top // 3 + 2, top + 3)
    x, y, steps = max(a, b), min(a, b), []
    while y:
        steps.append(Step(f"{x} mod {y}", f"{x} % {y}", str(x % y)))
        x, y = y, x % y
    steps.append(Step(f"The last divisor that leaves nothing is {x}, so gcd({a}, {b}) = {x}"))
    if g.random() < 0.5:
        question, answer, call = "greatest common divisor", x, "math.gcd"
    else:
        question, answer, call = "least common multiple", a * b // x, "math.lcm"
        steps.append(Step(f"lcm = {a} * {b} / {x}", f"{a} * {b} / {x}", str(answer)))
    statement = g.choice(("Find the {q} of {a} and {b}.", "What is the {q} of {a} and {b}?")).format(
        q=question, a=a, b=b
    )
    return Problem(
        "euclid", statement, steps, f"The {question} is {answer}.", str(answer), f"import math\nprint({call}({a}, {b}))"
    )


def remainders(g: random.Random, difficulty: float) -> Problem:
    """The least number with given remainders (Chinese remainder theorem by sieving)."""
    moduli = sorted(g.sample([3, 4, 5, 7, 11, 13, 17, 19], size(difficulty, 2, 5)), reverse=True)
    moduli = [m for i, m in enumerate(moduli) if all(math.gcd(m, o) == 1 for o in moduli[:i])]
    wanted = [g.randint(0, m - 1) for m in moduli]
    value, step, steps = wanted[0], moduli[0], []
    steps.append(
        Step(f"Numbers with remainder {wanted[0]} modulo {moduli[0]} start at {value} and go in steps of {step}")
    )
    for modulus, rest in zip(moduli[1:], wanted[1:], strict=True):
        tried = 0
        while value % modulus != rest:
            value, tried = value + step, tried + 1
        steps.append(
            Step(
                (
                    f"Going on in steps of {step}, after {tried} of them {value} is the first "
                    f"with remainder {rest} modulo {modulus}; check: {value} mod {modulus}"
                ),
                f"{value} % {modulus}",
                str(rest),
            )
        )
        step *= modulus
        steps.append(Step(f"From here the steps are of {step}"))
    parts = [f"remainder {rest} when divided by {modulus}" for modulus, rest in zip(moduli, wanted, strict=True)]
    statement = "What is the smallest non-negative integer that leaves " + ", ".join(parts[:-1]) + f" and {parts[-1]}?"
    tests = " and ".join(f"n % {m} == {r}" for m, r in zip(moduli, wanted, strict=True))
    return Problem(
        "remainders",
        statement,
        steps,
        f"The smallest such number is {value}.",
        str(value),
        f"n = 0\nwhile not ({tests}):\n    n += 1\nprint(n)",
    )


def bases(g: random.Random, difficulty: float) -> Problem:
    """A number written in another base."""
    base, value = g.choice([2, 3, 5, 6, 7, 8, 9, 12]), g.randint(20, 10 ** size(difficulty, 2, 9))
    digits, rest, steps = "", value, []
    while rest:
        steps.append(Step(f"{rest} - {base} * {rest // base}", f"{rest} - {base} * {rest // base}", str(rest % base)))
        digits = "0123456789AB"[rest % base] + digits
        rest //= base
    letters = " (A stands for 10, B for 11)" if base == 12 else ""
    statement = f"Write the decimal number {value} in base {base}{letters}."
    program = f"n, s = {value}, ''\nwhile n:\n    s, n = '0123456789AB'[n % {base}] + s, n // {base}\nprint(s)"
    return Problem("bases", statement, steps, f"Read from the last remainder to the first: {digits}.", digits, program)


def divisors(g: random.Random, difficulty: float) -> Problem:
    """How many divisors, or their sum, from the prime factors."""
    powers = {p: g.randint(1, 3) for p in g.sample([2, 3, 5, 7, 11, 13], size(difficulty, 2, 5))}
    value, steps, rest = math.prod(p**e for p, e in powers.items()), [], math.prod(p**e for p, e in powers.items())
    for prime in sorted(powers):
        steps.append(
            Step(
                f"{rest} / {prime}^{powers[prime]}",
                f"{rest} / {prime} ** {powers[prime]}",
                str(rest // prime ** powers[prime]),
            )
        )
        rest //= prime ** powers[prime]
    if g.random() < 0.5:
        word, factors = "How many positive divisors does", [e + 1 for _, e in sorted(powers.items())]
        steps.append(Step("Each exponent e gives e + 1 choices"))
        program = f"print(sum({value} % d == 0 for d in range(1, {value} + 1)))" if value < 10**6 else ""
        statement = f"{word} {value} have?"
    else:
        factors = [sum(p**k for k in range(e + 1)) for p, e in sorted(powers.items())]
        steps += [
            Step(f"1 + … + {p}^{e}", f"({p} ** {e + 1} - 1) / ({p} - 1)", str(f))
            for (p, e), f in zip(sorted(powers.items()), factors, strict=True)
        ]
        program, statement = (
            f"print(sum(d for d in range(1, {value} + 1) if {value} % d == 0))" if value < 10**6 else "",
            f"What is the sum of all positive divisors of {value}?",
        )
    product = " * ".join(map(str, factors))
    answer = math.prod(factors)
    steps.append(Step(f"The product is {product}", product, str(answer)))
    loop = (
        f"n, d, t = {value}, 2, 1\nwhile n > 1:\n    e, s = 0, 1\n    while n % d == 0:\n        n, "
        f"e, s = n // d, e + 1, s * d + 1\n    t, d = t * {'(e + 1)' if 'many' in statement else 's'}, d + 1\nprint(t)"
    )
    return Problem("divisors", statement, steps, f"The answer is {answer}.", str(answer), program or loop)


def recurrence(g: random.Random, difficulty: float) -> Problem:
    """A term of a linear recurrence."""
    p, q, a, b, n = g.randint(1, 3), g.choice([-2, -1, 1, 2]), g.randint(0, 4), g.randint(1, 5), size(difficulty, 4, 16)
    terms, steps = [a, b], []
    for k in range(2, n + 1):
        expression = f"{p} * {_signed(terms[-1])} + {_signed(q)} * {_signed(terms[-2])}"
        terms.append(p * terms[-1] + q * terms[-2])
        steps.append(Step(f"a_{k} = {expression}", expression, number(terms[-1])))
    rule = f"{_factor(p)}a_(n-1) {'-' if q < 0 else '+'} {_factor(abs(q))}a_(n-2)"
    statement = f"A sequence has a_0 = {a}, a_1 = {b} and a_n = {rule}. Find a_{n}."
    program = f"x, y = {a}, {b}\nfor _ in range({n - 1}):\n    x, y = y, {p} * y + {q} * x\nprint(y)"
    return Problem("recurrence", statement, steps, f"Hence a_{n} = {terms[-1]}.", number(terms[-1]), program)


def _factor(value: int) -> str:
    return "" if value == 1 else f"{value} "


def _signed(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"
