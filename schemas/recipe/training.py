"""Recipe models of the training half: tokenizer, curriculum, model, training, evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from schemas.recipe.base import Name, Share, Strict, check_difficulty
from schemas.recipe.mixture import StageMixture

__all__ = [
    "CurriculumConfig",
    "EvaluateConfig",
    "ModelConfig",
    "PretrainStage",
    "SftStage",
    "TokenizerConfig",
    "TokenizerTrainConfig",
    "TrainConfig",
    "stage_name",
]


class TokenizerTrainConfig(Strict):
    """Byte-level BPE trained on the run's own mixture; `sample_bytes` bounds the text it is trained on."""

    vocab_size: int = Field(default=8192, ge=300, le=1_000_000)
    sample_bytes: int = Field(default=20_000_000, ge=10_000)


class TokenizerConfig(Strict):
    """Either `train` (ours, from this corpus) or `path` (a folder with tokenizer.json)."""

    train: TokenizerTrainConfig | None = None
    path: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> TokenizerConfig:
        if (self.train is None) == (self.path is None):
            raise ValueError("give exactly one of 'train' and 'path'")
        return self


class PretrainStage(Strict):
    """Rows of `context_tokens` from the reweighted corpus, `budget_tokens` in all.

    `rope_theta` changes the rotary base from this stage on (null leaves it). `mixture` is what the stage changes of the
    recipe's mixture; where any stage has one, every stage gets its own documents, from one supply with epochs counted
    over all stages. `name` is what the shards and figures call the stage.
    """

    context_tokens: int = Field(ge=16, le=16_777_216)
    budget_tokens: int = Field(ge=1)
    rope_theta: float | None = Field(default=None, gt=0)
    name: Name | None = Field(default=None, exclude_if=lambda value: value is None)
    mixture: StageMixture | None = Field(default=None, exclude_if=lambda value: value is None)


def stage_name(place: int, stage: PretrainStage) -> str:
    """What the shards call a pretraining stage: its place, and its name or its context."""
    return f"pretrain-{place}-{stage.name or stage.context_tokens}"


class SftStage(Strict):
    """One stage of the trajectory curriculum.

    `trained_tokens` is the budget after loss masking; `shares` are of trained tokens by kind of family. `replay` is the
    part of the budget that is taken once more from records of earlier stages, in whole rows of their own.
    `order` is by which records are taken first: easy and short ones, or hard and long ones; by default easy ones, and
    hard ones in the last of several stages. `rope_theta` changes the rotary base from this stage on (null leaves it).
    """

    context_tokens: int = Field(ge=64, le=16_777_216)
    trained_tokens: int = Field(ge=1)
    shares: dict[Literal["reasoning", "general", "agentic"], Share] = {}
    rope_theta: float | None = Field(default=None, gt=0)
    replay: float = Field(default=0.0, ge=0, lt=1)
    order: Literal["easy_first", "hard_first"] | None = None

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> SftStage:
        total = sum(self.shares.values())
        if self.shares and abs(total - 1) > 1e-6:
            raise ValueError(f"the shares sum to {total:g}: they must sum to 1")
        return self


class CurriculumConfig(Strict):
    """Pretraining rows, then SFT stages of rising context. `rows_per_file` is the size of a shard file.

    `cost_window` > 1 puts rows of like cost (sum of squared segment lengths) side by side, so many at a time.
    `history` says what happens where the tokenizer's own chat template rewrites earlier turns: refuse that trajectory,
    or split it at its user turns. `thinking` is what becomes of the think blocks before the last user message: keep,
    drop, or split (a rendering for each user message, earlier blocks empty, each answer trained once). `tool_calls` is
    how our chat template writes calls; a tokenizer with another template has a form of its own.
    """

    pretrain: list[PretrainStage] = []
    sft: list[SftStage] = []
    rows_per_file: int = Field(default=256, ge=1)
    cost_window: int = Field(default=1, ge=1)
    history: Literal["refuse", "split"] = "refuse"
    thinking: Literal["keep", "drop", "split"] = "keep"
    tool_calls: Literal["xml", "json"] = "xml"

    @property
    def staged(self) -> bool:
        """Whether a pretraining stage has a mixture of its own."""
        return any(stage.mixture is not None for stage in self.pretrain)

    @model_validator(mode="after")
    def _contexts_rise(self) -> CurriculumConfig:
        contexts = [stage.context_tokens for stage in self.sft]
        if contexts != sorted(contexts):
            raise ValueError(f"sft context_tokens {contexts} must not fall from stage to stage")
        names = [stage.name for stage in self.pretrain if stage.name is not None]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"two pretraining stages are named {doubled[0]!r}: names must differ")
        return self


