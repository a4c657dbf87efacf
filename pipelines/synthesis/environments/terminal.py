"""Family `terminal`: jobs at a real shell in the sandbox, with goal states to reach and questions to answer.

The workspace holds one folder a job: logs to filter and count, files to reorganise, archives, settings in many files,
tables to add up, permissions, git repositories to ask, mend and merge. `verify` compares the final tree with what the
task's construction says, file by file (content and permissions), looks into archives and repositories, and compares
the `Answer k:` lines; a file outside the jobs' goals that was changed, removed or added counts against it, and so does
an empty folder left behind or a folder whose permissions were changed.

Difficulty 1 is one job of a few commands; 10 some thirty jobs with hundreds of kilobytes to read. Git jobs are
generated only where the sandbox has git (`gaps` says so); the other jobs of a task do not depend on that.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from pipelines.synthesis.environments.answers import answers_of
from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult
from pipelines.synthesis.environments.lengths import target_bytes
from pipelines.synthesis.environments.terminal_jobs import GIT_JOBS, JOBS, PLAIN_JOBS, File, Job
from pipelines.synthesis.environments.terminal_shell import OUTPUT_CHARACTERS, Shell, has_git
from pipelines.synthesis.environments.terminal_verify import Judge
from pipelines.synthesis.sandbox import Limits, Sandbox, Workspace
from pipelines.synthesis.sandbox.workspace import FIRST_TIME
from schemas.errors import UsageError
from schemas.trajectory import Outcome

__all__ = ["TOOLS", "TerminalEnvironment", "digest_of_jobs", "jobs_of"]

SYSTEM = (
    "You work at a shell (bash with the GNU tools, no network). Each call runs one command in /workspace or the folder "
    "that the call before ended in; variables are not kept. Touch nothing that the task does not ask for. Answer "
    "without a tool call when all is done."
)
OPENINGS = ("Please do the following.", "There is work to do in this workspace:", "Some jobs for you at the shell.")
QUIET_ENDINGS = (  # where no job asks anything
    "Leave no other files behind. Say so when all is done.",
    "Change nothing else. Finish with a short report.",
)
ENDINGS = (
    (
        "Leave no other files behind. When done, say so; put each answer on a line `Answer k: …`, k "
        "being the number of the job."
    ),
    (
        "Change nothing else. Finish with a short report; where something is asked, add a line `Answer "
        "k: …` for job number k."
    ),
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": f"Run a bash command; gives stdout and stderr, up to {OUTPUT_CHARACTERS} characters.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string", "minLength": 1}},
                "required": ["command"],
            },
        },
    }
]
LIMITS = Limits(cpu_seconds=10, wall_seconds=30.0, open_files=256, processes=64)
FIXED_BYTES = 2_600  # prompts, tool, final turns
BYTES_OF_A_STEP = 170  # a turn beside what its command shows
SMALLEST_JOB, LARGEST_JOB = 400.0, 24_000.0  # characters to read


def jobs_of(task: TaskSpec) -> list[Job]:
    """The jobs of a task with their material and the expert's way, made again from their keys."""
    taken: set[str] = set()
    return [_make(raw["kind"], raw["key"], raw["scale"], taken) for raw in task.data["jobs"]]


def _make(kind: str, key: str, scale: float, taken: set[str]) -> Job:
    return JOBS[kind](random.Random(key), taken, scale)  # noqa: S311 - seeded on purpose


