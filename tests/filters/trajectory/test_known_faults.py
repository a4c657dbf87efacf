"""Faults that users of other tools reported about trajectories, each as a case."""

from __future__ import annotations

import json
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.detectors import detect
from filters.trajectory.policies import apply_policy
from schemas.trajectory import Message, Trajectory


def same(make: SimpleNamespace, replies: list[str]) -> list[Message]:
    return [x for reply in replies for x in (make.bash("status"), make.fine(reply))]


def test_a_third_call_after_two_equal_replies_drops_the_run(make: SimpleNamespace) -> None:
    assert apply_policy(make.build(*same(make, ["x", "x", "x"]), make.say("hm"))).reason == "R6:third_call"
    assert apply_policy(make.build(*same(make, ["x", "x"]), make.bash("status"))).reason == "R6:third_call"


def test_different_replies_parallel_copies_and_an_open_end_are_kept(make: SimpleNamespace) -> None:
    assert apply_policy(make.build(*same(make, ["x", "y", "z"]), make.say("ok"))).kept
    batch = make.build(make.calls([("bash", {"command": "status"})] * 3), *[make.fine("x")] * 3, make.say("ok"))
    assert apply_policy(batch).kept
    assert apply_policy(make.build(*same(make, ["x"]), make.bash("ls"))).kept


def test_runs_without_a_final_answer_are_flagged_so_their_share_can_be_counted(make: SimpleNamespace) -> None:
    kept = apply_policy(make.build(make.bash("ls"), make.fine())).trajectories[0]
    assert kept.flags == ["truncated"]
    signals = [f.signal for f in detect(make.build(make.bash("ls"), make.fine())).findings]
    assert signals == ["no_final_answer"]


def test_unknown_tool_wrong_argument_and_missing_finish_are_found_with_their_places(make: SimpleNamespace) -> None:
    tools = json.dumps([make.tool("read", {"path": {"type": "string"}}, ["path"]), make.tool("finish")])
    run = make.build(
        *(make.call("reed", {"path": "a"}), make.fine()),
        *(make.call("read", {"path": "a", "lines": 3}), make.failed()),
        *(make.call("read", {"file": "a"}), make.fine()),
        make.say("a"),
        tools=tools,
    )
    found = {(f.rule, f.message, f.signal) for f in detect(run).findings if f.rule in ("R4", "R8")}
    assert found == {
        ("R4", 1, "unknown_tool"),
        ("R4", 3, "unknown_argument"),
        ("R4", 5, "schema"),
        ("R8", None, "no_finish"),
    }


def test_empty_content_several_replies_and_two_assistant_turns_in_a_row_are_accepted(make: SimpleNamespace) -> None:
    run = make.build(
        make.calls([("bash", {"command": "ls"}), ("bash", {"command": "pwd"})]),
        make.fine("a"),
        make.fine("/"),
        make.say("first"),
        make.say("second"),
    )
    kept = apply_policy(run).trajectories[0]
    assert [m.train for m in kept.messages if m.role == "assistant"] == [True, True, True]
    assert kept.flags == []


def test_a_success_whose_last_test_run_failed_is_flagged(make: SimpleNamespace) -> None:
    red = make.failed("=== 1 failed in 0.1s ===", "exit_code=1")
    run = make.build(make.bash("pytest"), red, make.say("ok"), success=True)
    assert apply_policy(run).trajectories[0].flags == ["R1:outcome_mismatch"]


def test_two_hundred_equal_calls_in_a_step_are_flagged_and_not_trained(make: SimpleNamespace) -> None:
    run = make.build(
        make.bash("pwd"),
        make.fine("/"),
        make.calls([("bash", {"command": "ls"})] * 200),
        *[make.fine("a") for _ in range(200)],
        make.say("ok"),
    )
    kept = apply_policy(run).trajectories[0]
    turns = [m for m in kept.messages if m.role == "assistant"]
    assert [turn.mask_reasons for turn in turns] == [[], ["R5:copies_in_turn"], []]
    assert kept.flags == ["R5:copies_in_turn"]


@given(st.permutations(range(7)), st.sets(st.integers(0, 6)))
def test_a_mask_follows_its_message_when_messages_move_or_go(order: list[int], gone: set[int]) -> None:
    messages = [Message("user", "go")]
    for number in range(3):
        messages.append(Message("assistant", f"turn {number}", author="demo" if number == 1 else None))
        messages.append(Message("user", f"reply {number}"))
    kept = apply_policy(Trajectory("a" * 32, "test", "recorded", messages)).trajectories[0]
    kept.messages = [kept.messages[index] for index in order if index not in gone]
    back = Trajectory.from_row(kept.to_row())
    for message in back.messages:
        assert message.train is (message.content in ("turn 0", "turn 2"))
        assert message.mask_reasons == (["R11:author"] if message.content == "turn 1" else [])


def test_a_million_characters_of_observation_do_not_hide_or_invent_an_error(make: SimpleNamespace) -> None:
    quiet = "all is well here, no complaint at all\n" * 27_000
    run = make.build(make.bash("cat a"), make.result(quiet), make.bash("cat b"), make.result(quiet + "KeyError: 'x'"))
    findings = [(f.message, f.signal) for f in detect(run).findings if f.rule == "R2"]
    assert findings == [(3, "text_traceback")]
