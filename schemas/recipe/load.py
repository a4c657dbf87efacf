"""Read a recipe: YAML text to a checked `Recipe`, with errors a person can act on."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.errors import RecipeError
from schemas.recipe.model import Recipe

__all__ = ["load_recipe", "parse_recipe"]


_MERGE = "tag:yaml.org,2002:merge"


class _NoDuplicates(yaml.SafeLoader):
    """YAML that refuses a key written twice (PyYAML would silently keep the last)."""


def _mapping(loader: _NoDuplicates, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:  # `<<: *other`: the keys beside it win, so they are no repetition
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "a key is a list or mapping", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is written twice", key_node.start_mark)
        seen.add(key)
    return dict(loader.construct_mapping(node, deep=True))


_NoDuplicates.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check the recipe at `path`; `overrides` are `a.b=value` strings (value as YAML).

    Raises RecipeError (exit code 2) for a missing file, bad YAML or any wrong field, naming each field's path,
    the value received and what is allowed.
    """
    place = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{place}: no such recipe. Give the path of a YAML file, such as recipes/demo.yaml") from None
    except (IsADirectoryError, PermissionError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"{place}: cannot be read as a recipe ({error}). Give the path of a UTF-8 YAML file"
        ) from None
    return parse_recipe(text, place=place, overrides=overrides)


def parse_recipe(text: str, *, place: str = "recipe", overrides: Sequence[str] = ()) -> Recipe:
    """Check recipe text. `place` is how errors call it. Raises RecipeError as `load_recipe` does."""
    try:
        raw = yaml.load(text, Loader=_NoDuplicates)  # noqa: S506  (a SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark else place
        raise RecipeError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}. Mend the line") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a date that is none, deep nesting
        raise RecipeError(f"{place}: not YAML that can be read: {error}. Mend the value") from None
    if not isinstance(raw, dict):
        kind = "empty" if raw is None else f"a {type(raw).__name__}"
        raise RecipeError(f"{place}: a recipe is a mapping of keys, this file is {kind}. See recipes/demo.yaml")
    for override in overrides:
        _apply(raw, override)
    try:
        return Recipe.model_validate(raw)
    except ValidationError as error:
        problems = [_explain(detail) for detail in error.errors(include_url=False)]
        raise RecipeError("\n".join(f"{place}: {problem}" for problem in problems)) from None


def _apply(raw: dict[str, Any], override: str) -> None:
    """Set one `a.b.0.c=value` in the parsed recipe."""
    name, sign, value = override.partition("=")
    if not sign or not name:
        raise RecipeError(f"--set {override!r}: write it as field.path=value, for example --set mixture.max_epochs=2")
    steps = name.split(".")
    target: Any = raw
    for step in steps[:-1]:
        if isinstance(target, list) and step.isdigit() and int(step) < len(target):
            target = target[int(step)]
        elif isinstance(target, dict):
            target = target.setdefault(step, {})
        else:
            raise RecipeError(f"--set {override!r}: {step!r} is not a field here")
    try:
        parsed = yaml.load(value, Loader=_NoDuplicates)  # noqa: S506  (a SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise RecipeError(f"--set {_short(override)}: the value is not YAML: {problem}") from None
    last = steps[-1]
    if isinstance(target, list) and last.isdigit() and int(last) < len(target):
        target[int(last)] = parsed
    elif isinstance(target, dict):
        target[last] = parsed
    else:
        raise RecipeError(f"--set {override!r}: {last!r} is not a field here")


def _explain(detail: ErrorDetails) -> str:
    """One pydantic error as a line: path, what is wrong, the value received, the nearest known key."""
    location = [str(part) for part in detail["loc"]]
    path = ".".join(location) or "recipe"
    kind, received = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        known = _known_keys(detail["loc"][:-1])
        near = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(known))}"
        return f"{path}: unknown key; {hint}"
    if kind == "missing":
        return f"{path}: required, but not given"
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return f"{path}: {message}"
    return f"{path}: {message[0].lower() + message[1:]}, received {_short(received)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _known_keys(location: Sequence[int | str]) -> list[str]:
    """The field names of the model that an error location leads to."""
    model: Any = Recipe
    for part in location:
        if isinstance(part, int):
            continue
        if isinstance(model, type) and issubclass(model, BaseModel) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _model_in(annotation: Any) -> Any:
    """The recipe model inside a type such as `list[SourceConfig]` or `X | None`, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (list, dict, tuple, typing.Union, types.UnionType, typing.Annotated):
        for inner in typing.get_args(annotation):
            found = _model_in(inner)
            if found is not None:
                return found
    return None
