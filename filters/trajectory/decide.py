"""Everything a policy does to one record: redaction (R20), then the rules; a record that breaks a detector is named.

The one entry for whoever goes over many records: a defect or a record of a shape that nobody thought of sets that
record aside with the reason, and the others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from filters.trajectory.findings import Finding
from filters.trajectory.policies import Decision, Policy, apply_policy
from filters.trajectory.redact import redact_trajectory
from schemas.trajectory import Trajectory

__all__ = ["SYNTHESIZED", "UNJUDGED", "Decided", "decide"]

SYNTHESIZED = "synthesized"  # the source of runs that were made here: their people are invented, nothing is redacted
UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, the replacements by kind, and the exception if a detector raised one (the record is then dropped)."""

    decision: Decision
    redacted: Counter[str] = field(default_factory=Counter)
    failure: Exception | None = None


def decide(trajectory: Trajectory, policy: Policy, known: Sequence[Finding] = (), *, redact: bool = True) -> Decided:
    """Redact and apply the policy. `known` are findings from outside the trajectory (benchmark prompts).

    `redact` False leaves texts as they are, for comparing turns with the record as it was read.

    Never raises for what is in a trajectory: one that a detector cannot judge is dropped as given, with the reason
    "unjudged:ERROR" and a note. MemoryError passes.
    """
    try:
        redacted: Counter[str] = Counter()
        clean = trajectory
        if redact and trajectory.source != SYNTHESIZED and policy.rules["R20"].action != "off":
            clean, redacted = redact_trajectory(trajectory)
        return Decided(apply_policy(clean, policy, known), redacted)
    except MemoryError:
        raise
    except Exception as error:
        reason = f"{UNJUDGED}:{type(error).__name__}"
        noted = replace(
            trajectory,
            notes=[*trajectory.notes, f"no rule could be applied: {type(error).__name__}: {str(error)[:200]}"],
            flags=[*trajectory.flags, f"dropped:{reason}"],
        )
        return Decided(Decision(False, reason, [], [], [(noted, reason)]), failure=error)
