"""From a file of a corpus to a module that runs alone: what needs other packages is cut out, the rest stays."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.synthesis.environments.source_text import parse_module
from pipelines.synthesis.sandbox.client import MODULES

__all__ = ["Lines", "StandaloneModule", "candidate_functions", "cut_slice", "find_slices", "make_standalone"]

IMPORTABLE = set(MODULES) - {"threading", "locale", "time", "gc", "weakref"}
BUILTINS = set(dir(builtins)) | {"__name__", "__file__", "__doc__"}
# a function that names one of these does more than compute
IMPURE = {
    "open", "input", "print", "exec", "eval", "compile", "breakpoint", "exit", "quit", "help", "globals", "locals",
    "vars", "id", "hash", "memoryview", "__import__", "random", "os", "io", "sys", "__file__", "unittest", "super",
}  # fmt: skip
MAX_CHARACTERS = 150_000
Lines = tuple[int, int, bool]  # first and last line, from 1, and whether a definition starts there


@dataclass(slots=True)
class _Statement:
    """A top-level statement: its lines (from 1), where the comments above it and the gap before it begin, its names."""

    node: ast.stmt
    gap: int
    comments: int
    first: int
    last: int
    binds: set[str]
    needs: set[str]
    allowed: bool = True
    keep: bool = field(default=True)


@dataclass(frozen=True, slots=True)
class StandaloneModule:
    """A module's text that needs the standard library only. `removed` counts top-level statements that were cut."""

    source: str
    removed: int


def make_standalone(source: str) -> StandaloneModule | None:
    """Cut every top-level statement that needs a module outside the sandbox's warm standard library, directly or not.

    None when the text is not Python, is over 150,000 characters, or puts two statements on a line. The result's
    text is the input's, minus whole statements with the comment lines directly above them.
    """
    if len(source) > MAX_CHARACTERS or "\r" in source or "\f" in source or not _may_stand_alone(source):
        return None
    statements = _statements(source)
    if not statements or not _settle(statements):
        return None
    removed = sum(not statement.keep for statement in statements)
    if removed == 0:
        return StandaloneModule(source, 0)
    for statement in statements:
        statement.keep &= statement.binds != {"__all__"}  # it would name what is gone
    return StandaloneModule(_trimmed(source, statements), removed)


def _may_stand_alone(source: str) -> bool:
    """A quick look: some function is worth breaking and names nothing that comes from elsewhere."""
    tree = parse_module(source)
    if tree is None:
        return False
    foreign = {
        alias.asname or alias.name.split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and not _imports_allowed(node)
        for alias in node.names
    }
    for function in _candidates(tree):
        if not foreign & {child.id for child in ast.walk(function) if isinstance(child, ast.Name)}:
            return True
    return False


def find_slices(source: str, functions: Iterable[str]) -> dict[str, list[Lines]]:
    """The parts of a standalone module that each function needs: imports, constants, helpers and itself, in order."""
    statements = _statements(source)
    return {name: _needed(statements, name) for name in functions} if statements else {}


def cut_slice(source: str, parts: Iterable[Lines]) -> str:
    """The text of a slice: its parts, definitions set off by two blank lines."""
    lines = source.split("\n")
    text: list[str] = []
    for first, last, is_definition in parts:
        text += [*(["", ""] if is_definition and text else []), *lines[first - 1 : last]]
    return _joined(text)


def _needed(statements: list[_Statement], function: str) -> list[Lines]:
    wanted, todo = set[str](), [function]
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            for statement in statements:
                if name in statement.binds:
                    todo.extend(statement.needs)
    parts: list[Lines] = []
    for statement in statements:
        future = isinstance(statement.node, ast.ImportFrom) and statement.node.module == "__future__"
        if statement.binds & wanted or future:
            is_definition = isinstance(statement.node, ast.FunctionDef | ast.ClassDef)
            parts.append((statement.comments, statement.last, is_definition))
    return parts


