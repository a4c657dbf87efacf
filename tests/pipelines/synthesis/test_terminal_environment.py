"""The terminal family: every kind of job is solved by its plan, and no other end state passes for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

import pytest

from pipelines.synthesis.environments import terminal
from pipelines.synthesis.environments.base import TaskSpec, ToolResult
from pipelines.synthesis.environments.terminal import TerminalEnvironment, digest_of_jobs, jobs_of
from pipelines.synthesis.environments.terminal_jobs import GIT_JOBS, JOBS
from pipelines.synthesis.environments.terminal_verify import tar_members
from schemas.errors import UsageError
from schemas.trajectory import Outcome, ToolCall

READ_ONLY = {"ask_history", "log_answer", "table_answer"}


@pytest.fixture(scope="module")
def environment() -> Iterator[TerminalEnvironment]:
    with TerminalEnvironment() as opened:
        yield cast(TerminalEnvironment, opened)


def one_job(kind: str, key: str = "test", scale: float = 1_500) -> TaskSpec:
    """A task of a single job of a kind."""
    data = {"split": "train", "jobs": [{"kind": kind, "key": key, "scale": scale}], "digest": ""}
    task = TaskSpec("terminal-test", "terminal", 1, 1.0, "", "do it", data)
    return TaskSpec("terminal-test", "terminal", 1, 1.0, "", "do it", {**data, "digest": digest_of_jobs(jobs_of(task))})


def needs(environment: TerminalEnvironment, kind: str) -> None:
    if kind in GIT_JOBS and "git" in environment.gaps:
        pytest.skip("git is not installed")


def run(environment: TerminalEnvironment, command: str) -> ToolResult:
    return environment.invoke(ToolCall("c", "run", json.dumps({"command": command})))


def solve(environment: TerminalEnvironment, task: TaskSpec, after: str = "", answer: str | None = None) -> Outcome:
    """Go the expert's way, run `after`, answer, and give the verdict."""
    environment.reset(task)
    job = jobs_of(task)[0]
    for step in job.steps:
        result = run(environment, step.command)
        assert not result.error, (step.command, result.text)
    if after:
        assert not run(environment, after).error
    environment.answer(f"Answer: {job.answer if answer is None else answer}")
    return environment.verify()


@pytest.mark.parametrize("kind", sorted(JOBS))
def test_every_kind_of_job_is_solved_by_its_plan_and_by_nothing_less(
    environment: TerminalEnvironment, kind: str
) -> None:
    needs(environment, kind)
    task = one_job(kind)
    job = jobs_of(task)[0]
    assert (solve(environment, task).success, environment.verify().reward) == (True, 1.0)
    if job.answer is not None:
        assert solve(environment, task, answer=f"{job.answer}0 or so").success is False
    environment.reset(task)
    environment.answer(f"Answer: {job.answer}")
    assert environment.verify().success is (kind in READ_ONLY)


@pytest.mark.parametrize("kind", sorted(JOBS))
def test_the_ways_to_go_wrong_fail_and_change_nothing(environment: TerminalEnvironment, kind: str) -> None:
    needs(environment, kind)
    task = one_job(kind)
    environment.reset(task)
    job = jobs_of(task)[0]
    for step in job.steps:
        for mistake, command in step.wrong[:3]:
            result = run(environment, command)
            assert result.error or mistake in ("bad_option", "wrong_path"), (command, result.text)
        run(environment, step.command)
    environment.answer(f"Answer: {job.answer}")
    assert environment.verify().success is True


