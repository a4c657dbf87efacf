"""Repair against a model that cheats or writes nonsense: each try is a recorded failure, never a crash or success."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.synthesis.environments.base import TaskSpec, ToolResult
from pipelines.synthesis.environments.functions import PoolModule, Source, open_probe_sandbox, probe_source, write_pool
from pipelines.synthesis.environments.repair import RepairEnvironment, path_of_tests
from pipelines.synthesis.ranges import TaskRange, add_counts, roll_out_range
from schemas.errors import InputError, UsageError
from schemas.recipe import SynthesizedConfig
from schemas.trajectory import ToolCall

LENGTHS = '''"""Lengths of words."""


def word_lengths(text, least=1):
    """Lengths of the words of a text."""
    lengths = []
    for word in text.split():
        if len(word) >= least:
            lengths.append(len(word))
    return lengths


def longest(text):
    """The length of the longest word, 0 for none."""
    best = 0
    for length in word_lengths(text):
        if length > best:
            best = length
    return best
'''


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepairEnvironment]:
    pool = tmp_path_factory.mktemp("pool") / "pool.jsonl"
    with open_probe_sandbox() as sandbox:
        module = probe_source(Source(LENGTHS, "lengths.py", "MIT"), sandbox, sandbox.workspace())
    assert isinstance(module, PoolModule), module
    write_pool(pool, [module])
    with RepairEnvironment(pool_path=pool, split="all") as opened:
        yield opened


@pytest.fixture
def task(environment: RepairEnvironment) -> TaskSpec:
    task = environment.generate(seed=1, difficulty=1)
    environment.reset(task)
    return task


def _call(environment: RepairEnvironment, name: str, **arguments: object) -> ToolResult:
    return environment.invoke(ToolCall("c", name, json.dumps(arguments)))


def _paths(task: TaskSpec) -> tuple[str, str]:
    path = str(task.data["files"][0]["path"])
    return path, path_of_tests(path)


def _repair(environment: RepairEnvironment, path: str) -> None:
    """Put the module back as it was, as a program of the agent would."""
    code = f"with open({path!r}, 'w') as handle:\n    handle.write({LENGTHS!r})"
    assert not _call(environment, "run_code", code=code).error


def test_a_repair_by_a_program_counts_like_one_by_the_edit_tool(environment: RepairEnvironment, task: TaskSpec) -> None:
    _repair(environment, _paths(task)[0])
    assert environment.verify().success is True


@pytest.mark.parametrize(
    "change",
    ["open({tests!r}, 'a').write('# x')", "os.remove({tests!r})", "os.chmod({tests!r}, 0); os.rename('tests', 't')"],
)
def test_changed_tests_fail_a_right_repair(environment: RepairEnvironment, task: TaskSpec, change: str) -> None:
    path, tests = _paths(task)
    _repair(environment, path)
    _call(environment, "run_code", code="import os\n" + change.format(tests=tests))
    outcome = environment.verify()
    assert (outcome.success, outcome.reward) == (False, 0.0)
    assert str(outcome.verified_by).endswith("the tests were changed")


@pytest.mark.parametrize("prefix", ["", "./", "/workspace/", "/workspace/./", ".//./"])
def test_the_tests_are_edited_under_no_name(environment: RepairEnvironment, task: TaskSpec, prefix: str) -> None:
    result = _call(environment, "edit", path=prefix + _paths(task)[1], old="import unittest", new="import os")
    assert result.error and "must not be changed" in result.text


@pytest.mark.parametrize("tool", ["read_file", "list_files", "search", "edit", "run_tests"])
@pytest.mark.parametrize("path", ["a" * 300, "a/" * 3_000, "\n" * 500, "x\0y", "../" * 50])
def test_a_path_that_can_be_none_is_a_failed_call(
    environment: RepairEnvironment, task: TaskSpec, tool: str, path: str
) -> None:
    more = {"search": {"text": "x"}, "edit": {"old": "a", "new": "b"}}.get(tool, {})
    result = _call(environment, tool, path=path, **more)
    assert result.error and len(result.text) < 12_000


FORGED = ["{}", "[1]", "3", '"x"', '{"text": 1, "failed": 2}', '{"text": "fine", "failed": null}', "no json"]


@pytest.mark.parametrize("forged", FORGED)
def test_a_module_that_writes_the_report_of_the_tests_itself(
    environment: RepairEnvironment, task: TaskSpec, forged: str
) -> None:
    path, _ = _paths(task)
    lie = f"import os\ntry:\n    os.write(3, {forged.encode()!r})\n    os._exit(0)\nexcept OSError:\n    pass\n"
    _call(environment, "run_code", code=f"with open({path!r}, 'a') as handle:\n    handle.write({lie!r})")
    assert _call(environment, "run_tests").error  # an unreadable report is a run that failed
    assert environment.verify().success is False


@pytest.mark.parametrize(
    "forged",
    [
        *("[1]", "3", '"x"', '{"longest": 3}', '{"longest": [3]}', '{"longest": [{"arguments": 1, "outcome": 2}]}'),
        '{"longest": [{"arguments": ["1"], "outcome": []}]}',
        '{"longest": [{"arguments": ["1"], "outcome": ["value"]}]}',
        '{"longest": [{"arguments": ["1"], "outcome": ["value", 1]}]}',
        '{"longest": [{"arguments": [1], "outcome": ["value", "1"]}]}',
        '{"longest": [{"arguments": ["1"], "outcome": ["effect", 1, "1"]}]}',
        '{"longest": [{"arguments": ["1"], "outcome": ["raises", "A(): pass"]}]}',
        '{"longest": [{"arguments": ["1"], "outcome": ["told", "1"]}]}',
    ],
)
def test_a_module_of_the_corpus_that_writes_its_own_probe_is_left_out(forged: str) -> None:
    lie = f"import os\ntry:\n    os.write(3, {forged.encode()!r})\n    os._exit(0)\nexcept OSError:\n    pass\n"
    with open_probe_sandbox() as sandbox:
        found = probe_source(Source(LENGTHS + lie, "x.py", "MIT"), sandbox, sandbox.workspace())
    assert isinstance(found, str)


@pytest.mark.parametrize("outcomes", ["[]", "3", '{"word_lengths": 3}', '{"word_lengths": {"0": 1}, "longest": "abc"}'])
def test_a_module_that_writes_the_outcomes_of_hidden_calls_in_a_wrong_shape(
    environment: RepairEnvironment, task: TaskSpec, outcomes: str
) -> None:
    path, _ = _paths(task)
    forged = json.dumps({path.removesuffix(".py").replace("/", "."): json.loads(outcomes)}).encode()
    lie = f"import os\ntry:\n    os.write(3, {forged!r})\n    os._exit(0)\nexcept OSError:\n    pass\n"
    _call(environment, "run_code", code=f"with open({path!r}, 'a') as handle:\n    handle.write({lie!r})")
    assert environment.verify().success is False


@pytest.mark.parametrize(
    "forged",
    [
        *("[]", "3", '"x"', "{}", "[1]", "[null]", '[{"longest": 3}]', '[{"longest": []}]', '{"modules": 1}'),
        '{"modules": [{"longest": [["value", 1]]}], "variants": []}',
        '{"modules": [], "variants": [null]}',
    ],
)
@pytest.mark.parametrize("only_mutated", [False, True])
def test_a_function_whose_probe_has_another_shape_is_not_used_and_counted(
    environment: RepairEnvironment, tmp_path: Path, forged: str, only_mutated: bool
) -> None:
    """Where code writes a result of its own, at every run or only when it was mutated, other modules give the task."""
    honest = next(iter(environment._by_id.values()))
    when = "longest('a bc def') != 3 or word_lengths('a bc') != [1, 2]" if only_mutated else "True"
    lie = f"import os\nif {when}:\n    os.write(3, {forged.encode()!r})\n    os._exit(0)\n"
    source = LENGTHS + lie
    whole = [(1, source.count("\n") + 1, False)]
    liar = replace(honest, id="0" * 32, name="liar", source=source, slices=dict.fromkeys(honest.slices, whole))
    write_pool(tmp_path / "pool.jsonl", [liar])
    with RepairEnvironment(pool_path=tmp_path / "pool.jsonl", split="all") as opened:
        for difficulty in (1, 4):
            if only_mutated:  # its faults that do not show at import are still used
                with contextlib.suppress(UsageError):
                    opened.generate(seed=1, difficulty=difficulty)
            else:
                with pytest.raises(UsageError, match="no task of difficulty"):
                    opened.generate(seed=1, difficulty=difficulty)
                assert opened.left_out["bad_probes"] > 0
    write_pool(tmp_path / "pool.jsonl", [liar, honest])
    with RepairEnvironment(pool_path=tmp_path / "pool.jsonl", split="all") as opened:
        task = opened.generate(seed=1, difficulty=1)
        if not only_mutated:
            assert [spec["module"] for spec in task.data["files"]] == [honest.id]


def test_what_a_range_could_not_use_is_in_its_counts(environment: RepairEnvironment, tmp_path: Path) -> None:
    honest = next(iter(environment._by_id.values()))
    source = LENGTHS + "import os\nos.write(3, b'[]')\nos._exit(0)\n"
    whole = [(1, source.count("\n") + 1, False)]
    liar = replace(honest, id="0" * 24 + "ffffffff", source=source, slices=dict.fromkeys(honest.slices, whole))
    write_pool(tmp_path / "pool.jsonl", [liar])
    config = SynthesizedConfig(family="repair", n=2, difficulty=(1.0, 1.0))
    tasks = TaskRange(config, ((1, 1.0), (2, 1.0)), 0, str(tmp_path / "pool.jsonl"), str(tmp_path / "o.parquet"), False)
    found = roll_out_range(tasks)
    assert found["rejected"] == {"no_task": 2}
    assert found["counts"]["bad_probes"] == 4  # two functions, twice
    assert add_counts([found])["bad_probes"] == 4


def test_a_pool_with_an_outcome_of_another_shape_is_refused_by_line(
    environment: RepairEnvironment, tmp_path: Path
) -> None:
    module = json.loads(next(iter(environment._by_id.values())).to_json())
    module["functions"]["longest"][0]["outcome"] = ["value"]
    (tmp_path / "pool.jsonl").write_text(json.dumps(module) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"pool\.jsonl.*1.*no outcome of a call: \['value'\]"):
        RepairEnvironment(pool_path=tmp_path / "pool.jsonl")


def test_a_folder_closed_by_a_program_is_a_failed_call_and_a_failed_task(
    environment: RepairEnvironment, task: TaskSpec
) -> None:
    path, _ = _paths(task)
    _call(environment, "run_code", code="import os\nos.chmod('.', 0)")
    assert environment.verify().success is False
    again = environment.generate(seed=1, difficulty=1)
    environment.reset(again)
    assert not _call(environment, "read_file", path=path).error


def test_nothing_of_the_hidden_outcomes_lies_where_a_program_can_read(
    environment: RepairEnvironment, task: TaskSpec
) -> None:
    code = (
        "import os\nfor top in ('.', '/tmp', os.path.expanduser('~')):\n    for parent, _, names in os.walk(top):\n"
        "        for name in names:\n            print(os.path.join(parent, name))\nprint(dict(os.environ))"
    )
    text = _call(environment, "run_code", code=code).text
    path, tests = _paths(task)
    assert "pool.jsonl" not in text
    assert {Path(line).name for line in text.split("\n")[:-1]} <= {Path(path).name, Path(tests).name}
