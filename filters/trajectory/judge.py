"""Did the action fail? One judgement a step, structure first, text last, and the signal that decided.

Two things are kept apart. An *error* is a call that failed by a mistake: it is masked. A *negative result* (rule
R12) is a sound probe that came back empty or red: grep, test or diff with exit code 1 and no complaint, a failing
test run, a search without a hit, a user who declined. It is trained on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from filters.trajectory.calls import command_text, is_check, is_reproduction, is_test_run
from filters.trajectory.shell import simple_commands, word_set
from filters.trajectory.text_errors import HEAD_CHARS, TAIL_CHARS, looks_like_test_report, text_error
from filters.trajectory.view import Step, View
from schemas.trajectory import Message

__all__ = ["Judgement", "exit_code", "judge", "judgements", "structured_error"]

Kind = Literal["ok", "error", "negative", "unanswered"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`signal` is what decided ("exit_code=2", "text_traceback"); `detail` is the start of the observation."""

    kind: Kind
    signal: str = ""
    detail: str = ""


_EXIT = re.compile(
    r"\b(?:(?:command|process|script|program|it) )?(?:exit(?:ed)?|return(?:ed)?|finished)(?: with)?(?: an?)?[ _]?"
    r"(?:non-?zero )?(?:exit )?(?:code|status)\W{0,3}(-?\d+)",
    re.I,
)
_NEGATIVE_SIGNALS = frozenset({"tests_failed", "tests_unfixed", "empty", "no_results", "user_rejected"})
# ToolBench: 0 success, 3 final answer, 4 the model gave the branch up; everything else is an error.
_FINE_OBSERVATION_CODES = frozenset({"0", "3", "4"})
# Programs whose exit code 1 means "no" and 2 or more "trouble" (POSIX grep, diff, cmp, test, expr; pgrep, git diff).
_ASKING = word_set("grep egrep fgrep zgrep rg ag ack diff cmp test [ [[ expr pgrep pidof which command type false comm")
_ASKING_GIT = word_set("diff grep check-ignore merge-base show-ref")
_REJECTED = re.compile(
    r"\W{0,3}(?:the )?(?:user|operator|human) (?:doesn't want|does not want|rejected|declined|denied|cancell?ed"
    r"|interrupted|aborted)"
    r"|\W{0,3}(?:request )?(?:interrupted|cancell?ed|aborted) by (?:the )?user"
    r"|\W{0,3}(?:operation|command|request|call) (?:was )?(?:aborted|cancell?ed|interrupted)\W*$",
    re.I,
)
_NO_HITS = re.compile(
    r"\W{0,3}(?:no (?:matching )?(?:files?|lines|occurrences|documents|entries|items)(?: (?:was|were))? (?:found|match)"
    r"|no (?:match(?:es)?|results?|hits|output)\b|0 (?:match|result|file|hit)|nothing found)",
    re.I,
)
_PLACE = re.compile(r"^\W{0,3}[\w./@+-]+\.\w+(?::\d+|\(\d+)", re.M)
_RED = re.compile(r"\bfail|\berror|not ok", re.I)
_NO_TESTS = re.compile(r"^(?:[= ]*no tests ran\b|Ran 0 tests\b|NO TESTS RAN\b)", re.M)  # pytest, unittest
_BROKEN_SCRIPT = re.compile(
    r"^(?:SyntaxError|IndentationError|TabError|NameError|ModuleNotFoundError|ImportError|FileNotFoundError)\b", re.M
)
_DIFF_OUTPUT = re.compile(
    r"^(?:[\d,]+[acd][\d,]+|[<>] .*|@@ |--- |diff |Files .* differ|Only in |Binary files |.* differ: )", re.M
)


def structured_error(message: Message) -> bool | None:
    """What the source's structure says of a result: failed, fine, or None when it is silent."""
    if message.error is not None:
        return message.error
    name, sign, value = (message.signal or "").partition("=")
    value = value.strip().lower()
    if not sign:
        return False if name in _NEGATIVE_SIGNALS else None
    if name in ("exit_code", "returncode", "return_code", "exit_status", "exitCode"):
        return value not in ("0", "", "none", "null")
    if name in ("valid_action", "success", "ok"):
        return {"false": True, "0": True, "true": False, "1": False}.get(value)
    if name in ("is_error", "isError", "error"):
        return {"true": True, "1": True, "false": False, "0": False}.get(value)
    if name == "observation_code":
        return value not in _FINE_OBSERVATION_CODES
    return None


