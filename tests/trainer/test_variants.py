"""Variants of the loop: each off changes nothing, each on is what its description says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from schemas.recipe import ModelConfig
from trainer.cache import KeyValueCache
from trainer.config import LoopedConfig, read_config
from trainer.generate import Decoder, Sampling
from trainer.loss import weighted_cross_entropy

IDS = torch.arange(23) * 7 % 64
LENGTHS = [9, 14]
VARIANTS: list[dict[str, Any]] = [
    {"loop_middle_layers": 2},
    {"loop_share_kv": True},
    {"loop_input_injection": True},
    {"loop_middle_layers": 1, "loop_share_kv": True, "loop_input_injection": True},
]


@pytest.mark.parametrize(
    "off", [{"loop_middle_layers": 4}, {"loop_loss_weights": (0.0, 0.0)}, {"loop_share_kv": True, "num_loops": 1}]
)
def test_a_variant_that_is_off_changes_nothing(make_model: Any, off: dict[str, Any]) -> None:
    """All layers in the middle, no weight on early passes, nothing to share with: the plain loop, bit for bit."""
    plain = make_model(num_hidden_layers=4, num_loops=off.get("num_loops", 3))
    other = make_model(**{"num_hidden_layers": 4, "num_loops": 3, **off})
    assert torch.equal(plain(IDS, LENGTHS), other(IDS, LENGTHS))
    targets, weights = torch.arange(1, 9), torch.full((8,), 0.125)
    assert torch.equal(plain.loss(IDS, LENGTHS, targets, weights), other.loss(IDS, LENGTHS, targets, weights))


def _layers(model: Any, order: list[int], x: torch.Tensor) -> torch.Tensor:
    """Physical layers run in `order`, from their own parts."""
    from trainer.kernels import rotary_tables

    tables = rotary_tables(torch.cat([torch.arange(n) for n in LENGTHS]), model.config.head_dim, 10_000.0)
    for index in order:
        x, _ = model.model.layers[index](x, tables, LENGTHS)
    return x


@torch.no_grad()
def test_outer_layers_run_once_and_the_middle_in_every_pass(make_model: Any) -> None:
    model = make_model(num_hidden_layers=4, num_loops=3, loop_middle_layers=2, skip_loop_final_norm=True)
    wanted = model.model.norm(_layers(model, [0, 1, 2, 1, 2, 1, 2, 3], model.model.embed_tokens(IDS)))
    torch.testing.assert_close(model.hidden(IDS, LENGTHS), wanted)
    normed = make_model(num_hidden_layers=4, num_loops=2, loop_middle_layers=2)
    between = normed.model.norm(_layers(normed, [0, 1, 2], normed.model.embed_tokens(IDS)))
    torch.testing.assert_close(normed.hidden(IDS, LENGTHS), normed.model.norm(_layers(normed, [1, 2, 3], between)))


@torch.no_grad()
def test_what_entered_the_first_pass_is_added_to_every_later_one(make_model: Any) -> None:
    model = make_model(num_loops=3, loop_input_injection=True)
    entry = x = model.model.embed_tokens(IDS)
    for loop in range(3):
        x = model.model.norm(_layers(model, [0, 1], x + entry if loop else x))
    torch.testing.assert_close(model.hidden(IDS, LENGTHS), x)


def test_shared_keys_and_values_are_those_of_the_first_pass_and_get_the_gradient_of_all(make_model: Any) -> None:
    model = make_model(num_loops=2, num_hidden_layers=1, loop_share_kv=True)
    made: list[torch.Tensor] = []
    model.model.layers[0].self_attn.k_proj.register_forward_hook(lambda m, i, out: made.append(out))
    shared = model.hidden(IDS, LENGTHS)
    assert len(made) == 1  # the second pass projects queries only
    gradient = torch.autograd.grad(shared.square().sum(), model.model.layers[0].self_attn.v_proj.weight)[0]
    assert (gradient != 0).any()
    assert not torch.allclose(shared, make_model(num_loops=2, num_hidden_layers=1).hidden(IDS, LENGTHS))
    one_pass = make_model(num_loops=1, num_hidden_layers=1, loop_share_kv=True)
    assert torch.equal(model.hidden(IDS, LENGTHS, num_loops=1), one_pass.hidden(IDS, LENGTHS))


def test_every_pass_has_its_weight_in_the_loss(make_model: Any) -> None:
    model = make_model(num_loops=3, loop_loss_weights=(0.25, 0.125))
    targets, weights = torch.tensor([1, 4, 12]), torch.tensor([0.5, 0.25, 0.25])
    wanted = sum(
        share
        * weighted_cross_entropy(
            model.hidden(IDS, LENGTHS, num_loops=loops)[targets - 1], model.output_weight, IDS[targets], weights
        )
        for share, loops in ((0.25, 1), (0.125, 2), (0.625, 3))
    )
    torch.testing.assert_close(model.loss(IDS, LENGTHS, targets, weights), wanted)
    skipping = make_model(num_loops=2, loop_loss_weights=(1.0,), skip_loop_final_norm=True)
    early = skipping.hidden(IDS, LENGTHS, num_loops=1)[targets - 1]
    torch.testing.assert_close(
        skipping.loss(IDS, LENGTHS, targets, weights),
        weighted_cross_entropy(early, skipping.output_weight, IDS[targets], weights),
    )


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_decoding_with_a_cache_equals_the_full_forward(make_model: Any, variant: dict[str, Any]) -> None:
    model = make_model(num_hidden_layers=4, num_loops=3, **variant)
    cache = KeyValueCache(model.config.cache_slots())
    parts = [model(part, cache=cache) for part in IDS.split([7, 1, 1, 9, 5])]
    torch.testing.assert_close(torch.cat(parts), model(IDS), atol=1e-5, rtol=1e-5)
    written = Decoder(model, num_loops=2).continue_([5, 9], 3, {-1}, Sampling(temperature=0), torch.Generator())
    assert written[0] == int(model(torch.tensor([5, 9]), num_loops=2)[-1].argmax())


@pytest.mark.parametrize("variant", [*VARIANTS, {"loop_loss_weights": (0.3, 0.3)}])
def test_activation_checkpointing_changes_no_gradient_of_a_variant(make_model: Any, variant: dict[str, Any]) -> None:
    gradients = []
    for checkpointing in (False, True):
        model = make_model(checkpointing, num_hidden_layers=3, num_loops=3, **variant)
        model.loss(IDS, LENGTHS, torch.arange(1, 9), torch.ones(8)).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_slots_of_a_cache_are_the_layers_that_keep_keys(make_model: Any) -> None:
    config = make_model(num_hidden_layers=5, num_loops=3, loop_middle_layers=2).config
    assert [list(block) for block in config.blocks] == [[0], [1, 2], [3, 4]]
    assert (config.cache_slots(), config.cache_slots(1)) == (3 + 2 * 3, 5)
    assert make_model(num_hidden_layers=5, num_loops=3, loop_share_kv=True).config.cache_slots() == 5


def test_a_config_names_variants_only_where_they_are_on_and_reads_them_back(make_model: Any, tmp_path: Any) -> None:
    from schemas.files import write_json

    plain = make_model().config
    assert not any(name.startswith("loop_") for name in plain.to_json())
    changed = make_model(loop_loss_weights=(0.5,), loop_share_kv=True).config
    for name, config in (("plain", plain), ("changed", changed)):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "config.json", config.to_json())
        assert read_config(tmp_path / name) == config
    assert changed.variants == ["loop_share_kv"]


SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loop_middle_layers": 5}, "loop_middle_layers 5 is more than num_hidden_layers 4"),
        ({"loop_loss_weights": [0.1, 0.1]}, "must be num_loops - 1 = 1 weights"),
        ({"loop_loss_weights": [0.7, 0.7], "num_loops": 3}, "sum to at most 1"),
        ({"loop_loss_weights": [0.5], "loop_middle_layers": 2}, "need every layer looped"),
    ],
)
def test_a_recipe_that_asks_for_what_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelConfig(**{**SIZES, "intermediate_size": 32, **fields})


def test_a_recipe_turns_variants_on() -> None:
    recipe = ModelConfig(**SIZES, intermediate_size=32, num_loops=3, loop_loss_weights=[0.2, 0.3], loop_share_kv=True)
    config = LoopedConfig.from_recipe(recipe, 100)
    assert (config.loop_loss_weights, config.loop_share_kv, config.loop_middle_layers) == ((0.2, 0.3), True, None)
