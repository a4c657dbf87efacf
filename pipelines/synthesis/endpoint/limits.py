"""What bounds the requests to an endpoint: a rate in any minute, and a cost that is never passed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["Budget", "RateLimiter", "Stopped"]

WINDOW_S = 60.0


class Stopped(Exception):  # noqa: N818 - not an error: the work ends early on purpose
    """No further request is made. `reason` says why: cost_cap, endpoint_down, closed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class RateLimiter:
    """At most `requests` and `tokens` in any 60 seconds, over all threads; None is no limit.

    A request that alone has more tokens than a minute allows waits until the minute is empty.
    `clock` gives seconds, `wait(seconds)` sleeps and says whether the work was stopped meanwhile.
    """

    def __init__(
        self,
        requests: int | None,
        tokens: int | None,
        wait: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests, self._tokens, self._wait, self._clock = requests, tokens, wait, clock
        self._recent: deque[list[float]] = deque()  # [when, tokens] of the last minute
        self._not_before = 0.0
        self._lock = threading.Lock()

    def acquire(self, tokens: int) -> list[float]:
        """Wait for room, take it, and give the ticket for `settle`. Raises Stopped when the work ends meanwhile."""
        while True:
            with self._lock:
                delay = self._delay(tokens)
                if delay <= 0:
                    ticket = [self._clock(), float(tokens)]
                    self._recent.append(ticket)
                    return ticket
            if self._wait(delay):
                raise Stopped("closed")

    def settle(self, ticket: list[float], tokens: int) -> None:
        """Replace the estimate by what the request really had."""
        with self._lock:
            ticket[1] = float(tokens)

    def pause(self, seconds: float) -> None:
        """Let nobody start for so long: the endpoint asked for it."""
        with self._lock:
            self._not_before = max(self._not_before, self._clock() + seconds)

    def _delay(self, tokens: int) -> float:
        """Seconds until there is room, 0 for now."""
        now = self._clock()
        while self._recent and self._recent[0][0] <= now - WINDOW_S:
            self._recent.popleft()
        if now < self._not_before:
            return self._not_before - now
        if not self._recent:
            return 0.0
        over_requests = self._requests is not None and len(self._recent) >= self._requests
        used = sum(count for _, count in self._recent)
        over_tokens = self._tokens is not None and used + tokens > self._tokens
        return self._recent[0][0] + WINDOW_S - now if over_requests or over_tokens else 0.0


class Budget:
    """Money, over all threads: before a request its dearest outcome is put aside, after it the true cost is booked.

    Prices are per million tokens; without them every cost is 0 and nothing is refused.
    """

    def __init__(self, price_in: float | None, price_out: float | None, cap: float | None) -> None:
        self._price_in, self._price_out, self._cap = price_in or 0.0, price_out or 0.0, cap
        self.spent = 0.0
        self._aside = 0.0
        self._changed = threading.Condition()

    def cost(self, prompt: int, completion: int) -> float:
        """What so many tokens cost."""
        return (prompt * self._price_in + completion * self._price_out) / 1e6

    def book(self, cost: float) -> None:
        """Add a cost that was known before: of an earlier run."""
        with self._changed:
            self.spent += cost

    def reserve(self, bound: float, stopped: Callable[[], bool]) -> float:
        """Put `bound` aside, waiting for others' requests to settle if need be.

        Raises Stopped("cost_cap") when spent money and this request could pass the cap, Stopped("closed") when
        `stopped` turns true.
        """
        with self._changed:
            while self._cap is not None:
                if stopped():
                    raise Stopped("closed")
                if self.spent + bound > self._cap:
                    raise Stopped("cost_cap")
                if self.spent + self._aside + bound <= self._cap:
                    break
                self._changed.wait(0.2)
            self._aside += bound
        return bound

    def settle(self, reserved: float, cost: float) -> None:
        """Book what a request really cost in the place of what was put aside."""
        with self._changed:
            self._aside -= reserved
            self.spent += cost
            self._changed.notify_all()