class TerminalEnvironment(Environment):
    """See the module. It draws from no pool; `split` changes the word from which tasks are seeded."""

    family = "terminal"
    tools = TOOLS
    pool = None
    runs_programs = True

    def __init__(
        self, pool_path: str | Path | None = None, split: str = "train", sandbox: Sandbox | None = None
    ) -> None:
        if split not in ("train", "heldout", "all"):
            raise UsageError(f"split {split!r} is unknown. Use train, heldout or all")
        self._given_sandbox, self._sandbox = sandbox, sandbox
        self._workspace: Workspace | None = None
        self._shell: Shell | None = None
        self._git: bool | None = None
        self._split = "heldout" if split == "heldout" else "train"
        self._jobs: list[Job] = []
        self._judge: Judge | None = None
        self._answers: dict[int, str] = {}

    @property
    def gaps(self) -> tuple[str, ...]:
        """What this machine keeps tasks from having: ("git",) or nothing."""
        self._open()
        return () if self._git else ("git",)

    def generate(self, seed: int, difficulty: float) -> TaskSpec:
        """See `Environment.generate`."""
        if not 1 <= difficulty <= 10:
            raise UsageError(f"difficulty {difficulty:g} is out of range: 1 to 10")
        self._open()
        key = f"terminal:{self._split}:{seed}:{difficulty:g}"
        generator = random.Random(key)  # noqa: S311 - seeded on purpose
        left = target_bytes(difficulty) * generator.uniform(0.92, 1.08) - FIXED_BYTES
        taken: set[str] = set()
        raw: list[dict[str, Any]] = []
        jobs: list[Job] = []
        while not jobs or left > 2_500:
            kind = _drawn(generator, difficulty, bool(self._git))
            share = left if len(jobs) > 40 else left / max(1.0, left / LARGEST_JOB)
            scale = min(LARGEST_JOB, max(SMALLEST_JOB, share * generator.uniform(0.5, 0.8)))
            entry = {"kind": kind, "key": f"{key}:{len(jobs)}", "scale": round(scale)}
            jobs.append(_make(kind, entry["key"], entry["scale"], taken))  # type: ignore[arg-type]
            raw.append(entry)
            left -= sum(BYTES_OF_A_STEP + step.shows for step in jobs[-1].steps) + len(jobs[-1].request)
        requests = [job.request for job in jobs]
        if len(jobs) == 1:
            asked = jobs[0].answer is not None
            body = requests[0] + (" Give the answer in a last line `Answer: …`." if asked else "")
        else:
            body = "\n".join([generator.choice(OPENINGS), *(f"{n}. {text}" for n, text in enumerate(requests, 1))])
        endings = ENDINGS if any(job.answer is not None for job in jobs) else QUIET_ENDINGS
        ending = generator.choice(endings) if len(jobs) > 1 else "Change nothing else and leave no other files behind."
        instruction = f"{body}\n{ending}"
        data = {"split": self._split, "jobs": raw, "digest": digest_of_jobs(jobs)}
        return TaskSpec(f"{key.replace(':', '-')}", self.family, seed, difficulty, SYSTEM, instruction, data, "CC0-1.0")

    def reset(self, task: TaskSpec) -> str:
        """See `Environment.reset`. Raises UsageError for a task of another version, or one with git where none is."""
        workspace, shell = self._open()
        self._jobs = jobs_of(task)
        if digest_of_jobs(self._jobs) != task.data["digest"]:
            raise UsageError(f"task {task.id} was made by another version of the terminal family: generate it again")
        if not self._git and any(job.repository for job in self._jobs):
            raise UsageError(f"task {task.id} needs git, which this machine's sandbox does not have. Install git")
        self._answers = {}
        workspace.clear()
        shell.start()
        for job in self._jobs:
            _write(workspace, job.files)
        self._judge = Judge(workspace, shell, self._jobs)
        self._judge.begin()
        return task.instruction

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """See `Environment.call`."""
        if self._judge is None or self._shell is None:
            raise UsageError("call reset(task) first")
        return self._shell.run(arguments["command"])

    def answer(self, text: str) -> None:
        """See `Environment.answer`. A line without a number answers the first job that asks something."""
        first = next((n for n, job in enumerate(self._jobs, 1) if job.answer is not None), 1)
        self._answers = answers_of(text, first)

    def verify(self) -> Outcome:
        """Every job's goal, and that nothing else was touched; `reward` is the share of jobs that are right.

        Files and empty folders that belong to no goal take one job off the reward.
        """
        if self._judge is None:
            raise UsageError("call reset(task) first")
        right, stray = self._judge.count(self._answers)
        total = len(self._jobs)
        said = f"goal states and answers: {right} of {total} jobs" + (
            f", {stray} other files or folders touched" if stray else ""
        )
        return Outcome(right == total and not stray, max(0, right - bool(stray)) / total, said)

    def close(self) -> None:
        """See `Environment.close`. A sandbox that was handed in stays open."""
        if self._given_sandbox is None and self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
        self._workspace, self._shell, self._judge = None, None, None

    def _open(self) -> tuple[Workspace, Shell]:
        if self._sandbox is None:
            self._sandbox = Sandbox(LIMITS)
        if self._workspace is None or self._shell is None:
            self._workspace = self._sandbox.workspace()
            self._shell = Shell(self._sandbox, self._workspace)
            self._git = has_git(self._shell)
            if not self._git:
                warnings.warn("git is not installed: terminal tasks with repositories are left out", stacklevel=3)
        return self._workspace, self._shell


def _drawn(generator: random.Random, difficulty: float, git: bool) -> str:
    """A kind of job; where git is missing, another one in place of a git job (the draw before is the same)."""
    kinds = sorted(JOBS) if difficulty >= 1.5 else sorted(PLAIN_JOBS)
    kind, other = generator.choice(kinds), generator.choice(sorted(PLAIN_JOBS))
    return kind if git or kind not in GIT_JOBS else other


def digest_of_jobs(jobs: list[Job]) -> str:
    """128 bits over all that the jobs' material and goals are."""
    digest = xxhash.xxh3_128()
    for job in jobs:
        for path, file in (*sorted(job.files.items()), *sorted(job.expected.items())):
            digest.update(f"{path}\0{file.mode}\0{len(file.data)}\0".encode() + file.data)
        digest.update(f"{job.answer}\0{job.repository.stream if job.repository else ''}".encode())
    return digest.hexdigest()


def _write(workspace: Workspace, files: Mapping[str, File]) -> None:
    """Put a job's files into the workspace, owned by the sandbox's user, with times that count them."""
    made: set[Path] = {workspace.root}
    owner = workspace.uid

    def own(path: Path) -> None:
        if owner is not None:
            os.chown(path, owner, owner)

    for number, (name, file) in enumerate(files.items()):
        path = workspace.root / name
        for folder in reversed(path.parents):
            if folder.is_relative_to(workspace.root) and folder not in made:
                folder.mkdir(exist_ok=True)
                os.utime(folder, (FIRST_TIME, FIRST_TIME))
                own(folder)
                made.add(folder)
        path.write_bytes(file.data)
        path.chmod(file.mode)
        os.utime(path, (FIRST_TIME + number, FIRST_TIME + number))
        own(path)
    for folder in made:
        os.utime(folder, (FIRST_TIME, FIRST_TIME))
