"""R14: the middle of an oversized observation is cut, said and counted; nothing else is."""

from __future__ import annotations

import re
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.configure import configured_policy
from filters.trajectory.observations import cut_middle
from filters.trajectory.policies import apply_policy

MILLION = "".join(f"line {number}\n" for number in range(90_000))[:1_000_000].ljust(1_000_000, "x")


def test_a_million_characters_become_twenty_thousand_with_start_end_and_marker(make: SimpleNamespace) -> None:
    big = make.fine(MILLION)
    run = make.build(make.bash("cat log"), big, make.say("It is long."))
    decision = apply_policy(run)
    kept = decision.trajectories[0]
    text = kept.messages[2].content
    said = re.search(r"\n\[\.\.\. (\d+) of (\d+) characters cut here, xxh3 [0-9a-f]{16} \.\.\.\]\n", text)
    assert said is not None
    gone = int(said[1])
    assert text[: said.start()] == MILLION[: said.start()]
    assert text[said.end() :] == MILLION[said.start() + gone :]
    assert len(text) <= 20_000
    assert int(said[2]) == 1_000_000
    assert decision.cut == [gone]
    assert kept.notes == [f"R14: message 2: {gone} of 1000000 characters cut"]
    assert kept.flags == ["R14:characters"]
    assert kept.messages[1].tool_calls == run.messages[1].tool_calls
    assert run.messages[2].content == MILLION
    again = apply_policy(kept)
    assert again.trajectories == [kept]
    assert again.cut == []


def test_what_a_person_wrote_and_what_the_model_wrote_is_never_cut(make: SimpleNamespace) -> None:
    run = make.build(make.user("read this"), make.say("go on"), make.user(MILLION), make.say(MILLION[:300_000]))
    decision = apply_policy(run)
    assert [m.content for m in decision.trajectories[0].messages] == [m.content for m in run.messages]
    assert decision.cut == []
    assert "R14:characters" in decision.trajectories[0].flags


def test_off_and_flag_leave_the_observation(make: SimpleNamespace) -> None:
    run = make.build(make.bash("cat log"), make.fine(MILLION), make.say("It is long."))
    for action, flags in (("flag", ["R14:characters"]), ("off", [])):
        kept = apply_policy(run, configured_policy("nanbeige", {"R14": {"action": action}})).trajectories[0]
        assert (kept.messages[2].content == MILLION, kept.flags) == (True, flags)


def test_a_dropped_run_keeps_its_observations(make: SimpleNamespace) -> None:
    run = make.build(make.bash("cat log"), make.fine(MILLION), make.call("bash", '{"command": "ca'))
    decision = apply_policy(run)
    assert not decision.kept
    assert decision.dropped[0][0].messages[2].content == MILLION


@given(st.integers(10_000, 12_000), st.integers(0, 30_000), st.text(max_size=20))
def test_a_cut_text_fits_and_stays_as_it_is(keep: int, length: int, head: str) -> None:
    text = head + "é" * length
    cut, gone = cut_middle(text, keep)
    assert len(cut) <= keep
    assert (gone == 0) is (len(text) <= keep)
    assert cut_middle(cut, keep) == (cut, 0)


def test_texts_that_differ_only_in_what_went_still_differ() -> None:
    one, other = ("a" * 20_000 + middle + "b" * 20_000 for middle in "xy")
    assert cut_middle(one, 10_000)[0] != cut_middle(other, 10_000)[0]
