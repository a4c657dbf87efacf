"""Did the action fail? One judgement a step, structure first, text last, and the signal that decided.

Two things are kept apart. An *error* is a call that failed by a mistake: it is masked. A *negative result* (rule
R12) is a sound probe that came back empty or red: grep, test or diff with exit code 1 and no complaint, a failing
test run, a search without a hit, a user who declined. It is trained on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from filters.trajectory.calls import command_text, is_test_run
from filters.trajectory.shell import simple_commands, word_set
from filters.trajectory.text_errors import HEAD_CHARS, looks_like_test_report, text_error
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


_EXIT = re.compile(r"(?:exit|return)[ _]?(?:code|status)\s*[:=]?\s*(-?\d+)", re.I)
_NEGATIVE_SIGNALS = frozenset({"tests_failed", "tests_unfixed", "empty", "no_results", "user_rejected"})
# ToolBench: 0 success, 3 final answer, 4 the model gave the branch up; everything else is an error.
_FINE_OBSERVATION_CODES = frozenset({"0", "3", "4"})
# Programs whose exit code 1 means "no" and 2 or more "trouble" (POSIX grep, diff, cmp, test, expr; pgrep, git diff).
_ASKING = word_set("grep egrep fgrep zgrep rg ag ack diff cmp test [ [[ expr pgrep pidof which command type false comm")
_ASKING_GIT = word_set("diff grep check-ignore merge-base show-ref")
_REJECTED = re.compile(
    r"\W{0,3}(?:the )?(?:user|operator|human) (?:doesn't want|does not want|rejected|declined|denied|cancell?ed"
    r"|interrupted|aborted)"
    r"|\W{0,3}(?:request )?(?:interrupted|cancell?ed|aborted) by (?:the )?user|\W{0,3}operation aborted\W*$",
    re.I,
)
_NO_HITS = re.compile(
    r"\W{0,3}(?:no (?:matching )?(?:files?|lines|occurrences|documents|entries|items)(?: (?:was|were))? (?:found|match)"
    r"|no (?:match(?:es)?|results?|hits|output)\b|0 (?:match|result|file|hit)|nothing found)",
    re.I,
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
    call = view.call_of(step)
    command = command_text(call) if call else _text_action(view, step)
    detail = result.content[:160]
    said = structured_error(result)
    signal_name = (result.signal or "").partition("=")[0]
    if said is False:
        if signal_name in _NEGATIVE_SIGNALS:
            return Judgement("negative", result.signal or "", detail)
        return Judgement("ok", result.signal or "error_flag", detail)
    tests = (call is not None and is_test_run(call)) and looks_like_test_report(result.content)
    if said is True:
        signal = result.signal or "error_flag"
        negative = "tests_failed" if tests and exit_code(result) in (1, None) else _negative(command, result)
        return Judgement("negative", negative, detail) if negative else Judgement("error", signal, detail)
    if tests and re.search(r"\bfail|\berror", result.content[-2048:], re.I):
        return Judgement("negative", "text_test_report", detail)
    if _REJECTED.match(result.content[:200]):
        return Judgement("negative", "user_rejected", detail)
    if _NO_HITS.match(result.content[:80]):
        return Judgement("negative", "empty", detail)
    code = exit_code(result) if _EXIT.match(result.content[:200].lstrip(" <([")) else None
    if code is not None and code != 0:
        negative = _negative(command, result)
        return (
            Judgement("negative", negative, detail)
            if negative
            else Judgement("error", f"text_exit_code={code}", detail)
        )
    said_by_text = text_error(result.content, command)
    return Judgement("error", said_by_text, detail) if said_by_text else Judgement("ok", "", detail)


def judgements(view: View) -> list[Judgement]:
    """One judgement for each of `view.steps`."""
    return [judge(view, step) for step in view.steps]


def _text_action(view: View, step: Step) -> str:
    """The command of an action written in text: its last fenced block, or nothing."""
    blocks = re.findall(r"```[\w-]*\n(.*?)```", view.trajectory.messages[step.message].content[-20_000:], re.S)
    return str(blocks[-1]) if blocks else ""


def _negative(command: str, result: Message) -> str:
    """Why a failed result is no mistake, "" when it is one."""
    text = result.content
    if _REJECTED.match(text[:200]):
        return "user_rejected"
    if exit_code(result) not in (1, None):
        return ""
    commands = simple_commands(command)
    if not commands:
        return ""  # a tool of the source's own that calls its reply an error is believed
    program = commands[-1][0].rsplit("/", 1)[-1]
    asking = program in _ASKING or (program == "git" and len(commands[-1]) > 1 and commands[-1][1] in _ASKING_GIT)
    if program in ("ls", "find") and exit_code(result) == 1:
        asking = True
    if not asking:
        return ""
    body = _EXIT.sub("", text[:HEAD_CHARS]).strip(" \n\t<>[]()/:.")
    if not body or body == "0" or _NO_HITS.match(body):
        return "empty"
    if program in ("diff", "cmp", "git", "comm") and _DIFF_OUTPUT.search(text[:HEAD_CHARS]):
        return "difference"
    return "" if text_error(text, command) or exit_code(result) is None else "probe"
