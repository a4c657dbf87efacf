"""Faults for a function: small changes of its syntax tree, made as edits of its text so that the layout stays.

Sixteen kinds. A mutation is only a proposal: whether it changes behaviour is found by running it (see functions.py).
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipelines.synthesis.environments.source_text import SourceText

__all__ = ["KINDS", "Mutation", "apply_mutation", "find_mutations"]

Function = ast.FunctionDef
Change = tuple[int, int, str]

COMPARISONS = {"<=": "<", ">=": ">", "<": "<=", ">": ">=", "==": "!=", "!=": "==", "not in": "in", "in": "not in"}
COMPARISONS |= {"is not": "is", "is": "is not"}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "//", "//": "/", "%": "//", "**": "*", "<<": ">>", ">>": "<<"}
ARITHMETIC |= {"&": "|", "|": "&", "^": "|"}
METHODS = {
    "strip": "lstrip", "lstrip": "strip", "rstrip": "strip", "lower": "upper", "upper": "lower", "find": "rfind",
    "rfind": "find", "index": "rindex", "split": "rsplit", "rsplit": "split", "startswith": "endswith",
    "endswith": "startswith", "partition": "rpartition", "rpartition": "partition", "isdigit": "isalpha",
    "isalpha": "isalnum", "keys": "values", "values": "keys", "append": "extend", "union": "intersection",
    "intersection": "union", "add": "discard", "floor": "ceil", "ceil": "floor", "ljust": "rjust", "rjust": "ljust",
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "int": "round", "abs": "int"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replace the characters start to end of a module's text by `text`. `line` is 1-based, for people."""

    kind: str
    function: str
    line: int
    start: int
    end: int
    text: str


def apply_mutation(source: str, mutation: Mutation) -> str:
    """The broken text."""
    return source[: mutation.start] + mutation.text + source[mutation.end :]


def find_mutations(source: str, function: Function) -> list[Mutation]:
    """Every mutation of one top-level function of `source`, in text order.

    `function` is a node of `ast.parse(source)`. Nothing outside its body and defaults is touched: no name, no
    annotation, no docstring. A few proposals may not be valid Python where brackets meet: whoever runs them finds out.
    """
    text = SourceText(source)
    seen: set[Change] = set()
    found = []
    whole = text.span(function)
    for kind, change in sorted(_proposals(text, function), key=lambda item: (item[1], item[0])):
        start, end, new = change
        if change not in seen and source[start:end] != new and start >= whole.start:
            seen.add(change)
            found.append(Mutation(kind, function.name, text.line_of(start), start, end, new))
    return found


def _proposals(text: SourceText, function: Function) -> Iterator[tuple[str, Change]]:
    for change in _wrong_default(text, function):
        yield "wrong_default", change
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    names = [a.arg for a in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]]
    for statement in body:
        for node in _walk(statement):
            for kind, rule in KINDS.items():
                for change in rule(text, node):
                    yield kind, change
            for change in _wrong_variable(text, node, names):
                yield "wrong_variable", change


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below `node` without annotations and the insides of formatted strings (their positions are unreliable)."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context | ast.operator | ast.cmpop):
                yield from _walk(child)


def _replace(text: SourceText, node: ast.AST, new: str) -> Change:
    span = text.span(node)
    return span.start, span.end, new


def _operator(text: SourceText, left: ast.AST, right: ast.AST, table: dict[str, str]) -> Iterator[Change]:
    """Exchange the operator between two neighbours, leaving blanks and brackets as they are."""
    start, end = text.span(left).end, text.span(right).start
    between = text.text[start:end]
    if "#" in between:
        return
    for operator in sorted(table, key=len, reverse=True):
        pattern = rf"\b{operator}\b" if operator.isalpha() or " " in operator else re.escape(operator)
        match = re.search(pattern, between)
        if match:
            yield start + match.start(), start + match.end(), table[operator]
            return


def _comparison(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _operator(text, node.left, node.comparators[0], COMPARISONS)


def _arithmetic(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and not _is_text(node.left):
        yield from _operator(text, node.left, node.right, ARITHMETIC)
    if isinstance(node, ast.AugAssign) and not _is_text(node.value):
        yield from _operator(text, node.target, node.value, ARITHMETIC)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _boolean_operator(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        for left, right in itertools.pairwise(node.values):
            yield from _operator(text, left, right, {"and": "or", "or": "and"})


def _off_by_one(text: SourceText, node: ast.AST) -> Iterator[Change]:
    parts: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.BinOp) and not _is_text(node.left):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call):
        parts = node.args
    elif isinstance(node, ast.Subscript):
        parts = [node.slice]
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Return) and node.value is not None:
        parts = [node.value]
    for part in parts:
        if isinstance(part, ast.Constant) and type(part.value) is int:
            yield _replace(text, part, str(part.value + 1))
            if part.value > 0:
                yield _replace(text, part, str(part.value - 1))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        last = node.args[min(1, len(node.args) - 1)] if node.args else None
        if last is not None and not isinstance(last, ast.Constant | ast.Starred):
            yield _replace(text, last, f"{text.segment(last)} - 1")


