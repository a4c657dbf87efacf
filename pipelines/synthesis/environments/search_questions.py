"""What a question over a search pool is, the number that a fact states, and what finding an answer costs.

A question is data: `text`, `answer`, `accept` (other wordings of it), `support` (names of the documents that prove it)
and `hops`, the expert's way: each finds one document (`query`), a line in it (`pattern`) and perhaps reads pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pipelines.synthesis.environments.search_facts import GAP

__all__ = ["ABSENT", "Hop", "Question", "cost_of", "measure_of"]

ABSENT = "not in the corpus"


@dataclass(frozen=True, slots=True)
class Hop:
    """One document on the way: how it is found, what to look for in it, which of its pages to read ([] for none).

    `document` is "" where no document is to be found, `says` what the hop teaches, for a sentence.
    """

    query: str
    document: str
    pattern: str
    pages: list[int] = field(default_factory=list)
    says: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """See the module."""

    kind: str
    text: str
    answer: str
    accept: list[str]
    support: list[str]
    hops: list[Hop]

    def to_data(self) -> dict[str, Any]:
        """Plain data for TaskSpec.data."""
        return asdict(self)

    @classmethod
    def from_data(cls, raw: dict[str, Any]) -> Question:
        """The inverse of `to_data`."""
        return cls(**{**raw, "hops": [Hop(**hop) for hop in raw["hops"]]})


def measure_of(fact: dict[str, Any]) -> tuple[float, str] | None:
    """(a number that a fact states, what it is the number of), None for a fact without one."""
    if fact["kind"] == "function" and not fact["variadic"] and not {"self", "cls"} & set(fact["names"]):
        return float(fact["parameters"]), f"the number of parameters of the function `{fact['subject']}`"
    if fact["kind"] == "class":
        return float(fact["methods"]), f"the number of functions directly in the body of the class `{fact['subject']}`"
    if fact["kind"] == "constant" and re.fullmatch(r"-?\d+(?:\.\d+)?", fact["value"]):
        return float(fact["value"]), f"the value assigned to `{fact['subject']}`"
    if fact["kind"] == "gap" and fact["number"]:
        return float(fact["answer"]), f"the number missing in “{fact['sentence'].replace(GAP, '…')}”"
    return None


def cost_of(question: Question, pages: Callable[[str], Sequence[int]]) -> float:
    """About how many bytes the way to an answer takes; `pages` gives the characters of a document's pages."""
    total = float(len(question.text)) + 60
    for hop in question.hops:
        total += (1_150 if hop.query else 0) + (260 if hop.document else 0) + 40
        if hop.pages:
            sizes = pages(hop.document)
            total += sum(sizes[page - 1] + 170 for page in hop.pages)
    return total
