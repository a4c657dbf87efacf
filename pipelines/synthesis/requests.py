"""What a recipe asks of the synthesis: that its families, formats and mistake rates are there, said before any work."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pipelines.synthesis.environments.base import FAMILIES
from pipelines.synthesis.ingest.detect import FORMATS
from pipelines.synthesis.teachers.scripted import MAX_MISTAKE_RATE
from schemas.errors import RecipeError
from schemas.recipe import Recipe

__all__ = ["check_requests"]


def check_requests(recipe: Recipe) -> None:
    """Raises RecipeError that lists every unknown family or format, and every mistake rate that no teacher keeps."""
    problems: list[str] = []
    for position, wanted in enumerate(recipe.trajectories.synthesized):
        place = f"trajectories.synthesized.{position}"
        problems += _unknown(f"{place}.family", wanted.family, "Families", FAMILIES)
        if wanted.mistake_rate > MAX_MISTAKE_RATE:
            allowed = f"0 to {MAX_MISTAKE_RATE:g} with the scripted teacher"
            problems.append(f"{place}.mistake_rate: {wanted.mistake_rate:g} is out of range. Allowed: {allowed}")
    for position, recorded in enumerate(recipe.trajectories.recorded):
        formats = ["auto", *FORMATS]
        problems += _unknown(f"trajectories.recorded.{position}.format", recorded.format, "Formats", formats)
    field = "evaluate.families" if recipe.evaluate.families else "evaluate.family"
    for name in recipe.evaluate.measured:
        problems += _unknown(field, name, "Families", FAMILIES)
    if problems:
        raise RecipeError("\n".join(problems))


def _unknown(field: str, name: str, what: str, known: Iterable[str]) -> list[str]:
    """No line, or the one that names the field, the nearest known name and all of them."""
    names = sorted(known)
    if name in names:
        return []
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return [f"{field}: {name!r} is unknown.{hint} {what}: {', '.join(names)}"]
