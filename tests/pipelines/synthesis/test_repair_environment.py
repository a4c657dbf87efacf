"""The repair family: tasks are real and provable, tools do what they say, verdicts rest on running the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filters.trajectory.judge import judgements
from filters.trajectory.view import view_of
from pipelines.synthesis.environments.base import TaskSpec, ToolResult, family_names, open_environment
from pipelines.synthesis.environments.functions import (
    PoolModule,
    Source,
    open_probe_sandbox,
    probe_source,
    read_pool,
    split_of,
    write_pool,
)
from pipelines.synthesis.environments.repair import RepairEnvironment, mutated_text, path_of_tests
from pipelines.synthesis.environments.repair_tasks import FileSpec, target_tokens
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import rollout
from schemas.errors import InputError, UsageError
from schemas.trajectory import Message, ToolCall

ROMAN = '''"""Roman numerals."""


def to_roman(number):
    """Write a number in Roman numerals.

    >>> to_roman(4)
    'IV'
    """
    if number < 1:
        raise ValueError("no numeral")
    digits = [(10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    text = ""
    for value, letter in digits:
        while number >= value:
            text += letter
            number -= value
    return text


def word_lengths(text, least=1):
    """Lengths of the words of a text."""
    lengths = []
    for word in text.split():
        if len(word) >= least:
            lengths.append(len(word))
    return lengths
'''
CHUNKS = '''"""Cutting sequences."""


def chunks(items, n):
    """Cut items into lists of n."""
    if n <= 0:
        raise ValueError("n must be positive")
    found = []
    for start in range(0, len(items), n):
        found.append(items[start : start + n])
    return found


def running_total(values):
    """Sums of all prefixes."""
    total = 0
    sums = []
    for value in values:
        total += value
        sums.append(total)
    return sums
'''


def variants(count: int) -> Iterator[Source]:
    """Many modules with other names, so that both splits of the pool have some."""
    for number in range(count):
        for name, text in (("roman", ROMAN), ("chunks", CHUNKS)):
            yield Source(text.replace('"""', f'"""Part {number}. ', 1), f"pkg/{name}_{number}.py", "MIT")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pool") / "pool.jsonl"
    with open_probe_sandbox() as sandbox:
        workspace = sandbox.workspace()
        found = [probe_source(source, sandbox, workspace) for source in variants(8)]
    modules = [module for module in found if isinstance(module, PoolModule)]
    assert len(modules) == 16
    assert {split_of(module) for module in modules} == {"train", "heldout"}
    write_pool(path, modules)
    return path


@pytest.fixture(scope="module")
def environment(pool: Path) -> Iterator[RepairEnvironment]:
    with open_environment("repair", pool_path=pool) as opened:
        assert isinstance(opened, RepairEnvironment)
        yield opened


def call(environment: RepairEnvironment, name: str, **arguments: Any) -> ToolResult:
    return environment.invoke(ToolCall("c", name, json.dumps(arguments)))


def first_file(task: TaskSpec) -> FileSpec:
    return FileSpec.from_data(task.data["files"][0])


def mend(environment: RepairEnvironment, task: TaskSpec) -> None:
    """Put the original files back through the tools."""
    for raw in task.data["files"]:
        spec = FileSpec.from_data(raw)
        source = environment.source_of(spec)
        broken = mutated_text(source, spec)
        assert call(environment, "edit", path=spec.path, old=broken, new=source).error is False


def test_probing_records_what_a_function_does(pool: Path) -> None:
    module = next(m for m in read_pool(pool) if m.name.startswith("roman"))
    calls = {tuple(c.arguments): c.outcome for c in module.functions["to_roman"]}
    assert calls[("4",)] == ["value", "'IV'"]
    assert ["raises", "ValueError"] in calls.values()


def test_probing_says_why_a_file_gives_nothing() -> None:
    with open_probe_sandbox() as sandbox:
        workspace = sandbox.workspace()

        def why(text: str, license_name: str | None = "MIT") -> object:
            return probe_source(Source(text, "x.py", license_name), sandbox, workspace)

        assert why(ROMAN, None) == "license"
        assert why("import numpy\n\ndef f(x):\n    y = numpy.sum(x)\n    y += 1\n    return y\n") == "not_alone"
        assert why("def f(x):\n    x += 1\n    return x\nraise SystemExit\n") == "not_alone"
        assert why("def f(x):\n    y = 1\n    y += 1\n    return 5\n") == "dull"
        assert why("def f(x):\n    y = x\n    while True:\n        y = 1\n") == "dull"
        forking = "import math\nX = [].pop()\n\ndef f(x):\n    y = x\n    y += 1\n    return y\n"
        assert why(forking) == "broken"


def test_unstable_functions_are_not_recorded() -> None:
    text = "STATE = []\n\ndef f(x):\n    STATE.append(x)\n    n = len(STATE)\n    return n + len(str(x))\n"
    with open_probe_sandbox() as sandbox:
        assert probe_source(Source(text, "x.py", "MIT"), sandbox, sandbox.workspace()) == "dull"
        counted = "N = iter(range(10**6))\nSEEN = {}\n\ndef f(x):\n    if str(x) not in SEEN:\n"
        counted += "        SEEN[str(x)] = next(N)\n    return SEEN[str(x)]\n"
        assert probe_source(Source(counted, "x.py", "MIT"), sandbox, sandbox.workspace()) == "dull"


def test_same_seed_same_task_and_other_seed_another(environment: RepairEnvironment) -> None:
    assert environment.generate(3, 2.5).to_json() == environment.generate(3, 2.5).to_json()
    tasks = [environment.generate(seed, 1) for seed in range(12)]
    assert len({json.dumps(task.data, sort_keys=True) for task in tasks}) > 6
    assert TaskSpec.from_json(tasks[0].to_json()) == tasks[0]


def test_every_fault_fails_shown_tests_before_and_passes_after(environment: RepairEnvironment) -> None:
    for seed in range(6):
        task = environment.generate(seed, 1 + seed / 3)
        environment.reset(task)
        before = environment.verify()
        assert (before.success, before.reward) == (False, 0.0)
        assert "0 of" in (before.verified_by or "").split(":")[1]
        run = call(environment, "run_tests")
        assert run.signal == "tests_failed"
        for raw in task.data["files"]:
            for labels in environment.shown_labels(FileSpec.from_data(raw)):
                assert labels
                assert all(label.split("::")[0] in run.text for label in labels)
        mend(environment, task)
        assert call(environment, "run_tests").signal == "tests_passed"
        after = environment.verify()
        assert (after.success, after.reward) == (True, 1.0)


def test_hidden_calls_decide_not_the_shown_tests(environment: RepairEnvironment) -> None:
    """A repair that only answers the shown tests by heart is not a success."""
    for seed in range(40):
        task = environment.generate(seed, 1)
        spec = first_file(task)
        fault = spec.faults[0]
        if set(fault.fails) - set(fault.shown):
            break
    else:
        pytest.fail("no task with a hidden failing call")
    environment.reset(task)
    calls = environment.module_of(spec).functions[fault.function]
    answers = {", ".join(calls[i].arguments): calls[i].outcome for i in spec.visible[fault.function]}
    lines = [
        f"    if repr(_all)[1:-1].rstrip(',') == {key!r}: return {value[1]}"
        for key, value in answers.items()
        if value[0] == "value"
    ]
    raised = [
        f"    if repr(_all)[1:-1].rstrip(',') == {k!r}: raise {v[1]}" for k, v in answers.items() if v[0] == "raises"
    ]
    cheat = f"\n\ndef {fault.function}(*_all):\n" + "\n".join([*lines, *raised, "    return None"]) + "\n"
    text = environment._workspace.read(spec.path)  # type: ignore[union-attr]
    assert not call(environment, "edit", path=spec.path, old=text, new=text + cheat).error
    assert call(environment, "run_tests").signal == "tests_passed"
    assert environment.verify().success is False


def test_breaking_what_worked_is_no_success(environment: RepairEnvironment) -> None:
    task = environment.generate(2, 3)
    environment.reset(task)
    mend(environment, task)
    path = first_file(task).path
    call(
        environment,
        "run_code",
        code=f"open({path!r}, 'a').write('\\nto_roman = chunks = word_lengths = running_total = None\\n')",
    )
    outcome = environment.verify()
    assert (outcome.success, outcome.reward) == (False, 0.0)


def test_forged_bytecode_does_not_move_the_verdict(environment: RepairEnvironment) -> None:
    """The broken source stays, but bytecode of the right one is put beside it, with the source's time and size."""
    task = environment.generate(2, 1)
    environment.reset(task)
    spec = first_file(task)
    source = environment.source_of(spec)
    code = f"""
import importlib._bootstrap_external as b, os
path = {spec.path!r}
status = os.stat(path)
cached = b.cache_from_source(os.path.abspath(path))
os.makedirs(os.path.dirname(cached), exist_ok=True)
data = b._code_to_timestamp_pyc(compile({source!r}, path, "exec"), int(status.st_mtime), status.st_size)
open(cached, "wb").write(data)
"""
    assert not call(environment, "run_code", code=code).error
    assert call(environment, "run_tests").signal == "tests_passed"  # Python itself is fooled
    assert environment.verify().success is False


