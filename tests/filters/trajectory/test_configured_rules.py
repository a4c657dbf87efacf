"""Rules as the user sets them: what changes, and what is refused with which words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from filters.trajectory.configure import ACTIONS, RANGES, configured_policy, parse_rule_options
from filters.trajectory.policies import POLICIES, apply_policy
from filters.trajectory.rules import RULES
from schemas.errors import RecipeError
from schemas.recipe.trajectories import TrajectoriesConfig
from schemas.trajectory import Trajectory


def mistaken(make: SimpleNamespace) -> Trajectory:
    """A failed call, its repeat, a working call, a last word."""
    failing = [make.bash("cat b"), make.failed("cat: b: gone", "exit_code=1")]
    again = [make.bash("cat b"), make.failed("cat: b: gone", "exit_code=1")]
    return make.build(*failing, *again, make.bash("cat a"), make.fine(), make.say("ok"), success=True)


def masks(trajectory: Trajectory) -> list[list[str]]:
    return [message.mask_reasons for message in trajectory.messages if message.role == "assistant"]


def test_without_settings_it_is_the_policy_itself() -> None:
    assert configured_policy("nanbeige", {}) is POLICIES["nanbeige"]


def test_every_action_and_threshold_of_the_policies_is_allowed() -> None:
    for policy in POLICIES.values():
        assert set(policy.rules) == set(ACTIONS)
        assert all(rule.action in ACTIONS[name] for name, rule in policy.rules.items())
    listed = {(name, limit): value for name, rule in RULES.items() for limit, value in rule.limits.items()}
    assert set(listed) == set(RANGES)
    assert all(RANGES[key][0] <= value <= RANGES[key][1] for key, value in listed.items())


def test_mask_becomes_drop_flag_and_off(make: SimpleNamespace) -> None:
    run = mistaken(make)
    assert masks(apply_policy(run).trajectories[0]) == [
        ["R2:exit_code"], ["R2:exit_code", "R5:same_call_failed_before"], [], [],
    ]  # fmt: skip
    dropped = apply_policy(run, configured_policy("nanbeige", {"R5": {"action": "drop"}}))
    assert (dropped.kept, dropped.reason) == (False, "R5:same_call_failed_before")
    flagged = apply_policy(run, configured_policy("nanbeige", {"R2": {"action": "flag"}})).trajectories[0]
    assert masks(flagged) == [[], ["R5:same_call_failed_before"], [], []]
    assert flagged.stats.errors == 2
    off = configured_policy("nanbeige", {"R2": {"action": "off"}, "R5": {"action": "off"}})
    unseen = apply_policy(run, off).trajectories[0]
    assert masks(unseen) == [[], [], [], []]
    assert unseen.stats.errors == 0
    assert [m.label for m in unseen.messages if m.role == "assistant"] == [None] * 4
    assert unseen.flags == []


def test_thresholds_change_what_is_found(make: SimpleNamespace) -> None:
    run = mistaken(make)
    once = configured_policy("nanbeige", parse_rule_options(["R5.drop_repeats=1"]))
    assert apply_policy(run, once).reason == "R5:repeats"
    late = configured_policy("nanbeige", {"R9": {"within_turns": 0}})
    assert "recovery" not in apply_policy(run, late).trajectories[0].flags
    assert "recovery" in apply_policy(run).trajectories[0].flags


def test_settings_go_on_top_of_any_policy(make: SimpleNamespace) -> None:
    policy = configured_policy("all-assistant", {"R2": {"action": "mask"}})
    assert masks(apply_policy(mistaken(make), policy).trajectories[0]) == [["R2:exit_code"], ["R2:exit_code"], [], []]
    assert POLICIES["all-assistant"].rules["R2"].action == "flag"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"R23": {"action": "drop"}}, "trajectories.rules.R23: unknown rule; did you mean 'R3'? Known: R1, R2"),
        ({"loop": {"action": "drop"}}, "trajectories.rules.loop: unknown rule; known: R1, R2"),
        ({"R14": {"tokens": 5}}, "R14.tokens: unknown threshold; known: action, characters, share, keep_characters"),
        ({"R14": {"charcters": 5000}}, "R14.charcters: unknown threshold; did you mean 'characters'?"),
        ({"R14": {"characters": 10}}, "received 10; allowed: a whole number from 1,000 to 1,000,000,000"),
        ({"R7": {"repeated_ngrams": "many"}}, "received 'many'; allowed: a number from 0 to 1"),
        ({"R7": {"repeated_ngrams": float("nan")}}, "received nan; allowed: a number from 0 to 1"),
        ({"R5": {"drop_repeats": 2.5}}, "received 2.5; allowed: a whole number from 0 to 1,000,000"),
        ({"R2": {"action": "split"}}, "received 'split'; actions of R2 (tool-call error): drop, mask, flag, off"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_with_what_is_allowed(settings: dict[str, dict[str, float | str]], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        configured_policy("nanbeige", settings)
    assert words in str(caught.value)


def test_all_wrong_settings_are_listed_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        configured_policy("nanbeige", {"R99": {}, "R2": {"action": "cut", "limit": 3}})
    assert len(str(caught.value).splitlines()) == 3


def test_options_of_the_command_line() -> None:
    assert parse_rule_options(["R5.action=drop", "R14.characters=50000", "R7=off"]) == {
        "R5": {"action": "drop"}, "R14": {"characters": "50000"}, "R7": {"action": "off"},
    }  # fmt: skip
    for wrong in ("R5", "=drop", "R5.action=", "R5.action"):
        with pytest.raises(RecipeError, match="write it as RULE"):
            parse_rule_options([wrong])
    with pytest.raises(RecipeError, match="given twice"):
        parse_rule_options(["R5=drop", "R5.action=mask"])


def test_a_recipe_spells_actions_short_and_yaml_off_is_off() -> None:
    config = TrajectoriesConfig.model_validate(
        {"rules": {"R7": False, "R1": "drop", "R5": {"action": False, "drop_repeats": 2}}}
    )
    assert config.rules == {
        "R7": {"action": "off"}, "R1": {"action": "drop"}, "R5": {"action": "off", "drop_repeats": 2},
    }  # fmt: skip
    assert configured_policy("nanbeige", config.rules).rules["R7"].action == "off"
