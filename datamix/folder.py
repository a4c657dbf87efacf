"""The run folder as a whole: whose run it is, one writer at a time, nothing of another recipe in it.

`RUN/run.json` names the recipe and its digest, `RUN/recipe.yaml` is the recipe with every default filled in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from datamix import __version__
from schemas.errors import InputError, UsageError
from schemas.files import TEMPORARY_PREFIX, atomic_path, read_json, remove_temporaries, write_json
from schemas.lock import LOCK_NAME
from schemas.recipe import Recipe, load_recipe

__all__ = [
    "RECIPE_NAME",
    "RUN_NAME",
    "claim_folder",
    "describe_run",
    "examine_folder",
    "read_output",
    "run_recipe",
]

RUN_NAME = "run.json"
RECIPE_NAME = "recipe.yaml"


def examine_folder(run: Path, recipe: Recipe, *, update: bool = False) -> None:
    """See that `run` can be this recipe's folder; writes nothing.

    It may be absent, empty, or a run of this recipe. `update` also accepts a run of an earlier form of the recipe
    (same name). Raises UsageError for a file, a folder with other things in it, and another recipe's run.
    """
    if run.exists() and not run.is_dir():
        raise UsageError(f"--out {run}: is a file. Give a folder")
    if run.is_dir() and any(not _leftover(path) for path in run.iterdir()):
        _same_run(run, recipe, update=update)


def claim_folder(run: Path, recipe: Recipe, *, update: bool = False) -> None:
    """Make `run` the folder of this recipe: remove leftover temporaries, write run.json and recipe.yaml.

    Called under the lock. Raises UsageError as `examine_folder` does.
    """
    examine_folder(run, recipe, update=update)
    remove_temporaries(run)
    write_json(run / RUN_NAME, {"recipe": recipe.name, "digest": recipe.digest(), "datamix": __version__})
    with atomic_path(run / RECIPE_NAME) as temporary:
        temporary.write_text(_recipe_text(recipe), encoding="utf-8")


def _leftover(path: Path) -> bool:
    """What a process killed in its first moment leaves: it does not make a folder anybody's."""
    return path.name == LOCK_NAME or path.name.startswith(TEMPORARY_PREFIX)


def _same_run(run: Path, recipe: Recipe, *, update: bool) -> None:
    try:
        found = describe_run(run)
    except InputError as error:
        if (run / RUN_NAME).exists():
            raise UsageError(f"--out {run}: {error}") from None
        raise UsageError(f"--out {run}: the folder is not empty and holds no run. Give a new or empty folder") from None
    if found["recipe"] != recipe.name:
        raise UsageError(
            f"--out {run}: holds a run of another recipe, {found['recipe']!r}, not {recipe.name!r}. "
            "Give another --out, or remove that folder"
        )
    if found["digest"] != recipe.digest() and not update:
        changed = _changed_fields(run, recipe)
        raise UsageError(
            f"--out {run}: holds a run of another recipe: it is also called {recipe.name!r}, but differs in {changed} "
            f"(datamix {found.get('datamix')} wrote it, this is {__version__}). Give another --out, or --update to run "
            "again here what depends on the change"
        )


def _changed_fields(run: Path, recipe: Recipe) -> str:
    """Names of the top-level fields that differ from RUN/recipe.yaml, for the message."""
    try:
        old = run_recipe(run).model_dump(mode="json")
    except (InputError, UsageError):
        return "fields with new defaults"
    new = recipe.model_dump(mode="json")
    old["engine"], new["engine"] = old["engine"]["partitions"], new["engine"]["partitions"]
    return ", ".join(sorted(key for key in new if old.get(key) != new[key])) or "fields with new defaults"


def describe_run(run: str | Path) -> dict[str, Any]:
    """RUN/run.json: {"recipe", "digest", "datamix"}. Raises InputError when `run` is not a run folder."""
    path = Path(run) / RUN_NAME
    todo = "Give the folder that `datamix run … --out` wrote"
    try:
        found = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("not a run folder (no run.json)", path=str(run), todo=todo) from None
    except ValueError as error:
        raise InputError(f"not JSON ({error})", path=str(path), todo=todo) from None
    if not isinstance(found, dict) or not {"recipe", "digest"} <= set(found):
        raise InputError("not the run.json of a run ('recipe' and 'digest' are missing)", path=str(path), todo=todo)
    return found


def read_output(path: Path) -> Any:
    """A JSON file that a finished step wrote. Raises InputError when it is missing or damaged."""
    todo = "`datamix check` says what else is off; the same `datamix run` with --from makes it again"
    try:
        return read_json(path)
    except FileNotFoundError:
        raise InputError("is missing", path=str(path), todo=todo) from None
    except ValueError as error:
        raise InputError(f"not JSON ({error})", path=str(path), todo=todo) from None


def run_recipe(run: str | Path) -> Recipe:
    """The recipe of a run, from RUN/recipe.yaml. Raises InputError when `run` is not a run folder."""
    describe_run(run)
    return load_recipe(Path(run) / RECIPE_NAME)


def _recipe_text(recipe: Recipe) -> str:
    """YAML with every default. Engine name and workers are left out: they change no byte, here either."""
    content = recipe.model_dump(mode="json")
    content["engine"] = {"partitions": recipe.engine.partitions}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