def test_a_module_that_kills_its_interpreter_fails_the_verdict(environment: RepairEnvironment) -> None:
    task = environment.generate(2, 1)
    environment.reset(task)
    path = first_file(task).path
    for poison in (
        "import os; os._exit(0)",
        "while True: pass",
        "raise SystemExit",
        "import os, signal; os.kill(os.getpid(), 9)",
    ):
        environment.reset(task)
        call(environment, "run_code", code=f"open({path!r}, 'w').write({poison!r})")
        assert environment.verify().success is False
        assert call(environment, "run_tests").signal != "tests_passed"


@pytest.mark.parametrize(
    ("name", "arguments", "signal"),
    [
        ("read_file", '{"path": "nope.py"}', "not_found"),
        ("read_file", '{"path": "/etc/passwd"}', "not_found"),
        ("read_file", '{"path": "tests"}', "tool_error"),
        ("read_file", '{"path": "tests/', "malformed_arguments"),
        ("read_file", "[1]", "malformed_arguments"),
        ("read_file", "null", "malformed_arguments"),
        ("read_file", "", "malformed_arguments"),
        ("read_file", "{}", "bad_arguments"),
        ("read_file", '{"file": "x"}', "bad_arguments"),
        ("read_file", '{"path": 3}', "bad_arguments"),
        ("read_file", '{"path": "x", "first_line": 0}', "bad_arguments"),
        ("cat", '{"path": "x"}', "unknown_tool"),
        ("", "{}", "unknown_tool"),
        ("list_files", '{"path": "nope"}', "not_found"),
        ("search", '{"text": ""}', "bad_arguments"),
        ("run_tests", '{"path": "tests/test_nope.py"}', "not_found"),
        ("run_tests", '{"path": ".."}', "not_found"),
        ("run_code", '{"code": "1/0"}', "exit_code=1"),
        ("run_code", '{"code": "import sys; sys.exit(3)"}', "exit_code=3"),
        ("edit", '{"path": "nope.py", "old": "a", "new": "b"}', "not_found"),
    ],
)
def test_bad_calls_are_errors_with_a_signal(
    environment: RepairEnvironment, name: str, arguments: str, signal: str
) -> None:
    environment.reset(environment.generate(1, 1))
    result = environment.invoke(ToolCall("c", name, arguments))
    assert (result.error, result.signal) == (True, signal)
    assert result.text


