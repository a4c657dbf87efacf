"""Sessions that branch: every root-to-leaf path of a tree of turns, each turn its own words only once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

__all__ = ["paths"]

Key = TypeVar("Key", bound=Hashable)


def paths(order: Sequence[Key], parent: Mapping[Key, Key | None]) -> Iterator[tuple[list[Key], set[Key]]]:
    """(path from root to leaf, the keys of it that an earlier path already gave), for every leaf.

    `order` is file order; the path of the last key comes first (what the user kept), then the others in file order.
    A parent that is not in `order`, or that closes a cycle, counts as none. Linear in the keys given out.
    """
    known = set(order)
    with_children = {parent.get(key) for key in order if parent.get(key) != key}
    leaves = [key for key in order if key not in with_children]
    if order and order[-1] in leaves:
        leaves = [order[-1], *(leaf for leaf in leaves if leaf != order[-1])]
    given: set[Key] = set()
    for leaf in leaves:
        path: list[Key] = []
        at: Key | None = leaf
        seen: set[Key] = set()
        while at is not None and at in known and at not in seen:
            path.append(at)
            seen.add(at)
            at = parent.get(at)
        path.reverse()
        yield path, given & set(path)
        given.update(path)