def exit_code(message: Message) -> int | None:
    """The exit code of a result, from its signal or from a line such as "Exit code 2" at its head or end."""
    name, _, value = (message.signal or "").partition("=")
    if name in ("exit_code", "returncode", "return_code", "exit_status", "exitCode") and value.lstrip("-").isdigit():
        return int(value)
    matched = _EXIT.search(message.content[:200]) or _EXIT.search(message.content[-200:])
    return int(matched[1]) if matched else None


def judge(view: View, step: Step) -> Judgement:
    """Judge one step. Cost bounded: only the head and tail of an observation are read."""
    result = view.result_of(step)
    if result is None:
        return Judgement("unanswered", "unanswered")
    command = command_text(step.action) if step.action else ""
    said = structured_error(result)
    if said is False:
        probe = (result.signal or "").partition("=")[0] in _NEGATIVE_SIGNALS
        return Judgement("negative" if probe else "ok", result.signal or "error_flag", _start(result))
    if said is True:
        probe_signal = _red_tests(step, result) or _negative(step, command, result)
        if probe_signal:
            return Judgement("negative", probe_signal, _start(result))
        return Judgement("error", result.signal or "error_flag", _start(result))
    return _judge_text(step, command, result)


def _judge_text(step: Step, command: str, result: Message) -> Judgement:
    """The judgement by text alone."""
    text, start = result.content, _start(result)
    red = _red_tests(step, result)
    if red:
        return Judgement("negative", red, start)
    if step.action is not None and is_test_run(step.action) and _NO_TESTS.search(text[-TAIL_CHARS:]):
        return Judgement("error", "no_tests", start)  # as by exit code 5: nothing was tested, whatever the summary says
    if _REJECTED.match(text[:200]):
        return Judgement("negative", "user_rejected", start)
    if _NO_HITS.match(text[:80]):
        return Judgement("negative", "empty", start)
    code = _stated_exit_code(text)
    signal = f"text_exit_code={code}" if code else text_error(text, command)
    if not signal:
        return Judgement("ok", "", start)
    probe = _negative(step, command, result) if code or signal == "text_traceback" else ""
    return Judgement("negative", probe, start) if probe else Judgement("error", signal, start)


def _stated_exit_code(text: str) -> int | None:
    """An exit code that the text states as its first or last line ("Exit code 2", "Command exited with code 1")."""
    stripped = text.strip()
    for line in (stripped[:200].partition("\n")[0], stripped[-200:].rpartition("\n")[2]):
        matched = _EXIT.match(line.lstrip(" <([#*-"))
        if matched and len(line) < 80:
            return int(matched[1])
    return None


def _start(result: Message) -> str:
    return result.content[:160]


def _red_tests(step: Step, result: Message) -> str:
    """ "tests_failed" or "check_failed": a test run or a check of the code reports failures, as it is there to do.

    pytest's exit codes 2 to 5 are not about tests; a check must name places (file:line) that it complains of.
    """
    if step.action is None:
        return ""
    if is_check(step.action):
        return "check_failed" if _PLACE.search(result.content[:HEAD_CHARS]) else ""
    if not is_test_run(step.action) or not looks_like_test_report(result.content):
        return ""
    if "pytest" in command_text(step.action) and exit_code(result) not in (1, None):
        return ""
    return "tests_failed" if _RED.search(result.content[-4096:]) else ""


def judgements(view: View) -> list[Judgement]:
    """One judgement for each of `view.steps`."""
    return [judge(view, step) for step in view.steps]


def _negative(step: Step, command: str, result: Message) -> str:
    """Why a failed result is no mistake, "" when it is one."""
    text = result.content
    if _REJECTED.match(text[:200]):
        return "user_rejected"
    if step.action is not None and is_reproduction(step.action) and _shows_a_fault(text):
        return "reproduction"
    if exit_code(result) not in (1, None):
        return ""
    commands = simple_commands(command)
    if not commands:
        return ""  # a tool of the source's own that calls its reply an error is believed
    words = commands[-1]
    program = words[0].rsplit("/", 1)[-1]
    asking = program in _ASKING or (program == "git" and len(words) > 1 and words[1] in _ASKING_GIT)
    if not asking and not (program in ("ls", "find") and exit_code(result) == 1):
        return ""
    body = _EXIT.sub("", text[:HEAD_CHARS]).strip(" \n\t<>[]()/:.")
    if not body or body == "0" or _NO_HITS.match(body):
        return "empty"
    if program in ("diff", "cmp", "git", "comm") and _DIFF_OUTPUT.search(text[:HEAD_CHARS]):
        return "difference"
    return "" if text_error(text, command) or exit_code(result) is None else "probe"


def _shows_a_fault(text: str) -> bool:
    """Whether a trace ends in an exception that the code under test may raise, not one of a broken script."""
    return "Traceback (most recent call last)" in text and not _BROKEN_SCRIPT.search(text[-TAIL_CHARS:])