def test_a_run_without_tests_is_an_error_that_says_so(environment: RepairEnvironment) -> None:
    task = environment.generate(1, 1)
    environment.reset(task)
    path = first_file(task).path
    result = call(environment, "run_tests", path=path)
    assert (result.error, result.signal) == (True, "no_tests")
    assert result.text == (f"Error: no test was found in {path}\nno test was run. Tests are in {path_of_tests(path)}")
    shown = call(environment, "run_tests", path=f"./{path_of_tests(path)}")
    assert (shown.error, shown.signal) == (False, "tests_failed")
    assert call(environment, "run_tests", path="tests/").text == shown.text


OWN_TESTS = """import unittest


class OwnTest(unittest.TestCase):
    def test_parts(self):
        for number in (1, 2, 3):
            with self.subTest(number):
                self.assertLess(number, 2)

    @unittest.skip("later")
    def test_later(self):
        self.fail()

    @unittest.expectedFailure
    def test_known(self):
        self.fail()

    @unittest.expectedFailure
    def test_mended(self):
        pass
"""


def test_every_way_that_a_test_can_end_is_counted(environment: RepairEnvironment) -> None:
    environment.reset(environment.generate(1, 1))
    call(environment, "run_code", code=f"open('tests/test_own.py', 'w').write({OWN_TESTS!r})")
    result = call(environment, "run_tests", path="tests/test_own.py")
    assert (result.error, result.signal) == (False, "tests_failed")
    assert result.text.endswith("3 failed, 1 passed, 1 skipped")  # two parts, and what passed though it is to fail
    only = OWN_TESTS[: OWN_TESTS.index("    def test_parts")] + OWN_TESTS[OWN_TESTS.index("    @unittest.skip") :]
    only = only[: only.index("    @unittest.expectedFailure")]
    call(environment, "run_code", code=f"open('tests/test_skipped.py', 'w').write({only!r})")
    skipped = call(environment, "run_tests", path="tests/test_skipped.py")
    assert (skipped.error, skipped.signal) == (True, "no_tests")
    assert "no test was run\n1 skipped" in skipped.text


