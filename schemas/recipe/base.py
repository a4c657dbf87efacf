"""What every recipe model shares: unknown keys refused, values frozen once read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Name", "Share", "Strict", "check_difficulty"]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
Share = Annotated[float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """A part of a recipe. Unknown keys and numbers that are not finite are errors; a recipe never changes once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)


def check_difficulty(bounds: tuple[float, float]) -> None:
    """Raises ValueError unless `bounds` is an ordered range within 1 (easy) to 10 (hard)."""
    low, high = bounds
    if not 1 <= low <= high <= 10:
        raise ValueError(f"difficulty [{low:g}, {high:g}] must be an ordered range within [1, 10]")
