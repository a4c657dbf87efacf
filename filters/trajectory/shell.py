"""What a shell line runs, and whose failure makes the whole line fail.

A small reading of POSIX shell grammar, enough to weigh diagnostics: quotes, escapes, groups, pipelines and lists.
Exit status by POSIX XCU 2.9: a pipeline has its last command's, an `A && B` list fails when either does,
`A || B` and `A ; B` have the last one's. `find -exec … ;` hides what the executed command returned (POSIX find).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["ShellLine", "read_shell_line", "simple_commands", "word_set"]


def word_set(words: str) -> frozenset[str]:
    """A set written as one line of words."""
    return frozenset(words.split())


_LIMIT = 20_000
_LEXEME = re.compile(
    r"""\\.|'[^']*'?|"(?:[^"\\]|\\.)*"?|`[^`]*`?|\$\(|<\(|>\(|\(|\)|\|\||&&|;;|\|&|>&|&>|[|;&\n]|#[^\n]*|[^\s\\'"`()|;&\n$<>]+|\s|.""",
    re.S,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_WORD = re.compile(r"[\w./+\[-]+")
_PREFIXES = word_set("sudo time env nohup then do else if while until elif exec builtin ! { ( nice")
_EXEC = re.compile(r"-(?:exec|execdir|ok)\s.*?(?:\\;|';'|\";\")", re.S)


@dataclass(frozen=True, slots=True)
class ShellLine:
    """`counted`: words of the commands whose failure fails the line; `hidden`: words of the others only."""

    counted: frozenset[str]
    hidden: frozenset[str]


def _split(command: str) -> list[tuple[str, str]]:
    """Top-level commands with the operator after each ("" at the end): `a | b; c` gives [(a,|), (b,;), (c,)]."""
    parts: list[tuple[str, str]] = []
    current: list[str] = []
    depth = 0
    for lexeme in _LEXEME.findall(command[:_LIMIT]):
        if lexeme.startswith("#") and (not current or current[-1][-1:].isspace()):
            continue
        if lexeme in ("(", "$(", "<(", ">("):
            depth += 1
        elif lexeme == ")":
            depth = max(0, depth - 1)
        elif depth == 0 and lexeme in ("||", "&&", "|", "|&", ";", ";;", "&", "\n"):
            parts.append(("".join(current), lexeme))
            current = []
            continue
        current.append(lexeme)
    parts.append(("".join(current), ""))
    return [(text.strip(), operator) for text, operator in parts if text.strip()]


@lru_cache(maxsize=512)
def simple_commands(command: str) -> list[list[str]]:
    """The words of each command of a line, in order; groups are entered, assignments and prefixes left out.

    The list is shared: not to be changed.
    """
    found: list[list[str]] = []
    for text, _ in _split(command):
        inner = _group(text)
        if inner is not None and inner != command:
            found.extend(simple_commands(inner))
            continue
        words = text.split()
        while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        if words:
            found.append(words)
    return found


def _group(text: str) -> str | None:
    """The inside of `( … )` or `{ …; }` when that is the whole command."""
    for opening, closing in (("(", ")"), ("{", "}")):
        if text.startswith(opening) and text.rstrip().endswith(closing):
            return text[1 : text.rindex(closing)]
    return None


def _words(text: str) -> set[str]:
    return {word.rsplit("/", 1)[-1] for word in _WORD.findall(text)}


def _counted(command: str, depth: int = 0) -> set[str]:
    """Words of the commands whose failure is the line's failure."""
    parts = _split(command)
    words: set[str] = set()
    for index in range(len(parts) - 1, -1, -1):
        text, operator = parts[index]
        if index < len(parts) - 1 and operator != "&&":
            if operator in ("|", "|&"):
                continue
            break
        inner = _group(text)
        if inner is not None and depth < 5:
            words |= _counted(inner, depth + 1)
        else:
            words |= _words(_EXEC.sub(" ", text))
    return words


@lru_cache(maxsize=2048)
def read_shell_line(command: str) -> ShellLine:
    """Whose diagnostics count. With `set -e` or pipefail everything does. Only the first 20,000 characters are read."""
    command = command[:_LIMIT]
    every = _words(command)
    if not every or re.search(r"\bset\s+-\w*e|\bpipefail\b", command):
        return ShellLine(frozenset(every), frozenset())
    counted = _counted(command)
    return ShellLine(frozenset(counted), frozenset(every - counted))
