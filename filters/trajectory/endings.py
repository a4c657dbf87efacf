"""How a run ends and what bounded it: truncated ends (R8), lazy success (R19), words not the model's (R11),
observation bombs (R14), compaction (R15), orphan results (R18)."""

from __future__ import annotations

import re

import orjson

from filters.trajectory.calls import is_edit_tool, is_read_only, is_terminal, is_test_run
from filters.trajectory.errors import tool_schemas
from filters.trajectory.findings import Finding
from filters.trajectory.judge import Judgement
from filters.trajectory.view import COMPACTION_NAMES, View, is_observation
from schemas.trajectory import Message, ToolCall

__all__ = [
    "compactions",
    "foreign_words",
    "lazy_success",
    "observation_bombs",
    "outcome_mismatches",
    "pairing_faults",
    "truncated_ends",
]

SOURCE_MASK = "R11:source_mask"
# Finish reasons by which APIs and agents say that the model did not end its turn itself.
_CUT_STOPS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "incomplete"})
_BROKEN_STOPS = frozenset({"aborted", "error", "cancelled", "canceled", "content_filter", "safety", "refusal"})
_LIMIT_FLAGS = frozenset({"max_steps", "max_iterations"})
_CLAIM = re.compile(
    r"\b(?:(?:is|are|was|were|been|now|have|has|i've|all|successfully)\s+(?:\w+\s+){0,3}"
    r"(?:fixed|resolved|implemented|completed|done|solved|updated|passing|working|corrected|repaired|added|changed)"
    r"|(?:all|the) (?:\w+ ){0,2}tests? (?:now )?pass(?:es)?\b|task (?:is )?(?:complete|done)|successfully (?:\w+ed)\b)",
    re.I,
)
_EXIT_LIMIT = re.compile(
    r"exit_(?:cost|context|format|error|timeout|early)|\bcost\b|\blimit\b|max_(?:steps|iterations|turns)|\btimeout\b",
    re.I,
)


def truncated_ends(view: View) -> list[Finding]:
    """R8: turns cut by a limit or broken off (by finish reason), last calls that were never answered, no final answer.

    Findings with a message index concern that turn; those without one concern the whole run. A last call that ends
    the run by itself (submit, finish) needs no result; where no call at all has one, calls are what is to be learnt
    (rows of function-calling data) and their turns stay: unexecuted_calls.
    """
    found: list[Finding] = []
    messages = view.trajectory.messages
    for index in view.turns:
        stop = (messages[index].stop or "").lower()
        if stop in _CUT_STOPS or stop in _BROKEN_STOPS:
            found.append(Finding("R8", index, None, f"stop={stop}", "the turn did not end by itself"))
    limits = sorted(_LIMIT_FLAGS & set(view.trajectory.flags))
    status = _exit_status(view)
    if limits:
        found.append(Finding("R8", None, None, f"limit={limits[0]}", "the run was stopped by a limit"))
    elif status and _EXIT_LIMIT.search(status):
        found.append(Finding("R8", None, None, f"exit_status={status[:60]}", "the run was stopped by a limit"))
    if not view.turns:
        return found
    last = view.turns[-1]
    final = messages[last]
    steps = [step for step in view.steps if step.message == last]
    ends = any(step.action is not None and is_terminal(step.action) for step in steps)
    if final.tool_calls and not ends and all(step.result is None for step in steps):
        executed = any(step.result is not None for step in view.steps)
        if executed:
            found.append(Finding("R8", last, None, "dangling_call", "the last calls have no result"))
        else:
            found.append(Finding("R8", None, None, "unexecuted_calls", "no call of the run has a result"))
    elif not ends and any(is_observation(message) for message in messages[last + 1 :]):
        found.append(Finding("R8", None, None, "no_final_answer", "the run ends with the result of an action"))
    elif not ends and any(is_terminal(ToolCall("", name, "{}")) for name in tool_schemas(view.trajectory.tools)):
        found.append(Finding("R8", None, None, "no_finish", "a tool that ends the run is defined and was not called"))
    return found


def _exit_status(view: View) -> str:
    """`exit_status` (SWE-agent) or `termination_reason` (tau2) in the record's extra JSON, "" when absent."""
    if not view.trajectory.extra or not (
        "exit_status" in view.trajectory.extra or "termination" in view.trajectory.extra
    ):
        return ""
    try:
        extra = orjson.loads(view.trajectory.extra)
    except ValueError:
        return ""
    if not isinstance(extra, dict):
        return ""
    status = extra.get("exit_status") or extra.get("termination_reason") or extra.get("termination")
    return status if isinstance(status, str) else ""