FLAT = "cd * && git rev-parse HEAD^2 > .git/merged && git reset -q --soft HEAD~1 && git commit -qm flat"
QUIET = "git config advice.graftFileDeprecated false && mkdir -p .git/info"


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("log_report", "echo more >> $(find . -name '*.txt' | head -n 1)"),
        ("permissions", "chmod 777 $(find . -type f | sort | head -n 1)"),
        ("file_by_kind", "mkdir $(ls)/misc && mv $(find . -type f | sort | head -n 1) $(ls)/misc"),
        ("settings", "sed -i 's/host/Host/' $(find . -name '*.conf' | sort | head -n 1)"),
        ("log_answer", "rm $(find . -name '*.log' | sort | head -n 1)"),
        ("pack", "tar -czf *.tar.gz --files-from /dev/null"),
        ("unpack", "ln -sf /etc/passwd $(find . -path '*restored*' -type f | sort | head -n 1)"),
        ("log_answer", "touch left-over.tmp"),
        ("log_answer", "mkdir -p left/over"),
        ("rename", "mkdir $(ls)/old"),
        ("permissions", "chmod 777 $(find . -mindepth 2 -type d | sort | head -n 1)"),
        ("file_by_date", "chmod 700 $(ls)"),
        ("file_by_date", "chmod 000 $(ls)/archive"),
        ("file_by_date", "mkdir -p $(ls)/archive/2021/01"),
        ("merge_conflict", "cd * && mkdir build"),
        ("pack", "mkdir .cache"),
        ("rename", "chmod 000 $(find . -type f | sort | head -n 1)"),
        ("revert_commit", "cd * && git reset -q --hard HEAD~1"),
        ("revert_commit", "cd * && git commit -q --allow-empty -m more"),
        ("revert_commit", "cd * && git reset -q --soft HEAD~3 && git commit -qm squashed"),
        ("merge_conflict", "cd * && git reset -q --soft HEAD~1 && git commit -qm flat"),
        ("merge_conflict", f"{FLAT} && git replace --graft HEAD HEAD~1 $(cat .git/merged)"),
        (
            "merge_conflict",
            f"{FLAT} && {QUIET} && echo $(git rev-parse HEAD HEAD~1) $(cat .git/merged) > .git/info/grafts",
        ),
        ("merge_conflict", "cd * && echo x > untracked"),
        ("cherry_pick", "cd * && git branch -f main HEAD"),
        ("tidy_branches", "cd * && git branch topic/again"),
        ("ask_history", "cd * && git commit -q --amend -m other"),
    ],
)
def test_what_was_not_asked_for_is_noticed(environment: TerminalEnvironment, kind: str, after: str) -> None:
    needs(environment, kind)
    outcome = solve(environment, one_job(kind), after)
    if kind == "tidy_branches":  # a further branch is nobody's goal and no harm
        assert outcome.success is True
    else:
        assert (outcome.success, outcome.reward) == (False, 0.0)


def test_empty_folders_are_counted_once_each(environment: TerminalEnvironment) -> None:
    outcome = solve(environment, one_job("log_answer"), "mkdir -p a/b/c d e && touch e/f && chmod 000 d")
    assert (outcome.success, outcome.reward) == (False, 0.0)
    assert "1 of 1 jobs, 3 other files or folders touched" in str(outcome.verified_by)  # a/b/c, d, e/f


def test_a_fast_forward_answer_without_work_gets_its_share_only(environment: TerminalEnvironment) -> None:
    task = next(t for t in (environment.generate(s, 3) for s in range(40)) if len(t.data["jobs"]) > 2)
    environment.reset(task)
    jobs = jobs_of(task)
    right = {n for n, job in enumerate(jobs, 1) if job.answer is not None and job.expected == job.files}
    environment.answer("\n".join(f"Answer {n}: {job.answer}" for n, job in enumerate(jobs, 1)))
    outcome = environment.verify()
    assert outcome.success is False
    assert outcome.reward <= (len(right) + sum(job.repository is not None for job in jobs)) / len(jobs)
    run(environment, "touch stray")
    assert "1 other files or folders touched" in (environment.verify().verified_by or "")


