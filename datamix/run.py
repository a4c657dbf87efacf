"""The main job: run the steps that are not done yet, in order, and write a manifest for each.

Guarantees: a step counts as done only by its manifest, which is written last; a step whose key is unchanged is kept;
anything else is removed and run again. Hence a run that was stopped at any moment continues to the same bytes.
Nothing in a manifest depends on time; seconds per step go to RUN/timings.json.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datamix.folder import RUN_NAME, claim_folder, examine_folder
from datamix.inputs import InputDigests, step_inputs
from datamix.steps import STEPS, Step, find_step, step_key
from filters.trajectory.configure import configured_policy
from pipelines.context import RunContext, StepOutput
from pipelines.engine import Engine, open_engine
from pipelines.synthesis.requests import check_requests
from schemas.errors import DatamixError, UsageError
from schemas.files import read_json, write_json
from schemas.lock import locked
from schemas.manifest import Manifest, describe_files, manifest_path, read_manifest, write_manifest
from schemas.progress import Progress
from schemas.recipe import Recipe

__all__ = ["TIMINGS_NAME", "RunSummary", "run_job"]

TIMINGS_NAME = "timings.json"
ATTEMPTS = "attempts"  # RUN/attempts/STEP.json: the key that an unfinished step was started with


@dataclass(slots=True)
class RunSummary:
    """Which steps ran, which were kept as they were, and which are not done (after `until`)."""

    ran: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def run_job(
    recipe: Recipe,
    out: str | Path,
    progress: Progress,
    *,
    first: str | None = None,
    until: str | None = None,
    update: bool = False,
    steps: Sequence[Step] = STEPS,
    engine: Engine | None = None,
) -> RunSummary:
    """Run `recipe` into the folder `out`.

    `first` runs that step and those after it again whatever their state, and needs the steps before it done;
    `until` stops after that step; `update` goes on in a folder of an earlier form of the recipe. `engine` defaults
    to the recipe's. Raises UsageError for a folder or step name that cannot be used, and what the steps raise.
    """
    run = Path(out)
    start = 0 if first is None else find_step(first, "--from", steps)
    end = len(steps) if until is None else find_step(until, "--until", steps) + 1
    if start >= end:
        raise UsageError(f"--from {first} comes after --until {until}. Swap them")
    examine_folder(run, recipe, update=update)
    if start and not (run / RUN_NAME).is_file():
        raise UsageError(f"--from {first}: {run} holds no run, so the steps before it are not done. Leave --from out")
    configured_policy(recipe.trajectories.policy, recipe.trajectories.rules)  # so are a wrong policy or rule
    check_requests(recipe)
    for step in steps[:end]:
        step_inputs(step.name, recipe)  # a wrong path is said before anything is done or written
    with locked(run):
        claim_folder(run, recipe, update=update)
        job = _Job(run, recipe, progress, steps, engine or open_engine(recipe.engine.name, recipe.engine.workers))
        try:
            for position in range(end):
                job.do(position, again=first is not None and position >= start, must_be_done=position < start)
        except KeyboardInterrupt:
            progress.say("stopped: the same command continues from here")
            raise
        finally:
            job.end_workers()
        for position in range(end, len(steps)):
            job.leave(position)
    return job.summary


class _Job:
    """One invocation: the state that goes from step to step."""

    def __init__(self, run: Path, recipe: Recipe, progress: Progress, steps: Sequence[Step], engine: Engine) -> None:
        self.summary = RunSummary()
        self._run, self._recipe, self._progress, self._steps = run, recipe, progress, steps
        self._context = RunContext(run=run, recipe=recipe, engine=engine, progress=progress)
        self._inputs = InputDigests(run, progress)
        self._digests: dict[str, str] = {}  # finished step: digest of its manifest

    def do(self, position: int, *, again: bool, must_be_done: bool) -> None:
        """Keep the step or run it."""
        step = self._steps[position]
        place = f"[{position + 1}/{len(self._steps)}] {step.name}"
        key = step_key(step, self._recipe, self._digests, self._inputs.listing(step.name, self._recipe))
        manifest = read_manifest(self._run, step.name)
        if not again and manifest is not None and manifest.key == key and _files_are_there(self._run, manifest):
            self._progress.say(f"{place}: kept")
            self._digests[step.name] = manifest.digest()
            self.summary.kept.append(step.name)
            return
        if must_be_done:
            raise UsageError(
                f"--from: the step {step.name!r} before it is not done for this recipe. "
                "Leave --from out, or begin there"
            )
        self._prepare(step, key, again=again)
        self._progress.say(f"{place}: started")
        if not step.moves:
            self.end_workers()
        began = time.monotonic()
        output = step.load()(self._context)
        written = self._finish(step, key, output)
        seconds = time.monotonic() - began
        self._note_time(step.name, seconds)
        self._digests[step.name] = written.digest()
        self.summary.ran.append(step.name)
        self._progress.say(f"{place}: done in {seconds:.1f} s{_headline(output)}")

    def end_workers(self) -> None:
        """End the engine's processes, if it keeps any: a later map starts new ones."""
        close = getattr(self._context.engine, "close", None)
        if close is not None:
            close()

    def _prepare(self, step: Step, key: str, *, again: bool) -> None:
        """Remove what an earlier state of the step left, unless the step resumes an attempt of the same key."""
        manifest_path(self._run, step.name).unlink(missing_ok=True)
        attempt = self._run / ATTEMPTS / f"{step.name}.json"
        try:
            resumable = step.resumes and not again and read_json(attempt) == {"key": key}
        except (FileNotFoundError, ValueError):
            resumable = False
        if not resumable:
            attempt.unlink(missing_ok=True)
            self._remove_outputs(step)
            write_json(attempt, {"key": key})

    def _finish(self, step: Step, key: str, output: StepOutput) -> Manifest:
        missing = [path for path in output.files if not path.is_file()]
        if missing:
            raise DatamixError(f"step {step.name}: it says that it wrote {missing[0]}, which is not there")
        manifest = Manifest(step.name, key, describe_files(self._run, output.files), output.counts)
        write_manifest(self._run, manifest)
        (self._run / ATTEMPTS / f"{step.name}.json").unlink(missing_ok=True)
        return manifest

    def leave(self, position: int) -> None:
        """A step after `until`: keep it if it still fits, else remove it, so that the folder never mixes two states."""
        step = self._steps[position]
        self.summary.left.append(step.name)
        manifest = read_manifest(self._run, step.name)
        if manifest is None:
            return
        if all(name in self._digests for name in step.upstream):
            key = step_key(step, self._recipe, self._digests, self._inputs.listing(step.name, self._recipe))
            if manifest.key == key:
                self._digests[step.name] = manifest.digest()
                return
        manifest_path(self._run, step.name).unlink(missing_ok=True)
        self._remove_outputs(step)
        self._progress.say(f"{step.name}: removed, it was made from an earlier state")

    def _remove_outputs(self, step: Step) -> None:
        for owned in step.owns:
            path = self._run / owned
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _note_time(self, step: str, seconds: float) -> None:
        path = self._run / TIMINGS_NAME
        try:
            timings = read_json(path)
        except (FileNotFoundError, ValueError):
            timings = {}
        timings[step] = round(seconds, 3)
        write_json(path, timings)


def _files_are_there(run: Path, manifest: Manifest) -> bool:
    """Every output exists with its size: a deleted part is made again. Content is `datamix check`'s business."""
    for entry in manifest.files:
        path = run / entry.path
        if not path.is_file() or path.stat().st_size != entry.bytes:
            return False
    return True


def _headline(output: StepOutput) -> str:
    """The plain numbers among a step's counts, for the line that ends it."""
    numbers = [
        f"{name.replace('_', ' ')} {value:,}"
        for name, value in output.counts.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return ": " + ", ".join(numbers[:4]) if numbers else ""
