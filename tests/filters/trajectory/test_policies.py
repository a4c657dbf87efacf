"""The four policies, and what holds for every trajectory: texts stay, applying twice changes nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.policies import POLICIES, Policy, apply_policy, find_policy
from filters.trajectory.rules import RULES, with_rules
from schemas.errors import RecipeError
from schemas.trajectory import Message, Outcome, ToolCall, Trajectory


def trained(trajectory: Trajectory) -> list[bool | None]:
    return [message.train for message in trajectory.messages if message.role == "assistant"]


def mixed(make: SimpleNamespace, success: bool | None) -> Trajectory:
    made: Trajectory = make.build(
        make.bash("cat b"),
        make.failed("gone", "exit_code=1"),
        make.bash("cat a"),
        make.fine("x"),
        make.say("x"),
        success=success,
    )
    return made


def test_outcome_only_trains_all_of_a_success_and_drops_failed_and_unknown(make: SimpleNamespace) -> None:
    assert trained(apply_policy(mixed(make, True), "outcome-only").trajectories[0]) == [True, True, True]
    assert apply_policy(mixed(make, False), "outcome-only").reason == "R1:failed"
    assert apply_policy(mixed(make, None), "outcome-only").reason == "R1:unknown_outcome"


def test_last_turn_trains_only_the_last(make: SimpleNamespace) -> None:
    kept = apply_policy(mixed(make, None), "last-turn").trajectories[0]
    assert trained(kept) == [False, False, True]
    assert kept.messages[1].mask_reasons == ["last_turn:earlier_turn"]


def test_all_assistant_trains_mistakes_but_not_other_peoples_words(make: SimpleNamespace) -> None:
    assert trained(apply_policy(mixed(make, None), "all-assistant").trajectories[0]) == [True, True, True]
    demo = make.build(make.say("demo", author="demo"), make.user(), make.say("mine"))
    assert trained(apply_policy(demo, "all-assistant").trajectories[0]) == [False, True]


def test_every_policy_counts_the_same_mistakes(make: SimpleNamespace) -> None:
    for name in POLICIES:
        stats = apply_policy(mixed(make, True), name).trajectories[0].stats
        assert (stats.turns, stats.errors, stats.recoveries) == (3, 1, 1)


def test_a_teachers_label_stays_and_is_not_believed(make: SimpleNamespace) -> None:
    run = make.build(
        make.bash("cat b", label="mistake:wrong_path"),
        make.failed(),
        make.bash("cat a", label="mistake:invented"),
        make.fine(),
        make.say("x"),
    )
    turns = [m for m in apply_policy(run).trajectories[0].messages if m.role == "assistant"]
    assert [turn.label for turn in turns] == ["mistake:wrong_path", "mistake:invented", None]
    assert [turn.train for turn in turns] == [False, True, True]


def test_labels_of_our_own_are_mistake_recovery_and_negative_result(make: SimpleNamespace) -> None:
    run = make.build(
        make.bash("grep x a"),
        make.failed("", "exit_code=1"),
        make.bash("cat b"),
        make.failed("gone", "exit_code=1"),
        make.bash("cat a"),
        make.fine(),
        make.say("x"),
    )
    turns = [m for m in apply_policy(run).trajectories[0].messages if m.role == "assistant"]
    assert [turn.label for turn in turns] == ["negative_result", "mistake", "recovery", None]


def test_findings_name_rule_place_and_signal(make: SimpleNamespace) -> None:
    decision = apply_policy(mixed(make, None))
    assert [(f.rule, f.message, f.call, f.signal) for f in decision.findings] == [
        ("R2", 1, 0, "exit_code=1"),
        ("R9", 3, None, "same_tool"),
    ]


def test_thresholds_and_actions_are_configuration(make: SimpleNamespace) -> None:
    strict = Policy("strict", "drops at any tool error", with_rules(R2="drop"))
    assert apply_policy(mixed(make, None), strict).reason == "R2:exit_code"
    lax = Policy("lax", "does not look at tool errors", with_rules(R2="off"))
    assert trained(apply_policy(mixed(make, None), lax).trajectories[0]) == [True, True, True]
    assert RULES["R2"].action == "mask"


def test_unknown_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError, match=r"no policy is called 'outcome_only'\. Did you mean 'outcome-only'\?"):
        find_policy("outcome_only")
    with pytest.raises(RecipeError, match=r"'zzz'\. Policies: nanbeige, outcome-only, last-turn, all-assistant"):
        find_policy("zzz")


def test_a_split_gives_what_the_model_saw_and_trains_each_turn_once(make: SimpleNamespace) -> None:
    run = make.build(
        Message("system", "be brief"),
        make.user("list"),
        make.bash("ls"),
        make.fine("a"),
        make.bash("cat a"),
        make.fine("x"),
        make.user("summary: a holds x", name="compaction", signal="kept=2"),
        make.say("a holds x"),
    )
    run.messages.pop(0)
    decision = apply_policy(run)
    first, second = decision.trajectories
    assert [m.content for m in first.messages] == ["be brief", "list", "", "a", "", "x"]
    assert [m.content for m in second.messages] == ["be brief", "", "x", "summary: a holds x", "a holds x"]
    assert trained(first) == [True, True]
    assert trained(second) == [False, True]
    assert second.messages[1].mask_reasons == ["R11:author"]
    assert len({run.id, first.id, second.id}) == 3
    assert second.notes == [f"part 2 of 2 of {run.id}, split at compactions"]


CALLS = st.sampled_from(
    [
        ("bash", '{"command": "ls"}'),
        ("bash", '{"command": "cat b"}'),
        ("read", '{"path": "a'),
        ("edit_file", '{"path": "a", "old_string": "x", "new_string": "y"}'),
    ]
)
TEXTS = st.sampled_from(
    [
        "",
        "ok",
        "Error: no",
        "Traceback (most recent call last):\nKeyError: 1",
        "=== 1 failed in 0.1s ===",
        "done, all fixed",
    ]
)


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    made: list[Message] = [Message("user", "go")]
    for number in range(draw(st.integers(0, 9))):
        kind = draw(st.integers(0, 5))
        if kind == 0:
            made.append(Message("user", draw(TEXTS), name=draw(st.sampled_from([None, "compaction", "observation"]))))
        elif kind == 1:
            stop, author = draw(st.sampled_from([None, "length"])), draw(st.sampled_from([None, "demo"]))
            train = draw(st.sampled_from([None, False, True]))
            made.append(Message("assistant", draw(TEXTS), stop=stop, author=author, train=train))
        else:
            name, arguments = draw(CALLS)
            copies = draw(st.integers(1, 2))
            calls = [ToolCall(f"{number}.{copy}", name, arguments) for copy in range(copies)]
            made.append(Message("assistant", draw(TEXTS), tool_calls=calls))
            for call in calls[: draw(st.integers(0, copies))]:
                error = draw(st.sampled_from([None, True, False]))
                signal = draw(st.sampled_from([None, "exit_code=1", "tests_unfixed"])) if error is not None else None
                made.append(Message("tool", draw(TEXTS), tool_call_id=call.id, error=error, signal=signal))
    return made


def words(message: Message) -> tuple[object, ...]:
    """All that a message says, without its marks."""
    return message.role, message.content, message.reasoning, [(c.name, c.arguments) for c in message.tool_calls]


@given(messages(), st.sampled_from(sorted(POLICIES)), st.sampled_from([None, True, False]))
def test_texts_stay_and_a_second_application_changes_nothing(
    made: list[Message], policy: str, success: bool | None
) -> None:
    run = Trajectory("a" * 32, "test", "recorded", made, outcome=Outcome(success))
    before = repr(run)
    decision = apply_policy(run, policy)
    assert repr(run) == before
    every = [*decision.trajectories, *(piece for piece, _ in decision.dropped)]
    assert every
    said = [words(message) for message in made]
    for piece in every:
        assert all(words(message) in said for message in piece.messages)
    for piece in decision.trajectories:
        again = apply_policy(piece, policy)
        assert again.trajectories == [piece]
        assert again.dropped == []
        for message in piece.messages:
            if message.role == "assistant":
                assert message.train is (not message.mask_reasons)
            else:
                assert message.train is False
        assert any(trained(piece))
