"""The steps of the main job, in order: what each reads, what it owns, and when it must run again.

A step is a function `step(context: RunContext) -> StepOutput`, named by module and attribute and imported only when
it runs. Its key is a digest of everything its outputs depend on; the runner compares keys, nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from datamix import __version__
from pipelines.context import RunContext, StepOutput
from schemas.errors import UsageError
from schemas.files import digest_of
from schemas.recipe import Recipe

__all__ = ["STEPS", "Step", "StepFunction", "find_step", "recipe_part", "step_key"]

StepFunction = Callable[[RunContext], StepOutput]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    `function` is "module:attribute"; `upstream` names the steps whose outputs it reads; `fields` are the recipe
    fields (dotted) that can change its outputs, "*" for the whole recipe; `owns` are the paths under the run folder
    that belong to it alone, removed before it runs; `notes` are patterns of files there that depend on time or on how
    often it was stopped, and so are in no manifest; `resumes` means that the step itself continues from what an
    interrupted attempt with the same key left there; `moves` False means that it uses no engine, whose processes are
    then ended before it.
    """

    name: str
    function: str
    upstream: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    owns: tuple[str, ...]
    notes: tuple[str, ...] = ()
    resumes: bool = False
    moves: bool = True

    def load(self) -> StepFunction:
        """Import the function."""
        module, _, attribute = self.function.partition(":")
        return cast(StepFunction, getattr(importlib.import_module(module), attribute))


STEPS: tuple[Step, ...] = (
    Step(
        name="read",
        function="pipelines.corpus.read.step:step",
        fields=("sources", "on_error", "engine.partitions"),
        owns=("documents", "set_aside/read.jsonl", "spill/read"),
    ),
    Step(
        name="quality",
        function="pipelines.corpus.quality:step",
        upstream=("read",),
        fields=("quality",),
        owns=("verdicts/quality",),
    ),
    Step(
        name="dedup",
        function="pipelines.corpus.dedup:step",
        upstream=("read", "quality"),
        fields=("dedup", "seed"),
        owns=("verdicts/dedup", "spill/dedup"),
    ),
    Step(
        name="classify",
        function="pipelines.corpus.classify:step",
        upstream=("read", "quality", "dedup"),
        fields=("classify", "seed"),
        owns=("verdicts/classify", "classifier"),
    ),
    Step(
        name="decontaminate",
        function="pipelines.corpus.decontaminate:step",
        upstream=("read", "quality", "dedup"),
        fields=("decontaminate", "on_error"),
        owns=("verdicts/decontaminate",),
    ),
    Step(
        name="corpus",
        function="pipelines.corpus.corpus:step",
        upstream=("read", "quality", "dedup", "classify", "decontaminate"),
        fields=("pii",),
        owns=("corpus",),
    ),
    Step(
        name="synthesize",
        function="pipelines.synthesis.step:step",
        upstream=("corpus",),
        fields=("trajectories.synthesized", "trajectories.recorded", "seed", "on_error", "evaluate"),
        owns=(
            "trajectories/raw",
            "trajectories/set_aside.jsonl",
            "trajectories/pool.jsonl",
            "trajectories/search",
        ),
        notes=("journals/*",),
    ),
    Step(
        name="masks",
        function="pipelines.curriculum.masks:masks",
        upstream=("synthesize",),
        fields=("trajectories.policy", "trajectories.rules", "decontaminate", "on_error", "engine.partitions"),
        owns=("trajectories/kept", "trajectories/dropped", "trajectories/sorting"),
    ),
    Step(
        name="tokenizer",
        function="pipelines.curriculum.tokenizer:tokenizer",
        upstream=("corpus", "masks"),
        fields=("tokenizer", "mixture", "curriculum.tool_calls", "seed"),
        owns=("tokenizer",),
    ),
    Step(
        name="reweight",
        function="pipelines.corpus.reweight:step",
        upstream=("corpus", "tokenizer"),
        fields=("mixture", "curriculum", "evaluate", "seed"),
        owns=("mixture", "spill/reweight"),
    ),
    Step(
        name="shards",
        function="pipelines.curriculum.shards:shards",
        upstream=("corpus", "masks", "tokenizer", "reweight"),
        fields=("*",),  # the shards' metadata carries the digest of the whole recipe
        owns=("shards", "work/shards"),
    ),
    Step(
        name="train",
        function="datamix.training:train_step",
        upstream=("shards", "tokenizer"),
        fields=("model", "train", "curriculum", "seed"),
        owns=("train",),
        notes=("train/timing.jsonl", "train/tensorboard/*", "train/checkpoints/step-*/*"),
        resumes=True,
        moves=False,
    ),
    Step(
        name="evaluate",
        function="datamix.training:evaluate_step",
        upstream=("train", "shards", "tokenizer", "reweight", "corpus", "synthesize"),
        fields=("evaluate", "trajectories", "model", "train", "seed"),
        owns=("evaluate",),
        moves=False,
    ),
)


def find_step(name: str, option: str, steps: Sequence[Step] = STEPS) -> int:
    """Position of the step called `name`. Raises UsageError that lists the names and quotes `option`."""
    names = [step.name for step in steps]
    if name not in names:
        raise UsageError(f"{option} {name!r}: no such step. Steps in order: {', '.join(names)}")
    return names.index(name)


def recipe_part(recipe: Recipe, field: str) -> Any:
    """The value at a dotted path of the recipe, as JSON ("*" is the digest of everything that changes bytes)."""
    if field == "*":
        return recipe.digest()
    value: Any = recipe.model_dump(mode="json")
    for name in field.split("."):
        value = value[name]
    return value


def step_key(step: Step, recipe: Recipe, upstream: dict[str, str], inputs: Sequence[Any]) -> str:
    """The step's key: equal keys mean equal outputs.

    `upstream` maps each upstream step to the digest of its manifest; `inputs` describes files from outside
    (`InputDigests.listing`). The version of datamix enters, so a new release computes afresh.
    """
    return digest_of(
        {
            "step": step.name,
            "datamix": __version__,
            "recipe": {field: recipe_part(recipe, field) for field in step.fields},
            "upstream": {name: upstream[name] for name in step.upstream},
            "inputs": list(inputs),
        }
    )
