"""The same mistake twice (R5) and loops (R6): every definition at its threshold and one below."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.calls import call_key, is_read_only
from filters.trajectory.detectors import copies_in_a_turn, find_loops, judgements, repeated_mistakes, view_of
from filters.trajectory.repeats import Loop
from schemas.trajectory import ToolCall, Trajectory


def loops(trajectory: Trajectory) -> list[Loop]:
    view = view_of(trajectory)
    return find_loops(view, judgements(view))


def repeats(trajectory: Trajectory) -> list[tuple[int | None, int | None, str]]:
    view = view_of(trajectory)
    return [(f.message, f.call, f.detail) for f in repeated_mistakes(view, judgements(view))]


def test_four_equal_pairs_are_a_loop_and_three_with_a_third_reply_are_a_third_call(make: SimpleNamespace) -> None:
    pair = lambda: (make.bash("cat a"), make.fine("same"))  # noqa: E731
    four = make.build(*pair(), *pair(), *pair(), *pair())
    assert loops(four) == [Loop("equal_pairs", 1, (3, 5, 7), 7)]
    three = make.build(*pair(), *pair(), make.bash("cat a"), make.fine("other"))
    assert loops(three) == [Loop("third_call", 1, (3, 5), 5)]
    two = make.build(*pair(), *pair(), make.bash("cat b"), make.fine("same"))
    assert loops(two) == []


def test_three_equal_failing_calls_are_a_loop_whatever_the_replies(make: SimpleNamespace) -> None:
    run = make.build(*[x for n in range(3) for x in (make.bash("cat a"), make.failed(f"try {n}"))])
    assert [loop.signal for loop in loops(run)] == ["equal_errors"]


def test_alternation_needs_six_turns(make: SimpleNamespace) -> None:
    turn = lambda name: (make.bash(f"cat {name}"), make.fine(name))  # noqa: E731
    six = make.build(*[x for name in "ababab" for x in turn(name)])
    assert loops(six) == [Loop("alternating", 1, (5, 7, 9, 11), 11)]
    assert loops(make.build(*[x for name in "ababa" for x in turn(name)])) == []


def test_copies_in_one_turn_are_one_action(make: SimpleNamespace) -> None:
    run = make.build(make.calls([("bash", {"command": "ls"})] * 3), make.fine(), make.fine(), make.fine())
    assert loops(run) == []
    assert repeats(run) == []


def test_key_order_and_blanks_do_not_make_a_call_another(make: SimpleNamespace) -> None:
    run = make.build(
        make.call("read", '{"path": "a", "limit": 3}'),
        make.failed(),
        make.call("read", '{"limit":3,"path":" a "}'),
        make.failed(),
    )
    assert repeats(run) == [(3, 0, "message 1")]


def test_every_repeat_of_a_failed_call_is_found_and_a_retry_that_works_is_not(make: SimpleNamespace) -> None:
    run = make.build(
        *(make.bash("ping x"), make.failed("timeout", "timeout")),
        *(make.bash("ls"), make.fine("a")),
        *(make.bash("ping x"), make.failed("timeout", "timeout")),
        *(make.bash("ping x"), make.fine("pong")),
        *(make.bash("ping x"), make.failed("timeout", "timeout")),
    )
    assert [message for message, _, _ in repeats(run)] == [5]


def test_parallel_copies_of_a_repeat_count_once(make: SimpleNamespace) -> None:
    run = make.build(
        make.bash("cat a"),
        make.failed(),
        make.calls([("bash", {"command": "cat a"})] * 2),
        make.failed(),
        make.failed(),
    )
    assert repeats(run) == [(3, 0, "message 1")]


def test_copies_in_a_turn_are_counted_over_the_limit(make: SimpleNamespace) -> None:
    run = make.build(make.calls([("read", {"path": "a"})] * 4 + [("read", {"path": "b"})]))
    assert [(f.message, f.signal) for f in copies_in_a_turn(view_of(run), 3)] == [(1, "copies_in_turn=4")]
    assert copies_in_a_turn(view_of(run), 4) == []


@pytest.mark.parametrize(
    ("name", "arguments", "quiet"),
    [
        ("bash", '{"command": "cat a | grep b > /dev/null 2>&1"}', True),
        ("bash", '{"command": "cat a > b"}', False),
        ("bash", '{"command": "sed -n 1,3p a"}', True),
        ("bash", '{"command": "sed -i s/a/b/ a"}', False),
        ("bash", '{"command": "git status && git diff"}', True),
        ("bash", '{"command": "git checkout a"}', False),
        ("bash", '{"command": "python -m pytest -q"}', True),
        ("bash", '{"command": "pip install x"}', False),
        ("sql", '{"query": "  select 1"}', True),
        ("sql", '{"query": "DROP TABLE x"}', False),
        ("read_file", '{"path": "a"}', True),
        ("getUserDetails", '{"id": "a"}', True),
        ("str_replace_editor", '{"command": "view", "path": "a"}', True),
        ("str_replace_editor", '{"command": "str_replace", "path": "a"}', False),
        ("book_flight", '{"id": 3}', False),
    ],
)
def test_what_leaves_the_world_as_it_was(name: str, arguments: str, quiet: bool) -> None:
    assert is_read_only(ToolCall("1", name, arguments)) is quiet


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.integers() | st.none(), max_size=4))
def test_a_call_equals_itself_with_its_keys_in_another_order(arguments: dict[str, Any]) -> None:
    import json

    forward = json.dumps(arguments)
    backward = json.dumps(dict(reversed(arguments.items())), indent=2)
    assert call_key(ToolCall("1", "t", forward)) == call_key(ToolCall("2", "t", backward))