def test_the_detector_counts_a_run_without_tests_as_an_error_and_no_pass(environment: RepairEnvironment) -> None:
    task = environment.generate(1, 1)
    path = first_file(task).path
    turns = [
        Message("assistant", tool_calls=[ToolCall("1", "run_tests", json.dumps({"path": path}))]),
        Message("assistant", tool_calls=[ToolCall("2", "run_tests", json.dumps({"path": path_of_tests(path)}))]),
        Message("assistant", "I stop here."),
    ]

    class Replies:
        def act(self, messages: list[Message], tools: str) -> Message:
            return turns[sum(message.role == "assistant" for message in messages)]

    found = judgements(view_of(rollout(environment, task, Replies())))
    assert [(judgement.kind, judgement.signal) for judgement in found] == [
        ("error", "no_tests"),
        ("negative", "tests_failed"),
    ]


def test_edits_are_refused_for_a_stated_reason(environment: RepairEnvironment) -> None:
    task = environment.generate(1, 1)
    environment.reset(task)
    spec = first_file(task)
    text = environment._workspace.read(spec.path)  # type: ignore[union-attr]
    definition = f"def {spec.faults[0].function}("
    assert call(environment, "edit", path=spec.path, old="not there", new="x").signal == "no_match"
    assert call(environment, "edit", path=spec.path, old="e", new="x").signal == "ambiguous"
    assert call(environment, "edit", path=spec.path, old=definition, new=definition).signal == "no_change"
    assert call(environment, "edit", path=spec.path, old=definition, new="def (").signal == "syntax_error"
    tests = path_of_tests(spec.path)
    assert call(environment, "edit", path=tests, old="import unittest", new="").signal == "tool_error"
    assert call(environment, "edit", path="/workspace/" + tests, old="import unittest", new="").signal == "tool_error"
    assert environment._workspace.read(spec.path) == text  # type: ignore[union-attr]


def test_a_repair_that_repairs_nothing_is_told_from_a_probe(environment: RepairEnvironment) -> None:
    task = next(t for t in (environment.generate(s, 1) for s in range(40)) if t.data["files"][0]["faults"][0]["decoy"])
    environment.reset(task)
    spec = first_file(task)
    tests = path_of_tests(spec.path)
    assert call(environment, "run_tests", path=tests).signal == "tests_failed"
    assert call(environment, "run_tests", path=tests).signal == "tests_failed"
    source, decoy = environment.source_of(spec), spec.faults[0].decoy
    assert decoy is not None
    wrong = source[: decoy[0]] + decoy[2] + source[decoy[1] :]
    call(environment, "edit", path=spec.path, old=mutated_text(source, spec), new=wrong)
    assert call(environment, "run_tests", path=tests).signal == "tests_unfixed"
    assert call(environment, "run_tests", path=tests).signal == "tests_failed"  # nothing was edited since
    call(environment, "edit", path=spec.path, old=wrong, new=source)
    assert call(environment, "run_tests", path=tests).signal == "tests_passed"