def candidate_functions(source: str) -> list[ast.FunctionDef]:
    """Top-level functions worth breaking: 1 to 5 plain parameters, no decorator, three lines or more, pure by name."""
    tree = parse_module(source)
    return _candidates(tree) if tree else []


def _candidates(tree: ast.Module) -> list[ast.FunctionDef]:
    found = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.name.startswith(("test", "__", "main")):
            continue
        arguments = node.args
        if arguments.kwonlyargs and any(default is None for default in arguments.kw_defaults):
            continue
        parameters = [*arguments.posonlyargs, *arguments.args]
        required = len(parameters) - len(arguments.defaults)
        if not parameters or required > 5:
            continue
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        if not body or (body[-1].end_lineno or 0) - body[0].lineno < 2:
            continue
        names = {child.id for statement in body for child in ast.walk(statement) if isinstance(child, ast.Name)}
        if names & IMPURE:
            continue
        found.append(node)
    return found


def _statements(source: str) -> list[_Statement]:
    """The top-level statements; an empty list when they cannot be told apart by lines."""
    tree = parse_module(source)
    if tree is None:
        return []
    lines = source.split("\n")
    statements: list[_Statement] = []
    last = 0
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if first <= last:
            return []
        gap, comments = last + 1, first
        while comments > gap and lines[comments - 2].startswith("#"):
            comments -= 1
        last = node.end_lineno or node.lineno
        segment = "\n".join(lines[first - 1 : last])
        binds, needs = _names(segment)
        statements.append(_Statement(node, gap, comments, first, last, binds, needs, _is_allowed(node, segment)))
    return statements


def _names(segment: str) -> tuple[set[str], set[str]]:
    """(names that a statement binds at module level, global names that it uses anywhere)."""
    try:
        table = symtable.symtable(segment, "segment", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return set(), {"<unreadable>"}
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    needs = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    todo = list(table.get_children())
    while todo:
        child = todo.pop()
        needs |= {s.get_name() for s in child.get_symbols() if s.is_global()}
        todo.extend(child.get_children())
    return binds, needs


def _is_allowed(node: ast.stmt, segment: str) -> bool:
    """Whether a statement may stay for what it is: no import from elsewhere at module level, no code that only acts."""
    if isinstance(node, ast.Delete | ast.With | ast.While | ast.AsyncFunctionDef):
        return False
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        return False
    for child in ast.walk(node) if "import" in segment else ():
        if isinstance(child, ast.Import | ast.ImportFrom) and not _imports_allowed(child):
            return False
    return True


def _imports_allowed(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import names only modules that the sandbox has loaded, and no star."""
    if isinstance(node, ast.Import):
        return all(alias.name in IMPORTABLE for alias in node.names)
    return not node.level and node.module in IMPORTABLE and all(alias.name != "*" for alias in node.names)


def _settle(statements: list[_Statement]) -> bool:
    """Drop what needs something that is not there, until nothing changes; False when no function is left."""
    for statement in statements:
        statement.keep = statement.allowed
    while True:
        bound = BUILTINS.union(*(s.binds for s in statements if s.keep))
        losers = [s for s in statements if s.keep and not s.needs <= bound]
        if not losers:
            return any(s.keep and isinstance(s.node, ast.FunctionDef) for s in statements)
        for statement in losers:
            statement.keep = False


def _trimmed(source: str, statements: Iterable[_Statement]) -> str:
    """The text without dropped statements and the comments before them; the head of the file stays."""
    lines = source.split("\n")
    gone: set[int] = set()
    for statement in statements:
        if not statement.keep:
            gone.update(range(statement.first if statement.gap == 1 else statement.gap, statement.last + 1))
    return _joined(line for number, line in enumerate(lines, 1) if number not in gone)


def _joined(lines: Iterable[str]) -> str:
    """Lines as a file with at most two blank lines in a row."""
    kept: list[str] = []
    for line in lines:
        if line.strip() or kept[-2:] != ["", ""]:
            kept.append(line if line.strip() else "")
    return "\n".join(kept).strip("\n") + "\n"
