"""The looped transformer: Llama-style layers whose whole stack runs `num_loops` times with the same weights.

The maths is that of the public `nanbeige` architecture, and so are the tensor names of the state dict:

    x = embedding(ids)
    for each pass:
        for each layer:  x += Attention(RMSNorm(x));  x += SwiGLU(RMSNorm(x))
        x = norm(x)                      after every pass, or after the last one only (skip_loop_final_norm)
    logits = lm_head(x)

No biases, no scaling, no per-pass parameters, no input re-injection. Rotary positions and the causal order are the
same in every pass; every pass attends to its own keys and values only, so decoding keeps one cache per (pass, layer).

A batch is one packed row: `input_ids` (tokens,) and `segment_lengths` that sum to tokens. Positions restart at each
segment and attention never crosses one. With `skip_loop_final_norm` the model equals a plain Llama whose layer list
is repeated `num_loops` times. Variants of the loop (schemas.recipe.ModelConfig) are off unless the recipe says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import count

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainer.attention import cached_attention, segment_attention
from trainer.cache import KeyValueCache
from trainer.config import LoopedConfig
from trainer.kernels import rms_norm, rotary_tables, rotate, swiglu
from trainer.loss import weighted_cross_entropy

__all__ = ["LoopedTransformer"]

KeyValue = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last dimension (arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions; `head_dim` need not be hidden/heads."""

    def __init__(self, config: LoopedConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        self.shares = config.loop_share_kv
        self.q_proj = nn.Linear(config.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)

    def forward(
        self,
        x: Tensor,
        tables: tuple[Tensor, Tensor],
        segment_lengths: Sequence[int],
        cache: KeyValueCache | None,
        slot: int,
        shared: KeyValue | None,
    ) -> tuple[Tensor, KeyValue | None]:
        query = rotate(self.q_proj(x).unflatten(-1, (self.heads, self.head_dim)), tables)
        if shared is None:
            key = rotate(self.k_proj(x).unflatten(-1, (self.kv_heads, self.head_dim)), tables)
            value = self.v_proj(x).unflatten(-1, (self.kv_heads, self.head_dim))
            shared = (key, value) if cache is None else cache.extend(slot, key, value)
        out = segment_attention(query, *shared, segment_lengths) if cache is None else cached_attention(query, *shared)
        return self.o_proj(out.flatten(-2)), shared if self.shares else None


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)) (arXiv 2002.05202)."""

    def __init__(self, config: LoopedConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return swiglu(x, self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)


class Layer(nn.Module):
    """One physical layer: attention and MLP, each after its own RMSNorm, each added to the residual stream."""

    def __init__(self, config: LoopedConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config)

    def forward(
        self,
        x: Tensor,
        tables: tuple[Tensor, Tensor],
        segment_lengths: Sequence[int],
        cache: KeyValueCache | None = None,
        slot: int = 0,
        shared: KeyValue | None = None,
    ) -> tuple[Tensor, KeyValue | None]:
        """The stream after this layer, and with `loop_share_kv` the keys and values that it attended to."""
        out, attended = self.self_attn(self.input_layernorm(x), tables, segment_lengths, cache, slot, shared)
        x = x + out
        return x + self.mlp(self.post_attention_layernorm(x)), attended


class Stack(nn.Module):
    """Embedding, physical layers and the final norm: what a state dict calls `model`."""

    def __init__(self, config: LoopedConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class LoopedTransformer(nn.Module):
    """A looped language model over packed rows. `activation_checkpointing` recomputes every layer of every pass."""

    def __init__(self, config: LoopedConfig, activation_checkpointing: bool = False) -> None:
        super().__init__()
        self.config = config
        self.activation_checkpointing = activation_checkpointing
        self.model = Stack(config)
        self.lm_head = None if config.tie_word_embeddings else nn.Linear(config.hidden_size, config.vocab_size, False)

    def initialise(self, seed: int) -> None:
        """Draw every matrix from normal(0, initializer_range), in the order of the state dict; norms are ones.

        Input embeddings have their own deviation where `embedding_initializer_range` gives one.
        """
        generator = torch.Generator().manual_seed(seed % 2**63)
        config, embeddings = self.config, self.model.embed_tokens.weight
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    own = config.embedding_initializer_range if parameter is embeddings else None
                    drawn = torch.empty(parameter.shape).normal_(
                        0, own or config.initializer_range, generator=generator
                    )
                    parameter.copy_(drawn)
                else:
                    parameter.fill_(1)

    def use_rope_theta(self, theta: float) -> None:
        """Turn positions by another rotary base from now on; the config says so (ABF, arXiv 2309.16039)."""
        self.config = dataclasses.replace(self.config, rope_theta=theta)

    @property
    def output_weight(self) -> Tensor:
        """The matrix (vocab_size, hidden_size) that turns hidden states into logits."""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def hidden(
        self,
        input_ids: Tensor,
        segment_lengths: Sequence[int],
        cache: KeyValueCache | None = None,
        num_loops: int | None = None,
        exits: list[Tensor] | None = None,
    ) -> Tensor:
        """Hidden states (tokens, hidden_size) after the last norm.

        With a `cache` the tokens continue the one sequence in it (`segment_lengths` is then not used) and their keys
        and values are added to it. `num_loops` runs another number of passes than the model was trained with
        (ValueError below one). `exits` is given the hidden states after every pass but the last, each behind the norm.
        """
        config, loops = self.config, self.config.num_loops if num_loops is None else num_loops
        if loops < 1:
            raise ValueError(f"num_loops {loops}: the stack runs at least once")
        tables = rotary_tables(_positions(input_ids, segment_lengths, cache), config.head_dim, config.rope_theta)
        slots, attended = count(), dict[int, KeyValue]()

        def through(layers: range, x: Tensor) -> Tensor:
            for index in layers:
                shared = attended.get(index)  # only with loop_share_kv
                slot = index if config.loop_share_kv else next(slots)
                arguments = (x, tables, segment_lengths, cache, slot, shared)
                if self.activation_checkpointing and cache is None and torch.is_grad_enabled():
                    x, own = checkpoint(self.model.layers[index], *arguments, use_reentrant=False)
                else:
                    x, own = self.model.layers[index](*arguments)
                if own is not None:
                    attended[index] = own
            return x

        first, middle, last = config.blocks  # without the variant every layer is in the middle
        x = entry = through(first, self.model.embed_tokens(input_ids))
        for loop in range(loops):
            x = through(middle, x + entry if loop and config.loop_input_injection else x)
            if loop + 1 < loops and not config.skip_loop_final_norm:
                x = self.model.norm(x)
            if loop + 1 < loops and exits is not None:
                exits.append(self.model.norm(x) if config.skip_loop_final_norm else x)
        x = self.model.norm(through(last, x))
        if cache is not None:
            cache.advance(input_ids.shape[0])
        return x  # type: ignore[no-any-return]

    def loss(self, input_ids: Tensor, segment_lengths: Sequence[int], targets: Tensor, weights: Tensor) -> Tensor:
        """Sum over the tokens at the positions `targets` of weight · −log p, a float32 scalar; what training calls.

        Token i is predicted by the hidden state of token i − 1, so a segment's first token cannot be a target. With
        `loop_loss_weights` every pass predicts and has its share of the loss. Logits exist for targets only.
        """
        shares = self.config.loop_loss_weights
        exits: list[Tensor] = []
        last = self.hidden(input_ids, segment_lengths, exits=exits if shares else None)
        wanted = input_ids[targets]
        total = weighted_cross_entropy(last[targets - 1], self.output_weight, wanted, weights * (1 - sum(shares)))
        for share, early in zip(shares, exits, strict=bool(shares)):
            total = total + weighted_cross_entropy(early[targets - 1], self.output_weight, wanted, weights * share)
        return total

    def forward(
        self,
        input_ids: Tensor,
        segment_lengths: Sequence[int] | None = None,
        cache: KeyValueCache | None = None,
        num_loops: int | None = None,
    ) -> Tensor:
        """Logits (tokens, vocab_size); without `segment_lengths` the row is one segment.

        Training does not call this: its `loss` makes logits for trained tokens only.
        """
        lengths = [input_ids.shape[0]] if segment_lengths is None else segment_lengths
        return functional.linear(self.hidden(input_ids, lengths, cache, num_loops), self.output_weight)


def _positions(input_ids: Tensor, segment_lengths: Sequence[int], cache: KeyValueCache | None) -> Tensor:
    """Position of every token in its segment, or after what the cache holds."""
    device = input_ids.device
    if cache is not None:
        return torch.arange(cache.length, cache.length + input_ids.shape[0], device=device)
    return torch.cat([torch.arange(length, device=device) for length in segment_lengths])