def test_reading_goes_in_pieces(environment: RepairEnvironment) -> None:
    task = environment.generate(1, 1)
    environment.reset(task)
    path = first_file(task).path
    call(environment, "run_code", code=f"open({path!r}, 'w').write(''.join(f'# {{n}}\\n' for n in range(1000)))")
    head, *lines = call(environment, "read_file", path=path).text.split("\n")
    assert (head, len(lines), lines[-1]) == (f"{path}, lines 1 to 400 of 1000", 400, "# 399")
    part = call(environment, "read_file", path=path, first_line=999, last_line=5000).text
    assert part == f"{path}, lines 999 to 1000 of 1000\n# 998\n# 999"
    assert call(environment, "read_file", path=path, first_line=1001).signal == "bad_arguments"


def test_splits_share_no_module(pool: Path) -> None:
    drawn: dict[str, set[str]] = {}
    for split, seeds in (("train", range(12)), ("heldout", range(4))):
        with open_environment("repair", pool_path=pool, split=split) as opened:
            tasks = [opened.generate(seed, 2.5) for seed in seeds]
        drawn[split] = {raw["module"] for task in tasks for raw in task.data["files"]}
    assert drawn["train"] and drawn["heldout"]
    assert not drawn["train"] & drawn["heldout"]


def test_difficulty_sets_the_length_to_aim_at() -> None:
    targets = [target_tokens(1 + step / 4) for step in range(37)]
    assert targets == sorted(set(targets))
    assert targets[0] < 2_000
    assert 150_000 < targets[-1] < 250_000


def test_wrong_requests_are_refused(pool: Path, tmp_path: Path) -> None:
    assert "repair" in family_names()
    with pytest.raises(UsageError, match="unknown"):
        open_environment("nope")
    with pytest.raises(UsageError, match="pool_path"):
        open_environment("repair")
    with pytest.raises(UsageError, match="split"):
        open_environment("repair", pool_path=pool, split="test")
    with pytest.raises(InputError, match="no such file"):
        open_environment("repair", pool_path=tmp_path / "none.jsonl")
    broken = tmp_path / "broken.jsonl"
    broken.write_text(pool.read_text().split("\n")[0] + "\n{\n")
    with pytest.raises(InputError, match=r"broken\.jsonl:2"):
        open_environment("repair", pool_path=broken)
    with open_environment("repair", pool_path=pool) as opened, pytest.raises(UsageError, match="1 to 10"):
        opened.generate(1, 11)


class Silly:
    """An agent that says what it was given to say."""

    def __init__(self, turns: list[Message]) -> None:
        self.turns = turns

    def act(self, messages: list[Message], tools: str) -> Message:
        return self.turns.pop(0) if self.turns else Message("assistant", tool_calls=[ToolCall("x", "list_files", "{}")])


def test_any_agent_can_be_rolled_out(environment: RepairEnvironment) -> None:
    task = environment.generate(5, 1)
    calls = [ToolCall(f"c{n}", "list_files", "{}") for n in range(20)]
    odd = [Message("assistant", tool_calls=calls), Message("assistant", tool_calls=[ToolCall("y", "\0", "\ud800")])]
    trajectory = rollout(environment, task, Silly(odd), max_steps=4)
    assert trajectory.flags == ["max_steps"]
    assert (trajectory.stats.turns, trajectory.stats.errors) == (4, 2)
    assert [m.signal for m in trajectory.messages if m.role == "tool"][14:18] == [
        None,
        None,
        "tool_error",
        "tool_error",
    ]
    assert trajectory.outcome.success is False
    ended = rollout(environment, task, Silly([Message("assistant", "")]), max_steps=4)
    assert (ended.flags, ended.stats.turns, ended.outcome.success) == ([], 1, False)
    assert replay(environment, ended) == []
