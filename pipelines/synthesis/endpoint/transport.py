"""One request to an OpenAI-compatible endpoint through the `openai` package: a body, or a failure with its kind.

The body is read in pieces with a limit on size and time, so neither an endless nor a dripping reply holds a thread. The
key is read from the environment and is in no message, journal or log line.
"""

from __future__ import annotations

import os
import time
from email.utils import parsedate_to_datetime
from typing import Any

from schemas.errors import DatamixError, UsageError
from schemas.recipe.endpoint import EndpointConfig

__all__ = ["RETRIED", "Failure", "Transport"]

RETRIED = frozenset({408, 409, 425, 429, *range(500, 600)})
WRONG_SETTINGS = frozenset({401, 403, 404})
PLAIN_BYTES, BYTES_A_REPLY_TOKEN = 1_000_000, 256  # largest body: this and so much for every token allowed


class Failure(Exception):  # noqa: N818 - an outcome, not a defect
    """One attempt that gave no reply: `again` if it may be tried again, after `wait` seconds if the endpoint said so;
    `billed` if the endpoint may charge for it."""

    def __init__(self, problem: str, detail: str, *, again: bool, billed: bool, wait: float | None = None) -> None:
        self.problem, self.detail, self.again, self.billed, self.wait = problem, detail, again, billed, wait
        super().__init__(problem)


class Transport:
    """The connection to an endpoint; safe to use from several threads. Nothing is sent twice by itself."""

    def __init__(self, settings: EndpointConfig) -> None:
        """Raises UsageError when the environment lacks the key."""
        import openai

        self.settings = settings
        self._key = os.environ.get(settings.api_key_env, "") if settings.api_key_env else ""
        if settings.api_key_env and not self._key:
            named = f"the environment variable {settings.api_key_env} (api_key_env)"
            raise UsageError(f"{named} is not set or empty. Put the key in it")
        self._openai = openai.OpenAI(
            api_key=self._key or "none",
            base_url=settings.base_url,
            max_retries=0,
            timeout=settings.timeout_s,
            http_client=openai.DefaultHttpxClient(
                limits=openai.DEFAULT_CONNECTION_LIMITS, timeout=settings.timeout_s, follow_redirects=False
            ),
        )

    def close(self) -> None:
        """Close the connections."""
        self._openai.close()

    def send(self, request: dict[str, Any], *, worked: bool) -> bytes:
        """The body of the answer to a chat completion.

        Raises Failure, and DatamixError for 401, 403, 404 where no request has `worked` before.
        """
        import openai

        started = time.monotonic()
        try:
            with self._openai.chat.completions.with_streaming_response.create(**request) as response:
                return self._read(response, started)
        except openai.APIStatusError as error:
            raise self._refused(error, worked) from None
        except openai.APITimeoutError:
            raise Failure("timeout", f"no answer in {self.settings.timeout_s:g} s", again=True, billed=True) from None
        except openai.APIConnectionError as error:
            detail = self._clean(str(error.__cause__ or error))
            raise Failure("connection", detail, again=True, billed=False) from None

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
                    raise Failure("too_large", f"the body has over {most} bytes", again=False, billed=True)
                if time.monotonic() - started > self.settings.timeout_s:
                    detail = f"not whole after {self.settings.timeout_s:g} s"
                    raise Failure("timeout", detail, again=True, billed=True)
        except httpx2.TimeoutException:
            raise Failure(
                "timeout", f"nothing more in {self.settings.timeout_s:g} s", again=True, billed=True
            ) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            detail = f"closed after {size} bytes: {self._clean(str(error))}"
            raise Failure("connection", detail, again=True, billed=True) from None
        return b"".join(pieces)

    def _refused(self, error: Any, worked: bool) -> Exception:
        """The failure of an answer that is no success, or the error that ends the work."""
        status, detail = error.status_code, self._clean(error.message)
        if status in WRONG_SETTINGS and not worked:
            key = f"${self.settings.api_key_env}" if self.settings.api_key_env else "api_key_env (none is set)"
            return DatamixError(
                f"the endpoint {self.settings.base_url} answered {status}: {detail}. "
                f"Check base_url, model {self.settings.model!r} and the key in {key}"
            )
        wait = _retry_after(error.response.headers)
        return Failure(f"http_{status}", detail, again=status in RETRIED, billed=False, wait=wait)

    def _clean(self, text: str) -> str:
        """A message of the server's, short and without the key."""
        if self._key:
            text = text.replace(self._key, "[key]")
        return " ".join(text.split())[:300]


def _retry_after(headers: Any) -> float | None:
    """Seconds that the endpoint asks to wait: retry-after-ms, or Retry-After in seconds or as a date (RFC 9110)."""
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
