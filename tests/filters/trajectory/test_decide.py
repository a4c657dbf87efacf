"""One record at a time: redaction, rules, and a record that breaks a detector."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from filters.trajectory import policies
from filters.trajectory.configure import configured_policy
from filters.trajectory.decide import decide
from filters.trajectory.leaks import prompt_finding, prompt_text
from filters.trajectory.policies import POLICIES


def test_recorded_runs_are_redacted_unless_the_rule_is_off_or_texts_are_compared(make: SimpleNamespace) -> None:
    run = make.build(make.bash("cat a"), make.fine("mail ann.other@somewhere.de"), make.say("There is a mail."))
    made = decide(run, POLICIES["nanbeige"])
    assert made.redacted == {"EMAIL": 1}
    assert made.decision.trajectories[0].messages[2].content == "mail <EMAIL_1>"
    off = configured_policy("nanbeige", {"R20": {"action": "off"}})
    for one in (decide(run, off), decide(run, POLICIES["nanbeige"], redact=False)):
        assert one.redacted == {}
        assert one.decision.trajectories[0].messages[2].content == "mail ann.other@somewhere.de"


def test_a_detector_that_raises_sets_the_record_aside_with_the_reason(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no turns at all")

    monkeypatch.setattr(policies, "detect", broken)
    run = make.build(make.say("hello"))
    made = decide(run, POLICIES["nanbeige"])
    assert isinstance(made.failure, ZeroDivisionError)
    assert (made.decision.kept, made.decision.reason) == (False, "unjudged:ZeroDivisionError")
    ((dropped, reason),) = made.decision.dropped
    assert reason == "unjudged:ZeroDivisionError"
    assert dropped.flags == ["dropped:unjudged:ZeroDivisionError"]
    assert dropped.notes == ["no rule could be applied: ZeroDivisionError: no turns at all"]
    assert dropped.messages == run.messages


def test_a_prompt_of_a_benchmark_file_drops_unless_told_otherwise(make: SimpleNamespace) -> None:
    run = make.build(make.user("What is it?"), make.say("This."))
    known = [prompt_finding("data/exam.jsonl", "data/exam.jsonl#3:question", "What is it?")]
    assert decide(run, POLICIES["nanbeige"], known).decision.reason == "R17:prompt"
    flagged = configured_policy("nanbeige", {"R17": {"drop_prompts": 0}})
    assert decide(run, flagged, known).decision.trajectories[0].flags == ["benchmark:exam.jsonl"]
    off = configured_policy("nanbeige", {"R17": {"action": "off"}})
    assert decide(run, off, known).decision.trajectories[0].flags == []


def test_the_prompt_is_the_instruction_and_what_users_said(make: SimpleNamespace) -> None:
    run = make.build(make.user("Do it."), make.bash("ls"), make.result("a.py"), make.user("Now this."), make.say("ok"))
    run.task.instruction = "Do it."
    assert prompt_text(run) == "Do it.\n\nNow this."


def test_an_easy_long_run_weighs_what_the_rule_says(make: SimpleNamespace) -> None:
    run = make.build(make.bash("ls"), make.fine("a"), make.bash("cat b"), make.failed(), make.say("ok"), difficulty=1)
    light = configured_policy("nanbeige", {"R21": {"long_turns": 2, "weight": 0.5}})
    kept = decide(run, light).decision.trajectories[0]
    assert [(m.train, m.weight) for m in kept.messages if m.role == "assistant"] == [
        (True, 0.5), (False, None), (True, 0.5),
    ]  # fmt: skip
    assert all(m.weight is None for m in decide(run, POLICIES["nanbeige"]).decision.trajectories[0].messages)
