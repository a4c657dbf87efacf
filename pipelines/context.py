"""What a step of the main job is given, and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.engine import Engine
from schemas.progress import Progress
from schemas.recipe import Recipe

__all__ = ["RunContext", "StepOutput"]


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run: its folder, its recipe, the engine that moves its tasks, and who listens to progress."""

    run: Path
    recipe: Recipe
    engine: Engine
    progress: Progress


@dataclass(slots=True)
class StepOutput:
    """What a step wrote and counted; the runner turns it into the step's manifest."""

    files: list[Path]
    counts: dict[str, Any] = field(default_factory=dict)
