"""Answers in a final turn: lines `Answer k: …`, and when two of them are the same."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

__all__ = ["answers_of", "same_text_answer"]

_ANSWER = re.compile(r"answer(?:[ \t*]*(?P<n>\d{1,6}))?[ \t*]*[:=](?P<text>.*)", re.I)
_AROUND = " \t\r\f\v\xa0*"  # blanks and the marks of bold text
_QUOTES = " \t\"'`*_“”.…"
_LITERAL = " \t\"'`"  # around a value that is a mark itself
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?")


def answers_of(text: str, first: int = 1) -> dict[int, str]:
    """{number: answer} of the lines `Answer k: …`; a line without a number is answer `first`. The last one counts.

    List marks, quote marks and bold marks around a line are no part of it. The cost grows with the length of the text,
    whatever it is: it comes from a model.
    """
    found: dict[int, str] = {}
    for line in text.split("\n"):
        match = _ANSWER.match(line.lstrip(_AROUND + ">#-"))
        if match is not None and (said := match["text"].strip(_AROUND)):
            found[int(match["n"] or first)] = said
    return found


def same_text_answer(given: str, wanted: str) -> bool:
    """Equal as numbers (thousands may have commas), or as text without case, outer quotes and runs of blanks.

    Nothing is never right: not even where the answer is all marks, such as the default `'.'`.
    """
    if not wanted.strip(_QUOTES):
        return bool(given.strip()) and given.strip(_LITERAL) == wanted.strip(_LITERAL)
    given, wanted = (" ".join(text.strip(_QUOTES).split()) for text in (given, wanted))
    if given.casefold() == wanted.casefold():
        return True
    number = _THOUSANDS.sub("", given)
    if not _NUMBER.fullmatch(number) or not _NUMBER.fullmatch(wanted):
        return False
    try:
        return Decimal(number) == Decimal(wanted)
    except InvalidOperation:
        return False
