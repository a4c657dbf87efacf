"""Asking an OpenAI-compatible endpoint: retries, rate, cost and journal around the `openai` package.

A finished request is in the journal before its reply is used; asked again, also by another process later, it comes from
there. Sent again after a wait (doubling, or what Retry-After says): 408, 409, 425, 429, 5xx, a connection refused,
closed or too slow, a body that is no chat completion. Other answers, and the last failed attempt, are replies with
stop "error" and a problem: timeout, connection, http_N, bad_body, no_choices, too_large. A request refused by 401, 403
or 404 before any other went well raises: the key, the address or the model is wrong.

The body is read in pieces with a limit on size and time, so neither an endless nor a dripping reply holds a thread. The
key is read from the environment and is in no message, journal or log line.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pipelines.synthesis.endpoint_journal import Journal
from pipelines.synthesis.endpoint_limits import Budget, RateLimiter, Stopped
from pipelines.synthesis.endpoint_reply import BYTES_A_TOKEN, Reply, read_body
from schemas.errors import DatamixError, UsageError
from schemas.files import digest_of
from schemas.recipe.endpoint import EndpointConfig

__all__ = ["Asked", "EndpointClient", "Usage"]

RETRIED = frozenset({408, 409, 425, 429, *range(500, 600)})
WRONG_SETTINGS = frozenset({401, 403, 404})
PLAIN_BYTES, BYTES_A_REPLY_TOKEN = 1_000_000, 256  # largest body: this and so much for every token allowed
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


class _Failure(Exception):  # noqa: N818 - a value between two methods
    """One attempt that gave no reply: `again` if it may be tried again, after `wait` seconds if the endpoint said so;
    `billed` if the endpoint may charge for it."""

    def __init__(self, problem: str, detail: str, *, again: bool, billed: bool, wait: float | None = None) -> None:
        self.problem, self.detail, self.again, self.billed, self.wait = problem, detail, again, billed, wait
        super().__init__(problem)


class EndpointClient:
    """An endpoint with its settings; safe to use from several threads. Close it when done."""

    def __init__(self, settings: EndpointConfig, journal: str | Path | None) -> None:
        """Raises UsageError when the environment lacks the key or the journal is in use."""
        import openai

        self.settings = settings
        self._key = os.environ.get(settings.api_key_env, "") if settings.api_key_env else ""
        if settings.api_key_env and not self._key:
            named = f"the environment variable {settings.api_key_env} (api_key_env)"
            raise UsageError(f"{named} is not set or empty. Put the key in it")
        self._journal = Journal(journal) if journal is not None else None
        self.usage = Usage()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._in_a_row = 0  # requests that failed for good
        self._worked = False
        self._limiter = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute, self._stop.wait)
        self._budget = Budget(settings.price_in, settings.price_out, settings.cost_cap)
        for usage in self._journal.usages if self._journal else ():
            self._budget.book(self._budget.cost(usage["prompt"], usage["completion"]))
        self._openai = openai.OpenAI(
            api_key=self._key or "none",
            base_url=settings.base_url,
            max_retries=0,
            timeout=settings.timeout_s,
            http_client=openai.DefaultHttpxClient(
                limits=openai.DEFAULT_CONNECTION_LIMITS, timeout=settings.timeout_s, follow_redirects=False
            ),
        )

    @property
    def journal(self) -> Journal | None:
        """The journal, when there is one."""
        return self._journal

    def stop(self) -> None:
        """Let nobody start another request; those that wait raise Stopped."""
        self._stop.set()

    def close(self) -> None:
        """Stop, close connections and journal."""
        self.stop()
        self._openai.close()
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
        with self._lock:
            self._in_a_row = 0 if reply.stop != "error" or reply.problem == "empty" else self._in_a_row + 1
            self._worked = self._worked or self._in_a_row == 0
            if self._in_a_row:
                self.usage.failed += 1
            dead = self._in_a_row >= self.settings.give_up_after
        if dead:
            raise Stopped("endpoint_down")
        return reply

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
            except _Failure as failure:
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
        """One request. Raises _Failure; whatever happens, cost and rate are settled."""
        reserved = self._budget.reserve(self._budget.cost(bound, self.settings.max_tokens), self._stop.is_set)
        usage = {"prompt": 0, "completion": 0, "estimated": False}
        entry: dict[str, Any] = {"key": key, "task": asked.task, "sample": asked.sample, "turn": asked.turn}
        try:
            ticket = self._limiter.acquire(guess)
            try:
                body = self._send(request)
            except _Failure as failure:
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
                raise _Failure(reply.problem, reply.detail, again=True, billed=True)
            entry["reply"] = reply.to_record()
            return reply
        finally:
            self._budget.settle(reserved, self._budget.cost(usage["prompt"], usage["completion"]))
            self._book(entry, usage)

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

    def _send(self, request: dict[str, Any]) -> bytes:
        import openai

        started = time.monotonic()
        try:
            with self._openai.chat.completions.with_streaming_response.create(**request) as response:
                return self._read(response, started)
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        except openai.APITimeoutError:
            raise _Failure("timeout", f"no answer in {self.settings.timeout_s:g} s", again=True, billed=True) from None
        except openai.APIConnectionError as error:
            detail = self._clean(str(error.__cause__ or error))
            raise _Failure("connection", detail, again=True, billed=False) from None

    def _read(self, response: Any, started: float) -> bytes:
        """The body, within its limits."""
        import httpx2

        most = PLAIN_BYTES + BYTES_A_REPLY_TOKEN * self.settings.max_tokens
        pieces, size = [], 0
        try:
            for piece in response.iter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise _Failure("too_large", f"the body has over {most} bytes", again=False, billed=True)
                if time.monotonic() - started > self.settings.timeout_s:
                    detail = f"not whole after {self.settings.timeout_s:g} s"
                    raise _Failure("timeout", detail, again=True, billed=True)
        except httpx2.TimeoutException:
            raise _Failure(
                "timeout", f"nothing more in {self.settings.timeout_s:g} s", again=True, billed=True
            ) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            detail = f"closed after {size} bytes: {self._clean(str(error))}"
            raise _Failure("connection", detail, again=True, billed=True) from None
        return b"".join(pieces)

    def _refused(self, error: Any) -> Exception:
        """The failure of an answer that is no success, or the error that ends the work."""
        status, detail = error.status_code, self._clean(error.message)
        if status in WRONG_SETTINGS and not self._worked:
            key = f"${self.settings.api_key_env}" if self.settings.api_key_env else "api_key_env (none is set)"
            return DatamixError(
                f"the endpoint {self.settings.base_url} answered {status}: {detail}. "
                f"Check base_url, model {self.settings.model!r} and the key in {key}"
            )
        wait = _retry_after(error.response.headers)
        return _Failure(f"http_{status}", detail, again=status in RETRIED, billed=False, wait=wait)

    def _clean(self, text: str) -> str:
        """A message of the server's, short and without the key."""
        if self._key:
            text = text.replace(self._key, "[key]")
        return " ".join(text.split())[:300]


def _size(request: dict[str, Any]) -> int:
    parts = [request["messages"], request.get("tools") or []]
    return len(json.dumps(parts, ensure_ascii=False).encode("utf-8", "replace"))


def _retry_after(headers: Any) -> float | None:
    """Seconds that the endpoint asks to wait: retry-after-ms, or Retry-After in seconds or as a date (RFC 9110)."""
    from email.utils import parsedate_to_datetime

    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        given = headers.get(name)
        if given is None:
            continue
        try:
            seconds = float(given) / divisor
        except ValueError:
            try:
                seconds = parsedate_to_datetime(given).timestamp() - time.time()
            except ValueError:
                continue
        if 0 <= seconds < 86_400 * 365:
            return seconds
    return None
