"""R14 as a cut: the middle of an oversized observation gives way to a marker that says how much went.

Only observations are cut, never a call, a reply or what a person wrote. The start (two thirds) and the end stay: there
stand the command's first answer and its outcome. The marker carries a hash of what went, so two observations that
differed only there still differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import xxhash

from filters.trajectory.findings import Finding
from filters.trajectory.view import is_observation
from schemas.trajectory import Trajectory

__all__ = ["cut_middle", "cut_observations"]


def cut_middle(text: str, keep: int) -> tuple[str, int]:
    """(text of at most `keep` characters with the marker in it, characters that went); short texts stay as they are.

    The marker has under 100 characters. Cutting twice changes nothing.
    """
    if len(text) <= keep:
        return text, 0
    room = keep - 100
    head = room * 2 // 3
    tail = len(text) - (room - head)
    gone = text[head:tail]
    digest = xxhash.xxh3_64_hexdigest(gone.encode("utf-8", "surrogatepass"))
    marker = f"\n[... {len(gone)} of {len(text)} characters cut here, xxh3 {digest} ...]\n"
    return f"{text[:head]}{marker}{text[tail:]}", len(gone)


def cut_observations(trajectory: Trajectory, findings: Iterable[Finding], keep: int) -> tuple[Trajectory, list[int]]:
    """A copy whose observations named by R14 findings are cut to `keep` characters, and how many went from each.

    Each cut is a note on the record: message, characters that went and that there were.
    """
    messages, notes, gone = list(trajectory.messages), list[str](), list[int]()
    for finding in findings:
        if finding.rule != "R14" or finding.message is None:
            continue
        message = messages[finding.message]
        text, went = cut_middle(message.content, keep) if is_observation(message) else (message.content, 0)
        if went:
            messages[finding.message] = replace(message, content=text)
            notes.append(f"R14: message {finding.message}: {went} of {len(message.content)} characters cut")
            gone.append(went)
    if not gone:
        return trajectory, gone
    return replace(trajectory, messages=messages, notes=[*trajectory.notes, *notes]), gone
