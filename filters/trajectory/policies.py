"""Policies: which turns of a trajectory are trained, and why the others are not.

    nanbeige       binary per assistant turn: mistakes masked with their context kept, recoveries and sound probes
                   trained (the Nanbeige4.2 report's mask); failed runs stay, step by step
    outcome-only   runs known to have succeeded, every turn of them; all others dropped
    last-turn      only the last assistant turn
    all-assistant  every assistant turn

`apply_policy` is a pure function: the trajectory it is given is not changed, and applying the same policy again changes
nothing. The only texts that it changes are oversized observations (R14, `observations.py`); redaction is `decide.py`'s.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from filters.trajectory.detectors import MISTAKE_RULES, Detected, Finding, detect
from filters.trajectory.observations import cut_observations
from filters.trajectory.rules import RULES, Action, Rule, with_rules
from filters.trajectory.splits import Cut, cut_loop, split_compactions
from schemas.errors import RecipeError
from schemas.trajectory import Message, Stats, Trajectory

__all__ = ["POLICIES", "Decision", "Policy", "apply_policy", "find_policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A name, the rules with their actions and thresholds, and which assistant turns are candidates for training."""

    name: str
    description: str
    rules: Mapping[str, Rule]
    candidates: Literal["all", "last"] = "all"


_EASY = "R21:easy_and_long"
_FLAG: Action = "flag"
_BARE = dict.fromkeys(("R2", "R3", "R4", "R5", "R6", "R7", "R8", "R10", "R13", "R14", "R15", "R19"), _FLAG)
POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("nanbeige", "mistakes masked, context kept, recoveries trained", RULES),
        Policy("outcome-only", "every turn of runs known to have succeeded", with_rules(**_BARE, R1="drop")),
        Policy("last-turn", "only the last assistant turn", with_rules(**_BARE), "last"),
        Policy("all-assistant", "every assistant turn", with_rules(**_BARE)),
    )
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decided. `kept`: whether anything is; `reason`: why not ("R22:nothing_to_train"), else "".

    `trajectories` are the results, one or several after a split, empty when dropped. `findings` are all that was
    seen in the trajectory as given, `dropped` pieces (after a split) with their reasons; `cut` says how many characters
    went from each observation that was cut in what is kept.
    """

    kept: bool
    reason: str
    trajectories: list[Trajectory]
    findings: list[Finding] = field(default_factory=list)
    dropped: list[tuple[Trajectory, str]] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)


def find_policy(name: str) -> Policy:
    """The policy of that name. Raises RecipeError naming the nearest one."""
    if name in POLICIES:
        return POLICIES[name]
    near = difflib.get_close_matches(name, POLICIES, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise RecipeError(f"trajectories.policy: no policy is called {name!r}. {hint}Policies: {', '.join(POLICIES)}")


def apply_policy(trajectory: Trajectory, policy: Policy | str = "nanbeige", known: Sequence[Finding] = ()) -> Decision:
    """Decide about one trajectory: keep (with `train`, `label`, `mask_reasons`, flags, stats set), split or drop.

    `known` are findings about the whole trajectory that need more than it (a benchmark's prompts, R17). Labels that are
    already there are kept (a teacher's own log). Teachers' labels are never read. Non-assistant messages get
    train=False. Raises RecipeError for an unknown policy name.
    """
    chosen = find_policy(policy) if isinstance(policy, str) else policy
    known = [finding for finding in known if chosen.rules[finding.rule].action != "off"]
    detected = detect(trajectory, chosen.rules)
    decision = Decision(False, "", [], [*known, *detected.findings])
    for piece, reason in _pieces(trajectory, detected, chosen):
        again = detected if piece is trajectory else detect(piece, chosen.rules)
        marked, drop = _mark(piece, replace(again, findings=[*known, *again.findings]), chosen)
        if reason or drop:
            decision.dropped.append((_marked_dropped(marked, reason or drop), reason or drop))
            continue
        if chosen.rules["R14"].action == "cut":
            marked, gone = cut_observations(marked, again.findings, int(chosen.rules["R14"].limit("keep_characters")))
            decision.cut.extend(gone)
        decision.trajectories.append(marked)
    kept = bool(decision.trajectories)
    return replace(decision, kept=kept, reason="" if kept else decision.dropped[0][1])


def _pieces(trajectory: Trajectory, detected: Detected, policy: Policy) -> list[tuple[Trajectory, str]]:
    """The trajectory, or what splitting makes of it; each with the reason why it is dropped unmarked, or ""."""
    if policy.rules["R15"].action == "split":
        segments = split_compactions(trajectory, [f for f in detected.findings if f.rule == "R15"])
        if len(segments) > 1:
            return [piece for segment in segments for piece in _pieces(segment, detect(segment, policy.rules), policy)]
    if policy.rules["R6"].action == "split" and detected.loops:
        verdict = cut_loop(trajectory, detected, drop_third_call=bool(policy.rules["R6"].limit("drop_third_call")))
        if verdict.kind is Cut.DROP:
            return [(trajectory, f"R6:{verdict.signal}")]
        if verdict.kind is Cut.CUT and verdict.trajectory is not None:
            return _pieces(verdict.trajectory, detect(verdict.trajectory, policy.rules), policy)
    return [(trajectory, "")]


def _mark(trajectory: Trajectory, detected: Detected, policy: Policy) -> tuple[Trajectory, str]:
    """The marked copy of one piece and the reason to drop it ("" to keep it)."""
    reasons: dict[int, list[str]] = {}
    flags: list[str] = []
    drop = ""
    for finding in detected.findings:
        action = policy.rules[finding.rule].action
        if finding.rule == "R6" and action == "split":
            action = "mask"  # loops that were not cut or dropped are followed by a recovery
        if not drop and finding.rule != "R1" and (action == "drop" or _known_prompt(finding, policy)):
            drop = finding.reason
        elif action == "mask" and finding.message is not None:
            reasons.setdefault(finding.message, []).append(finding.reason)
        flag = _flag(finding)
        if flag and action not in ("off", "keep"):
            flags.append(flag)
    if detected.recovered and policy.rules["R9"].action != "off":
        flags.append("recovery")
    if policy.rules["R10"].action in ("mask", "drop"):
        drop = _unrecovered(trajectory, detected, policy, reasons) or drop
    flags.extend(_difficulty_flags(detected, policy))
    gate = _outcome_gate(trajectory)
    if gate and policy.rules["R1"].action == "drop":
        drop = gate
    elif gate == "R1:failed" and policy.rules["R1"].action == "flag":
        flags.append("failed")
    drop = _drops(detected, policy) or drop
    if policy.candidates == "last":
        for index in detected.view.turns[:-1]:
            reasons.setdefault(index, []).append("last_turn:earlier_turn")
    weight = policy.rules["R21"].limit("weight") if _EASY in flags else 1.0
    marked = _write(trajectory, detected, reasons, flags, weight)
    if not drop and policy.rules["R22"].action == "drop" and not any(m.train for m in marked.messages):
        drop = "R22:nothing_to_train"
    return marked, drop


def _flag(finding: Finding) -> str:
    """The trajectory flag that a finding sets, "" for none."""
    if finding.rule == "R8":
        return finding.signal if finding.signal in ("no_finish", "unexecuted_calls") else "truncated"
    if finding.rule == "R17":
        name, _, value = finding.signal.partition("=")
        return f"benchmark:{value}" if name in ("benchmark", "prompt") else name
    if finding.rule in ("R1", "R6", "R14", "R18", "R19") or (
        finding.rule == "R5" and finding.signal.startswith("copies")
    ):
        return finding.reason
    return ""


def _known_prompt(finding: Finding, policy: Policy) -> bool:
    """Whether a run goes for its prompt, which a benchmark file of the recipe holds."""
    return finding.rule == "R17" and finding.reason == "R17:prompt" and bool(policy.rules["R17"].limit("drop_prompts"))


def _outcome_gate(trajectory: Trajectory) -> str:
    success = trajectory.outcome.success
    return "" if success else ("R1:unknown_outcome" if success is None else "R1:failed")


def _unrecovered(trajectory: Trajectory, detected: Detected, policy: Policy, reasons: dict[int, list[str]]) -> str:
    """R10: in a failed run, mask (or drop for) all from the first mistake that nothing mended. Adds to `reasons`."""
    if trajectory.outcome.success is not False:
        return ""
    wrong = sorted({f.message for f in detected.findings if f.rule in MISTAKE_RULES and f.message is not None})
    first = next((index for index in wrong if index not in detected.recovered), None)
    if first is None:
        return ""
    if policy.rules["R10"].action == "drop":
        return "R10:unrecovered"
    for index in detected.view.turns:
        if index > first:
            reasons.setdefault(index, []).append("R10:unrecovered")
    return ""


def _difficulty_flags(detected: Detected, policy: Policy) -> list[str]:
    rule, task = policy.rules["R21"], detected.view.trajectory.task
    if rule.action == "off" or task.difficulty is None:
        return []
    easy = task.difficulty <= rule.limit("easy_difficulty")
    return [_EASY] if easy and len(detected.view.turns) > rule.limit("long_turns") else []


def _drops(detected: Detected, policy: Policy) -> str:
    """Reasons to drop that need more than one finding: a malformed end (R3), one mistake made too often (R5)."""
    turns = detected.view.turns
    rule3, rule5 = policy.rules["R3"], policy.rules["R5"]
    if rule3.action == "mask" and rule3.limit("drop_at_end") and turns:
        for finding in detected.findings:
            if finding.rule == "R3" and finding.message == turns[-1] and len(turns) > 1:
                return f"R3:ends_{finding.signal}"
    most = int(rule5.limit("drop_repeats"))
    if rule5.action == "mask" and most:
        counts: dict[str, int] = {}
        keys = {(step.message, step.call): step.key for step in detected.view.steps}
        for finding in detected.findings:
            if finding.rule == "R5" and finding.message is not None and finding.signal == "same_call_failed_before":
                key = keys[(finding.message, finding.call)]
                counts[key] = counts.get(key, 0) + 1
        if counts and max(counts.values()) >= most:
            return "R5:repeats"
    return ""


def _write(
    trajectory: Trajectory, detected: Detected, reasons: dict[int, list[str]], flags: list[str], weight: float
) -> Trajectory:
    """The marked copy: train, label, mask_reasons on every message, a weight below 1, flags and stats on the record."""
    labels: dict[int, str] = {}
    for finding in detected.findings:
        if finding.message is None:
            continue
        if finding.rule in MISTAKE_RULES:
            labels[finding.message] = "mistake"
        elif finding.rule == "R9":
            labels.setdefault(finding.message, "recovery")
        elif finding.rule == "R12":
            labels.setdefault(finding.message, "negative_result")
    messages: list[Message] = []
    for index, message in enumerate(trajectory.messages):
        if message.role != "assistant":
            messages.append(_copy(message, False, message.label, [], message.weight))
            continue
        why = list(dict.fromkeys(reasons.get(index, [])))
        if not why and not _has_words(message):
            why = ["R22:empty_turn"]
        lighter = weight if weight < 1 and not why else message.weight
        messages.append(_copy(message, not why, message.label or labels.get(index), why, lighter))
    errors = len({f.message for f in detected.findings if f.rule in MISTAKE_RULES and f.message is not None})
    recoveries = len(set(detected.recovered.values()))
    stats = Stats(len(detected.view.turns), trajectory.stats.tokens, errors, recoveries)
    every = list(dict.fromkeys([*trajectory.flags, *flags]))
    return replace(trajectory, messages=messages, stats=stats, flags=every)


def _copy(message: Message, train: bool, label: str | None, reasons: list[str], weight: float | None) -> Message:
    """A message with its marks set (dataclasses.replace takes ten times as long)."""
    return Message(
        role=message.role,
        content=message.content,
        reasoning=message.reasoning,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        name=message.name,
        error=message.error,
        signal=message.signal,
        stop=message.stop,
        author=message.author,
        train=train,
        weight=weight,
        label=label,
        mask_reasons=reasons,
    )


def _has_words(message: Message) -> bool:
    return bool(message.content.strip() or message.tool_calls or (message.reasoning or "").strip())


def _marked_dropped(trajectory: Trajectory, reason: str) -> Trajectory:
    flag = f"dropped:{reason}"
    return trajectory if flag in trajectory.flags else replace(trajectory, flags=[*trajectory.flags, flag])