class ModelConfig(Strict):
    """The looped transformer; names as in the public `nanbeige` config. `head_dim` null means hidden/heads.

    Matrices begin as normal(0, `initializer_range`), input embeddings as normal(0, `embedding_initializer_range`), null
    for the same. The final norm hands every later pass vectors of deviation 1: embeddings of deviation 1 let the first
    pass read the same scale, and untied small models then learn far faster (docs/training.md; large embeddings also
    steady training, arXiv 2312.16903). With tied embeddings it would be the logits' scale too: leave it null there.

    Variants for ablations, all off by default: `loop_middle_layers` of the layers are looped and those before and
    after them run once; `loop_loss_weights` adds the loss after each pass but the last (one weight each, the last pass
    has the rest of 1); `loop_share_kv` lets later passes attend to the keys and values of the first;
    `loop_input_injection` adds what entered the first pass to what enters every later one.
    """

    hidden_size: int = Field(ge=8)
    num_hidden_layers: int = Field(ge=1)
    num_loops: int = Field(default=2, ge=1, le=64)
    num_attention_heads: int = Field(ge=1)
    num_key_value_heads: int = Field(ge=1)
    head_dim: int | None = Field(default=None, ge=2)
    intermediate_size: int = Field(ge=8)
    rope_theta: float = Field(default=10_000.0, gt=0)
    rms_norm_eps: float = Field(default=1e-5, gt=0)
    max_position_embeddings: int = Field(default=262_144, ge=16)
    tie_word_embeddings: bool = True
    skip_loop_final_norm: bool = False
    initializer_range: float = Field(default=0.02, gt=0)
    embedding_initializer_range: float | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    loop_middle_layers: int | None = Field(default=None, ge=1)
    loop_loss_weights: list[Share] = []
    loop_share_kv: bool = False
    loop_input_injection: bool = False

    @model_validator(mode="after")
    def _embeddings_are_no_output(self) -> ModelConfig:
        if self.tie_word_embeddings and self.embedding_initializer_range is not None:
            raise ValueError(
                "embedding_initializer_range needs an output matrix of its own: tie_word_embeddings: false"
            )
        return self

    @model_validator(mode="after")
    def _variants_fit(self) -> ModelConfig:
        if self.loop_middle_layers is not None and self.loop_middle_layers > self.num_hidden_layers:
            raise ValueError(
                f"loop_middle_layers {self.loop_middle_layers} is more than num_hidden_layers {self.num_hidden_layers}"
            )
        weights = self.loop_loss_weights
        if weights and (len(weights) != self.num_loops - 1 or sum(weights) > 1):
            raise ValueError(
                f"loop_loss_weights {weights} must be num_loops - 1 = {self.num_loops - 1} weights that sum to at most "
                "1: one for each pass but the last, which has the rest"
            )
        if weights and self.loop_middle_layers not in (None, self.num_hidden_layers):
            raise ValueError("loop_loss_weights need every layer looped: leave loop_middle_layers null")
        return self

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelConfig:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} must be a multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of num_attention_heads "
                f"{self.num_attention_heads}, or set head_dim"
            )
        if (self.head_dim or self.hidden_size // self.num_attention_heads) % 2:
            raise ValueError("head_dim must be even (rotary embedding turns pairs)")
        return self


class TrainConfig(Strict):
    """How the model is trained.

    `precision` auto is bf16 where the device multiplies bfloat16 in hardware, else fp32; a training that is continued
    keeps what it began with.
    `tokens_per_step` is the size of an optimizer step in row tokens (whole rows, at least one);
    `group_tokens` bounds what is in memory at once: a row is processed in groups of whole segments;
    `max_segment_tokens` leaves longer segments out (counted and printed), null leaves out nothing.
    Pretraining and SFT each have their own warm-up (`warmup_steps`, at most a fifth of the phase), stable rate and
    decay over the last `decay_share`; `sft_learning_rate` null means `learning_rate`; `threads` null is one on a CPU.
    With several processes `sharding` auto spreads the model over them (FSDP2), none gives every process all of it.
    """

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    learning_rate: float = Field(default=3e-3, gt=0)
    sft_learning_rate: float | None = Field(default=None, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    warmup_steps: int = Field(default=20, ge=0)
    decay_share: Share = 0.2
    clip_norm: float = Field(default=1.0, gt=0)
    tokens_per_step: int = Field(default=16_384, ge=1)
    group_tokens: int = Field(default=8_192, ge=1)
    max_segment_tokens: int | None = Field(default=None, ge=2)
    loss: Literal["token-mean", "sample-mean"] = "token-mean"
    checkpoint_every: int = Field(default=50, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    activation_checkpointing: bool = False
    sharding: Literal["auto", "none"] = "auto"
    threads: int | None = Field(default=None, ge=1)


class EvaluateConfig(Strict):
    """What the trained model is measured on.

    `heldout_share` of the documents (at least `heldout_documents` a domain) is never trained on; `tasks` is the
    number of held-out agent tasks of `family`, with difficulties spread over `difficulty`. `families` names several,
    each measured on so many tasks, in the place of `family`.
    """

    heldout_share: float = Field(default=0.01, gt=0, lt=0.5)
    heldout_documents: int = Field(default=4, ge=1)
    tasks: int = Field(default=4, ge=0)
    family: Name = "repair"
    families: list[Name] = Field(default=[], exclude_if=lambda value: not value)
    difficulty: tuple[float, float] = (1, 2)
    max_steps: int = Field(default=6, ge=1)
    max_new_tokens: int = Field(default=192, ge=1)

    @property
    def measured(self) -> list[str]:
        """The families that tasks are taken from: none without tasks, each once."""
        return list(dict.fromkeys(self.families or [self.family])) if self.tasks else []

    @model_validator(mode="after")
    def _range_is_ordered(self) -> EvaluateConfig:
        check_difficulty(self.difficulty)
        return self
