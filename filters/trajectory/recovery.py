"""Recovery (R9): a mistake, then within a few turns an action that works on the same thing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filters.trajectory.calls import call_key, call_targets, is_edit, is_test_run
from filters.trajectory.findings import Finding
from filters.trajectory.judge import Judgement
from filters.trajectory.view import View
from schemas.trajectory import ToolCall

__all__ = ["Recoveries", "find_recoveries"]


@dataclass(frozen=True, slots=True)
class Recoveries:
    """`findings` are R9, one a recovering turn; `recovered` maps each mistake's message to the one that mends it."""

    findings: list[Finding]
    recovered: dict[int, int]


def find_recoveries(view: View, judged: list[Judgement], mistakes: Iterable[Finding], within: int) -> Recoveries:
    """Match each mistaken turn with the first turn among the next `within` assistant turns that mends it.

    It mends when it is no mistake itself and one of its calls worked (or was a sound probe) and: shares a target (path,
    argument), has the same arguments under another tool's name, uses the same tool, or is a passing test run after a
    failed edit. For a mistake without a call any working call mends.
    """
    wrong: dict[int, set[str]] = {}
    for finding in mistakes:
        if finding.message is not None:
            wrong.setdefault(finding.message, set()).add(finding.signal)
    by_turn: dict[int, list[int]] = {}
    for number, step in enumerate(view.steps):
        by_turn.setdefault(step.message, []).append(number)
    position = {message: order for order, message in enumerate(view.turns)}
    findings: dict[int, Finding] = {}
    recovered: dict[int, int] = {}
    for message in sorted(wrong):
        calls = [view.steps[number].action for number in by_turn.get(message, [])]
        mistake = _Mistake([call for call in calls if call is not None], "unknown_tool" in wrong[message])
        for later in view.turns[position[message] + 1 : position[message] + 1 + within]:
            if later in wrong:
                continue
            signal = next(
                filter(None, (mistake.mended_by(view, judged, number) for number in by_turn.get(later, []))), ""
            )
            if signal:
                recovered[message] = later
                findings.setdefault(later, Finding("R9", later, None, signal, f"mends message {message}"))
                break
    return Recoveries(list(findings.values()), recovered)


class _Mistake:
    """What a mistaken turn called, and what would mend it."""

    def __init__(self, calls: list[ToolCall], unknown_tool: bool) -> None:
        self._names = {call.name for call in calls}
        self._targets = frozenset[str]().union(*(call_targets(call) for call in calls))
        self._edits = any(is_edit(call) for call in calls)
        # Equal empty arguments say something only when the tool's name was the mistake.
        self._arguments = {key for call in calls if (key := _arguments(call)) != "{}" or unknown_tool}

    def mended_by(self, view: View, judged: list[Judgement], number: int) -> str:
        """By what signal a later step mends this, "" when it does not."""
        call = view.steps[number].action
        if judged[number].kind not in ("ok", "negative"):
            return ""
        if not self._names or call is None:
            return "working_call"
        if judged[number].kind == "ok" and self._edits and is_test_run(call):
            return "tests_passed"
        if call_targets(call) & self._targets:
            return "same_target"
        if _arguments(call) in self._arguments:
            return "same_arguments"
        return "same_tool" if call.name in self._names else ""


def _arguments(call: ToolCall) -> str:
    return call_key(call).partition("\0")[2]