def lazy_success(view: View, judged: list[Judgement]) -> list[Finding]:
    """R19: a final answer that the run does not bear out. Nothing is said of runs whose outcome is success.

    limit_submit: submitted because a limit was reached. claim_refuted, ended_unsolved: the outcome is known to be a
    failure, and the model ended the run by itself, with or without a claim of success: ending it there was the mistake
    (with the work not done, any ending but a limit's is premature; without any action the answer itself is wrong).
    no_work: the outcome is unknown, an editing tool is defined, success is claimed, and nothing that worked can have
    changed anything.
    """
    trajectory = view.trajectory
    failed = trajectory.outcome.success is False
    if not view.turns or not (view.steps or failed) or trajectory.outcome.success is True:
        return []
    last = view.turns[-1]
    final = trajectory.messages[last]
    ends = any(is_terminal(call) for call in final.tool_calls)
    if final.author or (final.tool_calls and not ends):
        return []
    status = _exit_status(view)
    if status.startswith("submitted (") or status == "submitted_by_limit":
        return [Finding("R19", last, None, "limit_submit", status[:120])]
    claims = _CLAIM.search(final.content[:4000]) is not None
    if failed and (ends or final.content.strip()):
        signal = "claim_refuted" if claims else "ended_unsolved"
        return [Finding("R19", last, None, signal, final.content[:120])]
    could_edit = any(is_edit_tool(name) for name in tool_schemas(trajectory.tools))
    if claims and could_edit and not _changed_anything(view, judged, before=last):
        return [Finding("R19", last, None, "no_work", final.content[:120])]
    return []


def _changed_anything(view: View, judged: list[Judgement], before: int) -> bool:
    return any(
        judgement.kind != "error" and step.action is not None and not is_read_only(step.action)
        for step, judgement in zip(view.steps, judged, strict=True)
        if step.message < before
    )


def outcome_mismatches(view: View, judged: list[Judgement]) -> list[Finding]:
    """R1: the outcome says success, the last test run of the trajectory failed (hidden tests may differ: a flag)."""
    if view.trajectory.outcome.success is not True:
        return []
    last: Finding | None = None
    for step, judgement in zip(view.steps, judged, strict=True):
        if step.action is None or not is_test_run(step.action):
            continue
        failed = judgement.kind == "negative" and "test" in judgement.signal
        last = Finding("R1", step.message, step.call, "outcome_mismatch", judgement.detail) if failed else None
    return [last] if last else []


def foreign_words(view: View) -> list[Finding]:
    """R11: assistant turns that are not to be learnt from, by the source.

    author=…: not the model's words (demo, copied context, scripted, harness). source_mask: the source itself said that
    the turn is not trained (`train` False without a reason of ours: OpenAI's weight 0 and its kin).
    """
    found = []
    for index in view.turns:
        message = view.trajectory.messages[index]
        if message.author:
            found.append(Finding("R11", index, None, f"author={message.author}", "not written by the model"))
        elif message.train is False and (not message.mask_reasons or SOURCE_MASK in message.mask_reasons):
            found.append(Finding("R11", index, None, "source_mask", "the source masks this turn"))
    return found


def observation_bombs(view: View, *, most_chars: int, most_share: float) -> list[Finding]:
    """R14: one observation over `most_chars` characters, or over `most_share` of a run of at least that size."""
    messages = view.trajectory.messages
    total = sum(map(_chars, messages))
    found = []
    for index, message in enumerate(messages):
        size = len(message.content)
        if (
            message.role in ("tool", "user")
            and index > 0
            and (size > most_chars or (total > most_chars and size > most_share * total))
        ):
            found.append(Finding("R14", index, None, f"characters={size}", f"of {total} in all"))
    return found


def _chars(message: Message) -> int:
    return len(message.content) + len(message.reasoning or "") + sum(len(call.arguments) for call in message.tool_calls)


def compactions(view: View) -> list[Finding]:
    """R15: places where the model's context was replaced by a summary.

    Readers give such a message the role user or system and a name of COMPACTION_NAMES. A signal "kept=N" says that
    the N messages before it stayed in the context.
    """
    return [
        Finding("R15", index, None, message.name or "", message.content[:120])
        for index, message in enumerate(view.trajectory.messages)
        if message.role in ("system", "user") and message.name in COMPACTION_NAMES
    ]


def pairing_faults(view: View) -> list[Finding]:
    """R18: results that answer no call, calls in mid-run never answered, no user turn before the first reply."""
    messages = view.trajectory.messages
    found = [Finding("R18", index, None, "orphan_result", messages[index].content[:120]) for index in view.orphans]
    last = view.turns[-1] if view.turns else -1
    found.extend(
        Finding("R18", step.message, step.call, "unanswered_call", "no result")
        for step in view.steps
        if step.result is None and step.message != last
    )
    if view.turns and not any(message.role in ("user", "system") for message in messages[: view.turns[0]]):
        found.append(Finding("R18", view.turns[0], None, "no_user_turn", "the first reply answers nobody"))
    return found
