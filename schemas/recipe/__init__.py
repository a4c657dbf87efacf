"""Recipe: one YAML file that describes a whole run, checked before anything is done.

`load_recipe` is the door; the models say every field, its unit, default and range.
"""

from schemas.recipe.corpus import (
    ClassifyConfig,
    DecontaminateConfig,
    DedupConfig,
    LanguageConfig,
    PiiConfig,
    QualityConfig,
    SourceConfig,
)
from schemas.recipe.endpoint import CallStyle, EndpointConfig
from schemas.recipe.load import load_recipe, parse_recipe
from schemas.recipe.mixture import MixtureConfig, StageMixture
from schemas.recipe.model import Recipe
from schemas.recipe.training import (
    CurriculumConfig,
    EvaluateConfig,
    ModelConfig,
    PretrainStage,
    SftStage,
    TokenizerConfig,
    TrainConfig,
    stage_name,
)
from schemas.recipe.trajectories import RecordedConfig, SynthesizedConfig, TrajectoriesConfig

__all__ = [
    "CallStyle",
    "ClassifyConfig",
    "CurriculumConfig",
    "DecontaminateConfig",
    "DedupConfig",
    "EndpointConfig",
    "EvaluateConfig",
    "LanguageConfig",
    "MixtureConfig",
    "ModelConfig",
    "PiiConfig",
    "PretrainStage",
    "QualityConfig",
    "Recipe",
    "RecordedConfig",
    "SftStage",
    "SourceConfig",
    "StageMixture",
    "SynthesizedConfig",
    "TokenizerConfig",
    "TrainConfig",
    "TrajectoriesConfig",
    "load_recipe",
    "parse_recipe",
    "stage_name",
]
