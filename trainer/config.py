"""The model's shape: from a recipe, to and from `config.json` with the field names of public `nanbeige` checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.errors import InputError
from schemas.files import read_json
from schemas.recipe import ModelConfig

__all__ = ["LoopedConfig", "read_config"]

# Fields that other readers of config.json want and that have one value here.
_FIXED: dict[str, Any] = {
    "architectures": ["NanbeigeForCausalLM"],
    "model_type": "nanbeige",
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "rope_scaling": None,
    "use_cache": True,
}


@dataclass(frozen=True, slots=True)
class LoopedConfig:
    """Shape of a looped transformer. `num_hidden_layers` counts physical layers; each runs `num_loops` times.

    The fields from `embedding_initializer_range` on are choices for training and variants for ablations, as
    schemas.recipe.ModelConfig describes them.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_loops: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    skip_loop_final_norm: bool
    initializer_range: float
    embedding_initializer_range: float | None = None
    loop_middle_layers: int | None = None
    loop_loss_weights: tuple[float, ...] = ()
    loop_share_kv: bool = False
    loop_input_injection: bool = False

    @classmethod
    def from_recipe(cls, model: ModelConfig, vocab_size: int) -> LoopedConfig:
        """The recipe's `model` part with the vocabulary of the shards; `head_dim` null becomes hidden/heads."""
        values = model.model_dump()
        values["head_dim"] = model.head_dim or model.hidden_size // model.num_attention_heads
        values["loop_loss_weights"] = tuple(model.loop_loss_weights)
        return cls(vocab_size=vocab_size, **values)

    def to_json(self) -> dict[str, Any]:
        """What `config.json` of a checkpoint holds; a variant that is off is not mentioned."""
        off = [name for name, default in _OPTIONAL.items() if getattr(self, name) == default]
        values = {name: value for name, value in asdict(self).items() if name not in off}
        return {**_FIXED, **values, "torch_dtype": "float32"}

    @property
    def blocks(self) -> tuple[range, range, range]:
        """Physical layers that run once before the passes, in every pass, and once after them."""
        count = self.num_hidden_layers
        middle = count if self.loop_middle_layers is None else self.loop_middle_layers
        first = (count - middle) // 2
        return range(first), range(first, first + middle), range(first + middle, count)

    @property
    def variants(self) -> list[str]:
        """Names of the variants that are on and change what the model computes."""
        return [
            name
            for name, default in _OPTIONAL.items()
            if getattr(self, name) != default and name not in _OF_TRAINING_ALONE
        ]

    def cache_slots(self, num_loops: int | None = None) -> int:
        """Key/value caches of one sequence: one for each layer that is run, or for each physical one if shared."""
        if self.loop_share_kv:
            return self.num_hidden_layers
        middle = len(self.blocks[1])
        return self.num_hidden_layers - middle + middle * (num_loops or self.num_loops)


_OPTIONAL: dict[str, Any] = {
    "embedding_initializer_range": None,
    "loop_middle_layers": None,
    "loop_loss_weights": (),
    "loop_share_kv": False,
    "loop_input_injection": False,
}
# Options of the public code that change what is computed and have no tensor of their own, or none in every checkpoint.
_UNKNOWN_OPTIONS = ("enable_double_loop_split", "qk_layernorm")
_RESTORE = "Restore the checkpoint"
_OF_TRAINING_ALONE = {"embedding_initializer_range", "loop_loss_weights"}


def read_config(folder: str | Path) -> LoopedConfig:
    """Read `folder/config.json`.

    Every field must be there: a missing `num_loops` would silently mean a model of half the depth elsewhere
    (llama.cpp takes it for 1). Raises InputError naming a field that is missing, or holds what no recipe may.
    """
    path = Path(folder) / "config.json"
    try:
        raw = read_json(path)
    except FileNotFoundError:
        raise InputError("no such file", path=str(path), todo="Give the folder of a checkpoint") from None
    except ValueError as error:
        raise InputError(f"not JSON ({error})", path=str(path), todo=_RESTORE) from None
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if kind != "nanbeige":
        raise InputError(
            f"received {kind!r}, only 'nanbeige' is known",
            path=str(path),
            field="model_type",
            todo="Give our checkpoint",
        )
    values = {}
    for item in fields(LoopedConfig):
        if item.name in _OPTIONAL and item.name not in raw:
            continue
        if item.name not in raw:
            raise InputError("missing", path=str(path), field=item.name, todo="Write the field into config.json")
        values[item.name] = raw[item.name]
    for name, allowed in _FIXED.items():
        said = raw.get(name)
        if name in ("attention_bias", "mlp_bias", "hidden_act", "rope_scaling") and said not in (None, allowed):
            problem = f"received {said!r}, this model has {allowed!r}"
            raise InputError(problem, path=str(path), field=name, todo="Not supported")
    for name in _UNKNOWN_OPTIONS:
        if raw.get(name):
            problem = f"received {raw[name]!r}, this model has no such option"
            raise InputError(problem, path=str(path), field=name, todo="Not supported")
    if raw.get("enable_double_loop_split") is False:  # then the public code does not look at the other field
        values.pop("loop_middle_layers", None)
    vocab_size = values.pop("vocab_size")
    if type(vocab_size) is not int or vocab_size < 1:
        problem = f"received {vocab_size!r}, allowed are whole numbers from 1"
        raise InputError(problem, path=str(path), field="vocab_size", todo=_RESTORE)
    try:
        return LoopedConfig.from_recipe(ModelConfig.model_validate(values), vocab_size)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        problem = f"received {first['input']!r}: {first['msg']}" if name else first["msg"]
        raise InputError(problem, path=str(path), field=name, todo=_RESTORE) from None
