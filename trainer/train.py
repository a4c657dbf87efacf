"""Train the looped transformer of a recipe from the shards of a run: pretraining, then the SFT stages.

Killed at any moment and started again it goes on from the last whole checkpoint and ends with the same weights and
the same metrics.jsonl, bit for bit (on one kind of machine, with the same number of threads).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemas.errors import UsageError
from schemas.files import TEMPORARY_PREFIX, write_json
from schemas.progress import Progress
from schemas.recipe import Recipe
from trainer.checkpoint import (
    CheckpointState,
    is_whole,
    latest_checkpoint,
    prune_checkpoints,
    publish_checkpoint,
    read_state,
    remove,
    restore,
    save_checkpoint,
    step_folder,
)
from trainer.config import LoopedConfig
from trainer.groups import plan_row
from trainer.loader import LoaderState, ShardLoader
from trainer.memory import threads
from trainer.metrics import MetricsLog, read_metrics, stage_line, stage_totals
from trainer.model import LoopedTransformer
from trainer.optimizer import learning_rate_at, make_optimizer
from trainer.pace import Pace
from trainer.plan import PHASES, StagePlan, changed_facts, plan_training, training_facts, training_key
from trainer.precision import choose_precision, computes_bf16
from trainer.sharding import shard_model
from trainer.signals import StopRequest, listen_for_signals
from trainer.step import NonFiniteError, StepSettings, gradient_step
from trainer.world import World, join_world

__all__ = ["TrainSummary", "train"]


@dataclass(frozen=True, slots=True)
class TrainSummary:
    """What was trained; `stages` as trainer.metrics.stage_totals gives them, `files` what the step wrote."""

    steps: int
    parameters: int
    stages: list[dict[str, Any]]
    checkpoint: str
    files: list[Path]


def train(recipe: Recipe, run: Path, progress: Progress, phase: str = "all") -> TrainSummary:
    """Train from `run`/shards into `run`/train; `phase` is pretrain, sft (needs pretrain done) or all.

    Writes train/metrics.jsonl, train/summary.json, train/checkpoints/{step-N, pretrain, final}. Checkpoints of the
    same recipe and shards are resumed; those of another are refused. Started by torchrun, all processes take part.

    Raises UsageError (other checkpoints there, wrong phase), CheckError (shard or checkpoint changed), NonFiniteError
    (after saving), TrainingStopped (after SIGTERM or Ctrl-C and saving; its exit code is 0 or 130).
    """
    if phase not in (*PHASES, "all"):
        raise UsageError(f"phase {phase!r} is not one of {', '.join(PHASES)}, all")
    with (
        join_world(recipe.train.sharding) as world,
        threads(recipe.train.threads, world),
        listen_for_signals(second_interrupts=world.size == 1) as stop,
    ):
        return _Training(recipe, run, progress, world, stop).run(phase)


class _Training:
    """One training: model, optimizer, loader and the number of steps done."""

    def __init__(self, recipe: Recipe, run: Path, progress: Progress, world: World, stop: StopRequest) -> None:
        self.recipe, self.run_folder, self.progress, self.world, self.stop = recipe, run, progress, world, stop
        self.folder = run / "train"
        self.checkpoints = self.folder / "checkpoints"
        self.loader = ShardLoader(run / "shards", seed=recipe.seed)
        self.plan = plan_training(self.loader.index, recipe)
        self.facts = training_facts(self.loader.index, recipe)
        self.key = training_key(self.facts)
        config = LoopedConfig.from_recipe(recipe.model, self.loader.index.vocab_size)
        self.model = LoopedTransformer(config, recipe.train.activation_checkpointing)
        self.model.initialise(recipe.seed)
        self.model.to(world.device)
        if world.sharded:
            shard_model(self.model, world.device)
        self.optimizer = make_optimizer(self.model, recipe.train.weight_decay)
        self.precision = choose_precision(recipe.train.precision, world)
        self.step = 0
        self.pace = Pace(progress.say)

    def run(self, phase: str) -> TrainSummary:
        start, end = self.plan.phase_steps(phase) if phase != "all" else (0, self.plan.steps)
        if self.world.size > 1 and self.world.leads:
            self.progress.say(self.world.how)
        metrics_bytes = self._resume()
        if self.world.leads and self.precision == "bf16" and not computes_bf16(self.world.device):
            self.progress.say("bf16 is emulated on this device: a step takes some ten times the seconds of fp32")
        if self.step < start:
            raise UsageError(
                f"{self.checkpoints}: {self.step} of {start} pretraining steps are done, so SFT cannot begin. "
                "Train with phase pretrain first, or with all"
            )
        self.metrics = MetricsLog(self.folder, metrics_bytes, self.step) if self.world.leads else None
        try:
            for stage in self.plan.stages:
                if stage.first_step < end and self.step < stage.end:
                    self._train_stage(stage)
            self._save()
        finally:
            if self.metrics is not None:
                self.metrics.close()
        return self._finish()

    def _resume(self) -> int:
        """Load the latest checkpoint, if there is one; returns how much of metrics.jsonl it knows."""
        if self.world.leads and self.checkpoints.is_dir():
            for leftover in self.checkpoints.glob(f"{TEMPORARY_PREFIX}*"):
                remove(leftover)
        self.world.wait()
        latest = latest_checkpoint(self.checkpoints)
        if latest is None:
            return 0
        state = read_state(latest)
        self.precision = choose_precision(self.recipe.train.precision, self.world, before=state.precision)
        changed = ["the recipe or the shards"]
        if state.made_with:  # a precision that auto chose is the same as that one by its name
            before = {**state.made_with, "train.precision": state.precision}
            changed = changed_facts(before, {**self.facts, "train.precision": self.precision}, state.phase)
        if state.key != self.key and changed:
            shown = "; ".join(changed[:6]) + (f"; and {len(changed) - 6} more" if len(changed) > 6 else "")
            raise UsageError(
                f"{latest}: this is another training ({shown}). Take back the change to go on, "
                f"delete {self.folder} to train anew, or use another run folder"
            )
        state = restore(latest, self.model, self.optimizer)
        self.loader.seek(LoaderState(**state.loader))
        self.step = state.step
        if self.world.leads:
            self.progress.say(f"resumed from {latest}: {self.step} of {self.plan.steps} steps were done")
            self._publish_pretrain()
        return state.metrics_bytes

    def _train_stage(self, stage: StagePlan) -> None:
        train = self.recipe.train
        first, end = self.plan.phase_steps(stage.phase)
        peak = train.learning_rate if stage.phase == "pretrain" else train.sft_learning_rate or train.learning_rate
        index = next(entry for entry in self.loader.stages if entry.name == stage.name)
        self.model.use_rope_theta(stage.rope_theta)
        with self._bar(f"train {stage.name}", index.tokens) as advance:
            if self.step > stage.first_step:  # resumed inside the stage
                advance(index.tokens * self.loader.state.cursor // stage.rows)
            while self.step < stage.end:
                if self.step == first:  # each phase starts with fresh moments
                    self.optimizer = make_optimizer(self.model, train.weight_decay)
                rate = learning_rate_at(
                    self.step - first,
                    end - first,
                    peak=peak,
                    warmup_steps=train.warmup_steps,
                    decay_share=train.decay_share,
                )
                for group in self.optimizer.param_groups:
                    group["lr"] = rate
                self._one_step(stage, rate, advance)
                self._stop_if_asked()
                if self.step % train.checkpoint_every == 0 or self.step == end:
                    self._save()
        if self.world.leads:
            self._say_stage(stage)

    def _one_step(self, stage: StagePlan, rate: float, advance: Any) -> None:
        before, began = self.loader.state, time.perf_counter()
        batch = self.loader.next_batch(stage.rows_per_step)
        assert batch is not None  # the plan counts the same rows
        train = self.recipe.train

        def done(tokens: int) -> None:
            advance(tokens)
            if self.stop.asked and self.world.size == 1:
                raise _StepAbandoned

        try:
            numbers = batch.share(self.world.rank, self.world.size)
            plans = [plan_row(batch.read(number), train.group_tokens, train.max_segment_tokens) for number in numbers]
            settings = StepSettings(train.loss, train.clip_norm, self.precision == "bf16")
            counts = gradient_step(self.model, self.optimizer, plans, settings, self.world, done)
        except _StepAbandoned:
            self.loader.seek(before)
            self._stop_if_asked()
        except NonFiniteError as error:
            self.loader.seek(before)
            self._save()
            raise NonFiniteError(
                f"step {self.step} of stage {stage.name}, {error} (state saved after {self.step} steps; "
                "a changed recipe is another training, which starts anew in another run folder)"
            ) from None
        else:
            if self.metrics is not None:
                line = {"step": self.step, "phase": stage.phase, "stage": stage.name, "learning_rate": rate}
                self.metrics.write({**line, **asdict(counts)}, time.perf_counter() - began)
            self.step += 1
            if self.world.leads:
                place = f"step {self.step} of {self.plan.steps} ({stage.name})"
                left = stage.rows - self.loader.state.cursor
                self.pace.step(place, counts.rows, counts.tokens, counts.trained_tokens, counts.loss, left)

    def _stop_if_asked(self) -> None:
        """Save and raise TrainingStopped when any process was asked to stop."""
        asked = self.world.total([float(self.stop.asked)])[0] if self.world.size > 1 else self.stop.asked
        if asked:
            self._save()
            raise self.stop.stopped(f"after {self.step} of {self.plan.steps} steps")

    def _save(self) -> None:
        """Write step-N unless it is there, publish `pretrain` at its edge, forget old checkpoints."""
        target = step_folder(self.checkpoints, self.step)
        if self.world.most(int(self.world.leads and not target.exists())):
            state = CheckpointState(
                step=self.step,
                phase="pretrain" if self.step <= self.plan.phase_steps("pretrain")[1] else "sft",
                key=self.key,
                loader=self.loader.state.to_json(),
                metrics_bytes=self.metrics.sync() if self.metrics is not None else 0,
                precision=self.precision,
                made_with=self.facts,
            )
            tokenizer = self.run_folder / "tokenizer"
            save_checkpoint(target, self.model, self.optimizer, state, tokenizer, self.world.leads)
        if self.world.leads:
            self._publish_pretrain()
            prune_checkpoints(self.checkpoints, self.recipe.train.keep_checkpoints)
        self.world.wait()

    def _publish_pretrain(self) -> None:
        target = self.checkpoints / "pretrain"
        if 0 < self.step == self.plan.phase_steps("pretrain")[1]:
            source = step_folder(self.checkpoints, self.step)
            if not is_whole(target, self.key):
                publish_checkpoint(source, target)

    def _finish(self) -> TrainSummary:
        """Publish `final` when every step is done, and write summary.json."""
        final = self.checkpoints / "final"
        done = self.step == self.plan.steps
        stages = stage_totals(read_metrics(self.folder / "metrics.jsonl"))
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        if self.world.leads:
            if done and not is_whole(final, self.key):
                publish_checkpoint(step_folder(self.checkpoints, self.step), final)
            summary = {
                "steps": self.step,
                "parameters": parameters,
                "precision": self.precision,
                "stages": stages,
                "key": self.key,
            }
            write_json(self.folder / "summary.json", summary)
        self.world.wait()
        if self.stop.asked and self.world.size == 1:  # came after the last step: a run must not go on to its next step
            raise self.stop.stopped(f"after {self.step} of {self.plan.steps} steps")
        files = [self.folder / "metrics.jsonl", self.folder / "summary.json"]
        for name in ("pretrain", "final"):
            folder = self.checkpoints / name
            files += sorted(folder.iterdir()) if folder.is_dir() else []
        return TrainSummary(self.step, parameters, stages, str(final if done else self.checkpoints / "pretrain"), files)

    @contextmanager
    def _bar(self, label: str, total: float) -> Iterator[Any]:
        if not self.world.leads:
            yield lambda tokens: None
            return
        with self.progress.task(label, total) as advance:
            yield advance

    def _say_stage(self, stage: StagePlan) -> None:
        """One line when a stage ends: what it trained and what it left out."""
        if self.metrics is None:
            return
        self.metrics.sync()
        totals = next(t for t in stage_totals(read_metrics(self.metrics.path)) if t["stage"] == stage.name)
        self.progress.say(stage_line(totals, self.recipe.train.max_segment_tokens))


class _StepAbandoned(Exception):  # noqa: N818  (not an error: leaves the step that SIGTERM interrupted)
    """Leave the present step; nothing of it was applied."""
