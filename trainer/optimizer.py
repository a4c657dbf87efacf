"""AdamW, its learning-rate schedule, and its state as named tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from trainer.sharding import slice_like, whole

__all__ = ["learning_rate_at", "load_optimizer_state", "make_optimizer", "optimizer_tensors"]

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def make_optimizer(model: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """Fused AdamW (betas 0.9 and 0.95); matrices decay, norm weights do not. The rate is set before each step."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for _, p in named if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), eps=1e-8, fused=True)


def learning_rate_at(step: int, steps: int, *, peak: float, warmup_steps: int, decay_share: float) -> float:
    """The rate of step `step` (from 0) of a phase of `steps` steps: warm-up, stable, decay (arXiv 2404.06395).

    Linear warm-up over `warmup_steps`, at most a fifth of the phase; linear decay over the last
    ceil(decay_share · steps) steps towards zero, which the step after the last would have.
    """
    warmup = min(warmup_steps, steps // 5)
    decay = math.ceil(decay_share * steps)
    rise = (step + 1) / warmup if step < warmup else 1.0
    fall = (steps - step) / decay if step >= steps - decay else 1.0
    return peak * min(rise, fall)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as whole "parameter.moment" tensors, for safetensors (every process of several calls)."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for moment, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}.{moment}"] = whole(value)
    return tensors


def load_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`. Raises KeyError when a parameter has some moments but not all."""
    for name, parameter in model.named_parameters():
        if any(f"{name}.{moment}" in tensors for moment in _MOMENTS):
            found = {moment: tensors[f"{name}.{moment}"] for moment in _MOMENTS}
            optimizer.state[parameter] = {
                moment: slice_like(parameter, tensor) if tensor.dim() else tensor.to(parameter.device)
                for moment, tensor in found.items()
            }