def _slice_bound(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Slice):
        return
    for bound, step in ((node.lower, 1), (node.upper, -1)):
        if bound is None:
            continue
        segment = text.segment(bound)
        if isinstance(bound, ast.Constant) and type(bound.value) is int:
            yield _replace(text, bound, str(bound.value + 1))
        else:
            yield _replace(text, bound, f"{segment} {'+' if step > 0 else '-'} 1")
        yield _replace(text, bound, "")


def _swapped_arguments(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        first, second = text.span(node.args[0]), text.span(node.args[1])
        middle = text.text[first.end : second.start]
        if "(" not in middle and ")" not in middle and "#" not in middle:
            new = text.segment(node.args[1]) + middle + text.segment(node.args[0])
            yield first.start, second.end, new


def _negated_condition(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.If | ast.IfExp):
        test = node.test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield _replace(text, test, text.segment(test.operand))
        elif isinstance(test, ast.Name | ast.Call | ast.Attribute | ast.Subscript):
            yield _replace(text, test, f"not {text.segment(test)}")


def _dropped_branch(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.If) and node.body[0].lineno > node.lineno and not isinstance(node.body[0], ast.Pass):
        yield text.span(node.body[0]).start, text.span(node.body[-1]).end, "pass"
        if node.orelse and node.orelse[0].lineno > node.body[-1].lineno and not _is_elif(text, node.orelse[0]):
            yield text.span(node.orelse[0]).start, text.span(node.orelse[-1]).end, "pass"


def _is_elif(text: SourceText, node: ast.stmt) -> bool:
    return text.segment(node).startswith("elif")


def _dropped_statement(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield _replace(text, node, "pass")
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute):
        yield _replace(text, node, "pass")
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        if node.targets[0].id in names:
            yield _replace(text, node, "pass")


def _wrong_constant(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield _replace(text, node, str(not value))
    elif isinstance(value, float):
        yield _replace(text, node, repr(value * 10))
    elif isinstance(value, str | bytes) and len(value) <= 12 and text.segment(node)[-3:] not in ('"""', "'''"):
        if value:
            yield _replace(text, node, repr(value[:-1] if len(value) > 1 else value * 2))
        if value.swapcase() != value:
            yield _replace(text, node, repr(value.swapcase()))


def _wrong_return(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Return) or node.value is None:
        return
    value = node.value
    if isinstance(value, ast.Tuple) and len(value.elts) >= 2:
        parts = [text.segment(element) for element in value.elts]
        yield _replace(text, value, "({})".format(", ".join([parts[1], parts[0], *parts[2:]])))
    elif isinstance(value, ast.BinOp):
        yield _replace(text, value, text.segment(value.left))
    elif isinstance(value, ast.Call) and len(value.args) == 1 and not isinstance(value.args[0], ast.Starred):
        yield _replace(text, value, text.segment(value.args[0]))
    elif isinstance(value, ast.Compare):
        yield _replace(text, value, f"not {text.segment(value)}")
    elif isinstance(value, ast.Name):
        yield _replace(text, node, "return")


def _wrong_method(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        end = text.span(node.func).end
        yield end - len(node.func.attr), end, METHODS[node.func.attr]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield _replace(text, node.func, CALLS[node.func.id])


def _dropped_sign(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield _replace(text, node, text.segment(node.operand))


def _loop_exit(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Break):
        yield _replace(text, node, "continue")
    elif isinstance(node, ast.Continue):
        yield _replace(text, node, "break")


def _wrong_handler(text: SourceText, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
        wrong = "KeyError" if node.exc.func.id != "KeyError" else "ValueError"
        yield _replace(text, node.exc.func, wrong)


def _wrong_default(text: SourceText, function: Function) -> Iterator[Change]:
    defaults = [*function.args.defaults, *(d for d in function.args.kw_defaults if d is not None)]
    for default in defaults:
        if not isinstance(default, ast.Constant):
            continue
        if isinstance(default.value, bool):
            yield _replace(text, default, str(not default.value))
        elif isinstance(default.value, int):
            yield _replace(text, default, str(default.value + 1))
        elif isinstance(default.value, str) and len(default.value) <= 12:
            yield _replace(text, default, repr(default.value[:-1] if default.value else " "))


def _wrong_variable(text: SourceText, node: ast.AST, names: list[str]) -> Iterator[Change]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names and len(names) > 1:
        yield _replace(text, node, names[(names.index(node.id) + 1) % len(names)])


KINDS: dict[str, Callable[[SourceText, ast.AST], Iterator[Change]]] = {
    "off_by_one": _off_by_one,
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "boolean_operator": _boolean_operator,
    "swapped_arguments": _swapped_arguments,
    "negated_condition": _negated_condition,
    "dropped_branch": _dropped_branch,
    "dropped_statement": _dropped_statement,
    "wrong_constant": _wrong_constant,
    "wrong_return": _wrong_return,
    "wrong_method": _wrong_method,
    "slice_bound": _slice_bound,
    "dropped_sign": _dropped_sign,
    "loop_exit": _loop_exit,
    "wrong_exception": _wrong_handler,
}
