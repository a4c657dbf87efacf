"""Ranges of tasks: the unit that workers roll out, one output file each.

The step `synthesize` and the command `datamix synth` cut their tasks into ranges here and hand them to an engine.
What a range gives depends on the range alone: the files are the same on every engine and at every worker count.

Every trajectory is replayed before it is accepted: its calls run once more on a fresh task, and one whose observations
or verdict differ is rejected and counted ("replay_differs"). Measured on the scripted teachers, that adds 30 to 60 % to
the CPU of making and playing the tasks; no sample could promise what it gives: every accepted trajectory replays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.synthesis.environments.base import Environment, TaskSpec, environment_class, open_environment
from pipelines.synthesis.lengths import estimated_tokens
from pipelines.synthesis.replay import replay
from pipelines.synthesis.rollout import HELDOUT_SEEDS, rollout
from pipelines.synthesis.styles import mark_style, pick_style
from pipelines.synthesis.teachers.scripted import open_teacher
from schemas.errors import DatamixError, UsageError
from schemas.files import atomic_path
from schemas.recipe import SynthesizedConfig
from schemas.trajectory import TRAJECTORY_SCHEMA, Trajectory

__all__ = [
    "COUNTED",
    "Ledger",
    "TaskRange",
    "add_counts",
    "cut_ranges",
    "roll_out_range",
    "spread_difficulties",
    "task_seed",
    "write_rollouts",
]

MAX_STEPS = 3000
RANGE_TOKENS = 150_000.0  # a range of tasks is cut at about as many tokens, so that workers share long work
RANGE_TASKS = 32  # … and at as many tasks that need a pool, 128 of the lighter others
LIGHT_RANGE_TASKS = 128
_ENTRIES, _GOLDEN = 64, 618_033_989  # HELDOUT_SEEDS over the golden ratio, with no factor in common with it
COUNTED = ("tasks", "trajectories", "solved", "mistakes", "recoveries", "steps", "tokens")


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Tasks of one output file: (seed, difficulty) pairs in order.

    `pool` is what the family draws from; `fail` means that the first task without a trajectory ends the work.
    """

    config: SynthesizedConfig
    tasks: tuple[tuple[int, float], ...]
    teacher_seed: int
    pool: str | None
    out: str
    fail: bool


def spread_difficulties(n: int, low: float, high: float) -> list[float]:
    """`n` difficulties spread evenly over the closed range, both ends included (one: the lower end)."""
    return [round(low + (high - low) * k / max(1, n - 1), 6) for k in range(n)]


def task_seed(recipe_seed: int, position: int, number: int) -> int:
    """The seed of a training task, below HELDOUT_SEEDS. The numbers of an entry follow one another.

    Entries start far apart, by Fibonacci hashing (Knuth, TAOCP 3, 6.4): tasks of ten recipe seeds with 64 entries each
    meet only where an entry has more than 600,000.
    """
    return ((recipe_seed * _ENTRIES + position) * _GOLDEN + number) % HELDOUT_SEEDS


def cut_ranges(
    config: SynthesizedConfig, position: int, seed: int, raw: Path, pool: Path | None, *, fail: bool
) -> Iterator[TaskRange]:
    """The tasks of one entry of a recipe, cut into ranges by their expected length, in order.

    With a model as teacher all are in one range: key, journal, rate and cost cap are one. `position` is the entry's
    place in the recipe, `raw` the folder of the output files FAMILY-POSITION-NUMBER.parquet.
    """
    family = environment_class(config.family)
    most = LIGHT_RANGE_TASKS if family.pool is None else RANGE_TASKS
    groups: list[list[tuple[int, float]]] = [[]]
    load = 0.0
    for number, difficulty in enumerate(spread_difficulties(config.n, *config.difficulty)):
        cost = family.expected_tokens(difficulty)
        full = load + cost > RANGE_TOKENS or len(groups[-1]) >= most
        if groups[-1] and full and config.teacher == "scripted":
            groups.append([])
            load = 0.0
        groups[-1].append((task_seed(seed, position, number), difficulty))
        load += cost
    for number, group in enumerate(groups):
        out = raw / f"{config.family}-{position}-{number:05d}.parquet"
        yield TaskRange(config, tuple(group), seed, None if pool is None else str(pool), str(out), fail)


