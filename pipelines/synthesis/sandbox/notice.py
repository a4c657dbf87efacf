"""The warning where bubblewrap is missing: what code in the sandbox can do here that it else could not."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Sequence

__all__ = ["SandboxWarning", "warn_of_limits"]

_OPEN = {
    "network": "reach the network",
    "signals": "signal other processes of this user",
    "files": "read and write every file that this user may",
    "processes": "start processes without end",
}
_told: set[tuple[str, ...]] = set()


class SandboxWarning(UserWarning):
    """Programs run at a lower level than bubblewrap's."""


def warn_of_limits(gaps: Sequence[str]) -> None:
    """Warn that process limits stand in for bubblewrap, and of what they leave open: once a program.

    Workers are silent. Whoever starts workers opens a sandbox of its own before, so that it is said.
    """
    if multiprocessing.parent_process() is not None or tuple(gaps) in _told:
        return
    _told.add(tuple(gaps))
    can = f" Programs can {', '.join(_OPEN[gap] for gap in gaps)}." if gaps else ""
    warnings.warn(
        "bubblewrap (bwrap) is not installed or does not work here: programs of tasks run with process limits "
        f"instead.{can} Install bubblewrap; docs/sandbox.md says what each level stops",
        SandboxWarning,
        stacklevel=2,
    )
