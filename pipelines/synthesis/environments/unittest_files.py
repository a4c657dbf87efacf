"""Recorded calls as unittest files, and when an outcome counts as the recorded one."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.synthesis.environments.functions import Call

__all__ = ["class_name", "fails_visibly", "is_testable", "unittest_file", "unittest_label"]


def class_name(function: str) -> str:
    """The test class of a function: parse_header -> ParseHeaderTest."""
    return "".join(part.capitalize() for part in function.split("_") if part) + "Test"


def unittest_label(path: str, function: str, index: int) -> str:
    """How run_tests names the test of a recorded call."""
    return f"{path}::{class_name(function)}.test_{function.strip('_')}_{index + 1}"


def is_testable(calls: Sequence[Call], index: int) -> bool:
    """Whether a call can be written as a test: an exception of a lazy iterator shows only when it is consumed."""
    lazy = any(call.outcome[0] == "list" for call in calls)
    return not (lazy and calls[index].outcome[0] == "raises")


def unittest_file(path: str, dotted: str, functions: Mapping[str, tuple[Sequence[Call], Sequence[int]]]) -> str:
    """The text of a test file. `functions` maps a name to (its recorded calls, which of them to test)."""
    names = sorted(functions)
    lines = [f'"""Behaviour of {dotted}."""', "", "import unittest", "", f"from {dotted} import {', '.join(names)}", ""]
    for name in names:
        calls, chosen = functions[name]
        lines += ["", f"class {class_name(name)}(unittest.TestCase):"]
        for index in chosen:
            method = unittest_label(path, name, index).split(".")[-1]
            lines += [f"    def {method}(self):", *(f"        {line}" for line in _body(name, calls[index])), ""]
    return "\n".join([*lines, "", 'if __name__ == "__main__":', "    unittest.main()", ""])


def _body(name: str, call: Call) -> list[str]:
    kind, *details = call.outcome
    arguments = list(call.arguments)
    if kind == "effect":
        position, expected = details
        lines = [f"data = {arguments[position]}"]
        arguments[position] = "data"
        return [*lines, f"{name}({', '.join(arguments)})", f"self.assertEqual(data, {expected})"]
    invocation = f"{name}({', '.join(arguments)})"
    if kind == "raises":
        return [f"with self.assertRaises({details[0]}):", f"    {invocation}"]
    wrapped = {"repr": f"repr({invocation})", "list": f"list({invocation})"}.get(kind, invocation)
    return [f"self.assertEqual({wrapped}, {details[0]})"]


def fails_visibly(expected: list[Any], got: list[Any]) -> bool:
    """Whether the unittest of a recorded call fails for what happened now (1 and True are equal to assertEqual)."""
    if expected == got:
        return False
    if expected[:-1] != got[:-1] or expected[0] in ("raises", "repr") or got[0] == "unsupported":
        return True
    try:
        return bool(ast.literal_eval(expected[-1]) != ast.literal_eval(got[-1]))
    except (ValueError, SyntaxError):
        return True
