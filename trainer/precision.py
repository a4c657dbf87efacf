"""Which number format the matrix products of training take."""

from __future__ import annotations

from typing import Any

import torch

from trainer.world import World

__all__ = ["choose_precision", "computes_bf16"]

_CPU_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16")  # any of them; the last is that of ARM


def computes_bf16(device: torch.device) -> bool:
    """Whether `device` multiplies bfloat16 in hardware.

    A CPU that does not emulates it: a training step then took 11 times the seconds of float32 (measured, AVX2).
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    found: dict[str, Any] = dict(torch.cpu.get_capabilities())
    return any(found.get(name) for name in _CPU_INSTRUCTIONS)


def choose_precision(wanted: str, world: World, before: str = "") -> str:
    """`fp32` or `bf16` for train.precision `wanted` (auto, fp32 or bf16).

    With auto a training that goes on keeps what it had `before`; else bf16 where every process' device computes it.
    """
    if wanted != "auto":
        return wanted
    if before:
        return before
    return "fp32" if world.most(int(not computes_bf16(world.device))) else "bf16"
