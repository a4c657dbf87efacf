"""The whole recipe: its parts, and the checks that need more than one of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError, model_validator

from schemas.files import digest_of
from schemas.recipe.base import Name, Strict
from schemas.recipe.corpus import (
    ClassifyConfig,
    DecontaminateConfig,
    DedupConfig,
    PiiConfig,
    QualityConfig,
    SourceConfig,
)
from schemas.recipe.mixture import MixtureConfig, mixture_of_stage, unknown_names
from schemas.recipe.training import CurriculumConfig, EvaluateConfig, ModelConfig, TokenizerConfig, TrainConfig
from schemas.recipe.trajectories import TrajectoriesConfig

__all__ = ["EngineConfig", "Recipe"]


class EngineConfig(Strict):
    """What moves the batches. `partitions` is the number of corpus files; results depend on it, not on `workers`."""

    name: Literal["datatrove", "beam"] = "datatrove"
    workers: int = Field(default=2, ge=1)
    partitions: int = Field(default=8, ge=1, le=100_000)


class Recipe(Strict):
    """One run. `digest()` names its outputs: engine name and workers are left out, for they change no byte."""

    name: Name
    seed: int = Field(ge=0, lt=2**63)
    on_error: Literal["skip", "fail"] = "skip"
    engine: EngineConfig = EngineConfig()
    sources: list[SourceConfig] = Field(min_length=1)
    quality: QualityConfig = QualityConfig()
    dedup: DedupConfig = DedupConfig()
    classify: ClassifyConfig = ClassifyConfig()
    decontaminate: DecontaminateConfig = DecontaminateConfig()
    pii: PiiConfig | None = None
    mixture: MixtureConfig
    trajectories: TrajectoriesConfig = TrajectoriesConfig()
    tokenizer: TokenizerConfig
    curriculum: CurriculumConfig
    model: ModelConfig
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @model_validator(mode="after")
    def _parts_fit(self) -> Recipe:
        names = [source.name for source in self.sources]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"two sources are named {doubled[0]!r}: names must differ")
        self._mixtures_fit(names)
        contexts = [s.context_tokens for s in self.curriculum.pretrain] + [
            s.context_tokens for s in self.curriculum.sft
        ]
        longest = max(contexts, default=0)
        if longest > self.model.max_position_embeddings:
            raise ValueError(
                f"a stage has context_tokens {longest}, above model.max_position_embeddings "
                f"{self.model.max_position_embeddings}"
            )
        return self

    def _mixtures_fit(self, sources: list[str]) -> None:
        """Names that are known, stage mixtures that are whole, budgets that agree."""
        places = [("mixture", self.mixture)]
        for number, stage in enumerate(self.curriculum.pretrain if self.curriculum.staged else []):
            place = f"curriculum.pretrain.{number}.mixture"
            try:
                places.append((place, mixture_of_stage(self.mixture, stage.mixture, stage.budget_tokens)))
            except ValidationError as error:
                raise ValueError(f"{place}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        for place, mixture in places:
            problem = unknown_names(mixture, place, self.classify.labels, sources)
            if problem is not None:
                raise ValueError(problem)
        total = sum(stage.budget_tokens for stage in self.curriculum.pretrain)
        if self.curriculum.staged and total != self.mixture.budget_tokens:
            raise ValueError(
                f"mixture.budget_tokens is {self.mixture.budget_tokens}, the budgets of the pretraining stages sum to "
                f"{total}: where a stage has a mixture of its own they must be equal"
            )

    def stage_mixtures(self) -> list[MixtureConfig]:
        """The mixture of every pretraining stage, whole; empty when no stage has one of its own."""
        if not self.curriculum.staged:
            return []
        return [mixture_of_stage(self.mixture, s.mixture, s.budget_tokens) for s in self.curriculum.pretrain]

    def digest(self) -> str:
        """SHA-256 of everything that can change an output byte."""
        content = self.model_dump(mode="json")
        content["engine"] = {"partitions": self.engine.partitions}
        return digest_of(content)
