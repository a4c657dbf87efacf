"""Recovery (R9): a mistake, then within a few turns an action that works on the same thing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filters.trajectory.calls import call_targets, is_edit, is_test_run
from filters.trajectory.findings import Finding
from filters.trajectory.judge import Judgement
from filters.trajectory.view import Step, View

__all__ = ["Recoveries", "find_recoveries"]


@dataclass(frozen=True, slots=True)
class Recoveries:
    """`findings` are R9, one a recovering turn; `recovered` maps each mistake's message to the one that mends it."""

    findings: list[Finding]
    recovered: dict[int, int]


def find_recoveries(view: View, judged: list[Judgement], mistakes: Iterable[Finding], within: int) -> Recoveries:
    """Match each mistaken turn with the first turn among the next `within` assistant turns that mends it.

    It mends when it is no mistake itself and one of its calls worked (or was a sound probe) and: uses the same tool,
    or shares a target (path, argument), or is a passing test run after a failed edit. For a mistake without a call
    any working call mends.
    """
    wrong = {finding.message for finding in mistakes if finding.message is not None}
    by_turn: dict[int, list[int]] = {}
    for number, step in enumerate(view.steps):
        by_turn.setdefault(step.message, []).append(number)
    position = {message: order for order, message in enumerate(view.turns)}
    findings: dict[int, Finding] = {}
    recovered: dict[int, int] = {}
    for message in sorted(wrong):
        order = position[message]
        failed = [view.steps[number] for number in by_turn.get(message, [])]
        for later in view.turns[order + 1 : order + 1 + within]:
            if later in wrong:
                continue
            signal = _mends(view, judged, failed, by_turn.get(later, []))
            if signal:
                recovered[message] = later
                findings.setdefault(later, Finding("R9", later, None, signal, f"mends message {message}"))
                break
    return Recoveries(list(findings.values()), recovered)


def _mends(view: View, judged: list[Judgement], failed: list[Step], later: list[int]) -> str:
    """By what signal the later steps mend the failed ones, "" when they do not."""
    calls = [call for step in failed if (call := step.action) is not None]
    names = {call.name for call in calls}
    targets = frozenset().union(*(call_targets(call) for call in calls)) if calls else frozenset()
    for number in later:
        if judged[number].kind not in ("ok", "negative"):
            continue
        call = view.steps[number].action
        if not calls or call is None:
            return "working_call"
        if judged[number].kind == "ok" and is_test_run(call) and any(is_edit(bad) for bad in calls):
            return "tests_passed"
        if call_targets(call) & targets:
            return "same_target"
        if call.name in names:
            return "same_tool"
    return ""
