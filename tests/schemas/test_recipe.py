"""Promise 7, the recipe half: every wrong field is named with its path, value and what is allowed (DESIGN §4)."""

from pathlib import Path

import pytest

from schemas.errors import RecipeError
from schemas.recipe import load_recipe, parse_recipe

GOOD = """
name: tiny
seed: 3
sources: [{name: mine, kind: jsonl, path: x.jsonl, domain: code}]
mixture: {shares: {math: 0.4, code: 0.6}, budget_tokens: 1000}
tokenizer: {train: {vocab_size: 512}}
curriculum:
  pretrain: [{context_tokens: 256, budget_tokens: 1000}]
  sft: [{context_tokens: 1024, trained_tokens: 500, shares: {reasoning: 0.5, general: 0.25, agentic: 0.25}}]
model: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 64}
"""


def _error(text: str) -> str:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text, place="r.yaml")
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults_are_filled_in() -> None:
    recipe = parse_recipe(GOOD)
    assert recipe.model.num_loops == 2
    assert recipe.mixture.max_epochs == 4
    assert recipe.on_error == "skip"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seed: 3", "sead: 3", "r.yaml: sead: unknown key; did you mean 'seed'?"),
        ("seed: 3", "", "r.yaml: seed: required, but not given"),
        ("seed: 3", "seed: -1", "r.yaml: seed: input should be greater than or equal to 0, received -1"),
        ("budget_tokens: 1000}\ntok", "budgettokens: 1000}\ntok", "did you mean 'budget_tokens'?"),
        ("math: 0.4", "math: 0.5", "r.yaml: mixture: the shares sum to 1.1: they must sum to 1"),
        ("math: 0.4", "maths: 0.4", "mixture.shares names 'maths', which is not in classify.labels"),
        ("kind: jsonl", "kind: csv", "sources.0.kind: input should be 'jsonl', 'parquet' or 'python-environment'"),
        (", path: x.jsonl", "", "sources.0: kind jsonl needs 'path'"),
        ("vocab_size: 512", "vocab_size: 512}, path: {a: b", "tokenizer.path: input should be a valid string"),
        ("vocab_size: 512}", "vocab_size: 512}, path: folder", "give exactly one of 'train' and 'path'"),
        ("context_tokens: 1024", "context_tokens: 999999", "above model.max_position_embeddings"),
        ("num_attention_heads: 4", "num_attention_heads: 3", "must be a multiple of num_key_value_heads 2"),
        ("num_hidden_layers: 2", "num_hidden_layers: two", "input should be a valid integer"),
        ("general: 0.25", "generall: 0.25", "input should be 'reasoning', 'general' or 'agentic'"),
    ],
)
def test_wrong_field_is_named(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert expected in _error(GOOD.replace(old, new, 1))


def test_all_errors_are_listed_at_once() -> None:
    lines = _error(
        GOOD.replace("seed: 3", "seed: x")
        .replace("max_epochs", "y")
        .replace("budget_tokens: 1000}\ntok", "budget_tokens: 0}\ntok")
    ).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("r.yaml: seed: ")
    assert lines[1].startswith("r.yaml: mixture.budget_tokens: ")


def test_key_written_twice_is_refused_with_its_line() -> None:
    assert "r.yaml:3: not YAML: key 'name' is written twice" in _error("\nname: a\nname: b\n")


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("train: {learning_rate: .inf}\n", "train.learning_rate: input should be a finite number, received inf"),
        ("evaluate: {difficulty: [3, 2]}\n", "evaluate: difficulty [3, 2] must be an ordered range within [1, 10]"),
        ("? [a, b]\n: 1\n", "r.yaml:11: not YAML: a key is a list or mapping"),
        ("x: " + "9" * 5000, "r.yaml: not YAML that can be read: "),
        ("x: 2020-13-45\n", "r.yaml: not YAML that can be read: month must be in 1..12"),
        ("x: " + "[" * 3000, "r.yaml: not YAML that can be read: "),
    ],
)
def test_values_that_no_run_can_use_are_refused(added: str, expected: str) -> None:
    assert expected in _error(GOOD + added)


def test_merge_keys_are_read_and_what_stands_beside_them_wins() -> None:
    merged = GOOD.replace("sources: [{name: mine,", "sources: [&one {name: mine,").replace(
        "domain: code}]", "domain: code}, {<<: *one, name: other}]"
    )
    recipe = parse_recipe(merged)
    assert [(source.name, source.path) for source in recipe.sources] == [("mine", "x.jsonl"), ("other", "x.jsonl")]


@pytest.mark.parametrize(("text", "kind"), [("", "empty"), ("- a\n", "a list"), ("hello", "a str")])
def test_file_that_is_no_mapping_is_refused(text: str, kind: str) -> None:
    assert f"this file is {kind}" in _error(text)


def test_two_sources_of_one_name_are_refused() -> None:
    doubled = GOOD.replace("sources: [", "sources: [{name: mine, kind: parquet, path: y}, ")
    assert "two sources are named 'mine'" in _error(doubled)


def test_override_sets_a_field_inside_a_list(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(GOOD)
    recipe = load_recipe(path, ["sources.0.path=other.jsonl", "mixture.max_epochs=2.5", "train.max_segment_tokens=64"])
    assert recipe.sources[0].path == "other.jsonl"
    assert recipe.mixture.max_epochs == 2.5
    assert recipe.train.max_segment_tokens == 64


@pytest.mark.parametrize(
    "override", ["seed", "=3", "sources.7.path=x", "name.x=1", "train={threads: 1, threads: 2}", "seed=" + "9" * 5000]
)
def test_override_that_points_nowhere_is_refused(tmp_path: Path, override: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(GOOD)
    with pytest.raises(RecipeError, match="--set"):
        load_recipe(path, [override])


def test_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such recipe"):
        load_recipe(tmp_path / "none.yaml")


def test_digest_ignores_workers_and_nothing_else() -> None:
    base = parse_recipe(GOOD)
    assert parse_recipe(GOOD + "engine: {workers: 7}\n").digest() == base.digest()
    assert parse_recipe(GOOD + "engine: {partitions: 3}\n").digest() != base.digest()
    assert parse_recipe(GOOD.replace("seed: 3", "seed: 4")).digest() != base.digest()
