"""Rules R1 … R22 as configuration: what each looks for, what is done about it, and its thresholds.

An action is one of

    drop    the trajectory goes to dropped/ with the reason
    mask    the turn stays in context and is not trained
    split   the trajectory is cut there, or becomes several
    cut     the middle of an observation gives way to a marker (R14)
    flag    a flag is set, nothing else
    keep    nothing is done on purpose: the rule protects a turn or explains it
    off     the rule is not looked at: no flag, no label, no count
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

__all__ = ["RULES", "Action", "Rule", "with_rules"]

Action = Literal["drop", "mask", "split", "cut", "flag", "keep", "off"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `limits` are its thresholds by name (units in the name or the title)."""

    id: str
    title: str
    action: Action
    limits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def limit(self, name: str) -> float:
        """A threshold. Raises KeyError for a name that the rule does not have."""
        return self.limits[name]


def _rule(number: int, title: str, action: Action, **limits: float) -> Rule:
    return Rule(f"R{number}", title, action, MappingProxyType(limits))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.id: rule
        for rule in (
            _rule(1, "outcome gate: a failed run; unknown is not success", "flag"),
            _rule(2, "tool-call error", "mask"),
            _rule(3, "malformed call; the run is dropped when it ends on one", "mask", drop_at_end=1),
            _rule(4, "unknown tool or schema breach", "mask"),
            # Dropping at three repeats of one mistake: TRAJECTORIES.md §5; 0 never drops.
            _rule(5, "the same mistake twice", "mask", drop_repeats=3, copies_in_turn=3),
            # A loop followed by other, working calls is masked; otherwise the run is cut before its first repeat,
            # or dropped when it is a third equal call after two equal replies (drop_third_call).
            _rule(6, "loop", "split", drop_third_call=1),
            # Prose compresses 2 to 3 times and code 3 to 6 times under zlib level 1; 10 is neither.
            _rule(7, "rambling", "mask", least_chars=1000, compression=10, repeated_ngrams=0.6, monologue_turns=3),
            _rule(8, "truncated end", "mask"),
            _rule(9, "recovery within so many turns is trained and flagged", "keep", within_turns=5),
            _rule(10, "unrecovered failure: everything from the first such mistake of a failed run on", "mask"),
            _rule(11, "not the model's words", "mask"),
            _rule(12, "negative result that is no mistake", "keep"),
            _rule(13, "failed edit", "mask"),
            # 20,000 characters are some 5,000 tokens; agents' own limits are 16,000 to 100,000 characters.
            _rule(
                14, "observation bomb: its middle is cut", "cut", characters=200_000, share=0.8, keep_characters=20_000
            ),
            _rule(15, "compaction: split into what the model saw", "split"),
            # Near-equal is of the calls of two runs of one task; SWE-smith keeps 3 runs a task, 0 keeps all.
            _rule(
                16,
                "duplicate: same id, near-equal run of a task",
                "drop",
                near_equal=0.95,
                least_calls=3,
                runs_a_task=0,
            ),
            # Flagged, but dropped when the prompt is in a benchmark file that the recipe names (drop_prompts).
            _rule(17, "leakage: benchmark task or solution looked up", "flag", drop_prompts=1),
            _rule(18, "pairing faults", "flag"),
            _rule(19, "lazy success: the final claim", "mask"),
            _rule(20, "secrets and people: replaced in recorded runs and counted", "flag"),
            # Easy and long: a task of at most this difficulty that took more turns than this. Below 1, `weight` is
            # written on the trained turns of such runs.
            _rule(21, "difficulty and length", "flag", easy_difficulty=2, long_turns=60, weight=1),
            _rule(22, "nothing left to train", "drop"),
        )
    }
)


def with_rules(**changes: Action | Rule) -> Mapping[str, Rule]:
    """RULES with some replaced: an action keeps the rule's thresholds. `with_rules(R1="drop", R5=Rule(…))`.

    Raises KeyError for an unknown rule.
    """
    rules = dict(RULES)
    for name, change in changes.items():
        rules[name] = change if isinstance(change, Rule) else replace(rules[name], action=change)
    return MappingProxyType(rules)