@pytest.mark.parametrize(
    ("arguments", "signal"),
    [
        ("", "malformed_arguments"),
        ("[]", "malformed_arguments"),
        ('{"command": "ls"', "malformed_arguments"),
        ("{}", "bad_arguments"),
        ('{"command": ""}', "bad_arguments"),
        ('{"command": 5}', "bad_arguments"),
        ('{"cmd": "ls"}', "bad_arguments"),
        ('{"command": "ls", "timeout": 4}', "bad_arguments"),
        (json.dumps({"command": "'" * 60_001}), "exit_code=2"),
        (json.dumps({"command": "x" * 300_000}), None),
        (json.dumps({"command": ":(){ :|:& };:"}), None),
        (json.dumps({"command": "rm -rf ~ /workspace; cd /; ls /workspace"}), None),
        (json.dumps({"command": "kill -9 -1"}), None),
    ],
)
def test_bad_model_input_ends_as_a_result(environment: TerminalEnvironment, arguments: str, signal: str | None) -> None:
    environment.reset(one_job("log_answer"))
    result = environment.invoke(ToolCall("c", "run", arguments))
    assert signal is None or (result.error, result.signal) == (True, signal)
    assert run(environment, "echo alive").text == "alive"
    assert environment.verify().success is False
    assert environment.invoke(ToolCall("c", "bash", "{}")).signal == "unknown_tool"


def test_without_git_no_git_job_is_given_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with TerminalEnvironment() as whole:
        full = [whole.generate(seed, 3) for seed in range(12)]
    monkeypatch.setattr(terminal, "has_git", lambda shell: False)
    with TerminalEnvironment() as without:
        with pytest.warns(UserWarning, match="git is not installed"):
            bare = [without.generate(seed, 3) for seed in range(12)]
        assert cast(TerminalEnvironment, without).gaps == ("git",)
        kinds = {job["kind"] for task in bare for job in task.data["jobs"]}
        assert not kinds & set(GIT_JOBS)
        for task, other in zip(full, bare, strict=True):
            if task.data["jobs"][0]["kind"] not in GIT_JOBS:
                assert other.data["jobs"][0] == task.data["jobs"][0]
        with_git = next((t for t in full if any(j["kind"] in GIT_JOBS for j in t.data["jobs"])), None)
        if with_git is not None:
            with pytest.raises(UsageError, match="needs git"):
                without.reset(with_git)


def test_tasks_are_seeded_distinct_and_of_one_version(environment: TerminalEnvironment) -> None:
    tasks = [environment.generate(seed, 1 + seed % 3) for seed in range(150)]
    assert len({(task.instruction, task.data["digest"]) for task in tasks}) == 150
    assert environment.generate(17, 3).to_json() == tasks[17].to_json()
    with TerminalEnvironment(split="heldout") as heldout:
        assert heldout.generate(17, 3).data["digest"] != tasks[17].data["digest"]
    with pytest.raises(UsageError, match="1 to 10"):
        environment.generate(1, 11)
    with pytest.raises(UsageError, match="split"):
        TerminalEnvironment(split="dev")
    changed = TaskSpec.from_json(tasks[1].to_json())
    changed.data["digest"] = "0" * 32
    with pytest.raises(UsageError, match="another version"):
        environment.reset(changed)


def test_what_is_no_archive_has_no_members(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tar")
    (folder / "noise.tar.gz").write_bytes(b"\x1f\x8b\x08\x00" + b"0" * 60)
    (folder / "text.tar").write_text("hello\n" * 200)
    assert tar_members(folder / "noise.tar.gz") is None
    assert tar_members(folder / "text.tar") is None
    assert tar_members(folder / "absent.tar") is None


def test_every_folder_that_a_sorting_job_names_gets_a_file() -> None:
    for number in range(300):
        (job,) = jobs_of(one_job("file_by_kind", str(number), 400))
        named = set(re.findall(rf" to ({job.folder}/\w+)", job.request))
        assert 2 <= len(named) <= 4
        assert {path.rpartition("/")[0] for path in job.expected} == named
