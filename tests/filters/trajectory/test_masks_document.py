"""docs/masks.md says what the code does: every rule, every policy, the thresholds in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from filters.trajectory.configure import ACTIONS, RANGES
from filters.trajectory.policies import POLICIES
from filters.trajectory.rules import RULES

DOCUMENT = (Path(__file__).parents[3] / "docs" / "masks.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (R\d+) \|(.*)\|$", DOCUMENT, re.M))
NUMBERS = [
    ("R5", "copies_in_turn", "over 3 copies"),
    ("R5", "drop_repeats", "third repeat"),
    ("R7", "compression", "over 10"),
    ("R7", "least_chars", "1,000 characters"),
    ("R7", "repeated_ngrams", "60 %"),
    ("R7", "monologue_turns", "3 turns in a row"),
    ("R9", "within_turns", "within 5 turns"),
    ("R14", "characters", "200,000"),
    ("R14", "share", "80 %"),
    ("R14", "keep_characters", "cut to 20,000"),
    ("R16", "near_equal", "0.95"),
    ("R16", "least_calls", "3 calls"),
    ("R21", "easy_difficulty", "up to 2"),
    ("R21", "long_turns", "over 60 turns"),
]
WORDS = {"third": 3.0, "60 %": 0.6, "80 %": 0.8}


def test_every_rule_has_a_row_that_names_its_action() -> None:
    assert set(ROWS) == set(RULES)
    for name, rule in RULES.items():
        said = ROWS[name].split("|")[1]
        words = {"flag": "flag", "mask": "mask", "drop": "drop", "split": "split|mask", "cut": "cut", "keep": "train"}[
            rule.action
        ]
        assert re.search(words, said), f"{name}: {rule.action} is not in {said!r}"


def test_every_policy_has_a_row() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", DOCUMENT, re.M) == list(POLICIES)


@pytest.mark.parametrize(("rule", "limit", "phrase"), NUMBERS)
def test_thresholds_are_those_of_the_rules(rule: str, limit: str, phrase: str) -> None:
    assert phrase in ROWS[rule]
    number = next((value for word, value in WORDS.items() if word in phrase), None)
    if number is None:
        number = float(re.search(r"[\d.,]+", phrase)[0].replace(",", ""))  # type: ignore[index]
    assert RULES[rule].limit(limit) == number


def test_the_table_of_settings_lists_every_action_threshold_range_and_default() -> None:
    listed = dict(re.findall(r"^\| (R\d+): \|(.*)\|$", DOCUMENT, re.M))
    for name, rule in RULES.items():
        limits = [
            f"`{key}` {RANGES[name, key][0]:,.12g} to {RANGES[name, key][1]:,.12g} ({value:,.12g})"
            for key, value in rule.limits.items()
        ]
        assert listed[name] == f" {', '.join(ACTIONS[name])} | {', '.join(limits)} ", name
