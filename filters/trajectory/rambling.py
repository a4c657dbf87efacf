"""Turns that go on without getting anywhere (R7): repeated n-grams, text that compresses too well, monologues."""

from __future__ import annotations

import zlib

from filters.trajectory.findings import Finding
from filters.trajectory.view import View, is_observation

__all__ = ["compression_ratio", "monologues", "rambling_turns", "repeated_share"]

_READ_CHARS = 200_000


def compression_ratio(text: str) -> float:
    """Bytes of the text by bytes after zlib level 1, over its first 200,000 characters. English prose gives 2 to 3,
    code 3 to 6; a repeated paragraph soon exceeds 10. Above 0; 0 for empty text."""
    raw = text[:_READ_CHARS].encode("utf-8", "surrogatepass")
    return len(raw) / len(zlib.compress(raw, 1)) if raw else 0.0


def repeated_share(text: str, words: int = 8) -> float:
    """Share of word n-grams that occurred before in the text (0 when it has fewer than two), as in [0, 1).

    The repeated n-gram measure of Gopher (Rae et al. 2021, table A1), by count; over the first 200,000 characters.
    """
    tokens = text[:_READ_CHARS].split()
    count = len(tokens) - words + 1
    if count < 2:
        return 0.0
    grams = {tuple(tokens[index : index + words]) for index in range(count)}
    return 1 - len(grams) / count


def rambling_turns(view: View, *, least_chars: int, compression: float, repeats: float) -> list[Finding]:
    """R7: turns whose reasoning or content (not call arguments: files may repeat) repeats itself beyond the limits."""
    found = []
    for index in view.turns:
        message = view.trajectory.messages[index]
        for part, text in (("reasoning", message.reasoning or ""), ("content", message.content)):
            if len(text) < least_chars:
                continue
            ratio = compression_ratio(text)
            if ratio > compression:
                found.append(
                    Finding("R7", index, None, f"compression={ratio:.1f}", f"{part} of {len(text)} characters")
                )
                break
            share = repeated_share(text)
            if share > repeats:
                found.append(
                    Finding("R7", index, None, f"repeated_ngrams={share:.2f}", f"{part} of {len(text)} characters")
                )
                break
    return found


def monologues(view: View, *, least_turns: int) -> list[Finding]:
    """R7: the later turns of `least_turns` or more assistant turns in a row without a call or any other turn between.

    The first of them is left alone. Empty turns and turns that are not the model's words do not count.
    """
    found: list[Finding] = []
    streak: list[int] = []
    for index, message in enumerate(view.trajectory.messages):
        if message.role == "assistant" and not message.tool_calls:
            if (message.content.strip() or message.reasoning) and not message.author:
                streak.append(index)
            continue
        if message.role in ("assistant", "user") or is_observation(message):
            found.extend(_monologue(streak, least_turns))
            streak = []
    found.extend(_monologue(streak, least_turns))
    return found


def _monologue(streak: list[int], least_turns: int) -> list[Finding]:
    if len(streak) < least_turns:
        return []
    return [
        Finding("R7", index, None, f"monologue={len(streak)}", f"since message {streak[0]}") for index in streak[1:]
    ]
