"""Which optimizer steps a run has: a pure function of the shards' index and the recipe, so that it resumes exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from schemas.errors import UsageError
from schemas.files import digest_of
from schemas.recipe import Recipe
from schemas.shard import ShardIndex

__all__ = ["PHASES", "StagePlan", "TrainPlan", "plan_training", "training_key"]

PHASES = ("pretrain", "sft")

# Fields of recipe.train that say how often to save, how fast to go or where the model lies, and change no weight.
_WITHOUT_EFFECT = ("checkpoint_every", "keep_checkpoints", "sharding", "threads")


@dataclass(frozen=True, slots=True)
class StagePlan:
    """`steps` steps of `rows_per_step` rows (the last of them may be smaller), the first being number `first_step`.

    `rope_theta` is the rotary base in this stage: that of the last stage up to here which names one, else the model's.
    """

    name: str
    phase: str
    rows: int
    rows_per_step: int
    first_step: int
    steps: int
    rope_theta: float

    @property
    def end(self) -> int:
        return self.first_step + self.steps


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """All stages in order; pretraining comes before SFT."""

    stages: list[StagePlan]

    @property
    def steps(self) -> int:
        return self.stages[-1].end if self.stages else 0

    def phase_steps(self, phase: str) -> tuple[int, int]:
        """First step and end of a phase."""
        steps = [step for s in self.stages if s.phase == phase for step in (s.first_step, s.end)]
        if steps:
            return min(steps), max(steps)
        return (0, 0) if phase == PHASES[0] else (self.steps, self.steps)

    def stage_of(self, step: int) -> StagePlan:
        """The stage that step number `step` belongs to."""
        return next(stage for stage in self.stages if stage.first_step <= step < stage.end)


def plan_training(index: ShardIndex, recipe: Recipe) -> TrainPlan:
    """Lay out the steps: a step takes max(1, tokens_per_step // context_tokens) rows and never crosses a stage.

    Raises UsageError when a stage does not fit the model or SFT stands before pretraining.
    """
    stages: list[StagePlan] = []
    step = 0
    for stage, rope_theta in zip(index.stages, _rope_thetas(index, recipe), strict=True):
        if stage.phase not in PHASES:
            raise UsageError(f"stage {stage.name}: phase {stage.phase!r} is not one of {', '.join(PHASES)}")
        if stages and PHASES.index(stage.phase) < PHASES.index(stages[-1].phase):
            raise UsageError(f"stage {stage.name} ({stage.phase}) stands after {stages[-1].name} ({stages[-1].phase})")
        if stage.context_tokens > recipe.model.max_position_embeddings:
            raise UsageError(
                f"stage {stage.name} has context_tokens {stage.context_tokens}, above model.max_position_embeddings "
                f"{recipe.model.max_position_embeddings}. Raise it in the recipe or write shorter shards"
            )
        rows_per_step = max(1, recipe.train.tokens_per_step // stage.context_tokens)
        steps = math.ceil(stage.rows / rows_per_step)
        stages.append(StagePlan(stage.name, stage.phase, stage.rows, rows_per_step, step, steps, rope_theta))
        step += steps
    return TrainPlan(stages)


def _rope_thetas(index: ShardIndex, recipe: Recipe) -> list[float]:
    """The rotary base of every stage of the index. The recipe's stages of a phase are the index's, in order."""
    wanted = {"pretrain": [s.rope_theta for s in recipe.curriculum.pretrain]}
    wanted["sft"] = [s.rope_theta for s in recipe.curriculum.sft]
    changes = any(theta is not None for thetas in wanted.values() for theta in thetas)
    current = recipe.model.rope_theta
    found: list[float] = []
    for stage in index.stages:
        place = [other.phase for other in index.stages[: len(found)]].count(stage.phase)
        thetas = wanted.get(stage.phase, [])
        if changes and place >= len(thetas):
            raise UsageError(
                f"stage {stage.name}: curriculum.{stage.phase} has {len(thetas)} stages, the shards have more, so its "
                "rope_theta is not known. Write the shards again with this recipe"
            )
        current = (thetas[place] if changes else None) or current
        found.append(current)
    return found


def training_key(index: ShardIndex, recipe: Recipe) -> str:
    """Digest of everything that changes a weight; a checkpoint is only resumed under the same key."""
    train: dict[str, Any] = recipe.train.model_dump(mode="json")
    kept = {name: value for name, value in train.items() if name not in _WITHOUT_EFFECT}
    thetas = _rope_thetas(index, recipe)
    return digest_of([index.digest(), recipe.model.model_dump(mode="json"), kept, thetas, recipe.seed])
