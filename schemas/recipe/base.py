"""What every recipe model shares: unknown keys refused, values frozen once read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Name", "Share", "Strict"]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
Share = Annotated[float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """A part of a recipe. Unknown keys are errors; a recipe never changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
