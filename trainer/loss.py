"""Cross-entropy over trained tokens only, in chunks, so that logits of a whole row never exist at once.

65,536 tokens × 32,768 words of logits take 21 GB with their gradient; a chunk of 512 tokens takes 0.2.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["CHUNK_TOKENS", "weighted_cross_entropy"]

CHUNK_TOKENS = 512


def weighted_cross_entropy(
    hidden: Tensor, output_weight: Tensor, targets: Tensor, weights: Tensor, chunk_tokens: int = CHUNK_TOKENS
) -> Tensor:
    """Sum over tokens of weight · −log p(target), a float32 scalar.

    Shapes: hidden (tokens, hidden_size), output_weight (vocab_size, hidden_size), targets int64 and weights float32
    (tokens,). Logits are computed in the autocast type where autocast is on, the softmax always in float32.
    Memory: chunk_tokens × vocab_size.
    """
    if torch.is_grad_enabled() and (hidden.requires_grad or output_weight.requires_grad):
        half = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else None
        return _ChunkedCrossEntropy.apply(  # type: ignore[no-any-return, no-untyped-call]
            hidden, output_weight, targets, weights, chunk_tokens, half
        )
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    for start in range(0, hidden.shape[0], chunk_tokens):
        part = slice(start, start + chunk_tokens)
        logits = functional.linear(hidden[part], output_weight).float()
        total += (functional.cross_entropy(logits, targets[part], reduction="none") * weights[part]).sum()
    return total


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Takes the gradient while the logits of a chunk exist, so the head is multiplied three times, not four.

    With e = exp(logits − max) and its sum n, d loss / d logits = weight / n · (e − n · one-hot): one exponential for a
    logit, and weight / n is multiplied in where a token has hidden_size numbers, not vocab_size. Logits are taken to
    base 2, whose exponential takes half the time on a CPU. The gradients are kept and scaled in backward.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        output_weight: Tensor,
        targets: Tensor,
        weights: Tensor,
        chunk_tokens: int,
        half: torch.dtype | None,
    ) -> Tensor:
        device = hidden.device.type
        compute = half or hidden.dtype
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        with torch.autocast(device, enabled=False):
            matrix = output_weight.to(compute)
            grad_hidden = torch.empty_like(hidden)
            grad_weight = torch.zeros_like(output_weight)
            for start in range(0, hidden.shape[0], chunk_tokens):
                part = slice(start, start + chunk_tokens)
                states, words = hidden[part], targets[part, None]
                logits = functional.linear((states * math.log2(math.e)).to(compute), matrix).float()
                top, said = logits.amax(-1, keepdim=True), logits.gather(-1, words)
                slope = logits.sub_(top).exp2_()
                norm = slope.sum(-1, keepdim=True)
                total -= ((said - top - norm.log2())[:, 0] * weights[part]).sum() * math.log(2)
                slope.scatter_add_(-1, words, -norm)
                slope, share = slope.to(compute), weights[part, None] / norm
                grad_hidden[part] = (slope @ matrix) * share
                shared = (states * share).to(compute)
                if compute == grad_weight.dtype:  # without a second matrix of its size
                    grad_weight.addmm_(slope.T, shared)
                else:
                    grad_weight += slope.T @ shared
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad_output, grad_weight * grad_output, None, None, None, None
