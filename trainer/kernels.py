"""RMSNorm, the rotary turn and SwiGLU, each as one autograd function that writes its own gradient.

On a CPU a layer's element-wise work is bound by memory: PyTorch builds each from three to seven operations and their
gradients from more. Written out, numbers are read and written fewer times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["SWIGLU_TOKENS", "rms_norm", "rotary_tables", "rotate", "swiglu"]

SWIGLU_TOKENS = 512  # worked on at a time: gate and up of 512 inner numbers then take 1 MiB each


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension (arXiv 1910.07467), in the type of `x`."""
    if x.is_cuda:  # fused there
        return functional.rms_norm(x, weight.shape, weight, eps)
    return _RmsNorm.apply(x, weight, eps)  # type: ignore[no-any-return, no-untyped-call]


class _RmsNorm(torch.autograd.Function):
    """y = x / rms · weight, dx = (g · weight − x · mean(g · weight · x) / rms²) / rms, dweight = sum(g · x / rms)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
        inverse = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        normed: Tensor = (x * inverse).mul_(weight)
        return normed.to(x.dtype)

    @staticmethod
    @once_differentiable  # `inverse` depends on x, which a second derivative would not see
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        wide, grad_wide = x.to(inverse.dtype), grad_output.to(inverse.dtype)
        along = (grad_wide * wide).flatten(0, -2)
        mean = torch.mv(along, weight).view(inverse.shape).mul_(inverse).mul_(inverse).div_(x.shape[-1])
        grad = torch.addcmul(grad_wide * weight, wide, mean, value=-1).mul_(inverse)
        return grad.to(x.dtype), torch.mv(along.t(), inverse.flatten()), None


def rotary_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """(cos, cos) and (−sin, sin), each (tokens, 1, head_dim) in float32, of position · theta^(-2i/head_dim).

    RoFormer (arXiv 2104.09864) in its rotate-half form: element i turns with element i + head_dim / 2. Angles are
    float32 as in public implementations: at position 262,143 with theta 7e7 a cosine is within .008 of the exact one.
    """
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = (positions.to(torch.float32)[:, None] * (theta**-steps)[None, :])[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Turn (tokens, heads, head_dim) by the tables, computed in float32; returns the type of `x`."""
    return _Rotate.apply(x, *tables)  # type: ignore[no-any-return, no-untyped-call]


class _Rotate(torch.autograd.Function):
    """The gradient of a turn is the turn back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(grad_output, cos, -sin), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    swapped = torch.cat((x[..., half:], x[..., :half]), dim=-1)
    return (x * cos).addcmul_(swapped, sin).to(x.dtype)


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """(silu(x · gateᵀ) ∘ (x · upᵀ)) · downᵀ (arXiv 2002.05202).

    Shapes: x (…, hidden_size), gate and up (intermediate_size, hidden_size), down (hidden_size, intermediate_size).
    Returns the shape of x. In float32 on a CPU a gradient keeps two numbers for each of tokens × intermediate_size, not
    four. Raises ValueError for weights of other shapes: a product written in place would only resize its place.
    """
    if up.shape != gate.shape or down.shape != gate.shape[::-1]:
        raise ValueError(f"gate {tuple(gate.shape)}, up {tuple(up.shape)} and down {tuple(down.shape)} do not fit")
    device = x.device.type
    exact = device == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled(device)
    if exact and torch.is_grad_enabled():
        rows = x.reshape(-1, x.shape[-1])
        return _SwiGLU.apply(rows, gate, up, down).reshape(x.shape)  # type: ignore[no-any-return, no-untyped-call]
    return functional.linear(functional.silu(functional.linear(x, gate)) * functional.linear(x, up), down)


class _SwiGLU(torch.autograd.Function):
    """With a = x·gateᵀ, b = x·upᵀ and h = grad · down: da = h ∘ b ∘ silu'(a), db = h ∘ silu(a), a few tokens at a time.

    silu(a) and silu(a) ∘ b are made again for the gradient: they are still in the cache when they are used.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        a = x.new_empty(x.shape[0], gate.shape[0])
        b, out = torch.empty_like(a), torch.empty_like(x)
        for x_part, a_part, b_part, out_part in _parts(x, a, b, out):
            torch.mm(x_part, gate.t(), out=a_part)
            torch.mm(x_part, up.t(), out=b_part)
            torch.mm(functional.silu(a_part).mul_(b_part), down.t(), out=out_part)
        ctx.save_for_backward(x, gate, up, down, a, b)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, gate, up, down, a, b = ctx.saved_tensors
        d_x = torch.empty_like(x)
        d_gate, d_up, d_down = (torch.zeros_like(weight) for weight in (gate, up, down))
        for x_part, a_part, b_part, grad, d_part in _parts(x, a, b, grad_output, d_x):
            silu, d_b = functional.silu(a_part), torch.mm(grad, down)
            d_a = torch.ops.aten.silu_backward(d_b * b_part, a_part)
            d_b.mul_(silu)
            d_down.addmm_(grad.t(), silu.mul_(b_part))
            d_gate.addmm_(d_a.t(), x_part)
            d_up.addmm_(d_b.t(), x_part)
            torch.mm(d_a, gate, out=d_part).addmm_(d_b, up)
        return d_x, d_gate, d_up, d_down


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(torch.split(tensor, SWIGLU_TOKENS) for tensor in tensors), strict=True)