@dataclass(slots=True)
class Ledger:
    """What became of the tasks of a range: counts, rejections by reason, and a row for every rejection."""

    work: TaskRange
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTED, 0)))
    rejected: Counter[str] = field(default_factory=Counter)
    aside: list[dict[str, Any]] = field(default_factory=list)

    def accept(self, trajectory: Trajectory) -> None:
        """Count one that is written. A model's mistakes are its turns with a failed call; a scripted teacher says."""
        labels = [message.label or "" for message in trajectory.messages if message.role == "assistant"]
        scripted = self.work.config.teacher == "scripted"
        mistakes = sum(label.startswith("mistake") for label in labels) if scripted else trajectory.stats.errors
        self.counts["trajectories"] += 1
        self.counts["solved"] += trajectory.outcome.success is True
        self.counts["mistakes"] += mistakes
        self.counts["recoveries"] += labels.count("recovery") if scripted else trajectory.stats.recoveries
        self.counts["steps"] += len(labels)
        self.counts["tokens"] += estimated_tokens(trajectory)

    def reject(self, seed: int, difficulty: float, reason: str, detail: str) -> None:
        """Set a task aside. Raises DatamixError where the range is to fail."""
        family = self.work.config.family
        if self.work.fail:
            raise DatamixError(f"{family} task with seed {seed}, difficulty {difficulty:g}: {reason}: {detail}")
        self.rejected[reason] += 1
        row = {"family": family, "seed": seed, "difficulty": difficulty, "problem": reason, "detail": detail}
        self.aside.append(row)

    def generated(self, environment: Environment) -> Iterator[TaskSpec]:
        """The tasks of the range; those that cannot be made are set aside, and what they could not use is counted."""
        for seed, difficulty in self.work.tasks:
            self.counts["tasks"] += 1
            known = Counter(environment.left_out)
            try:
                task = environment.generate(seed, difficulty)
            except UsageError as error:
                self.reject(seed, difficulty, "no_task", str(error))
                continue
            finally:
                self.counts.update(Counter(environment.left_out) - known)
            yield task

    def replays(self, environment: Environment, trajectory: Trajectory) -> bool:
        """Whether the trajectory comes out the same again; one that does not is set aside."""
        differences = replay(environment, trajectory)
        if differences:
            first, task = differences[0], trajectory.task
            detail = f"message {first.message}: {first.replayed[:200]}"
            self.reject(task.seed or 0, task.difficulty or 0, "replay_differs", detail)
        return not differences

    def result(self) -> dict[str, Any]:
        """What goes back to the engine's caller."""
        return {
            "family": self.work.config.family,
            "counts": dict(self.counts),
            "rejected": dict(self.rejected),
            "aside": self.aside,
        }


def roll_out_range(work: TaskRange) -> dict[str, Any]:
    """Play the tasks of one range with the scripted teacher and write them; counts and set-aside rows come back."""
    ledger, config = Ledger(work), work.config
    styles: dict[str, float] = {style: share for style, share in config.call_styles.items()}  # noqa: C416 - wider keys

    def rolled() -> Iterator[Trajectory]:
        with open_environment(config.family, pool_path=work.pool) as environment:
            for task in ledger.generated(environment):
                teacher = open_teacher(config.family, environment, task, config.mistake_rate, work.teacher_seed)
                trajectory = rollout(environment, task, teacher, MAX_STEPS)
                if ledger.replays(environment, trajectory):
                    ledger.accept(trajectory)
                    yield mark_style(trajectory, pick_style(task.id, styles, work.teacher_seed))

    write_rollouts(work.out, rolled())
    return ledger.result()


def write_rollouts(path: str | Path, trajectories: Iterator[Trajectory]) -> int:
    """Write trajectories one by one (each may be megabytes) to a Parquet file, atomically; returns how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = 0
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, TRAJECTORY_SCHEMA, compression="zstd") as writer:
        batch: list[Trajectory] = []
        size = 0
        for trajectory in trajectories:
            batch.append(trajectory)
            size += sum(len(message.content) for message in trajectory.messages)
            written += 1
            if size >= 8_000_000:
                writer.write_table(pa.Table.from_pylist([item.to_row() for item in batch], TRAJECTORY_SCHEMA))
                batch, size = [], 0
        if batch:
            writer.write_table(pa.Table.from_pylist([item.to_row() for item in batch], TRAJECTORY_SCHEMA))
    return written


def add_counts(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Totals over what `roll_out_range` gave, and the same for each family."""
    total: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    rejected: Counter[str] = Counter()
    families: dict[str, Counter[str]] = {}
    for result in results:
        total.update(result["counts"])
        rejected.update(result["rejected"])
        families.setdefault(result["family"], Counter(dict.fromkeys(COUNTED, 0))).update(result["counts"])
    by_family = {name: dict(families[name]) for name in sorted(families)}
    return {**total, "rejected": dict(sorted(rejected.items())), "by_family": by_family}
