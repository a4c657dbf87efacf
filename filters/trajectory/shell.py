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
_ALL_COUNT = re.compile(r"\bset\s+-\w*e|\bpipefail\b|(?:^|[;\n])\s*(?:for|while|until|if|case)\s")
_EXEC = re.compile(r"-(?:exec|execdir|ok)\s.*?(?:\\;|';'|\";\")", re.S)


@dataclass(frozen=True, slots=True)
class ShellLine:
    """`counted`: words of the commands whose failure fails the line; `hidden`: words of the others only;
    `programs`: the names of the counted commands; `last`: the name of the last command, "" for none."""

    counted: frozenset[str]
    hidden: frozenset[str]
    programs: frozenset[str]
    last: str


def _split(command: str) -> list[tuple[str, str]]:
    """Top-level commands with the operator after each ("" at the end): `a | b; c` gives [(a,|), (b,;), (c,)]."""
    parts: list[tuple[str, str]] = []
    current: list[str] = []
    depth = 0
    for lexeme in _LEXEME.findall(command[:_LIMIT]):
        if lexeme.startswith("#") and (not current or current[-1][-1:].isspace()):
            continue
        if lexeme in ("(", "$(", "<(", ">(") or (lexeme == "{" and not "".join(current).strip()):
            depth += 1
        elif lexeme == ")" or (lexeme == "}" and depth):
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


def _counted(command: str, depth: int = 0) -> list[str]:
    """The commands whose failure is the line's failure."""
    parts = _split(command)
    counted: list[str] = []
    for index in range(len(parts) - 1, -1, -1):
        text, operator = parts[index]
        if index < len(parts) - 1 and operator != "&&":
            if operator in ("|", "|&"):
                continue
            break
        inner = _group(text)
        if inner is not None and depth < 5:
            counted.extend(_counted(inner, depth + 1))
        else:
            counted.append(_EXEC.sub(" ", text))
    return counted


@lru_cache(maxsize=2048)
def read_shell_line(command: str) -> ShellLine:
    """Whose diagnostics count. With `set -e`, pipefail, a loop or a condition every command's do.

    Only the first 20,000 characters are read.
    """
    command = command[:_LIMIT]
    every = _words(command)
    commands = simple_commands(command)
    last = _ran(commands[-1]) if commands else ""
    if not every or _ALL_COUNT.search(command):
        return ShellLine(frozenset(every), frozenset(), frozenset(_name(words[0]) for words in commands), last)
    counted = _counted(command)
    words = frozenset[str]().union(*map(_words, counted))
    programs = frozenset(_name(found[0]) for text in counted for found in simple_commands(text))
    return ShellLine(words, frozenset(every - words), programs, last)


def _ran(words: list[str]) -> str:
    """The name of what a command runs; for `python -m x` it is x."""
    if words[0].startswith("python") and words[1:2] == ["-m"] and len(words) > 2:
        return words[2]
    return _name(words[0])


def _name(program: str) -> str:
    return program.rsplit("/", 1)[-1]
