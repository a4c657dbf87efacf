"""The model spread over several processes by FSDP2: each keeps a slice of every matrix and of its moments.

A layer is put together for each of its runs and let go again; its gradient is summed back into slices. What a step
computes is what one process computes, to rounding, and a checkpoint holds whole tensors, so any number of processes
reads it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from trainer.model import LoopedTransformer

__all__ = ["missing_collective", "shard_model", "slice_like", "whole"]


def missing_collective(device: torch.device) -> str:
    """Why FSDP2 cannot run on the present process group, or "" when it can: the two collectives it needs are tried.

    Every process must call it, and all get the same answer.
    """
    problem = ""
    size = distributed.get_world_size()
    try:
        one, all_of_them = torch.ones(1, device=device), torch.ones(size, device=device)
        distributed.all_gather_single(all_of_them, one)
        distributed.reduce_scatter_single(one, all_of_them)
        if float(one) != size:
            problem = f"reduce_scatter gave {float(one)} for {size} ones"
    except (RuntimeError, NotImplementedError) as error:
        problem = str(error).splitlines()[0]
    told: list[Any] = [""] * size
    distributed.all_gather_object(told, problem)
    return next((reason for reason in told if reason), "")


def shard_model(model: LoopedTransformer, device: torch.device) -> None:
    """Slice every layer, and the rest of the model, over all processes; gradients are summed, not averaged."""
    from torch.distributed.device_mesh import (
        init_device_mesh,
    )  # here: seconds of imports that one process can do without
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    for part in [*model.model.layers, model]:
        fully_shard(part, mesh=mesh)
        assert isinstance(part, FSDPModule)
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
    register_fsdp_forward_method(model, "loss")


def whole(tensor: Tensor) -> Tensor:
    """The full tensor on the CPU, from slices where it has them: then every process must call it."""
    full: Tensor = tensor.full_tensor() if _is_sliced(tensor) else tensor  # type: ignore[attr-defined]
    return full.detach().to("cpu")


def slice_like(parameter: nn.Parameter | Tensor, full: Tensor) -> Tensor:
    """`full`, which every process holds, in the form of `parameter`: on its device, this process's slice of it."""
    full = full.to(parameter.device)
    if _is_sliced(parameter):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(parameter, DTensor)
        return distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return full


def _is_sliced(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # a DTensor, without importing it
