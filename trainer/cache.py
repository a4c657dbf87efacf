"""Keys and values of one sequence that is being decoded, one slot for each layer of each pass."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["KeyValueCache"]


class KeyValueCache:
    """Grows by doubling; slots are counted in the order in which layers are run.

    Memory: 2 · slots · tokens · kv_heads · head_dim values. `length` counts the tokens that every slot holds.
    """

    def __init__(self, slots: int) -> None:
        self.length = 0
        self._keys: list[Tensor | None] = [None] * slots
        self._values: list[Tensor | None] = [None] * slots

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add (new, kv_heads, head_dim) to `slot` after `length` tokens; returns all keys and values of the slot."""
        end = self.length + key.shape[0]
        self._keys[slot] = keys = _with_room(self._keys[slot], key, end, self.length)
        self._values[slot] = values = _with_room(self._values[slot], value, end, self.length)
        keys[self.length : end] = key
        values[self.length : end] = value
        return keys[:end], values[:end]

    def advance(self, tokens: int) -> None:
        """Count `tokens` as held, once every slot was extended by them."""
        self.length += tokens

    def truncate(self, length: int) -> None:
        """Forget everything after the first `length` tokens (a prompt that shares only a beginning is reused so)."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot keep {length} of {self.length} cached tokens")
        self.length = length


def _with_room(store: Tensor | None, like: Tensor, tokens: int, held: int) -> Tensor:
    """`store`, or a larger copy of it that has room for `tokens`."""
    if store is not None and store.shape[0] >= tokens:
        return store
    larger = torch.empty((max(256, 2 * tokens), *like.shape[1:]), dtype=like.dtype, device=like.device)
    if store is not None:
        larger[:held] = store[:held]
    return larger
