"""Answers in a final turn: lines `Answer k: …`, and when two of them are the same."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

__all__ = ["answers_of", "same_text_answer"]

_ANSWER = re.compile(r"^[\s*>#-]*answer(?:[ \t]+(?P<n>\d{1,6}))?[ \t]*[:=][ \t]*(?P<text>.+?)[\s*]*$", re.I | re.M)
_QUOTES = " \t\"'`*_“”.…"
_NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?")


def answers_of(text: str, first: int = 1) -> dict[int, str]:
    """{number: answer} of the lines `Answer k: …`; a line without a number is answer `first`. The last one counts."""
    return {int(match["n"] or first): match["text"] for match in _ANSWER.finditer(text)}


def same_text_answer(given: str, wanted: str) -> bool:
    """Equal as numbers (thousands may have commas), or as text without case, outer quotes and runs of blanks."""
    given, wanted = (" ".join(text.strip(_QUOTES).split()) for text in (given, wanted))
    if given.casefold() == wanted.casefold():
        return True
    number = given.replace(",", "")
    if not _NUMBER.fullmatch(number) or not _NUMBER.fullmatch(wanted):
        return False
    try:
        return Decimal(number) == Decimal(wanted)
    except InvalidOperation:
        return False
