"""The processes that train together: one, or those that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["World", "join_world", "own_device"]


_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class World:
    """Rank `rank` of `size` processes on `device`. With one process every sum is the value itself.

    `sharded`: the model is spread over the processes; otherwise each holds all of it. `how` says which and why.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = _CPU
    sharded: bool = False
    how: str = "one process"

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum `tensor` over the processes, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def total(self, values: list[float]) -> list[float]:
        """Sum a list of numbers over the processes, in float64."""
        return self.sum_(torch.tensor(values, dtype=torch.float64, device=self.device)).tolist()

    def most(self, value: int) -> int:
        """The largest of the processes' values."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, device=self.device)
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        return int(tensor)

    def wait(self) -> None:
        """Return when every process is here."""
        if self.size > 1:
            torch.distributed.barrier()


def own_device() -> torch.device:
    """Where a process on its own computes: the CUDA device that is current where there is one, else the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else _CPU


@contextmanager
def join_world(sharding: str = "auto") -> Iterator[World]:
    """Join the processes that torchrun's environment names (nccl on CUDA, gloo on CPU), or be alone.

    With `sharding` auto the model is to be spread over them where the backend has the collectives for it.
    """
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if size == 1:
        yield World(device=device)
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend)
    try:
        from trainer.sharding import missing_collective

        lacks = "train.sharding is none" if sharding == "none" else missing_collective(device)
        held = f"each holds the whole model and gradients are summed ({lacks})" if lacks else "FSDP2 spreads the model"
        yield World(rank, size, device, not lacks, f"{size} processes over {backend}: {held}")
    finally:
        torch.distributed.destroy_process_group()
