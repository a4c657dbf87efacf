"""Terminal verdicts against harmful workspaces: pipes, sparse files, hidden repositories, closed folders."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pipelines.synthesis.environments.base import TaskSpec, ToolResult
from pipelines.synthesis.environments.terminal import TerminalEnvironment, jobs_of
from schemas.trajectory import ToolCall


@pytest.fixture(scope="module")
def environment() -> Iterator[TerminalEnvironment]:
    with TerminalEnvironment() as opened:
        yield opened


@pytest.fixture
def task(environment: TerminalEnvironment) -> TaskSpec:
    tasks = (environment.generate(seed, 1.0) for seed in range(300))
    found = next(task for task in tasks if task.data["jobs"][0]["kind"] == "pack")
    environment.reset(found)
    return found


def _run(environment: TerminalEnvironment, command: str) -> ToolResult:
    return environment.invoke(ToolCall("c", "run", json.dumps({"command": command})))


def _solve(environment: TerminalEnvironment, task: TaskSpec) -> str:
    """Go the expert's way; gives the archive's name."""
    job = jobs_of(task)[0]
    for step in job.steps:
        assert not _run(environment, step.command).error
    environment.answer(f"Answer: {job.answer}")
    assert environment.verify().success is True
    return next(iter(job.archives))


def test_a_named_pipe_in_the_place_of_the_archive_is_no_archive(
    environment: TerminalEnvironment, task: TaskSpec
) -> None:
    archive = _solve(environment, task)
    assert not _run(environment, f"rm {archive} && mkfifo {archive}").error
    assert environment.verify().success is False  # and it comes to an end


def test_a_sparse_member_of_any_size_is_not_unpacked(environment: TerminalEnvironment, task: TaskSpec) -> None:
    archive = _solve(environment, task)
    made = f"truncate -s 16M hole && tar -S -czf {archive} {' '.join(['hole'] * 6)} && rm hole"
    assert not _run(environment, made).error
    assert environment.verify().success is False


def test_sparse_files_without_number_are_counted_and_not_read(environment: TerminalEnvironment, task: TaskSpec) -> None:
    _solve(environment, task)
    assert not _run(environment, "for i in $(seq 400); do truncate -s 16M hole-$i; done").error
    assert "400 other files or folders touched" in str(environment.verify().verified_by)  # 6 GiB that nobody read


def test_a_repository_that_nobody_asked_for_is_a_file_too_many(
    environment: TerminalEnvironment, task: TaskSpec
) -> None:
    _solve(environment, task)
    assert not _run(environment, "mkdir -p x/.git && echo y > x/.git/z").error
    outcome = environment.verify()
    assert outcome.success is False and "1 other files or folders touched" in str(outcome.verified_by)


def test_a_closed_workspace_can_be_opened_again_and_shows_nothing_of_the_sandbox(
    environment: TerminalEnvironment, task: TaskSpec
) -> None:
    assert not _run(environment, "chmod 000 .").error
    closed = _run(environment, "ls")
    assert closed.error and "server.py" not in closed.text
    assert not _run(environment, "chmod 755 /workspace").error
    _solve(environment, task)
