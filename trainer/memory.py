"""What a training wants of the process: how many threads, and freed memory kept for the next step."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainer.world import World

__all__ = ["keep_freed_memory", "threads"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # that glibc accepts on 64 bits


def keep_freed_memory() -> bool:
    """Tell glibc to hand freed blocks below 32 MiB to the next request, not back to the system; whether it took it.

    Otherwise every tensor of a few MiB is mapped anew and its pages are zeroed by the kernel: some 24,000 page faults
    in a step of 4,096 tokens of a 3M model, 8 % of its CPU time. For the whole process; other C libraries are left
    alone (False).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1) and mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD))


@contextmanager
def threads(wanted: int | None, world: World) -> Iterator[None]:
    """One thread on a CPU unless the recipe says otherwise: with the other core taken, two are slower than one."""
    before = torch.get_num_threads()
    if world.device.type == "cpu":
        torch.set_num_threads(wanted or 1)
        keep_freed_memory()
    try:
        yield
    finally:
        torch.set_num_threads(before)
