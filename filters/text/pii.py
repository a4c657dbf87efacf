"""Personal data and keys in corpus text: found by shape, replaced by typed placeholders, counted.

`<EMAIL_1>`, `<IP_1>`, `<PHONE_2>`, `<TOKEN_1>`, …: within one document equal values get equal names, and the names are
those of redacted trajectories (filters/trajectory/redact.py). The shapes are shared (filters/shapes/private.py); what a
corpus of mathematics and source code holds that only looks so is left as it is (filters/text/pii_context.py).

Off unless a recipe asks for it: a text is never changed unasked. datatrove's PIIFormatter (e-mail, IP) and Dolma's
taggers (e-mail, IP, phone; arXiv 2402.00159, section 5.3) do the same for web text. Not found: names of people, postal
addresses, phone numbers without a country code other than North American ones. Cost: about 10 MB of text a CPU second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from filters.shapes.placeholders import Placeholders
from filters.shapes.private import find_private
from filters.text.pii_context import only_looks_private

__all__ = ["PII_KINDS", "Replaced", "replace_private", "replace_private_text"]

PII_KINDS = ("email", "ip", "phone", "key")
_KIND_OF = {
    "EMAIL": "email",
    "IP": "ip",
    "PHONE": "phone",
    "TOKEN": "key",
    "SECRET": "key",
    "CREDENTIALS": "key",
    "PRIVATE_KEY": "key",
}


@dataclass(frozen=True, slots=True)
class Replaced:
    """Texts with placeholders, large_string of shape (N,), and by row what was replaced in it (kind: how often)."""

    texts: pa.Array
    found: dict[int, dict[str, int]]

    def counts(self) -> Counter[str]:
        """Replacements of all rows by kind."""
        total: Counter[str] = Counter()
        for kinds in self.found.values():
            total.update(kinds)
        return total


def replace_private(texts: pa.Array, kinds: Sequence[str] = PII_KINDS) -> Replaced:
    """Replace what is found of `kinds` (names in PII_KINDS) in each text; nulls stay null.

    The result of a text does not depend on the others, and replacing twice changes nothing more. Memory: the texts
    once more. Raises ValueError for an unknown kind.
    """
    unknown = sorted(set(kinds) - set(PII_KINDS))
    if unknown:
        raise ValueError(f"pii kind {unknown[0]!r} is unknown. Use some of {', '.join(PII_KINDS)}")
    found: dict[int, dict[str, int]] = {}
    changed: list[str | None] = []
    for row, text in enumerate(texts.to_pylist()):
        if text:
            text, counts = replace_private_text(text, kinds)
            if counts:
                found[row] = counts
        changed.append(text)
    if not found:
        return Replaced(texts.cast(pa.large_string()), found)
    return Replaced(pa.array(changed, pa.large_string()), found)


def replace_private_text(text: str, kinds: Sequence[str] = PII_KINDS) -> tuple[str, dict[str, int]]:
    """(text with placeholders, replacements by kind, sorted). Linear in the text.

    All kinds are looked for whatever is asked, so a card number is no phone and a password in an address no e-mail.
    """
    names = Placeholders()
    counts: Counter[str] = Counter()
    parts: list[str] = []
    at = 0
    for start, end, shape in find_private(text):
        kind = _KIND_OF.get(shape)
        if kind is not None and kind in kinds and not only_looks_private(shape, text, start, end):
            parts += (text[at:start], names.name(shape, text[start:end]))
            counts[kind] += 1
            at = end
    if not counts:
        return text, {}
    return "".join((*parts, text[at:])), dict(sorted(counts.items()))
