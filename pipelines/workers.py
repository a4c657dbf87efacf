"""What the engines have in common: the workers' environment, and failures that travel as JSON."""

from __future__ import annotations

import builtins
import importlib
import os
import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from schemas.errors import DatamixError

__all__ = ["THREAD_LIMITS", "describe_failure", "environment", "failure_of", "shown_task", "worker_death"]

_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA", "RAYON")
THREAD_LIMITS = dict.fromkeys([*(f"{name}_NUM_THREADS" for name in _LIBRARIES), "POLARS_MAX_THREADS"], "1")
"""Set in every worker before it imports anything: the cores are shared out by workers, not by threads."""


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started inside the block, then put the old ones back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def worker_death(label: str, exit_code: int, index: int, task: object) -> DatamixError:
    """The error for a worker process that ended in the middle of task `index`; `exit_code` is negative for a signal."""
    if exit_code < 0:
        try:
            how = f"was ended by {signal.Signals(-exit_code).name}"
        except ValueError:
            how = f"was ended by signal {-exit_code}"
    else:
        how = f"left with exit code {exit_code}"
    memory = " (often the system's answer to memory running out)" if exit_code == -signal.SIGKILL else ""
    return DatamixError(
        f"{label}: the worker process of task {index} {how}{memory}. The task was {shown_task(task)}. "
        "Nothing half-written counts: run the same command again, with fewer workers if memory is short"
    )


def shown_task(task: object) -> str:
    """A task as one line of at most 300 characters, for messages."""
    shown = repr(task)
    return shown if len(shown) <= 300 else shown[:297] + "..."


def describe_failure(error: BaseException) -> dict[str, Any]:
    """An exception as JSON: its class by name, its message, its plain attributes, its traceback."""
    state = {k: v for k, v in vars(error).items() if v is None or isinstance(v, str | int | float | bool)}
    return {
        "module": type(error).__module__,
        "name": type(error).__qualname__,
        "message": str(error),
        "state": state,
        "traceback": "".join(traceback.format_exception(error)),
    }


def failure_of(described: dict[str, Any]) -> BaseException:
    """The exception of `describe_failure`: a DatamixError as it was, a built-in one with its traceback as a note."""
    message = described["message"]
    if described["module"] == "builtins":
        known = getattr(builtins, described["name"], None)
        plain = isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, UnicodeError)
        error: BaseException = known(message) if plain and known is not None else RuntimeError(message)
    else:
        found = getattr(importlib.import_module(described["module"]), described["name"], None)
        if isinstance(found, type) and issubclass(found, DatamixError):
            deliberate = found.__new__(found, message)
            Exception.__init__(deliberate, message)
            vars(deliberate).update(described["state"])
            return deliberate
        error = RuntimeError(f"{described['name']}: {message}")
    error.add_note("in a task:\n" + described["traceback"])
    return error
