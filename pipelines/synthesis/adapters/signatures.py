"""A tool's JSON Schema as a Python function that other frameworks can read a schema off again.

TRL and the MCP server behind verifiers take functions: names, types, which arguments are optional, and a docstring with
an `Args:` section are all they look at. What the function is called with goes to `run` as it was given, wrong names and
types included, so that the family's own checks answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

__all__ = ["spread_tasks", "tool_function", "tool_union"]

_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict[str, Any]}


def tool_function(tool: Mapping[str, Any], run: Callable[..., str], *, method: bool = False) -> Callable[..., str]:
    """A function with the name, typed signature and docstring of an OpenAI tool schema.

    It calls `run(**arguments)`, or with `method` `run(self, **arguments)`; optional arguments that are None are left
    out. The docstring is in Google style.
    """
    described = tool["function"]
    schema = described["parameters"]
    required = schema.get("required", [])
    ordered = [*required, *(name for name in schema["properties"] if name not in required)]
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] if method else []
    annotations: dict[str, Any] = {}
    for name in ordered:
        kind = _annotation(schema["properties"][name])
        default: Any = inspect.Parameter.empty
        if name not in required:
            kind, default = kind | None, None
        annotations[name] = kind
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
        )

    def call(*own: Any, **arguments: Any) -> str:
        return run(*own, **{name: value for name, value in arguments.items() if value is not None})

    call.__name__ = call.__qualname__ = described["name"]
    call.__doc__ = _docstring(described["description"], [(name, schema["properties"][name]) for name in ordered])
    call.__annotations__ = {**annotations, "return": str}
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return call


def _annotation(schema: Mapping[str, Any]) -> Any:
    """The Python type of one parameter; anything where the schema gives none."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    kind = schema.get("type")
    if kind == "array":
        return list[_annotation(schema.get("items", {}))]  # type: ignore[misc]
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _docstring(description: str, parameters: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    lines = [description]
    if parameters:
        lines += ["", "Args:"]
        lines += [f"    {name}: {schema.get('description') or name.replace('_', ' ')}" for name, schema in parameters]
    return "\n".join([*lines, "", "Returns:", "    what the tool says"])


def tool_union(tool_lists: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Every tool of several lists once, by name, in the order in which they come."""
    found: dict[str, Mapping[str, Any]] = {}
    for tools in tool_lists:
        for tool in tools:
            found.setdefault(tool["function"]["name"], tool)
    return list(found.values())


def spread_tasks(n: int, seed: int, difficulty: tuple[float, float]) -> list[tuple[int, float]]:
    """(seed, difficulty) of `n` training tasks, as a recipe with this seed would have them."""
    from pipelines.synthesis.ranges import spread_difficulties, task_seed

    return [(task_seed(seed, 0, k), level) for k, level in enumerate(spread_difficulties(n, *difficulty))]
