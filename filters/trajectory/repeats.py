"""The same thing again: a mistake made twice (R5), loops (R6), copies of one call in one turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import xxhash

from filters.trajectory.calls import is_read_only
from filters.trajectory.findings import Finding
from filters.trajectory.judge import Judgement
from filters.trajectory.view import View

__all__ = ["Loop", "copies_in_a_turn", "find_loops", "repeated_mistakes"]

# OpenHands' stuck detector (controller/stuck.py): its counts.
EQUAL_PAIRS = 4
EQUAL_ERRORS = 3
ALTERNATING = 6
THIRD_CALL = 3


def repeated_mistakes(view: View, judged: list[Judgement]) -> list[Finding]:
    """R5: a call equal to an earlier one whose result was an error, nothing changed in between, and not fine now.

    Equal means the same tool and arguments, key order and blanks aside. A successful call that is not surely
    read-only counts as a change, unless the repeat fails with the very same reply. Copies within one turn count once.
    A retry that works is no mistake (the first failure was a passing one), and the call starts anew after it.
    """
    found: list[Finding] = []
    failed: dict[str, tuple[int, int, int]] = {}  # key: (message of the failure, state it happened in, its reply)
    state = 0
    turn_seen: tuple[int, set[str]] = (-1, set())
    for step, judgement in zip(view.steps, judged, strict=True):
        key = step.key
        if step.message != turn_seen[0]:
            turn_seen = (step.message, set())
        copy = key in turn_seen[1]
        turn_seen[1].add(key)
        earlier = failed.get(key)
        result = view.result_of(step)
        reply = xxhash.xxh3_64_intdigest(result.content.strip().encode("utf-8", "surrogatepass")) if result else 0
        unchanged = earlier is not None and (earlier[1] == state or earlier[2] == reply)
        if earlier and unchanged and earlier[0] != step.message and judgement.kind != "ok" and not copy:
            found.append(Finding("R5", step.message, step.call, "same_call_failed_before", f"message {earlier[0]}"))
        if judgement.kind == "ok":
            failed.pop(key, None)
        elif judgement.kind == "error" and not (earlier and copy):
            failed[key] = (step.message, state, reply)
        call = step.action
        if judgement.kind in ("ok", "negative") and call is not None and not is_read_only(call):
            state += 1
    return found


@dataclass(frozen=True, slots=True)
class Loop:
    """`first` is the message of the loop's first turn, `repeats` the turns that add nothing, `last` the last one."""

    signal: str
    first: int
    repeats: tuple[int, ...]
    last: int


@dataclass(frozen=True, slots=True)
class _Turn:
    message: int
    action: str
    reply: str
    failed: bool
    answered: bool


def find_loops(view: View, judged: list[Judgement]) -> list[Loop]:
    """R6, over turns (parallel calls of one turn are one action), longest first found, non-overlapping:

    - equal_pairs: 4 turns in a row with equal action and reply,
    - equal_errors: 3 turns in a row with equal actions that all failed,
    - third_call: the same call a third time in a row after two equal replies (the third may be unanswered),
    - alternating: 6 turns A B A B A B with equal actions and replies.
    """
    turns = _turns(view, judged)
    loops: list[Loop] = []
    index = 0
    while index < len(turns):
        run = _run_length(turns, index)
        pairs = _pair_length(turns, index)
        signal = ""
        length = run
        if pairs >= EQUAL_PAIRS:
            signal = "equal_pairs"
        elif run >= EQUAL_ERRORS and all(turn.failed for turn in turns[index : index + EQUAL_ERRORS]):
            signal = "equal_errors"
        elif run >= THIRD_CALL and pairs >= 2:
            signal = "third_call"
        else:
            length = _alternation(turns, index)
            signal = "alternating" if length >= ALTERNATING else ""
        if not signal:
            index += 1
            continue
        start = index + (2 if signal == "alternating" else 1)
        members = turns[index : index + length]
        loops.append(
            Loop(
                signal,
                members[0].message,
                tuple(turn.message for turn in turns[start : index + length]),
                members[-1].message,
            )
        )
        index += length
    return loops


def _turns(view: View, judged: list[Judgement]) -> list[_Turn]:
    grouped: dict[int, list[int]] = {}
    for number, step in enumerate(view.steps):
        grouped.setdefault(step.message, []).append(number)
    turns = []
    for message, numbers in grouped.items():
        digest = xxhash.xxh3_128()
        answered = True
        for number in numbers:
            result = view.result_of(view.steps[number])
            answered = answered and result is not None
            digest.update((result.content if result else "").strip().encode("utf-8", "surrogatepass") + b"\0")
        action = "\1".join(sorted({view.steps[number].key for number in numbers}))
        failed = all(judged[number].kind == "error" for number in numbers)
        turns.append(_Turn(message, action, digest.hexdigest(), failed, answered))
    return turns


def _run_length(turns: list[_Turn], index: int) -> int:
    end = index
    while end < len(turns) and turns[end].action == turns[index].action:
        end += 1
    return end - index


def _pair_length(turns: list[_Turn], index: int) -> int:
    end = index
    first = turns[index]
    while (
        end < len(turns)
        and turns[end].answered
        and (turns[end].action, turns[end].reply) == (first.action, first.reply)
    ):
        end += 1
    return end - index


def _alternation(turns: list[_Turn], index: int) -> int:
    if index + 1 >= len(turns) or turns[index].action == turns[index + 1].action:
        return 1
    end = index + 2
    while end < len(turns):
        same = turns[end - 2]
        if (turns[end].action, turns[end].reply) != (same.action, same.reply):
            break
        end += 1
    return end - index


def copies_in_a_turn(view: View, most: int) -> list[Finding]:
    """R5: turns that make one call more than `most` times at once. A turn is masked as a whole, the copies with it."""
    counts = Counter((step.message, step.key) for step in view.steps if step.call is not None)
    worst: dict[int, int] = {}
    for (message, _), count in counts.items():
        worst[message] = max(worst.get(message, 0), count)
    return [
        Finding("R5", message, None, f"copies_in_turn={count}", f"one call {count} times in one turn")
        for message, count in sorted(worst.items())
        if count > most
    ]
