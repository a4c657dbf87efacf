"""Asking an OpenAI-compatible endpoint: retries, rate, cost and journal around the `openai` package.

A finished request is in the journal before its reply is used; asked again, also by another process later, it comes from
there. Sent again after a wait (doubling, or what Retry-After says): 408, 409, 425, 429, 5xx, a connection refused,
closed or too slow, a body that is no chat completion. Other answers, and the last failed attempt, are replies with
stop "error" and a problem: timeout, connection, http_N, bad_body, no_choices, too_large. A request refused by 401, 403
or 404 before any other went well raises: the key, the address or the model is wrong.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from pipelines.synthesis.endpoint.journal import Journal
from pipelines.synthesis.endpoint.limits import Budget, RateLimiter, Stopped
from pipelines.synthesis.endpoint.reply import BYTES_A_TOKEN, Reply, read_body
from pipelines.synthesis.endpoint.transport import RETRIED, Failure, Transport
from schemas.files import digest_of
from schemas.recipe.endpoint import EndpointConfig

__all__ = ["Asked", "EndpointClient", "Usage"]

TEMPLATE_TOKENS = 64  # of a message, beside its text


@dataclass(slots=True)
class Usage:
    """What was asked and what it took. `reused` came from the journal; `lost` gave no reply and may be billed anyway.

    Tokens and cost are of this process's requests; `cost_of_journal` is of all of the journal's, these included.
    """

    requests: int = 0
    reused: int = 0
    retries: int = 0
    failed: int = 0
    lost: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: int = 0
    cost: float = 0.0
    cost_of_journal: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Which request: `task`, `sample`, `turn` (all from 0), and `known_tokens` of its prompt that an earlier reply
    counted, as far as `known_bytes` of its messages go."""

    task: str
    sample: int
    turn: int
    known_tokens: int = 0
    known_bytes: int = 0


