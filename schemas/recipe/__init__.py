"""Recipe: one YAML file that describes a whole run, checked before anything is done.

`load_recipe` is the door; the models say every field, its unit, default and range.
"""

from schemas.recipe.corpus import (
    ClassifyConfig,
    DecontaminateConfig,
    DedupConfig,
    MixtureConfig,
    QualityConfig,
    SourceConfig,
)
from schemas.recipe.load import load_recipe, parse_recipe
from schemas.recipe.model import Recipe
from schemas.recipe.training import (
    CurriculumConfig,
    EvaluateConfig,
    ModelConfig,
    PretrainStage,
    SftStage,
    TokenizerConfig,
    TrainConfig,
)
from schemas.recipe.trajectories import RecordedConfig, SynthesizedConfig, TrajectoriesConfig

__all__ = [
    "ClassifyConfig",
    "CurriculumConfig",
    "DecontaminateConfig",
    "DedupConfig",
    "EvaluateConfig",
    "MixtureConfig",
    "ModelConfig",
    "PretrainStage",
    "QualityConfig",
    "Recipe",
    "RecordedConfig",
    "SftStage",
    "SourceConfig",
    "SynthesizedConfig",
    "TokenizerConfig",
    "TrainConfig",
    "TrajectoriesConfig",
    "load_recipe",
    "parse_recipe",
]
