"""Every detector over one trajectory: `detect` links calls to results once and runs them all.

Pure functions; a finding says what was seen and where, never what to do (policies.py). The detectors, by file:
errors (R2 R3 R4 R12 R13), repeats (R5 R6), rambling (R7), endings (R8 R11 R14 R15 R18 R19), recovery (R9),
leaks (R17). Text-only knowledge of errors is in text_errors and judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from filters.trajectory.endings import (
    compactions,
    foreign_words,
    lazy_success,
    observation_bombs,
    outcome_mismatches,
    pairing_faults,
    truncated_ends,
)
from filters.trajectory.errors import failed_edits, malformed_calls, negative_results, schema_breaches, tool_errors
from filters.trajectory.findings import Finding
from filters.trajectory.judge import Judgement, judge, judgements, structured_error
from filters.trajectory.leaks import benchmark_of, leaks
from filters.trajectory.rambling import compression_ratio, monologues, rambling_turns, repeated_share
from filters.trajectory.recovery import find_recoveries
from filters.trajectory.repeats import Loop, copies_in_a_turn, find_loops, repeated_mistakes
from filters.trajectory.rules import RULES, Rule
from filters.trajectory.text_errors import looks_like_test_report, text_error
from filters.trajectory.view import Step, View, view_of
from schemas.trajectory import Trajectory

__all__ = [
    "MISTAKE_RULES",
    "Detected",
    "Finding",
    "Judgement",
    "Loop",
    "Step",
    "View",
    "benchmark_of",
    "compactions",
    "compression_ratio",
    "copies_in_a_turn",
    "detect",
    "error_turns",
    "failed_edits",
    "find_loops",
    "find_recoveries",
    "foreign_words",
    "judge",
    "judgements",
    "lazy_success",
    "leaks",
    "looks_like_test_report",
    "malformed_calls",
    "monologues",
    "negative_results",
    "observation_bombs",
    "outcome_mismatches",
    "pairing_faults",
    "rambling_turns",
    "repeated_mistakes",
    "repeated_share",
    "schema_breaches",
    "structured_error",
    "text_error",
    "tool_errors",
    "truncated_ends",
    "view_of",
]

MISTAKE_RULES = frozenset({"R2", "R3", "R4", "R5", "R13", "R19"})
"""Rules whose findings are mistakes of a turn: what stats count. R9 recovers from all but the last, an ending."""


@dataclass(frozen=True, slots=True)
class Detected:
    """All that was found: `findings` by (rule, message), `loops` (R6), `recovered` {mistake: mending message}."""

    view: View
    findings: list[Finding]
    loops: list[Loop]
    recovered: dict[int, int]


def detect(trajectory: Trajectory, rules: Mapping[str, Rule] = RULES) -> Detected:
    """Run every detector with the thresholds of `rules`; a rule that is off finds nothing.

    Cost linear in the text, bounded per observation.
    """
    view = view_of(trajectory)
    judged = judgements(view)
    mistakes = [
        *tool_errors(view, judged),
        *malformed_calls(view, judged),
        *schema_breaches(view, judged),
        *repeated_mistakes(view, judged),
        *failed_edits(view, judged),
    ]
    mistakes = [f for f in mistakes if rules[f.rule].action != "off"]
    mistakes = _without_foreign(_one_a_place(mistakes), trajectory)
    recoveries = find_recoveries(view, judged, mistakes, int(rules["R9"].limit("within_turns")))
    loops = find_loops(view, judged) if rules["R6"].action != "off" else []
    rambling = rules["R7"]
    others = [
        *copies_in_a_turn(view, int(rules["R5"].limit("copies_in_turn"))),
        *(
            Finding("R6", message, None, loop.signal, f"since message {loop.first}")
            for loop in loops
            for message in loop.repeats
        ),
        *rambling_turns(
            view,
            least_chars=int(rambling.limit("least_chars")),
            compression=rambling.limit("compression"),
            repeats=rambling.limit("repeated_ngrams"),
        ),
        *monologues(view, least_turns=int(rambling.limit("monologue_turns"))),
        *truncated_ends(view),
        *recoveries.findings,
        *foreign_words(view),
        *negative_results(view, judged),
        *observation_bombs(
            view, most_chars=int(rules["R14"].limit("characters")), most_share=rules["R14"].limit("share")
        ),
        *compactions(view),
        *leaks(view),
        *pairing_faults(view),
        *lazy_success(view, judged),
        *outcome_mismatches(view, judged),
    ]
    findings = sorted([*mistakes, *(f for f in others if rules[f.rule].action != "off")], key=_order)
    return Detected(view, findings, loops, recoveries.recovered)


def _order(finding: Finding) -> tuple[int, int, int, str]:
    message = -1 if finding.message is None else finding.message
    return int(finding.rule[1:]), message, -1 if finding.call is None else finding.call, finding.signal


def _one_a_place(mistakes: list[Finding]) -> list[Finding]:
    """One finding a rule and call: the first, which has the structured signal."""
    seen: dict[tuple[str, int | None, int | None], Finding] = {}
    for finding in mistakes:
        seen.setdefault((finding.rule, finding.message, finding.call), finding)
    return list(seen.values())


def _without_foreign(mistakes: list[Finding], trajectory: Trajectory) -> list[Finding]:
    """Mistakes in turns that the model did not write are R11's business."""
    return [f for f in mistakes if f.message is None or not trajectory.messages[f.message].author]


def error_turns(trajectory: Trajectory) -> dict[int, list[Finding]]:
    """Assistant turns with a mistake (R2, R3, R4, R5, R13, R19), by message index: what masks and rewards count."""
    turns: dict[int, list[Finding]] = {}
    for finding in detect(trajectory).findings:
        if finding.rule in MISTAKE_RULES and finding.message is not None:
            turns.setdefault(finding.message, []).append(finding)
    return turns
