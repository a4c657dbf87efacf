"""What a problem is: a statement, a derivation in steps, an exact answer, and a program that finds it another way."""

from __future__ import annotations

import ast
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Maker", "Problem", "Step", "calculate", "number", "same_answer", "size"]

MAX_BITS = 4096  # of a number that the calculator makes
# an exponent of three digits at most: 1e999999999 would be written out
_WRITTEN_NUMBER = re.compile(r"[+-]?[\d.]{1,2000}(?:e[+-]?\d{1,3}|/\d{1,2000})?", re.I)

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")  # 3,0 is not thirty


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a derivation.

    `plan` says what is done; `expression` is what the calculator takes for it and `value` what it gives. A step of pure
    thought has neither.
    """

    plan: str
    expression: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """`answer` is exact: an integer, a fraction in lowest terms, or a word. `program` is Python that prints it."""

    topic: str
    statement: str
    steps: list[Step]
    conclusion: str
    answer: str
    program: str


Maker = Callable[[random.Random, float], Problem]


def size(difficulty: float, low: int, high: int) -> int:
    """A whole number that grows evenly with the difficulty 1 … 10, from `low` to `high`."""
    return low + round((high - low) * (difficulty - 1) / 9)


def number(value: int | Fraction) -> str:
    """A number as an answer: 7, -3 or 5/6."""
    exact = Fraction(value)
    return str(exact.numerator) if exact.denominator == 1 else f"{exact.numerator}/{exact.denominator}"


def same_answer(given: str, wanted: str) -> bool:
    """Whether an answer as written equals the exact one: numbers by value (0.5 is 1/2), words without case."""
    given = given.strip().strip("$*`.").strip()
    if given.casefold() == wanted.casefold():
        return True
    plain = _THOUSANDS.sub("", given.replace(" ", ""))
    if not _WRITTEN_NUMBER.fullmatch(plain):
        return False
    try:
        return Fraction(plain) == Fraction(wanted)
    except (ValueError, ZeroDivisionError):
        return False


def calculate(expression: str) -> Fraction:
    """The exact value of an arithmetic expression: numbers, + - * / // % ** and brackets.

    Raises ValueError with the reason for anything else, for division by zero and for results beyond 4,096 bits.
    """
    if len(expression) > 500:
        raise ValueError("the expression is longer than 500 characters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"not an arithmetic expression ({error.msg})") from error
    except ZeroDivisionError as error:
        raise ValueError("division by zero") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if not math.isfinite(node.value):  # type: ignore[arg-type]
            raise ValueError("the number is too large")
        return _bounded(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        return _bounded(_combined(node.op, _value(node.left), _value(node.right)))
    raise ValueError(f"{type(node).__name__} is not arithmetic: use numbers, + - * / // % ** and brackets")


def _combined(operator: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.Div):
        return left / right
    if isinstance(operator, ast.FloorDiv):
        return Fraction(left // right)
    if isinstance(operator, ast.Mod):
        return left % right
    if isinstance(operator, ast.Pow):
        if right.denominator != 1 or abs(right) > 2000 or abs(right) * _bits(left) > MAX_BITS:
            raise ValueError("the exponent must be a whole number, and the result must not be huge")
        return Fraction(left ** int(right))
    raise ValueError(f"{type(operator).__name__} is not arithmetic: use + - * / // % **")


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise ValueError("the result is too large")
    return value
