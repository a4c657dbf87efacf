"""Repair of modules that the sandbox's interpreter has itself: looking at the unbroken text is noted, work is not."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.synthesis.environments.base import TaskSpec, ToolResult
from pipelines.synthesis.environments.functions import PoolModule, Source, open_probe_sandbox, probe_source, write_pool
from pipelines.synthesis.environments.originals import imports_original, lines_taken
from pipelines.synthesis.environments.repair import RepairEnvironment, mutated_text
from pipelines.synthesis.environments.repair_tasks import FileSpec
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import rollout
from schemas.trajectory import Message, ToolCall


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepairEnvironment]:
    pool = tmp_path_factory.mktemp("pool") / "pool.jsonl"
    text = Path(str(textwrap.__file__)).read_text(encoding="utf-8")
    with open_probe_sandbox() as sandbox:
        module = probe_source(Source(text, "textwrap.py", "PSF-2.0"), sandbox, sandbox.workspace())
    assert isinstance(module, PoolModule), module
    write_pool(pool, [module])
    with RepairEnvironment(pool_path=pool, split="all") as opened:
        yield opened


@pytest.fixture
def task(environment: RepairEnvironment) -> TaskSpec:
    """A task whose fault took a line away that the module has nowhere else."""
    for seed in range(60):
        found = environment.generate(seed, 1)
        environment.reset(found)
        if any(environment._taken.values()):
            return found
    raise AssertionError("no such fault in 60 tasks")


def _run(environment: RepairEnvironment, code: str) -> ToolResult:
    return environment.invoke(ToolCall("c", "run_code", json.dumps({"code": code})))


def _said(environment: RepairEnvironment) -> str:
    return str(environment.verify().verified_by)


def _spec(task: TaskSpec) -> FileSpec:
    return FileSpec.from_data(task.data["files"][0])


LOOKS = {
    "getsource": "import inspect, textwrap\nprint(inspect.getsource(textwrap))",
    "path": "import textwrap\nprint(open(textwrap.__file__).read())",
    "program": "import subprocess, sysconfig\nroot = sysconfig.get_paths()['stdlib']\n"
    "print(subprocess.run(['cat', root + '/textwrap.py'], capture_output=True, text=True).stdout)",
    "copy": "import shutil, textwrap\nshutil.copy(textwrap.__file__, {path!r})",
}


@pytest.mark.parametrize("way", sorted(LOOKS))
def test_a_program_that_looks_at_the_original_is_noted(
    environment: RepairEnvironment, task: TaskSpec, way: str
) -> None:
    path = _spec(task).path
    assert "read_original" not in _said(environment)
    _run(environment, LOOKS[way].format(path=path))
    assert _said(environment).endswith(f"; read_original: {path}")
    environment.reset(task)
    assert "read_original" not in _said(environment)


def test_a_module_that_imports_its_original_is_noted(environment: RepairEnvironment, task: TaskSpec) -> None:
    spec = _spec(task)
    names = ", ".join(sorted(spec.visible))
    _run(environment, f"open({spec.path!r}, 'w').write('from textwrap import {names}\\n')")
    outcome = environment.verify()
    assert outcome.success is True  # the state is right; who trains on it may say no
    assert str(outcome.verified_by).endswith(f"; read_original: {spec.path}")


def test_work_on_the_module_is_not_noted(environment: RepairEnvironment, task: TaskSpec) -> None:
    spec = _spec(task)
    source = environment.source_of(spec)
    broken = mutated_text(source, spec)
    dotted = spec.path.removesuffix(".py").replace("/", ".")
    _run(environment, f"import inspect\nimport {dotted} as m\nprint(inspect.getsource(m))")  # the broken one
    _run(environment, "import inspect, json\nprint(inspect.getsource(json.loads))")  # another module
    _run(environment, f"import textwrap\nprint(textwrap.{spec.faults[0].function}.__name__)")
    fault = spec.faults[0]
    edit = f"text = open({spec.path!r}).read()\ntext = text[:{fault.start}] + {source[fault.start : fault.end]!r} + "
    edit += f"text[{fault.start + len(fault.text)}:]\nopen({spec.path!r}, 'w').write(text)\nprint(text)"
    assert not _run(environment, edit).error
    assert environment.folder().joinpath(spec.path).read_text(encoding="utf-8") == source != broken
    _run(environment, f"import inspect\nimport {dotted} as m\nprint(inspect.getsource(m))")  # now the repaired one
    outcome = environment.verify()
    assert outcome.success is True and "read_original" not in str(outcome.verified_by)


def test_the_note_is_the_same_when_the_run_is_replayed(environment: RepairEnvironment, task: TaskSpec) -> None:
    turns = [
        Message("assistant", tool_calls=[ToolCall("1", "run_code", json.dumps({"code": LOOKS["getsource"]}))]),
        Message("assistant", "I have read enough."),
    ]

    class Replies:
        def act(self, messages: list[Message], tools: str) -> Message:
            return turns[sum(message.role == "assistant" for message in messages)]

    trajectory = rollout(environment, task, Replies())
    assert "read_original" in str(trajectory.outcome.verified_by)
    assert replay(environment, trajectory) == []


def test_lines_taken_are_those_that_the_broken_text_lacks() -> None:
    source = "def f(items):\n    total = 0\n    for item in items:\n        total += item\n    return total\n"
    assert lines_taken(source, source.replace("+=", "-=")) == {"total += item"}
    assert lines_taken(source, source.replace("total = 0", "total = 1")) == {"total = 0"}
    assert lines_taken(source, source) == frozenset()
    assert lines_taken("x = 1\n", "x = 2\n") == frozenset()  # too short to say where it is from


@pytest.mark.parametrize(
    ("text", "origin", "found"),
    [
        ("import textwrap", "textwrap.py", True),
        ("from textwrap import dedent", "textwrap.py", True),
        ("import json.decoder as d", "json/decoder.py", True),
        ("from json import decoder", "json/decoder.py", True),
        ("from json import loads", "json/__init__.py", True),
        ("import json", "json/decoder.py", False),
        ("from . import textwrap", "textwrap.py", False),
        ("import helpers", "helpers.py", False),
        ("import (", "textwrap.py", False),
    ],
)
def test_imports_of_the_original(text: str, origin: str, found: bool) -> None:
    assert imports_original(text, "import re\n", origin) is found
    assert imports_original(text, text, origin) is False  # as the original does itself
