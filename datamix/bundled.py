"""The recipes that come with datamix: `recipes/` of the repository, or datamix/recipes of the installed package."""

from __future__ import annotations

from pathlib import Path

from schemas.errors import UsageError

__all__ = ["find_recipe", "recipes_folder"]


def recipes_folder() -> Path:
    """Where the bundled recipes lie. Raises UsageError when this installation has none."""
    package = Path(__file__).resolve().parent
    for folder in (package / "recipes", package.parent / "recipes"):
        if (folder / "demo.yaml").is_file():
            return folder
    raise UsageError("this installation of datamix has no bundled recipes. Install it again, or give a recipe's path")


def find_recipe(given: str) -> Path:
    """The recipe that a user means: a path, or the bare name of a bundled one (`demo`, `nanbeige`)."""
    path = Path(given)
    if not path.exists() and path.name == given and not path.suffix:
        bundled = recipes_folder() / f"{given}.yaml"
        if bundled.is_file():
            return bundled
    return path
