"""The processes that train together: one, or those that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["World", "join_world"]


_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class World:
    """Rank `rank` of `size` processes on `device`. With one process every sum is the value itself."""

    rank: int = 0
    size: int = 1
    device: torch.device = _CPU

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

    def wait(self) -> None:
        """Return when every process is here."""
        if self.size > 1:
            torch.distributed.barrier()


@contextmanager
def join_world() -> Iterator[World]:
    """Join the processes that torchrun's environment names (nccl on CUDA, gloo on CPU), or be alone."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if size == 1:
        yield World(device=device)
        return
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(rank, size, device)
    finally:
        torch.distributed.destroy_process_group()
