"""Recipe models of the mixture: how many tokens each domain and source gives, for the whole corpus or for a stage."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from schemas.recipe.base import Name, Share, Strict

__all__ = ["MixtureConfig", "SourceShares", "StageMixture", "mixture_of_stage", "unknown_names"]

Method = Literal["target", "proportional", "temperature", "unimax"]
Axis = Literal["domain", "source"]
SourceShares = dict[Name, Share] | dict[Name, dict[Name, Share]]
"""{source: share of all tokens}, or {domain: {source: share of the domain's tokens}}."""

TOLERANCE = 1e-6  # shares written with a few decimals may miss 1 by this much


def _unless(default: Any) -> Any:
    """A field that is left out of the digest while it has its default, so that older recipes keep theirs."""
    return lambda value: value == default


class MixtureConfig(Strict):
    """Shares of tokens. `max_epochs` caps how often a document may be repeated.

    `method` target takes `shares` (by domain) as they are; proportional, temperature (p ~ tokens ** (1 / temperature))
    and unimax (arXiv 2304.09151) make them from the supply of the groups of `by`, and `min_shares` are then their
    floors. `shares_by_source` is {source: share of all tokens} or {domain: {source: share within the domain}}; without
    it a domain's tokens come from its sources as they are there. `max_epochs_by_domain` and `max_epochs_by_source`
    replace `max_epochs` for what they name (the smaller where both do). Only documents of at least `min_quality` (0 to
    1, the quality step's score) are used.
    """

    method: Method = "target"
    shares: dict[Name, Share] = {}
    max_epochs: float = Field(default=4, gt=0, le=100)
    budget_tokens: int = Field(ge=1)
    by: Axis = Field(default="domain", exclude_if=_unless("domain"))
    temperature: float | None = Field(default=None, exclude_if=_unless(None))
    shares_by_source: SourceShares = Field(default={}, exclude_if=_unless({}))
    max_epochs_by_domain: dict[Name, float] = Field(default={}, exclude_if=_unless({}))
    max_epochs_by_source: dict[Name, float] = Field(default={}, exclude_if=_unless({}))
    min_shares: dict[Name, Share] = Field(default={}, exclude_if=_unless({}))
    min_shares_by_source: dict[Name, Share] = Field(default={}, exclude_if=_unless({}))
    min_quality: Share = Field(default=0.0, exclude_if=_unless(0.0))

    @property
    def axis(self) -> Axis:
        """What the first split of the budget is over."""
        return "source" if self.method == "target" and not self.shares else self.by

    @property
    def flat_sources(self) -> dict[str, float]:
        """`shares_by_source` as shares of all tokens; empty when it is by domain."""
        return {name: share for name, share in self.shares_by_source.items() if not isinstance(share, dict)}

    @property
    def nested_sources(self) -> dict[str, dict[str, float]]:
        """`shares_by_source` as shares within domains; empty when it is of all tokens."""
        return {name: shares for name, shares in self.shares_by_source.items() if isinstance(shares, dict)}

    @model_validator(mode="after")
    def _method_has_what_it_needs(self) -> MixtureConfig:
        if self.method == "target" and not self.shares and not self.flat_sources:
            raise ValueError("method target needs 'shares', for example {math: 0.5, code: 0.5}")
        if self.method != "target" and self.shares:
            raise ValueError(f"'shares' has no effect with method {self.method}: remove it")
        if self.method == "temperature" and self.temperature is None:
            raise ValueError("method temperature needs 'temperature': 1 is proportional, a large one is uniform")
        if self.temperature is not None and self.method != "temperature":
            raise ValueError(f"'temperature' has no effect with method {self.method}: remove it")
        if self.temperature is not None and not 0 < self.temperature <= 1000:
            raise ValueError(f"temperature {self.temperature:g} must be above 0 (1 is proportional) and at most 1000")
        if self.method == "target" and self.by != "domain":
            raise ValueError("'by: source' goes with proportional, temperature and unimax; write shares_by_source")
        return self

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> MixtureConfig:
        _sums_to_one("the shares", self.shares)
        _sums_to_one("the shares of shares_by_source", self.flat_sources)
        for domain, shares in self.nested_sources.items():
            _sums_to_one(f"the shares of shares_by_source.{domain}", shares)
            if self.shares and domain not in self.shares:
                raise ValueError(f"shares_by_source.{domain}: {domain!r} has no share in 'shares'")
        if self.nested_sources and self.axis == "source":
            raise ValueError("shares_by_source within domains needs a split by domain: set 'shares' or 'by: domain'")
        if self.flat_sources and self.axis == "source" and self.method != "target":
            raise ValueError("'by: source' makes the sources' shares itself: remove shares_by_source")
        return self

    @model_validator(mode="after")
    def _floors_fit(self) -> MixtureConfig:
        for name, floors in (("min_shares", self.min_shares), ("min_shares_by_source", self.min_shares_by_source)):
            if sum(floors.values()) > 1 + TOLERANCE:
                raise ValueError(f"{name} sum to {sum(floors.values()):g}: floors must not sum to more than 1")
        if self.min_shares and self.shares:
            raise ValueError("min_shares has no effect beside 'shares', which say every domain's share: remove one")
        if self.min_shares_by_source and self.shares_by_source:
            raise ValueError("min_shares_by_source has no effect beside shares_by_source: remove one")
        for name in ("max_epochs_by_domain", "max_epochs_by_source"):
            for key, epochs in getattr(self, name).items():
                if not 0 < epochs <= 100:
                    raise ValueError(f"{name}.{key} is {epochs:g}: a cap is above 0 and at most 100 epochs")
        return self

    def named_domains(self) -> Iterator[tuple[str, str]]:
        """Every domain that the mixture names, with the field that names it."""
        yield from (("shares", name) for name in self.shares)
        yield from (("shares_by_source", name) for name in self.nested_sources)
        yield from (("max_epochs_by_domain", name) for name in self.max_epochs_by_domain)
        yield from (("min_shares", name) for name in self.min_shares)

    def named_sources(self) -> Iterator[tuple[str, str]]:
        """Every source that the mixture names, with the field that names it."""
        yield from (("shares_by_source", name) for name in self.flat_sources)
        for domain, shares in self.nested_sources.items():
            yield from ((f"shares_by_source.{domain}", name) for name in shares)
        yield from (("max_epochs_by_source", name) for name in self.max_epochs_by_source)
        yield from (("min_shares_by_source", name) for name in self.min_shares_by_source)


class StageMixture(Strict):
    """What one pretraining stage changes of the recipe's mixture; fields as there, null or absent: as there.

    A stage that gives `shares`, `shares_by_source` or `method` replaces the recipe's method, shares, shares_by_source,
    temperature and floors together; a lower or higher `max_epochs` counts the uses of all stages so far. What a stage
    with a higher `min_quality` than an earlier one needs is reserved for it.
    """

    method: Method | None = None
    shares: dict[Name, Share] | None = None
    by: Axis | None = None
    temperature: float | None = None
    shares_by_source: SourceShares | None = None
    max_epochs: float | None = Field(default=None, gt=0, le=100)
    max_epochs_by_domain: dict[Name, float] | None = None
    max_epochs_by_source: dict[Name, float] | None = None
    min_shares: dict[Name, Share] | None = None
    min_shares_by_source: dict[Name, Share] | None = None
    min_quality: Share | None = None


_SPLIT = ("method", "shares", "by", "temperature", "shares_by_source", "min_shares", "min_shares_by_source")


def mixture_of_stage(base: MixtureConfig, stage: StageMixture | None, budget_tokens: int) -> MixtureConfig:
    """The whole mixture of a stage of `budget_tokens`. Raises ValueError (pydantic's) when the two do not fit."""
    given = {} if stage is None else {key: value for key in _STAGE if (value := getattr(stage, key)) is not None}
    values = {name: getattr(base, name) for name in MixtureConfig.model_fields if name in base.model_fields_set}
    if {"method", "shares", "shares_by_source"} & set(given):
        only_sources = "shares_by_source" in given and "shares" not in given and "method" not in given
        keep = {"method", "shares", "by", "temperature"} if only_sources else set()
        values = {name: value for name, value in values.items() if name not in _SPLIT or name in keep}
        if "shares" in given and "method" not in given:
            given["method"] = "target"
    return MixtureConfig.model_validate({**values, **given, "budget_tokens": budget_tokens})


_STAGE = tuple(StageMixture.model_fields)


def unknown_names(mixture: MixtureConfig, place: str, domains: Collection[str], sources: Collection[str]) -> str | None:
    """What is wrong with the names in a mixture, with the nearest known one; None when all are known."""
    for field, name in mixture.named_domains():
        if name not in domains:
            what = f"is not in classify.labels {list(domains)}"
            return f"{place}.{field} names {name!r}, which {what}{_near(name, domains)}"
    for field, name in mixture.named_sources():
        if name not in sources:
            what = f"is no source of this recipe ({', '.join(sorted(sources))})"
            return f"{place}.{field} names {name!r}, which {what}{_near(name, sources)}"
    return None


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _sums_to_one(what: str, shares: Mapping[str, float]) -> None:
    total = sum(shares.values())
    if shares and abs(total - 1) > TOLERANCE:
        raise ValueError(f"{what} sum to {total:g}: they must sum to 1")
