"""One way to compile: ahead of the first call, kept in numba's cache where a cache can be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["bare", "compiled", "inlined"]


def bare(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    """As `compiled`, for functions that make no arrays: arrays are passed on without counting who holds them.

    Counting costs more than the loops themselves where a function with array arguments is called for every block.
    """
    return compiled(*signatures, _nrt=False)


def compiled(*signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: compile for exactly `signatures` when the module is imported, without the GIL while running.

    The machine code is cached beside the source, or in the user's cache folder, or where NUMBA_CACHE_DIR points.
    Where none of them can be written (a read-only container) numba refuses to cache; then it is compiled for
    this process only, which costs some seconds and changes no result.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(list(signatures), cache=True, nogil=True, **options)(function)
        except (RuntimeError, OSError):
            return njit(list(signatures), nogil=True, **options)(function)

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Decorator: a helper that numba compiles into its callers."""
    return njit(inline="always")(function)
