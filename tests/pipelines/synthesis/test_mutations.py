"""Mutations of functions: every kind is found where it applies, changes behaviour, and touches one place only."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.synthesis.environments.mutations import KINDS, Mutation, apply_mutation, find_mutations
from pipelines.synthesis.environments.source_text import changed_lines


def mutations_of(source: str) -> list[Mutation]:
    function = ast.parse(source).body[-1]
    assert isinstance(function, ast.FunctionDef)
    return find_mutations(source, function)


# kind -> (function, arguments, the mutated line that is expected among the proposals)
CASES = {
    "off_by_one": ("def f(n):\n    return list(range(1, n))\n", (4,), "    return list(range(1, n - 1))"),
    "comparison": ("def f(a, b):\n    return a < b\n", (2, 2), "    return a <= b"),
    "arithmetic": ("def f(a, b):\n    return a + b * 2\n", (1, 3), "    return a - b * 2"),
    "boolean_operator": ("def f(a, b):\n    return a and b\n", (0, 5), "    return a or b"),
    "swapped_arguments": ("def f(a, b):\n    return pow(a, b)\n", (2, 3), "    return pow(b, a)"),
    "negated_condition": (
        "def f(x):\n    if callable(x):\n        return 1\n    return 2\n",
        (3,),
        "    if not callable(x):",
    ),
    "dropped_branch": ("def f(x):\n    if x > 2:\n        x = 0\n    return x\n", (3,), "        pass"),
    "dropped_statement": ("def f(x):\n    x += 1\n    return x\n", (3,), "    pass"),
    "wrong_constant": ("def f(x):\n    return x + 'ab'\n", ("-",), "    return x + 'a'"),
    "wrong_return": ("def f(x):\n    return x, 1\n", (3,), "    return (1, x)"),
    "wrong_method": ("def f(s):\n    return s.lstrip()\n", (" x ",), "    return s.strip()"),
    "slice_bound": ("def f(s):\n    return s[1:]\n", ("abc",), "    return s[:]"),
    "dropped_sign": ("def f(x):\n    return -x\n", (3,), "    return x"),
    "loop_exit": (
        "def f(n):\n    t = 0\n    for i in range(n):\n        if i == 2:\n            break\n"
        "        t += 1\n    return t\n",
        (5,),
        "            continue",
    ),
    "wrong_exception": ("def f(x):\n    raise ValueError(x)\n", (3,), "    raise KeyError(x)"),
    "wrong_default": ("def f(x, step=2):\n    return x + step\n", (1,), "def f(x, step=3):"),
    "wrong_variable": ("def f(a, b):\n    return a - b\n", (5, 2), "    return b - b"),
}


def outcome(source: str, arguments: tuple[object, ...]) -> object:
    space: dict[str, object] = {}
    exec(source, space)
    try:
        return space["f"](*arguments)  # type: ignore[operator]
    except Exception as error:
        return type(error)


def test_there_are_cases_for_every_kind() -> None:
    assert set(CASES) == set(KINDS) | {"wrong_default", "wrong_variable"}
    assert len(CASES) >= 10


@pytest.mark.parametrize("kind", sorted(CASES))
def test_kind_is_proposed_and_changes_behaviour(kind: str) -> None:
    source, arguments, line = CASES[kind]
    found = [m for m in mutations_of(source) if m.kind == kind]
    texts = [apply_mutation(source, m) for m in found]
    matching = [text for text in texts if line in text.split("\n")]
    assert len(matching) == 1
    assert outcome(matching[0], arguments) != outcome(source, arguments)


@pytest.mark.parametrize("kind", sorted(CASES))
def test_only_the_lines_of_the_mutation_differ(kind: str) -> None:
    source = "import os\n\n" + CASES[kind][0] + "\n\nLAST = 1\n"
    function = ast.parse(source).body[1]
    assert isinstance(function, ast.FunctionDef)
    for mutation in find_mutations(source, function):
        broken = apply_mutation(source, mutation)
        first, end_old, _ = changed_lines(source, broken)
        assert function.lineno <= first + 1 <= end_old <= (function.end_lineno or 0)
        assert first + 1 >= mutation.line


def test_docstring_annotations_and_decorations_stay() -> None:
    source = 'def f(x: int = 1) -> "list[int]":\n    """Adds 1 to x == 2."""\n    return [x]\n'
    kept = [apply_mutation(source, m) for m in mutations_of(source)]
    assert kept
    assert all(
        '"""Adds 1 to x == 2."""' in text and ') -> "list[int]":' in text and "x: int =" in text for text in kept
    )


def test_columns_after_wide_characters_are_right() -> None:
    source = "def f(s):\n    return 'äöü→' + s[1:]\n"
    assert "    return 'äöü→' + s[:]" in {apply_mutation(source, m).split("\n")[1] for m in mutations_of(source)}


def test_percent_formatting_is_not_taken_for_arithmetic() -> None:
    assert [m for m in mutations_of("def f(x):\n    return '%s!' % x\n") if m.kind == "arithmetic"] == []


@given(st.text("ab\n", max_size=12), st.text("ab\n", max_size=12))
def test_changed_lines_rebuild_the_new_text(old: str, new: str) -> None:
    first, end_old, end_new = changed_lines(old, new)
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    assert "".join(before[:first] + after[first:end_new] + before[end_old:]) == new
