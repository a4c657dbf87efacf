"""How long a trajectory of a difficulty is meant to be: the scale that families of long work share."""

from __future__ import annotations

from pipelines.synthesis.lengths import BYTES_PER_TOKEN

__all__ = ["target_bytes"]

# tokens of a whole trajectory at difficulty 1 … 10
TOKENS = (1_300, 2_600, 5_000, 10_000, 20_000, 40_000, 75_000, 110_000, 145_000, 190_000)


def target_bytes(difficulty: float) -> float:
    """Bytes of a whole trajectory that a difficulty (1 … 10) aims at, interpolated between whole numbers."""
    low = min(int(difficulty), 9)
    first, second = TOKENS[low - 1], TOKENS[low]
    return BYTES_PER_TOKEN * float(first * (second / first) ** (difficulty - low))
