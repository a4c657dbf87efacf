"""What stages of rising quality keep for one another: documents that a later, more selective stage cannot do without.

A stage with a higher threshold has fewer documents to choose from than those before it. Drawn from one supply in
training order alone, the stages before it may use up the best documents, and a decay on the best finds none. So a first
draw serves the most selective stage first; how often a document is used there is reserved, and the draw in training
order leaves it: every stage gets at least the tokens of the first draw. Where caps leave room anyway a reserve binds
nobody, and the earlier stages have the good documents like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Reserves"]

Uses = npt.NDArray[Any]


class Reserves:
    """Reserved uses of n documents by stage.

    `thresholds` are the stages' in training order, `caps` (n,) of each how often a document may be used by its end.
    `draw(place, used)` says how often more each document is used by a stage, given how often all were used before;
    `used` (n,) is that at the beginning. Deterministic as `draw` is. Memory: one number a document and stage.
    """

    def __init__(
        self, thresholds: Sequence[float], caps: Sequence[Uses], used: Uses, draw: Callable[[int, Uses], Uses]
    ) -> None:
        self._thresholds, self._caps = thresholds, caps
        self._reserved: dict[int, Uses] = {}
        wanting = [k for k, least in enumerate(thresholds) if any(before < least for before in thresholds[:k])]
        lowest = min((thresholds[k] for k in wanting), default=np.inf)
        choosy = [k for k, least in enumerate(thresholds) if least >= lowest]
        for place in sorted(choosy, key=lambda k: (-thresholds[k], k)):
            more = draw(place, used)
            used = used + more
            if place in wanting:
                self._reserved[place] = more

    def limit(self, place: int) -> Uses | None:
        """How often each document may be used by the end of a stage for the later ones to get theirs. (n,)

        None when no later stage is more selective.
        """
        limit: Uses | None = None
        for later in sorted((k for k in self._reserved if k > place), reverse=True):
            if self._thresholds[later] <= self._thresholds[place]:
                continue
            reserved, caps = self._reserved[later], self._caps[later]
            free = caps if limit is None else np.minimum(limit, caps)
            left = free - reserved
            unbound = np.full(len(caps), np.iinfo(np.int32).max, caps.dtype) if limit is None else limit
            limit = np.where(reserved > 0, left, unbound)
        return limit
