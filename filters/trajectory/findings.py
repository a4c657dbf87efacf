"""What a detector says: one finding, with the rule it serves, the place and the signal that gave it away.

Rule ids are those of `filters.trajectory.rules` (R1 … R22). A finding never decides anything: policies do.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about one place of a trajectory.

    `message` is the index of the message that the finding is about (the assistant's turn for mistakes), None for
    the whole trajectory. `call` is the index within that message's tool_calls, None when the turn as a whole is
    meant. `signal` is what gave it away, as `name` or `name=value` ("exit_code=2", "text_traceback");
    `detail` is for people.
    """

    rule: str
    message: int | None
    call: int | None
    signal: str
    detail: str = ""

    @property
    def reason(self) -> str:
        """The mask or drop reason: rule and signal name without its value, such as "R2:exit_code"."""
        return f"{self.rule}:{self.signal.partition('=')[0]}"