class EndpointClient:
    """An endpoint with its settings; safe to use from several threads. Close it when done."""

    def __init__(self, settings: EndpointConfig, journal: str | Path | None) -> None:
        """Raises UsageError when the environment lacks the key or the journal is in use."""
        self.settings = settings
        self._transport = Transport(settings)
        self._journal = Journal(journal) if journal is not None else None
        self.usage = Usage()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._abandoned = False
        self._waiting: list[SimpleQueue[tuple[bytes, BaseException | None]]] = []  # one for every request under way
        self._in_a_row = 0  # requests that failed for good
        self._troubles: Counter[str] = Counter()  # attempts that failed, also those that were made again
        self._worked = False
        self._limiter = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute, self._stop.wait)
        self._budget = Budget(settings.price_in, settings.price_out, settings.cost_cap)
        for usage in self._journal.usages if self._journal else ():
            self._budget.book(self._budget.cost(usage["prompt"], usage["completion"]))
        self.usage.cost_of_journal = self._budget.spent

    @property
    def journal(self) -> Journal | None:
        """The journal, when there is one."""
        return self._journal

    def troubles(self) -> dict[str, int]:
        """{problem: attempts} of all attempts that failed so far, whatever came of sending them again."""
        with self._lock:
            return dict(self._troubles)

    def abandon(self) -> None:
        """Stop, and wait for no reply that is under way: the requests count as lost."""
        self.stop()
        with self._lock:
            self._abandoned = True
            for waiting in self._waiting:
                waiting.put((b"", Stopped("closed")))

    def stop(self) -> None:
        """Let nobody start another request; those that wait raise Stopped."""
        self._stop.set()

    def close(self) -> None:
        """Stop, close connections and journal."""
        self.stop()
        self._transport.close()
        if self._journal is not None:
            self._journal.close()

    def __enter__(self) -> EndpointClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def complete(self, request: dict[str, Any], asked: Asked) -> Reply:
        """The reply to a request (the body of a chat completion).

        Raises Stopped when the cost cap, a dead endpoint or `stop` ends the work, DatamixError for wrong settings.
        """
        key = digest_of([request, asked.task, asked.sample, asked.turn])
        entry = self._journal.get(key) if self._journal is not None else None
        if entry is not None:
            with self._lock:
                self.usage.reused += 1
            return Reply.from_record(entry["reply"], entry["usage"])
        if self._stop.is_set():
            raise Stopped("closed")
        reply = self._ask(request, asked, key)
        if self._is_down(reply):
            raise Stopped("endpoint_down")
        return reply

    def _is_down(self, reply: Reply) -> bool:
        """Count a reply; whether so many requests in a row have failed for good that the endpoint counts as down.

        Where requests have worked before, a refusal of this one request (a context too long, say) tells nothing.
        """
        with self._lock:
            failed = reply.stop == "error" and reply.problem != "empty"
            self.usage.failed += failed
            status = reply.problem.removeprefix("http_")
            own = reply.problem == "too_large" or (status.isdigit() and int(status) not in RETRIED)
            if not failed:
                self._worked, self._in_a_row = True, 0
            elif not (own and self._worked):
                self._in_a_row += 1
            return self._in_a_row >= self.settings.give_up_after

    def _ask(self, request: dict[str, Any], asked: Asked, key: str) -> Reply:
        size = len(json.dumps(request["messages"], ensure_ascii=False).encode("utf-8", "replace"))
        new = max(0, size - asked.known_bytes) if asked.known_tokens else _size(request)
        margin = TEMPLATE_TOKENS * (len(request["messages"]) + 1)
        # no tokenizer gives more tokens than bytes: with the cap nothing can cost more than this
        bound = asked.known_tokens + new + margin
        guess = asked.known_tokens + new // BYTES_A_TOKEN + self.settings.max_tokens
        jitter = random.Random(key)  # noqa: S311 - only spreads retries
        attempt = 0
        while True:
            try:
                return self._attempt(request, asked, key, bound, guess)
            except Failure as failure:
                with self._lock:
                    self._troubles[failure.problem] += 1
                if not failure.again or attempt >= self.settings.retries:
                    return Reply(stop="error", problem=failure.problem, detail=failure.detail)
                wait = min(self.settings.first_wait_s * 2**attempt, self.settings.longest_wait_s)
                wait *= 0.75 + jitter.random() / 2
                if failure.wait is not None:
                    wait = min(failure.wait, self.settings.longest_wait_s)
                    self._limiter.pause(wait)
                attempt += 1
                with self._lock:
                    self.usage.retries += 1
                if self._stop.wait(wait):
                    raise Stopped("closed") from None

    def _attempt(self, request: dict[str, Any], asked: Asked, key: str, bound: int, guess: int) -> Reply:
        """One request. Raises Failure; whatever happens, cost and rate are settled."""
        reserved = self._budget.reserve(self._budget.cost(bound, self.settings.max_tokens), self._stop.is_set)
        usage = {"prompt": 0, "completion": 0, "estimated": False}
        entry: dict[str, Any] = {"key": key, "task": asked.task, "sample": asked.sample, "turn": asked.turn}
        try:
            ticket = self._limiter.acquire(guess)
            try:
                body = self._send(request)
            except Stopped:
                usage = {"prompt": bound, "completion": self.settings.max_tokens, "estimated": True}
                entry["lost"] = "interrupted"
                raise
            except Failure as failure:
                if failure.billed:
                    usage = {"prompt": bound, "completion": self.settings.max_tokens, "estimated": True}
                    entry["lost"] = failure.problem
                self._limiter.settle(ticket, 0 if failure.problem.startswith("http_") else guess)
                raise
            reply = read_body(body, _size(request))
            usage = {"prompt": reply.prompt_tokens, "completion": reply.completion_tokens, "estimated": reply.estimated}
            self._limiter.settle(ticket, reply.prompt_tokens + reply.completion_tokens)
            if reply.problem in ("bad_body", "no_choices"):
                entry["lost"] = reply.problem
                if not reply.prompt_tokens:  # not even a count: the dearest that it can have been
                    usage = {"prompt": bound, "completion": self.settings.max_tokens, "estimated": True}
                raise Failure(reply.problem, reply.detail, again=True, billed=True)
            entry["reply"] = reply.to_record()
            return reply
        finally:
            self._budget.settle(reserved, self._budget.cost(usage["prompt"], usage["completion"]))
            self._book(entry, usage)

    def _send(self, request: dict[str, Any]) -> bytes:
        """One body from the transport, in a thread of its own: `abandon` need not wait for a slow endpoint.

        Raises what `Transport.send` does, and Stopped when it was abandoned.
        """
        came: SimpleQueue[tuple[bytes, BaseException | None]] = SimpleQueue()

        def fetch() -> None:
            try:
                came.put((self._transport.send(request, worked=self._worked), None))
            except BaseException as error:
                came.put((b"", error))

        with self._lock:
            if self._abandoned:
                raise Stopped("closed")
            self._waiting.append(came)
        threading.Thread(target=fetch, name="request", daemon=True).start()
        body, error = came.get()
        with self._lock:
            self._waiting.remove(came)
        if error is not None:
            raise error
        return body

    def _book(self, entry: dict[str, Any], usage: dict[str, Any]) -> None:
        """Count and journal a reply, or a request that may be billed without one."""
        if "reply" not in entry and "lost" not in entry:
            return
        with self._lock:
            self.usage.requests += "reply" in entry
            self.usage.lost += "lost" in entry
            self.usage.estimated += usage["estimated"]
            self.usage.prompt_tokens += usage["prompt"]
            self.usage.completion_tokens += usage["completion"]
            self.usage.cost += self._budget.cost(usage["prompt"], usage["completion"])
            self.usage.cost_of_journal = self._budget.spent
        if self._journal is not None:
            self._journal.add({**entry, "usage": usage})


def _size(request: dict[str, Any]) -> int:
    parts = [request["messages"], request.get("tools") or []]
    return len(json.dumps(parts, ensure_ascii=False).encode("utf-8", "replace"))
