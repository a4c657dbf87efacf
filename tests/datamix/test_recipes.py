"""The bundled recipes: every one loads, and says what its name promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from datamix.bundled import find_recipe, recipes_folder
from schemas.recipe import load_recipe

FOLDER = Path(__file__).parents[2] / "recipes"
PUBLISHED = [  # arXiv 2607.22083: shares of supervised target tokens
    (65_536, {"reasoning": 0.827, "general": 0.116, "agentic": 0.057}),
    (131_072, {"reasoning": 0.478, "general": 0.227, "agentic": 0.295}),
    (262_144, {"reasoning": 0.224, "general": 0.087, "agentic": 0.689}),
]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_loads_and_is_named_after_its_file(path: Path) -> None:
    assert load_recipe(path).name == path.stem


@pytest.mark.parametrize("name", ["demo", "small", "nanbeige"])
def test_sft_stages_have_the_published_shares(name: str) -> None:
    stages = load_recipe(FOLDER / f"{name}.yaml").curriculum.sft
    assert [(stage.context_tokens, stage.shares) for stage in stages] == PUBLISHED


def test_nanbeige_has_the_sizes_of_the_public_checkpoint() -> None:
    model = load_recipe(FOLDER / "nanbeige.yaml").model
    assert (model.hidden_size, model.num_hidden_layers, model.num_loops, model.head_dim) == (3072, 22, 2, 128)
    assert (model.num_attention_heads, model.num_key_value_heads, model.intermediate_size) == (48, 8, 10752)


def test_small_has_about_a_hundred_million_parameters() -> None:
    recipe = load_recipe(FOLDER / "small.yaml")
    model, words = recipe.model, recipe.tokenizer.train
    assert words is not None and model.head_dim is not None and model.tie_word_embeddings
    attention = 2 * model.hidden_size * (model.num_attention_heads + model.num_key_value_heads) * model.head_dim
    layer = attention + 3 * model.hidden_size * model.intermediate_size + 2 * model.hidden_size
    total = words.vocab_size * model.hidden_size + model.num_hidden_layers * layer + model.hidden_size
    assert total == 100_682_496
    assert (model.num_loops, model.max_position_embeddings) == (2, 262_144)


def test_jsonl_recipe_takes_any_path() -> None:
    recipe = load_recipe(FOLDER / "jsonl.yaml", ["sources.0.path=/data/my text.jsonl.zst"])
    assert recipe.sources[0].path == "/data/my text.jsonl.zst"


def test_a_bundled_recipe_is_found_by_its_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recipes_folder() == FOLDER
    assert find_recipe("nanbeige") == FOLDER / "nanbeige.yaml"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("mine", encoding="utf-8")
    assert find_recipe("demo") == Path("demo")
    assert find_recipe("none") == Path("none")
