"""Prose out of Python docstrings: what a scientific package says about its subject, without its interface.

A module of scipy explains statistics in its docstrings; the same docstrings list parameters, types and doctests. Only
the explanation is taken: sections that describe the interface (numpydoc and Google names), doctests and directives
are left out. The source is parsed, never imported or run.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Prose", "module_prose", "prose_of"]

BIG_DOCSTRING = 2_000  # characters of prose from which a docstring is a document of its own
MIN_PIECE = 80  # characters of prose below which a docstring says too little to be quoted
MAX_DOCUMENT = 12_000  # characters after which the next docstring of a module begins a new document

INTERFACE_SECTIONS = frozenset(
    """parameters|parameter|args|arguments|keyword arguments|keyword args|other parameters|keyword parameters|returns
    |return|return type|yields|receives|raises|raise|warns|attributes|methods|see also|seealso|routines|input|inputs
    |output|outputs|options|usage|todo|references|reference|functions|classes|contents|module contents|shape|variables
    |properties|exceptions|call signature|example usage|author|authors|copyright|license""".replace("\n", "")
    .replace("    ", "")
    .split("|")
)

_UNDERLINE = re.compile(r"^\s*([=\-~^\"'*+#])\1{2,}\s*$")
_DIRECTIVES = (
    "autosummary|currentmodule|module|auto[a-z]+|toctree|index|deprecated|versionadded|versionchanged|plot|legacy"
    "|testsetup|testcode|testoutput|code-block|code|sourcecode|only|include|image|figure|doctest|seealso"
)
_FIELD = re.compile(
    rf"^\s*(?::(?:param|type|returns?|rtype|raises|arg|keyword|attr)\b|\.\.\s+(?:{_DIRECTIVES})::|\.\.\s+\[\w+\])"
)
_PLACEHOLDER = re.compile(r"^\s*%\(\w+\)s\s*$")
_ROLE = re.compile(r":(?:[a-z]+:)*[a-z]+:`~?\.?([^`<]+?)(?:\s*<[^`>]*>)?`")
_CITATION = re.compile(r"\s?\[[\w.-]+\]_")
_HEADING = "\x01"  # marks a heading line until it is known whether text follows it


@dataclass(frozen=True, slots=True)
class Prose:
    """A piece of documentation: the 1-based line where its docstring begins, and the text."""

    line: int
    text: str


def module_prose(source: str) -> Iterator[Prose]:
    """The documents of one module: each big docstring by itself, the small ones together in source order.

    Raises SyntaxError (and ValueError for NUL bytes) when `source` is not Python.
    """
    seen: set[str] = set()
    small: list[Prose] = []
    for line, docstring in _docstrings(ast.parse(source)):
        text = prose_of(docstring)
        if len(text) < MIN_PIECE or text in seen:
            continue
        seen.add(text)
        if len(text) >= BIG_DOCSTRING:
            yield Prose(line, text)
            continue
        small.append(Prose(line, text))
        if sum(len(piece.text) for piece in small) >= MAX_DOCUMENT:
            yield _together(small)
            small = []
    if small:
        yield _together(small)


def _together(pieces: list[Prose]) -> Prose:
    return Prose(pieces[0].line, "\n\n".join(piece.text for piece in pieces))


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of the documentation in a module: docstrings, strings given to a call, and long named strings.

    The last two are how numpy and mpmath document what is written in C or made at run time:
    `add_newdoc("name", "text")` and `name = "text"`.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=True)
            if docstring:
                yield node.body[0].lineno, docstring
            inner = [n for n in node.body if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
            waiting.extend(reversed(inner))
            if isinstance(node, ast.Module):
                for statement in node.body:
                    yield from _named_strings(statement)


def _named_strings(statement: ast.stmt) -> Iterator[tuple[int, str]]:
    values: list[ast.expr] = []
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        values = statement.value.args
    elif isinstance(statement, ast.Assign):
        values = [statement.value]
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and len(value.value) > 400:
            yield value.lineno, inspect.cleandoc(value.value)


def prose_of(docstring: str) -> str:
    """The explaining part of a cleaned docstring: no interface sections, doctests, directives, roles or citations."""
    lines = docstring.expandtabs().split("\n")
    kept: list[str] = []
    skipping = False
    position = 0
    while position < len(lines):
        line = lines[position]
        title = line.strip(" :*#").lower()
        if position + 1 < len(lines) and title and _UNDERLINE.match(lines[position + 1]):
            skipping = title in INTERFACE_SECTIONS or ":mod:" in line
            kept += [] if skipping else ["", _HEADING + line.strip(), ""]
            position += 2
        elif (title in INTERFACE_SECTIONS and line.rstrip().endswith(":")) or _FIELD.match(line):
            position = _after_body(lines, position)
        elif skipping or _UNDERLINE.match(line) or _PLACEHOLDER.match(line):
            position += 1
        elif line.lstrip().startswith((">>>", "In [", "$ ")):
            position = _after_block(lines, position)
        else:
            kept.append(_CITATION.sub("", _ROLE.sub(r"\1", line)).replace("``", "`").rstrip())
            position += 1
    return _without_bare_headings(kept)


def _without_bare_headings(lines: list[str]) -> str:
    """Join lines; a heading with no text before the next heading or the end goes."""
    kept: list[str] = []
    text_follows = False
    for line in reversed(lines):
        if line.startswith(_HEADING):
            if text_follows:
                kept.append(line.removeprefix(_HEADING))
            text_follows = False
        else:
            kept.append(line)
            text_follows = text_follows or bool(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip()


def _after_block(lines: list[str], position: int) -> int:
    """The line after a doctest: its code and output end at the next blank line."""
    while position < len(lines) and lines[position].strip():
        position += 1
    return position


def _after_body(lines: list[str], position: int) -> int:
    """The line after a directive, a field or a Google section: the first one that is not indented deeper."""
    indent = _indent(lines[position])
    position += 1
    while position < len(lines) and (not lines[position].strip() or _indent(lines[position]) > indent):
        position += 1
    return position


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
