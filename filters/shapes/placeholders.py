"""Typed placeholders for what is taken out of a text: `<EMAIL_1>`, `<TOKEN_2>`, …

Equal values of one record get equal names, so what was said twice still agrees. One vocabulary for trajectories and for
corpus text: a model that is trained on both learns one.
"""

from __future__ import annotations

from collections import Counter

__all__ = ["Placeholders"]


class Placeholders:
    """The names given so far: one object a record. `counts` is replacements by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def name(self, kind: str, value: str) -> str:
        """The placeholder for `value`, numbered from 1 within its kind; counts one replacement."""
        self.counts[kind] += 1
        name = self._names.get((kind, value))
        if name is None:
            self._numbers[kind] += 1
            name = self._names[(kind, value)] = f"<{kind}_{self._numbers[kind]}>"
        return name
