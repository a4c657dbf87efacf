"""Which optimizer steps a run has: a pure function of the shards' index and the recipe, so that it resumes exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import UsageError
from schemas.files import digest_of
from schemas.recipe import Recipe
from schemas.shard import ShardIndex

__all__ = [
    "PHASES",
    "StagePlan",
    "TrainPlan",
    "changed_facts",
    "plan_training",
    "training_facts",
    "training_key",
]

PHASES = ("pretrain", "sft")

# Fields of recipe.train that say how often to save, how fast to go or what lies in memory at once. They change no
# weight, or only in which order numbers are added: who runs out of memory must be able to go on.
_WITHOUT_EFFECT = (
    "activation_checkpointing",
    "checkpoint_every",
    "group_tokens",
    "keep_checkpoints",
    "sharding",
    "threads",
)
_OF_SFT_ALONE = ("train.sft_learning_rate",)


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

    Raises UsageError when a stage does not fit the model, SFT stands before pretraining, nothing of a stage is trained
    (a mask that lost everything would train on nothing, in silence), or there is no row at all.
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
        if stage.rows and not sum(file.trained_tokens for file in stage.files):
            raise UsageError(
                f"stage {stage.name}: its {stage.rows} rows have no trained token: nothing is learned from them. "
                "Look at one with 'datamix show', mend the masks and write the shards again"
            )
        rows_per_step = max(1, recipe.train.tokens_per_step // stage.context_tokens)
        steps = math.ceil(stage.rows / rows_per_step)
        stages.append(StagePlan(stage.name, stage.phase, stage.rows, rows_per_step, step, steps, rope_theta))
        step += steps
    if not step:
        raise UsageError("these shards have no row in any stage: there is nothing to train")
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


def training_facts(index: ShardIndex, recipe: Recipe) -> dict[str, Any]:
    """Everything that changes a weight, by the name that a recipe gives it ("train.learning_rate")."""
    train: dict[str, Any] = recipe.train.model_dump(mode="json")
    facts = {f"train.{name}": value for name, value in train.items() if name not in _WITHOUT_EFFECT}
    facts |= {f"model.{name}": value for name, value in recipe.model.model_dump(mode="json").items()}
    for stage, theta in zip(index.stages, _rope_thetas(index, recipe), strict=True):
        facts[f"rope_theta of stage {stage.name}"] = theta
    return {**facts, "seed": recipe.seed, "shards": index.digest()}


def training_key(facts: Mapping[str, Any]) -> str:
    """Digest of `training_facts`; a checkpoint is only resumed under the same key."""
    return digest_of(dict(facts))


def changed_facts(before: Mapping[str, Any], now: Mapping[str, Any], phase: str) -> list[str]:
    """What differs between the facts of a checkpoint of `phase` and those of now: "name was this, is that" each.

    What SFT alone depends on does not count while pretraining is all that was done.
    """
    missing = "nothing"
    return [
        f"{name} was {_short(before.get(name, missing))}, is {_short(now.get(name, missing))}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name, missing) != now.get(name, missing)
        if phase != PHASES[0] or name not in _OF_SFT_ALONE
    ]


def _short(value: Any) -> Any:
    return value[:12] if isinstance(value, str) and len(value) == 64 else value  # a digest
