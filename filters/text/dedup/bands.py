"""Bands and rows: which pairs of signatures are looked at, and the curve of what that finds.

Two signatures become a candidate pair when all values of at least one band are equal. With b bands of r rows a pair
of similarity s is found with probability 1 - (1 - s**r)**b.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

__all__ = ["FALSE_POSITIVE_WEIGHT", "Bands", "choose_bands"]

FALSE_POSITIVE_WEIGHT = 0.003
"""What a spurious candidate costs, where a missed duplicate costs 1 minus this.

Every candidate is checked twice before anything is removed (sketch, then exact sets), for some 100 ns and some
10 us, so recall decides. At threshold 0.8 and 128 values datasketch's optimiser then chooses 20 bands of 6, which
find 99.8 % of the pairs at the threshold; its own default weights (0.5) choose 9 of 13, which find 40 % of them.
"""


@dataclass(frozen=True, slots=True)
class Bands:
    """`bands` of `rows` values each out of `permutations`; `unused` values take no part in finding candidates."""

    threshold: float
    permutations: int
    bands: int
    rows: int

    @property
    def unused(self) -> int:
        """Signature values outside of every band (they still serve the sketch check)."""
        return self.permutations - self.bands * self.rows

    def found(self, similarity: float) -> float:
        """Probability that a pair of this Jaccard similarity becomes a candidate."""
        return float(1 - (1 - similarity**self.rows) ** self.bands)

    def curve(self) -> list[tuple[float, float]]:
        """(similarity, probability of becoming a candidate) at 0.05, 0.10 … 1."""
        return [(step / 20, round(self.found(step / 20), 6)) for step in range(1, 21)]

    def describe(self) -> str:
        """One line for logs."""
        return (
            f"{self.bands} bands of {self.rows} rows ({self.unused} of {self.permutations} values unused): finds "
            f"{self.found(self.threshold):.1%} of pairs at similarity {self.threshold:g}, "
            f"{self.found(max(0.0, self.threshold - 0.2)):.1%} at {max(0.0, self.threshold - 0.2):.2g}"
        )


@cache
def choose_bands(
    threshold: float, permutations: int = 128, *, false_positive_weight: float = FALSE_POSITIVE_WEIGHT
) -> Bands:
    """Bands and rows for `threshold` (0 < threshold <= 1) by datasketch's optimiser; bands * rows <= permutations.

    Cost: 0.1 s at 128 permutations, growing with their square; remembered.
    Raises ValueError for a threshold outside (0, 1].
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}: it must be above 0 and at most 1")
    from datasketch.lsh import _optimal_param

    bands, rows = _optimal_param(threshold, permutations, false_positive_weight, 1 - false_positive_weight)
    return Bands(threshold, permutations, int(bands), int(rows))
