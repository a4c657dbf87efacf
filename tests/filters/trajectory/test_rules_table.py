"""One table: what the nanbeige policy does, rule by rule, in keep, mask, drop, split and flag cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from filters.trajectory.policies import apply_policy
from schemas.trajectory import Trajectory

TRAINED: list[str] = []
PYTEST_RED = "=== 1 failed, 3 passed in 0.12s ==="
PYTEST_GREEN = "=== 4 passed in 0.10s ==="
ECHO = "the same sentence over and over again and it never ends " * 40
TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "mode": {"enum": ["text", "bytes"]}}, "required": ["path"]}}},
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """`masks` are the reasons of each assistant turn, in order ([] means trained); `reason` of a dropped run."""

    name: str
    build: Callable[[SimpleNamespace], Trajectory]
    masks: list[list[str]] = field(default_factory=list)
    reason: str = ""
    flags: tuple[str, ...] = ()
    pieces: int = 1


def repeat(m: SimpleNamespace, times: int) -> list[object]:
    return [x for _ in range(times) for x in (m.bash("cat a"), m.failed("cat: a: gone", "exit_code=1"))]


CASES = [
    Case(
        "R1 keeps a failed run and flags it",
        lambda m: m.build(m.bash("ls"), m.fine("a"), m.say("There is a."), success=False),
        [TRAINED, ["R19:ended_unsolved"]],
        flags=("R19:ended_unsolved", "failed"),
    ),
    Case(
        "R19 masks a wrong answer that was given without any action",
        lambda m: m.build(m.say("The answer is 7."), success=False),
        reason="R22:nothing_to_train",
    ),
    Case(
        "R2 masks the failed call by its exit code and trains what follows",
        lambda m: m.build(
            m.bash("cat b"), m.failed("cat: b: gone", "exit_code=1"), m.bash("cat a"), m.fine(), m.say("ok")
        ),
        [["R2:exit_code"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R2 masks by text when the structure is silent",
        lambda m: m.build(
            m.bash("cat b"), m.result("cat: b: No such file or directory"), m.bash("ls"), m.result("a"), m.say("a")
        ),
        [["R2:text_errno"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R2 keeps what the structure calls fine although the text says error",
        lambda m: m.build(m.bash("cat log"), m.fine("ERROR 1045 (28000): denied"), m.say("The log shows a refusal.")),
        [TRAINED, TRAINED],
    ),
    Case(
        "R3 masks arguments that are not JSON",
        lambda m: m.build(
            m.call("read", '{"path": "a'),
            m.failed("?", "malformed_arguments"),
            m.call("read", {"path": "a"}),
            m.fine(),
            m.say("ok"),
        ),
        [["R3:malformed_arguments"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R3 keeps arguments that were encoded twice",
        lambda m: m.build(m.call("read", json.dumps(json.dumps({"path": "a"}))), m.fine(), m.say("ok")),
        [TRAINED, TRAINED],
    ),
    Case(
        "R3 masks a call whose tag was never closed",
        lambda m: m.build(m.bash("ls"), m.fine(), m.say('<tool_call>\n{"name": "read"'), m.user("go on"), m.say("ok")),
        [TRAINED, ["R3:open_tag"], TRAINED],
    ),
    Case(
        "R3 masks what the harness could not parse",
        lambda m: m.build(
            m.bash("ls"),
            m.fine(),
            m.say("I will read it"),
            m.user("Please always provide EXACTLY ONE action in triple backticks, found 0 actions."),
            m.bash("cat a"),
            m.fine(),
            m.say("ok"),
        ),
        [TRAINED, ["R3:parse_feedback"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R3 drops a run that ends on a malformed call",
        lambda m: m.build(m.bash("ls"), m.fine(), m.call("bash", '{"command": "ca')),
        reason="R3:ends_arguments_not_json",
    ),
    Case(
        "R4 masks an unknown tool",
        lambda m: m.build(
            m.call("open", {"path": "a"}),
            m.failed("no such tool", "unknown_tool"),
            m.call("read", {"path": "a"}),
            m.fine(),
            m.say("ok"),
            tools=TOOLS,
        ),
        [["R4:unknown_tool"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R4 masks a missing argument and an enum breach, although the tool answered",
        lambda m: m.build(
            m.call("read", {}),
            m.fine(),
            m.call("read", {"path": "a", "mode": "x"}),
            m.fine(),
            m.call("read", {"path": "a"}),
            m.fine(),
            m.say("ok"),
            tools=TOOLS,
        ),
        [["R4:schema"], ["R4:schema"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R4 keeps calls when no tools are defined",
        lambda m: m.build(m.call("anything", {"x": 1}), m.fine(), m.say("ok")),
        [TRAINED, TRAINED],
    ),
    Case(
        "R5 masks the repeat with both reasons",
        lambda m: m.build(*repeat(m, 2), m.bash("ls"), m.fine(), m.say("ok")),
        [["R2:exit_code"], ["R2:exit_code", "R5:same_call_failed_before"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R5 keeps a repeat after a change of state that works",
        lambda m: m.build(
            m.bash("cat a"),
            m.failed("gone", "exit_code=1"),
            m.bash("touch a"),
            m.fine(""),
            m.bash("cat a"),
            m.fine(""),
            m.say("ok"),
        ),
        [["R2:exit_code"], TRAINED, TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R5 drops at the third repeat of one mistake",
        lambda m: m.build(*repeat(m, 4), m.bash("ls"), m.fine(), m.say("ok")),
        reason="R5:repeats",
    ),
    Case(
        "R6 masks a loop that is left",
        lambda m: m.build(
            *[x for _ in range(4) for x in (m.bash("cat a"), m.fine("same"))], m.bash("ls"), m.fine("b"), m.say("ok")
        ),
        [TRAINED, *[["R6:equal_pairs"]] * 3, TRAINED, TRAINED],
        flags=("R6:equal_pairs",),
    ),
    Case(
        "R6 drops a third equal call after two equal replies",
        lambda m: m.build(*[x for _ in range(3) for x in (m.bash("cat a"), m.fine("same"))], m.say("I am stuck")),
        reason="R6:third_call",
    ),
    Case(
        "R6 cuts an alternation that leads nowhere",
        lambda m: m.build(
            *[x for _ in range(3) for x in (m.bash("cat a"), m.fine("A"), m.bash("cat b"), m.fine("B"))], m.say("stuck")
        ),
        [TRAINED, TRAINED],
        flags=("cut:R6:alternating", "truncated"),
    ),
    Case(
        "R6 keeps equal calls with different replies",
        lambda m: m.build(*[x for n in range(3) for x in (m.bash("date"), m.fine(f"12:0{n}"))], m.say("ok")),
        [TRAINED] * 4,
    ),
    Case(
        "R7 masks a turn that repeats itself",
        lambda m: m.build(m.say(ECHO), m.user("and?"), m.say("ok")),
        [["R7:compression"], TRAINED],
    ),
    Case(
        "R7 masks a monologue after its first turn",
        lambda m: m.build(m.say("one"), m.say("two"), m.say("three"), m.user("and?"), m.say("four")),
        [TRAINED, ["R7:monologue"], ["R7:monologue"], TRAINED],
    ),
    Case(
        "R7 keeps two turns in a row",
        lambda m: m.build(m.say("one"), m.say("two")),
        [TRAINED, TRAINED],
    ),
    Case(
        "R8 masks a turn cut by the token limit and flags the run",
        lambda m: m.build(m.say("a long ans", stop="length"), m.user("go on"), m.say("ok")),
        [["R8:stop"], TRAINED],
        flags=("truncated",),
    ),
    Case(
        "R8 masks last calls without a result",
        lambda m: m.build(m.bash("ls"), m.fine(), m.bash("cat a")),
        [TRAINED, ["R8:dangling_call"]],
        flags=("truncated",),
    ),
    Case(
        "R8 keeps calls of a row in which nothing was ever executed",
        lambda m: m.build(m.bash("ls")),
        [TRAINED],
        flags=("unexecuted_calls",),
    ),
    Case(
        "R8 keeps a last call that ends the run",
        lambda m: m.build(m.bash("ls"), m.fine(), m.call("submit", {})),
        [TRAINED, TRAINED],
    ),
    Case(
        "R9 trains a recovery on the same file with another tool",
        lambda m: m.build(
            m.edit("a.py", "x", "y"),
            m.failed("no match", "no_match"),
            m.bash("cat a.py"),
            m.fine("z"),
            m.edit("a.py", "z", "y"),
            m.fine(),
            m.say("ok"),
        ),
        [["R13:no_match"], TRAINED, TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R9 finds the recovery of an unknown tool by equal arguments",
        lambda m: m.build(m.call("ls"), m.failed("no", "unknown_tool"), m.call("list_files"), m.fine("a"), m.say("a")),
        [["R4:unknown_tool"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R10 masks all after a mistake that a failed run never mends",
        lambda m: m.build(m.bash("ls"), m.fine(), m.call("fly", {}), m.failed(), m.say("I give up"), success=False),
        [TRAINED, ["R2:exit_code"], ["R19:ended_unsolved", "R10:unrecovered"]],
        flags=("R19:ended_unsolved", "failed"),
    ),
    Case(
        "R11 masks words that are not the model's",
        lambda m: m.build(m.say("a demonstration", author="demo"), m.user("now you"), m.say("ok")),
        [["R11:author"], TRAINED],
    ),
    Case(
        "R11 keeps to the source's own mask",
        lambda m: m.build(m.say("skip me", train=False), m.user("go on"), m.say("ok", train=True)),
        [["R11:source_mask"], TRAINED],
    ),
    Case(
        "R12 trains a grep without a hit",
        lambda m: m.build(m.bash("grep -rn foo src"), m.failed("", "exit_code=1"), m.say("foo is nowhere")),
        [TRAINED, TRAINED],
    ),
    Case(
        "R12 trains a failing test run",
        lambda m: m.build(
            m.bash("python -m pytest -q"),
            m.failed(PYTEST_RED, "exit_code=1"),
            m.edit("a.py", "x", "y"),
            m.fine(),
            m.bash("python -m pytest -q"),
            m.fine(PYTEST_GREEN),
            m.say("ok"),
        ),
        [TRAINED] * 4,
    ),
    Case(
        "R12 does not excuse a grep that was called wrongly",
        lambda m: m.build(
            m.bash("grep -rn --foo src"),
            m.failed("grep: unrecognized option '--foo'", "exit_code=2"),
            m.bash("grep -rn foo src"),
            m.fine("a: foo"),
            m.say("ok"),
        ),
        [["R2:exit_code"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R13 masks an edit that was refused",
        lambda m: m.build(
            m.edit("a.py", "x", "y"),
            m.result("No replacement was performed, old_str did not appear verbatim"),
            m.edit("a.py", "z", "y"),
            m.result("The file a.py has been edited."),
            m.say("ok"),
        ),
        [["R13:text_edit"], TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R13 masks an edit that a later one had to redo before the tests passed",
        lambda m: m.build(
            m.edit("a.py", "return a", "return a - b"),
            m.fine(),
            m.bash("pytest"),
            m.failed(PYTEST_RED, "exit_code=1"),
            m.edit("a.py", "return a - b", "return a + b"),
            m.fine(),
            m.bash("pytest"),
            m.fine(PYTEST_GREEN),
            m.say("ok"),
        ),
        [["R13:edit_redone"], TRAINED, TRAINED, TRAINED, TRAINED],
        flags=("recovery",),
    ),
    Case(
        "R13 masks the last edit when the environment says that tests fail as before",
        lambda m: m.build(
            m.edit("a.py", "q", "r"),
            m.fine(),
            m.call("run_tests"),
            m.result("2 failed", False, "tests_unfixed"),
            m.edit("a.py", "s", "t"),
            m.fine(),
            m.call("run_tests"),
            m.result("1 failed", False, "tests_failed"),
            m.edit("b.py", "u", "v"),
            m.fine(),
            m.call("run_tests"),
            m.result("passed", False, "tests_passed"),
            m.say("ok"),
        ),
        [["R13:tests_unfixed"], *[TRAINED] * 6],
        flags=("recovery",),
    ),
    Case(
        "R14 cuts and flags an observation bomb and keeps the run",
        lambda m: m.build(m.bash("cat big"), m.fine("x y z\n" * 50_000), m.say("ok")),
        [TRAINED, TRAINED],
        flags=("R14:characters",),
    ),
    Case(
        "R15 splits at a compaction",
        lambda m: m.build(m.bash("ls"), m.fine(), m.user("summary: we listed", name="compaction"), m.say("ok")),
        [TRAINED],
        flags=("split:R15", "truncated"),
        pieces=2,
    ),
    Case(
        "R17 flags a benchmark's instance id",
        lambda m: m.build(m.say("ok"), task_id="django__django-11099"),
        [TRAINED],
        flags=("benchmark:swe-bench",),
    ),
    Case(
        "R17 flags a look at later commits",
        lambda m: m.build(m.bash("git log --all --oneline"), m.fine("abc fix"), m.say("ok")),
        [TRAINED, TRAINED],
        flags=("solution_lookup",),
    ),
    Case(
        "R18 flags a result that answers nothing",
        lambda m: m.build(m.bash("ls"), m.fine(), m.fine("who asked?"), m.say("ok")),
        [TRAINED, TRAINED],
        flags=("R18:orphan_result",),
    ),
    Case(
        "R19 masks a claim that the outcome refutes",
        lambda m: m.build(m.bash("ls"), m.fine(), m.say("All tests pass and the bug is fixed."), success=False),
        [TRAINED, ["R19:claim_refuted"]],
        flags=("R19:claim_refuted", "failed"),
    ),
    Case(
        "R19 keeps the same claim of a run that succeeded",
        lambda m: m.build(m.bash("ls"), m.fine(), m.say("All tests pass and the bug is fixed."), success=True),
        [TRAINED, TRAINED],
    ),
    Case(
        "R21 flags an easy task that took long",
        lambda m: m.build(
            *[x for n in range(61) for x in (m.bash(f"cat {n}"), m.fine(str(n)))], m.say("ok"), difficulty=1.0
        ),
        [TRAINED] * 62,
        flags=("R21:easy_and_long",),
    ),
    Case(
        "R22 drops what has nothing left to train",
        lambda m: m.build(m.bash("cat b"), m.failed(), m.say("", stop="aborted")),
        reason="R22:nothing_to_train",
    ),
    Case(
        "R22 drops a run without assistant turns",
        lambda m: m.build(m.user("hello?")),
        reason="R22:nothing_to_train",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_nanbeige(case: Case, make: SimpleNamespace) -> None:
    decision = apply_policy(case.build(make))
    assert decision.reason == case.reason
    assert decision.kept is (case.reason == "")
    if case.reason:
        assert decision.trajectories == []
        assert decision.dropped[0][0].flags[-1] == f"dropped:{case.reason}"
        return
    assert len(decision.trajectories) == case.pieces
    kept = decision.trajectories[0]
    turns = [message for message in kept.messages if message.role == "assistant"]
    assert [turn.mask_reasons for turn in turns] == case.masks
    assert [turn.train for turn in turns] == [not reasons for reasons in case.masks]
    assert tuple(kept.flags) == case.flags
    assert all(m.train is False and m.mask_reasons == [] for m in kept.messages if m.role != "assistant")


def test_every_rule_is_in_the_table_or_has_its_own_tests() -> None:
    elsewhere = {"R16", "R20"}  # test_masks_step, test_redact
    assert {case.name.split()[0] for case in CASES} | elsewhere == {f"R{n}" for n in range(1, 23)}
