"""Teachers behind an endpoint: any model that an OpenAI-compatible server offers, as agents on tasks in parallel.

    report = EndpointReport()
    for trajectory in roll_out_endpoint(tasks, open_family, settings, run / "journal.jsonl", progress, report):
        ...                        # in the order of tasks, the samples of a task one after another
    report.stopped                 # "" when all was done, else why not: the same call goes on from the journal

Trajectories are canonical whatever the call style; the style is a note on them (styles.py). A reply that is cut, empty,
refused or missing ends its run as a turn with that `stop`; what went wrong is in the trajectory's notes and counted.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pipelines.synthesis.endpoint.agent import EndpointAgent
from pipelines.synthesis.endpoint.client import EndpointClient, Usage
from pipelines.synthesis.endpoint.limits import Stopped
from pipelines.synthesis.endpoint.status import LOOK_SECONDS, Status
from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.styles import mark_style
from schemas.progress import Progress
from schemas.recipe.endpoint import EndpointConfig
from schemas.trajectory import Trajectory

__all__ = ["EndpointReport", "pass_rate_row", "roll_out_endpoint"]

Attempt = tuple[Trajectory, int]  # with the tokens that the model wrote
AHEAD = 2  # samples under way or done and not yet given, for every thread


@dataclass(slots=True)
class EndpointReport:
    """What was done. `stopped`: "" (all tasks), cost_cap, endpoint_down, or closed; then `unfinished` tasks were begun
    and not ended. `endings` counts trajectories by how they ended, `problems` replies by what was wrong with them,
    `pass_rates` has a row for every task (`pass_rate_row`), `written` the tokens written in every trajectory given."""

    tasks: int = 0
    trajectories: int = 0
    solved: int = 0
    unfinished: int = 0
    stopped: str = ""
    endings: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    pass_rates: list[dict[str, Any]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    damaged_lines: int = 0

    def to_counts(self) -> dict[str, Any]:
        """All of it but the pass rates, as plain numbers for a summary."""
        usage = {name: getattr(self.usage, name) for name in self.usage.__slots__}
        return {
            "tasks": self.tasks,
            "trajectories": self.trajectories,
            "solved": self.solved,
            "unfinished": self.unfinished,
            "stopped": self.stopped,
            "endings": dict(sorted(self.endings.items())),
            "problems": dict(sorted(self.problems.items())),
            "damaged_journal_lines": self.damaged_lines,
            **{name: round(value, 6) if isinstance(value, float) else value for name, value in usage.items()},
        }

    def lines(self) -> list[str]:
        """The same for people: a line or two, three when the work was stopped."""
        usage = self.usage
        said = [
            f"endpoint: {self.trajectories} trajectories of {self.tasks} tasks, {self.solved} solved; ended by "
            + (", ".join(f"{name} {n}" for name, n in self.endings.most_common()) or "nothing"),
            f"endpoint: {usage.requests} requests ({usage.reused} more from the journal, {usage.retries} retries, "
            f"{usage.failed} failed), {usage.prompt_tokens} + {usage.completion_tokens} tokens, cost {usage.cost:.4f}",
        ]
        if self.problems:
            said.append("endpoint: replies with " + ", ".join(f"{name} {n}" for name, n in self.problems.most_common()))
        if self.stopped:
            said.append(
                f"endpoint: stopped ({self.stopped}) with {self.unfinished} tasks begun and not ended; "
                "the same command goes on from the journal"
            )
        return said


def pass_rate_row(task: TaskSpec, trajectories: list[Trajectory]) -> dict[str, Any]:
    """How often a task was solved, and the difficulty from 1 (always) to 10 (never) that this measures."""
    solved = sum(trajectory.outcome.success is True for trajectory in trajectories)
    rate = solved / len(trajectories)
    return {
        "task": task.id,
        "family": task.family,
        "seed": task.seed,
        "difficulty": task.difficulty,
        "samples": len(trajectories),
        "solved": solved,
        "pass_rate": rate,
        "measured_difficulty": 1 + 9 * (1 - rate),
    }


def roll_out_endpoint(
    tasks: Iterable[TaskSpec],
    open_family: Callable[[str], Environment],
    settings: EndpointConfig,
    journal: str | Path | None,
    progress: Progress,
    report: EndpointReport | None = None,
    *,
    label: str = "endpoint",
    count: int | None = None,
) -> Generator[Trajectory, None, None]:
    """Let the endpoint do `settings.samples` attempts at every task, `settings.concurrency` at once.

    Gives trajectories in order. `tasks` is drawn from lazily, in the caller's thread; `open_family` gives a new
    environment of a family for a thread of its own. `report` is filled in while this goes on. With a `journal` finished
    requests are never made twice. `progress` gets a bar of samples named `label` (for `count` tasks), a line every half
    minute of what was asked and what failed, and the summary. Raises UsageError (no key, journal in use) and
    DatamixError (wrong address, key or model) at once. Memory: a few trajectories for every thread.
    """
    report = EndpointReport() if report is None else report
    with EndpointClient(settings, journal) as client:
        report.usage = client.usage
        if client.journal is not None and client.journal.damaged:
            report.damaged_lines = client.journal.damaged
            progress.say(f"endpoint: {report.damaged_lines} lines of {client.journal.path} cannot be read: asked again")
        total = None if count is None else count * settings.samples
        with progress.task(f"{label}: samples", total) as advance, _Workers(client, open_family, report) as workers:
            status = Status(label, client, progress, advance, total)
            for task, attempts in workers.run(tasks, status):
                made = [attempt for attempt in attempts if attempt is not None]
                report.unfinished += len(made) < len(attempts)
                if made:
                    yield from _counted(task, made, settings, report)
        for line in report.lines():
            progress.say(line)


def _counted(
    task: TaskSpec, made: list[Attempt], settings: EndpointConfig, report: EndpointReport
) -> Iterator[Trajectory]:
    """The trajectories of one task, counted and with what was measured noted on them."""
    row = pass_rate_row(task, [trajectory for trajectory, _ in made])
    report.tasks += 1
    report.pass_rates.append(row)
    for trajectory, written in made:
        report.written.append(written)
        report.trajectories += 1
        report.solved += trajectory.outcome.success is True
        report.endings[_ending(trajectory)] += 1
        if settings.samples > 1:
            trajectory.notes.append(f"pass_rate={row['solved']}/{row['samples']}")
        yield trajectory


def _ending(trajectory: Trajectory) -> str:
    if "max_steps" in trajectory.flags:
        return "max_steps"
    stop = trajectory.messages[-1].stop
    return "answer" if stop in (None, "", "stop") else stop


class _Workers:
    """Threads that roll out, each with environments of its own: made, used and closed there."""

    def __init__(
        self, client: EndpointClient, open_family: Callable[[str], Environment], report: EndpointReport
    ) -> None:
        self._client, self._open_family, self._report = client, open_family, report
        self._jobs: SimpleQueue[tuple[Future[Attempt | None], TaskSpec, int] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._finished = self._solved = 0  # samples
        self._lock = threading.Lock()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        """End the threads. What is under way is waited for and kept, but not when somebody interrupts the work."""
        self._closing = True
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._client.abandon()
        self._client.stop()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _submit(self, task: TaskSpec, sample: int) -> Future[Attempt | None]:
        if len(self._threads) < self._client.settings.concurrency:
            self._threads.append(threading.Thread(target=self._work, name="endpoint", daemon=True))
            self._threads[-1].start()
        future: Future[Attempt | None] = Future()
        self._jobs.put((future, task, sample))
        return future

    def _work(self) -> None:
        with ExitStack() as own:
            opened: dict[str, Environment] = {}
            while (job := self._jobs.get()) is not None:
                future, task, sample = job
                if self._closing:
                    future.set_result(None)
                    continue
                try:
                    if task.family not in opened:
                        opened[task.family] = own.enter_context(self._open_family(task.family))
                    future.set_result(self._attempt(opened[task.family], task, sample))
                except BaseException as error:
                    future.set_exception(error)

    def run(self, tasks: Iterable[TaskSpec], status: Status) -> Iterator[tuple[TaskSpec, list[Attempt | None]]]:
        """Every task with its attempts, in order; None is an attempt that was stopped. `status` hears how far it is."""
        settings = self._client.settings
        room = AHEAD * settings.concurrency
        waiting: deque[tuple[TaskSpec, list[Future[Attempt | None]]]] = deque()
        under_way = 0
        source = iter(tasks)
        drained = False
        while True:
            while not drained and not self._report.stopped and (under_way < room or not waiting):
                task = next(source, None)
                if task is None:
                    drained = True
                    break
                waiting.append((task, [self._submit(task, n) for n in range(settings.samples)]))
                under_way += settings.samples
                status.look(self._finished, self._solved)
            if not waiting:
                return
            task, futures = waiting.popleft()
            under_way -= len(futures)
            while wait(futures, LOOK_SECONDS).not_done:
                status.look(self._finished, self._solved)
            status.look(self._finished, self._solved, last=not waiting)
            yield task, [future.result() for future in futures]

    def _attempt(self, environment: Environment, task: TaskSpec, sample: int) -> Attempt | None:
        agent = EndpointAgent(self._client, task.id, sample)
        try:
            trajectory = rollout(environment, task, agent, self._client.settings.max_steps)
        except Stopped as stopped:
            with self._lock:
                self._report.stopped = self._report.stopped or stopped.reason
            self._client.stop()
            return None
        with self._lock:
            self._report.problems.update(agent.problems)
            self._finished += 1
            self._solved += trajectory.outcome.success is True
        settings = self._client.settings
        trajectory = mark_style(trajectory, settings.call_style)
        notes = [f"teacher={settings.model}", *agent.notes, *trajectory.notes]
        return replace(trajectory, notes=notes, origin=f"{trajectory.origin}&sample={sample}"), agent.written
