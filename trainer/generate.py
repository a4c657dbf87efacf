"""Writing with a trained model: one sequence, one key/value cache for each layer of each pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.cache import KeyValueCache
from trainer.model import LoopedTransformer

__all__ = ["Decoder", "Sampling", "draw"]

_PREFILL_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; `temperature` 0 takes the likeliest. Defaults: the Nanbeige4.2 report's setting."""

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """One token id from logits (vocab_size,): of the `top_k` likeliest, those that first reach `top_p` together."""
    if sampling.temperature <= 0:
        return int(logits.argmax())
    values, ids = logits.float().topk(min(sampling.top_k, logits.shape[-1]))
    shares = (values / sampling.temperature).softmax(-1)
    shares = torch.where(shares.cumsum(-1) - shares < sampling.top_p, shares, 0)
    return int(ids[torch.multinomial(shares, 1, generator=generator)])


class Decoder:
    """A model and the sequence that its cache holds. A new prompt reuses the beginning that it shares with it."""

    def __init__(self, model: LoopedTransformer, num_loops: int | None = None) -> None:
        self.model = model
        self.num_loops = num_loops or model.config.num_loops
        self._cache = KeyValueCache(model.config.cache_slots(self.num_loops))
        self._held: list[int] = []

    @torch.no_grad()
    def continue_(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        stop_ids: Collection[int],
        sampling: Sampling,
        generator: torch.Generator,
    ) -> list[int]:
        """Up to `max_new_tokens` ids after `prompt`, the last of them in `stop_ids` when the model stopped itself.

        Raises ValueError for an empty prompt or one that leaves no room in `max_position_embeddings`.
        """
        room = self.model.config.max_position_embeddings - len(prompt)
        if not prompt or room < 1:
            raise ValueError(f"a prompt of {len(prompt)} tokens: the model takes 1 to {len(prompt) + room - 1}")
        logits = self._read(list(prompt))
        written: list[int] = []
        while len(written) < min(max_new_tokens, room):
            token = draw(logits, sampling, generator)
            written.append(token)
            if token in stop_ids or len(written) == min(max_new_tokens, room):
                break
            logits = self._feed([token])
        return written

    def _read(self, prompt: list[int]) -> Tensor:
        """Make the cache hold `prompt`; logits after its last token, which is always computed anew."""
        shared = 0
        for held, wanted in zip(self._held, prompt[:-1], strict=False):
            if held != wanted:
                break
            shared += 1
        self._held = self._held[:shared]  # before the cache: an interrupt may come between
        self._cache.truncate(shared)
        logits = torch.empty(0)
        for start in range(shared, len(prompt), _PREFILL_TOKENS):
            logits = self._feed(prompt[start : start + _PREFILL_TOKENS])
        return logits

    def _feed(self, ids: list[int]) -> Tensor:
        device = self.model.output_weight.device
        tokens = torch.tensor(ids, device=device)
        hidden = self.model.hidden(tokens, [len(ids)], self._cache, self.num_loops)
        self._held += ids
        return torch.nn.functional.linear(hidden[-1], self.model.output_weight).cpu()  # where the draws are made
