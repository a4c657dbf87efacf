"""How far the work with an endpoint is, told while it goes on: a bar of samples, and now and then a line of figures."""

from __future__ import annotations

import time
from collections.abc import Callable

from pipelines.synthesis.endpoint.client import EndpointClient
from schemas.progress import Progress

__all__ = ["Status", "figures_line"]

LINE_SECONDS = 30.0  # between two lines of figures: requests take seconds to minutes
LOOK_SECONDS = 1.0  # how often who waits for a sample looks at what others have done


class Status:
    """Tells `progress` what has been done since the last `look`. Used by one thread.

    `advance` moves the bar, `total` is how many samples there will be at most (None: unknown).
    """

    def __init__(
        self,
        label: str,
        client: EndpointClient,
        progress: Progress,
        advance: Callable[[float], None],
        total: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._client, self._progress, self._advance = label, client, progress, advance
        self._total, self._clock = total, clock
        self._told, self._last = 0, clock()

    def look(self, finished: int, solved: int, *, last: bool = False) -> None:
        """Hear how many samples are finished and solved by now; `last` says only the bar, for a summary follows."""
        if finished > self._told:
            self._advance(finished - self._told)
            self._told = finished
        if not last and self._clock() - self._last >= LINE_SECONDS:
            self._last = self._clock()
            self._progress.say(f"{self._label}: {figures_line(self._client, finished, solved, self._total)}")


def figures_line(client: EndpointClient, finished: int, solved: int, total: int | None) -> str:
    """Samples, requests, tokens, cost, and attempts that failed with their kinds, on one line."""
    usage = client.usage
    of = f" of {total:,}" if total is not None else ""
    reused = f" and {usage.reused:,} from the journal" if usage.reused else ""
    line = (
        f"{finished:,}{of} samples, {solved:,} solved; {usage.requests:,} requests{reused}, "
        f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    )
    if client.settings.price_in or client.settings.price_out:
        line += f", cost {usage.cost:.4f}"
    troubles = client.troubles()
    if troubles:
        kinds = ", ".join(f"{name} {number:,}" for name, number in sorted(troubles.items()))
        line += f"; failed attempts: {kinds}"
    return line
