"""What a mixture may ask for, what it may not, and what its errors say; stages that change it."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import RecipeError
from schemas.recipe import MixtureConfig, PretrainStage, StageMixture, parse_recipe, stage_name
from schemas.recipe.mixture import mixture_of_stage

BASE = """
name: m
seed: 1
sources:
  - {name: books, kind: jsonl, path: a.jsonl}
  - {name: crawl, kind: jsonl, path: b.jsonl}
mixture: MIXTURE
tokenizer: {train: {}}
curriculum: CURRICULUM
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 32}
"""
SHARES = "shares: {math: 0.5, web: 0.5}, budget_tokens: 100"


def parse(mixture: str, curriculum: str = "{}") -> Any:
    return parse_recipe(BASE.replace("MIXTURE", f"{{{mixture}}}").replace("CURRICULUM", curriculum))


@pytest.mark.parametrize(
    ("mixture", "said"),
    [
        ("shares: {math: 0.5, web: 0.4}, budget_tokens: 1", "the shares sum to 0.9: they must sum to 1"),
        ("shares: {math: 0.5, wbe: 0.5}, budget_tokens: 1", "did you mean 'web'?"),
        (f"{SHARES}, shares_by_source: {{boks: 1.0}}", "is no source of this recipe (books, crawl); did you mean"),
        (f"{SHARES}, shares_by_source: {{books: 0.5}}", "the shares of shares_by_source sum to 0.5"),
        (f"{SHARES}, shares_by_source: {{math: {{books: 0.7}}}}", "shares_by_source.math sum to 0.7"),
        (f"{SHARES}, shares_by_source: {{code: {{books: 1}}}}", "'code' has no share in 'shares'"),
        ("method: temperature, temperature: 0, budget_tokens: 1", "temperature 0 must be above 0"),
        ("method: temperature, temperature: -2, budget_tokens: 1", "temperature -2 must be above 0"),
        ("method: temperature, budget_tokens: 1", "method temperature needs 'temperature'"),
        (f"{SHARES}, temperature: 2", "'temperature' has no effect with method target"),
        ("method: unimax, shares: {math: 1}, budget_tokens: 1", "'shares' has no effect with method unimax"),
        ("method: target, budget_tokens: 1", "method target needs 'shares'"),
        ("method: unimx, budget_tokens: 1", "mixture.method"),
        (f"{SHARES}, min_shares: {{math: 0.6}}", "min_shares has no effect beside 'shares'"),
        ("method: unimax, min_shares: {math: 0.6, web: 0.5}, budget_tokens: 1", "floors must not sum to more than 1"),
        (f"{SHARES}, max_epochs_by_source: {{books: 0}}", "max_epochs_by_source.books is 0"),
        (f"{SHARES}, max_epochs_by_domain: {{mth: 2}}", "did you mean 'math'?"),
        (f"{SHARES}, by: source", "'by: source' goes with proportional"),
        (f"{SHARES}, min_quality: 1.5", "mixture.min_quality"),
        (f"{SHARES}, share_by_source: {{books: 1}}", "did you mean 'shares_by_source'?"),
    ],
)  # fmt: skip
def test_what_a_mixture_may_not_ask_is_said(mixture: str, said: str) -> None:
    with pytest.raises(RecipeError) as raised:
        parse(mixture)
    assert said in str(raised.value)


def test_what_a_mixture_may_ask() -> None:
    nested = parse(f"{SHARES}, shares_by_source: {{math: {{books: 0.7, crawl: 0.3}}}}").mixture
    assert (nested.flat_sources, nested.nested_sources) == ({}, {"math": {"books": 0.7, "crawl": 0.3}})
    flat = parse("shares_by_source: {books: 0.7, crawl: 0.3}, budget_tokens: 5").mixture
    assert (flat.flat_sources, flat.axis) == ({"books": 0.7, "crawl": 0.3}, "source")
    assert parse("method: unimax, by: source, budget_tokens: 5").mixture.axis == "source"
    assert parse(f"{SHARES}, shares_by_source: {{books: 0.7, crawl: 0.3}}").mixture.axis == "domain"


def test_a_recipe_without_the_new_fields_keeps_its_content() -> None:
    dumped = parse(SHARES, "{pretrain: [{context_tokens: 16, budget_tokens: 5}]}").model_dump(mode="json")
    assert set(dumped["mixture"]) == {"method", "shares", "max_epochs", "budget_tokens"}
    assert set(dumped["curriculum"]["pretrain"][0]) == {"context_tokens", "budget_tokens", "rope_theta"}
    assert "expected_tokens" not in dumped["sources"][0]


STAGES = """
  pretrain:
    - {name: diverse, context_tokens: 16, budget_tokens: 60}
    - {context_tokens: 16, budget_tokens: 40, mixture: {min_quality: 0.5, shares: {math: 0.9, web: 0.1}}}
"""


def test_stages_change_the_recipe_s_mixture() -> None:
    recipe = parse(SHARES, STAGES)
    first, second = recipe.stage_mixtures()
    assert (first.shares, first.budget_tokens, first.min_quality) == ({"math": 0.5, "web": 0.5}, 60, 0)
    assert (second.shares, second.budget_tokens, second.min_quality) == ({"math": 0.9, "web": 0.1}, 40, 0.5)
    names = [stage_name(n, stage) for n, stage in enumerate(recipe.curriculum.pretrain)]
    assert names == ["pretrain-0-diverse", "pretrain-1-16"]
    assert parse(SHARES, "{pretrain: [{context_tokens: 16, budget_tokens: 5}]}").stage_mixtures() == []


def test_a_stage_s_split_replaces_the_recipe_s_whole_split() -> None:
    base = MixtureConfig(method="temperature", temperature=2, min_shares={"math": 0.1}, budget_tokens=9, max_epochs=3)
    target = mixture_of_stage(base, StageMixture(shares={"math": 1.0}), 4)
    assert (target.method, target.temperature, target.min_shares, target.max_epochs) == ("target", None, {}, 3)
    assert mixture_of_stage(base, StageMixture(max_epochs=1), 4).temperature == 2
    nested = MixtureConfig(shares={"math": 1}, shares_by_source={"math": {"books": 1}}, budget_tokens=9)
    other = mixture_of_stage(nested, StageMixture(shares_by_source={"math": {"crawl": 1}}), 4)
    assert (other.shares, other.nested_sources) == ({"math": 1}, {"math": {"crawl": 1}})
    assert mixture_of_stage(nested, None, 4).nested_sources == {"math": {"books": 1}}


@pytest.mark.parametrize(
    ("mixture", "curriculum", "said"),
    [
        (SHARES, STAGES.replace("40", "41"), "is 100, the budgets of the pretraining stages sum to 101"),
        (SHARES, STAGES.replace("0.9", "0.8"), "curriculum.pretrain.1.mixture: the shares sum to 0.9"),
        (SHARES, STAGES.replace("math: 0.9", "maths: 0.9"), "curriculum.pretrain.1.mixture.shares names 'maths'"),
        (SHARES, STAGES.replace("min_quality", "min_qualty"), "did you mean 'min_quality'?"),
        (SHARES, STAGES.replace("- {context", "- {name: diverse, context"), "stages are named 'diverse'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_stage_is_said_with_its_place(mixture: str, curriculum: str, said: str) -> None:
    with pytest.raises(RecipeError) as raised:
        parse(mixture, curriculum)
    assert said in str(raised.value)


def test_the_name_of_a_stage_is_a_folder_name() -> None:
    with pytest.raises(ValueError, match="pattern"):
        PretrainStage(context_tokens=16, budget_tokens=1, name="../up")
