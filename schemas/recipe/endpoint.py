"""Recipe model of a teacher behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from schemas.recipe.base import Strict

__all__ = ["CallStyle", "EndpointConfig"]

CallStyle = Literal["native", "xml", "hermes", "react"]
OWN_FIELDS = (
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "seed",
    "stop",
    "stream",
    "temperature",
    "tools",
    "top_p",
)
Positive = Annotated[float, Field(gt=0)]
Price = Annotated[float, Field(ge=0)]


class EndpointConfig(Strict):
    """Where the endpoint is, how it is asked, and what it may cost.

    `api_key_env` names the environment variable that holds the key (null: none is needed). `concurrency` requests are
    under way at once. `samples` attempts are made at every task, `max_steps` turns each, `max_tokens` tokens a turn;
    `limit_field` is the request field for that limit. `call_style` is how tools are offered and called: by the API's
    own tool calls, or as text. `temperature`, `top_p` null are left to the endpoint; `seed` is sent, different for
    every sample. `body` holds further request fields.

    `timeout_s` bounds one request; failed ones are sent again up to `retries` times, after a wait that doubles from
    `first_wait_s` or that the endpoint asks for, at most `longest_wait_s`. After `give_up_after` requests in a row that
    failed for good the endpoint counts as down. `requests_per_minute`, `tokens_per_minute` bound the rate.

    `price_in`, `price_out` are per million tokens, `cost_cap` in the same currency bounds all requests of a journal.
    `journal` is the file of finished requests, so that none is paid twice.
    """

    base_url: str
    model: str = Field(min_length=1)
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    concurrency: int = Field(default=8, ge=1, le=512)
    samples: int = Field(default=1, ge=1, le=1024)
    max_steps: int = Field(default=60, ge=1)
    max_tokens: int = Field(default=2048, ge=1)
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    call_style: CallStyle = "native"
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    body: dict[str, Any] = {}
    timeout_s: Positive = 120
    retries: int = Field(default=4, ge=0, le=20)
    first_wait_s: Positive = 1
    longest_wait_s: Positive = 60
    give_up_after: int = Field(default=20, ge=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    price_in: Price | None = None
    price_out: Price | None = None
    cost_cap: Positive | None = None
    journal: str | None = None

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, given: str) -> str:
        parts = urlsplit(given)
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must be a plain address: a key belongs in the environment variable of api_key_env")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{given!r} is no address such as https://host/v1")
        return given.rstrip("/")

    @field_validator("body")
    @classmethod
    def _leaves_our_fields(cls, given: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(set(given) & set(OWN_FIELDS))
        if taken:
            raise ValueError(f"{taken[0]!r} is not to be set here: it has a field of its own or follows from the task")
        return given

    @model_validator(mode="after")
    def _cap_has_prices(self) -> EndpointConfig:
        if self.cost_cap is not None and (self.price_in is None or self.price_out is None):
            raise ValueError("cost_cap needs price_in and price_out (per million tokens; 0 for free)")
        return self
