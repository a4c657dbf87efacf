"""Whether an observation reads like an error, when its structure says nothing.

The knowledge is of kinds of text, not of any tool: how a shell, getopt, errno, Python, node, compilers, SQL
servers, HTTP and JSON tools word a failure. Two things keep the precision up:

- the first lines are read as a message; the last lines too, where programs that stop put their reason;
- GNU programs write "program: message", so the words of the command that ran say which lines are diagnostics,
  and a diagnostic of a command whose failure the line does not pass on (shell.py) is not counted.

Only the first HEAD_CHARS and last TAIL_CHARS characters are looked at, so cost is bounded whatever the length.
"""

from __future__ import annotations

import errno
import os
import re

import orjson

from filters.trajectory import error_phrases as phrases
from filters.trajectory.shell import ShellLine, read_shell_line, word_set

__all__ = ["HEAD_CHARS", "TAIL_CHARS", "looks_like_test_report", "text_error"]

HEAD_CHARS = 4096
TAIL_CHARS = 2048
_HEAD_LINES = 12
_TAIL_LINES = 6
_LINE_CHARS = 600

_ERRNO = frozenset(os.strerror(code).lower() for code in errno.errorcode if code != 0)
_SHELLS = word_set("sh bash zsh dash ksh csh tcsh fish ash busybox -bash -sh -zsh")

_PROGRAM_LINE = re.compile(
    r"(?P<program>(?:\.{0,2}/)?(?:[\w.+-]+/)*[\w.+-]{1,40}|\[{1,2}):(?:\s+(?:\(\w+\) )?|(?=\d+: ))(?P<message>\S.*)",
    re.S,
)
_SHELL_LINE = re.compile(r"^\S{0,200}?:? ?(?:-c: )?line \d+: (?=\S)|: -c: line \d+: ")
_BLAMED = re.compile(r"(?:^|\bline )\d+: ([A-Za-z_./+-][\w./+-]*): ")
_DIED = re.compile(r"\bat \S+ line \d+\.$")  # perl
_TRY_HELP = re.compile(r"(?:Try|See|Run|Type) [`'‘\"].{1,60}(?:--?help|-h\b|\(\d\))", re.I)
_INFORMATION = re.compile(
    r"(?:nothing to be done|entering directory|leaving directory|removing leading|skipping|creating)\b"
    r"|.*\bis up to date\b|.*\? *$",
    re.I,
)
_TAGGED_LINE = re.compile(r"(?:ERROR|Error|error|FATAL|fatal|Fatal|CRITICAL|E|!|ERR!)(?:\[\w+\])?: +\S|\[ERROR\] ")
_ENDS_IN_ERRNO = re.compile(r": ([^:]{4,60}?)\.?$")
# Programs whose output is content: an error's words in it, beyond its own diagnostics, are somebody's text.
_SHOWS_CONTENT = word_set(
    "cat head tail sed awk gawk mawk grep egrep rg ag ack find ls echo printf less more nl tac sort uniq cut tr wc jq "
    "python python3 node ruby perl psql mysql sqlite3 SELECT select SHOW show DESCRIBE describe WITH with tree xargs"
)
# Names that stand before a message although the command line may not say them (gunzip speaks as gzip).
_PROGRAMS = word_set(
    "awk basename bunzip2 bzip2 cat chgrp chmod chown cmp comm cp curl cut date dd df diff dirname dpkg du egrep env "
    "expr fgrep file find fold gawk gcc git go grep gunzip gzip head id install join kill ln ls make mawk mkdir mkfifo "
    "mktemp mv nl node npm od openssl paste patch perl pip printf ps python python3 readlink realpath rm rmdir rsync "
    "ruby scp sed seq service shuf sleep sort split ssh stat su sudo systemctl tac tail tar tee touch tr truncate "
    "umount uniq unzip wc wget which xargs xz zcat zip"
)
_TRACE_MARKS = ("Traceback", " at ", "\tat ", "panic", "goroutine")  # a cheap look before the pattern
_MESSAGE_STARTS = 100  # a first line that talks of errors further in is prose
_LABEL = re.compile(r"\W*(?:observation|(?:standard |execution |command )?(?:output|result)|stdout|stderr)s?\W*", re.I)
_SUCCESS = re.compile(r"\bsuccess(?:fully)?\b|\bsucceeded\b|\bno errors?\b|\b0 errors?\b", re.I)
_JSON_ERROR = re.compile(r"""\{\s*"(?:error|errors|exception)"\s*:\s*(?:"[^"]|\{\s*"|\[\s*[^\]\s]|true)""")
_FILE_LINE = re.compile(r"[^\s:]+:\d+[:-]")
_WARNING = re.compile(r"(?:warn(?:ing)?|note|info|notice|debug|hint)\b", re.I)


