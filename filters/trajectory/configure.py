"""Single rules of a policy changed by the user: actions and thresholds, from a recipe or a command line.

    trajectories: {policy: nanbeige, rules: {R5: {action: drop}, R14: {characters: 50000}}}
    --rule R5.action=drop --rule R14.characters=50000

`ACTIONS` says what can be done about what a rule finds, `RANGES` between which values a threshold makes sense.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from filters.trajectory.policies import Policy, find_policy
from filters.trajectory.rules import RULES, Action, Rule
from schemas.errors import RecipeError

__all__ = ["ACTIONS", "RANGES", "Settings", "configured_policy", "parse_rule_options"]

Settings = Mapping[str, Mapping[str, float | str]]
"""{rule: {"action" or threshold: value}}."""

_TURN: tuple[Action, ...] = ("drop", "mask", "flag", "off")
ACTIONS: Mapping[str, tuple[Action, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("R2", "R3", "R4", "R5", "R7", "R8", "R10", "R11", "R13", "R17", "R18", "R19"), _TURN),
        "R1": ("drop", "flag", "off"),
        "R6": ("drop", "mask", "split", "flag", "off"),
        "R9": ("keep", "off"),
        "R12": ("drop", "mask", "flag", "keep", "off"),
        "R14": ("drop", "cut", "flag", "off"),
        "R15": ("drop", "split", "flag", "off"),
        "R16": ("drop", "off"),
        "R20": ("flag", "off"),
        "R21": ("flag", "off"),
        "R22": ("drop", "off"),
    }
)
_SWITCH = (0.0, 1.0)
_COUNT = (0.0, 1_000_000.0)
RANGES: Mapping[tuple[str, str], tuple[float, float]] = MappingProxyType(
    {
        ("R3", "drop_at_end"): _SWITCH,
        ("R5", "drop_repeats"): _COUNT,
        ("R5", "copies_in_turn"): (1, 1_000_000),
        ("R6", "drop_third_call"): _SWITCH,
        ("R7", "least_chars"): (100, 10_000_000),
        ("R7", "compression"): (1, 1000),
        ("R7", "repeated_ngrams"): (0, 1),
        ("R7", "monologue_turns"): (2, 1_000_000),
        ("R9", "within_turns"): _COUNT,
        ("R14", "characters"): (1000, 1_000_000_000),
        ("R14", "share"): (0, 1),
        # Detectors read the first 4,096 and the last 2,048 characters of an observation: a cut leaves them.
        ("R14", "keep_characters"): (10_000, 1_000_000_000),
        ("R16", "near_equal"): (0, 1),
        ("R16", "least_calls"): (1, 1_000_000),
        ("R16", "runs_a_task"): _COUNT,
        ("R17", "drop_prompts"): _SWITCH,
        ("R21", "easy_difficulty"): (0, 1_000_000),
        ("R21", "long_turns"): _COUNT,
        ("R21", "weight"): (0.01, 1),
    }
)
_WHOLE = frozenset(
    name for name in RANGES if name[1] not in ("compression", "repeated_ngrams", "share", "near_equal", "weight",
                                               "easy_difficulty")
)  # fmt: skip


def configured_policy(name: str, settings: Settings, *, place: str = "trajectories.rules.") -> Policy:
    """The policy of that name with single rules changed; the policy itself without settings.

    `place` stands before a rule's name in errors. Raises RecipeError that lists every wrong rule, threshold, action and
    value, with the nearest known name and what is allowed.
    """
    policy = find_policy(name)
    if not settings:
        return policy
    rules, problems = dict(policy.rules), list[str]()
    for rule_name, changes in settings.items():
        rule = rules.get(rule_name)
        if rule is None:
            problems.append(f"{place}{rule_name}: unknown rule; {_nearest(rule_name, list(RULES))}")
            continue
        for key, value in changes.items():
            changed = _changed(rule, key, value)
            if isinstance(changed, str):
                problems.append(f"{place}{rule_name}.{key}: {changed}")
            else:
                rule = changed
        rules[rule_name] = rule
    if problems:
        raise RecipeError("\n".join(problems))
    return replace(policy, rules=MappingProxyType(rules))


def _changed(rule: Rule, key: str, value: float | str) -> Rule | str:
    """The rule with one setting changed, or what is wrong with the setting."""
    if key == "action":
        allowed = ACTIONS[rule.id]
        if value not in allowed:
            return f"received {value!r}; actions of {rule.id} ({rule.title}): {', '.join(allowed)}"
        return replace(rule, action=value)
    if key not in rule.limits:
        return f"unknown threshold; {_nearest(key, ['action', *rule.limits])}"
    low, high = RANGES[rule.id, key]
    number = _number(value)
    whole = (rule.id, key) in _WHOLE
    if number is None or not low <= number <= high or (whole and number != int(number)):
        return f"received {value!r}; allowed: a {'whole ' if whole else ''}number from {low:,.12g} to {high:,.12g}"
    return replace(rule, limits=MappingProxyType({**rule.limits, key: number}))


def _number(value: float | str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? Known: {', '.join(known)}" if near else f"known: {', '.join(known)}"


def parse_rule_options(options: Iterable[str]) -> dict[str, dict[str, float | str]]:
    """Command line options `R5.action=drop`, `R14.characters=50000` or, for an action, `R5=drop` as settings.

    Raises RecipeError for one of another form, or given twice.
    """
    settings: dict[str, dict[str, float | str]] = {}
    for option in options:
        name, sign, value = option.partition("=")
        rule, _, key = name.strip().partition(".")
        if not (sign and rule and value.strip()):
            raise RecipeError(
                f"--rule {option!r}: write it as RULE.action=NAME or RULE.threshold=NUMBER, "
                "for example --rule R5.action=drop"
            )
        changes = settings.setdefault(rule, {})
        if (key or "action") in changes:
            raise RecipeError(f"--rule {option!r}: {rule}.{key or 'action'} is given twice. Leave one")
        changes[key or "action"] = value.strip()
    return settings