def looks_like_test_report(text: str) -> bool:
    """Whether the head or tail of `text` holds a test runner's summary or per-test lines."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return bool(phrases.TEST_REPORT.search(text))
    return bool(phrases.TEST_REPORT.search(text[-TAIL_CHARS:]) or phrases.TEST_REPORT.search(text[:HEAD_CHARS]))


def text_error(text: str, command: str = "") -> str | None:
    """The kind of error that `text` reads like (text_shell, text_errno, text_traceback, …), None when it does not.

    `command` is what was run, when known. Reading test reports is the caller's business. Cost bounded by
    HEAD_CHARS + TAIL_CHARS.
    """
    if text.lstrip()[:1] == "{" and (json_says := _json_error(text)) is not None:
        return json_says or None
    lines = _lines(text[:HEAD_CHARS])
    if lines and _LABEL.fullmatch(lines[0]):
        lines = lines[1:]
    if not lines:
        return None
    head = lines[:_HEAD_LINES]
    whole = len(text) <= HEAD_CHARS and len(lines) <= _HEAD_LINES
    tail = [] if whole else _lines(text[-TAIL_CHARS:])[-_TAIL_LINES:]
    run = read_shell_line(command)
    seen = (*head, *tail)
    for number, line in enumerate(seen):
        known, found = _diagnostic(line, run, first=number == 0)
        if found is None and not known:
            if number == 0:
                found = _first_line(line)
            elif run.last and run.last not in _SHOWS_CONTENT and (number < 3 or number >= len(seen) - 3):
                found = _tagged(line)
        if found:
            return found
    return _traceback(text, head, tail)


def _tagged(line: str) -> str | None:
    """What a line near either end says when it is marked as an error or ends in an errno message."""
    if _TAGGED_LINE.match(line):
        return "text_generic"
    ending = _ENDS_IN_ERRNO.search(line)
    return "text_errno" if ending and ending[1].lower() in _ERRNO else None


def _lines(text: str) -> list[str]:
    return [line.strip()[:_LINE_CHARS] for line in text.splitlines() if line.strip()]


def _first_line(line: str) -> str | None:
    """What an observation's first line says when it is a message of its own."""
    if _WARNING.match(line) or _SUCCESS.search(line):
        return None
    line = line[: _MESSAGE_STARTS + 200]
    for pattern, name in (
        (phrases.TIMEOUT, "text_timeout"),
        (phrases.SQL, "text_sql"),
        (phrases.EDIT, "text_edit"),
        (phrases.FORMAT, "text_format"),
        (phrases.HTTP, "text_http"),
    ):
        matched = pattern.search(line)
        if matched and matched.start() < _MESSAGE_STARTS:
            return name
    if phrases.FATAL.match(line) or phrases.TAGGED.match(line):
        return "text_generic"
    if phrases.SUBJECT.match(line):
        return "text_refusal"
    return None


def _diagnostic(line: str, run: ShellLine, *, first: bool) -> tuple[bool, str | None]:
    """(whether the line is a diagnostic of a program that ran, what it says when it fails the command).

    Lines after the first need a program's name in front: they may be the text of a file.
    """
    if _WARNING.match(line):
        return False, None
    if line[:6].lower() == "usage:" or _TRY_HELP.match(line):
        return True, "text_usage"
    if phrases.COMPILER.match(line) and not run.hidden:
        return True, "text_compiler"
    matched = _PROGRAM_LINE.match(line)
    program = matched["program"].rsplit("/", 1)[-1] if matched else ""
    if program not in _SHELLS and _FILE_LINE.match(line):
        return True, None  # file:line: text, as grep -n prints it
    message = matched["message"] if matched else line
    if program and program in run.hidden and program not in _SHELLS:
        return True, None
    if program in _SHELLS or _SHELL_LINE.search(line):
        blamed = _BLAMED.search(message)
        hidden = blamed is not None and blamed[1] in run.hidden
        return True, None if hidden or _WARNING.match(message) else "text_shell"
    edited = phrases.EDIT.search(line) if first else None
    if edited and edited.start() < _MESSAGE_STARTS:
        return True, "text_edit"
    if (first or program) and phrases.SYNTAX.search(line):
        return True, "text_shell"
    return _of_program(program, message, run) if program else (False, None)


def _of_program(program: str, message: str, run: ShellLine) -> tuple[bool, str | None]:
    """`_diagnostic` for a line "program: message"."""
    ran = program in run.counted
    if _WARNING.match(message) or _INFORMATION.match(message):
        return ran, None
    if message.rsplit(": ", 1)[-1].rstrip(".").lower() in _ERRNO:
        return True, "text_errno"
    if phrases.USAGE.search(message):
        return True, "text_usage"
    if program in run.programs or ((ran or program in _PROGRAMS) and phrases.REFUSAL.search(message)):
        return True, "text_program"
    return ran, None


def _traceback(text: str, head: list[str], tail: list[str]) -> str | None:
    """An exception's trace: its opening line near the head, or its last line at the end."""
    for part in (text[:HEAD_CHARS], text[-TAIL_CHARS:]):
        if any(mark in part for mark in _TRACE_MARKS) and phrases.TRACEBACK.search(part):
            return "text_traceback"
    last = tail[-1] if tail else head[-1]
    if phrases.EXCEPTION.match(head[0]) or phrases.EXCEPTION.match(last) or _DIED.search(last):
        return "text_traceback"
    return None


def _json_error(text: str) -> str | None:
    """What a JSON object says: "text_json" when it reports failure, "" when it does not, None for other text.

    Failure is a true `error` or `errors`, a status error, `success` or `ok` false, a code of 400 or more. Of an object
    beyond HEAD_CHARS only an `error` at its start is seen.
    """
    stripped = text[:HEAD_CHARS].strip()
    if _JSON_ERROR.match(stripped):
        return "text_json"
    if len(text) > HEAD_CHARS:
        return None
    try:
        value = orjson.loads(stripped)
    except ValueError:
        return None
    if any(value.get(key) for key in ("error", "errors", "exception", "error_message", "isError", "is_error")):
        return "text_json"
    if value.get("success") is False or value.get("ok") is False:
        return "text_json"
    status = value.get("status", value.get("statusCode", value.get("code")))
    if isinstance(status, str) and status.lower() in ("error", "failed", "failure", "fail"):
        return "text_json"
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
        return "text_json"
    return ""
