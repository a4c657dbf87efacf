from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from schemas.recipe import ModelConfig
from trainer.cache import KeyValueCache
from trainer.kernels import rms_norm, rotary_tables, rotate
from trainer.model import LoopedTransformer

IDS = torch.arange(23) * 7 % 64


def _loss(model: LoopedTransformer, ids: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    weights = torch.linspace(-1, 1, len(ids) * 64).reshape(len(ids), 64).sin()
    return (model(ids, lengths).log_softmax(-1) * weights).sum()


def test_tensor_names_are_those_of_public_nanbeige_checkpoints(make_model: Any) -> None:
    per_layer = [
        "input_layernorm",
        "mlp.down_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "post_attention_layernorm",
        "self_attn.k_proj",
        "self_attn.o_proj",
        "self_attn.q_proj",
        "self_attn.v_proj",
    ]
    physical = [f"model.layers.{i}.{name}.weight" for i in range(2) for name in per_layer]
    tied = sorted(["model.embed_tokens.weight", "model.norm.weight", *physical])
    assert sorted(make_model(num_loops=3).state_dict()) == tied
    assert sorted(make_model(tie_word_embeddings=False).state_dict()) == sorted([*tied, "lm_head.weight"])


def test_head_dim_need_not_be_hidden_over_heads(make_model: Any) -> None:
    state = make_model(hidden_size=12, num_attention_heads=6, num_key_value_heads=3, head_dim=4).state_dict()
    assert state["model.layers.0.self_attn.q_proj.weight"].shape == (24, 12)
    assert state["model.layers.0.self_attn.k_proj.weight"].shape == (12, 12)
    assert state["model.layers.0.self_attn.o_proj.weight"].shape == (12, 24)


def test_packed_segments_give_the_logits_of_each_alone(make_model: Any) -> None:
    model = make_model()
    packed = model(IDS, [9, 1, 13])
    for start, end in ((0, 9), (9, 10), (10, 23)):
        torch.testing.assert_close(packed[start:end], model(IDS[start:end]), atol=1e-5, rtol=1e-5)


def test_changing_one_segment_leaves_the_logits_of_the_next_bit_equal(make_model: Any) -> None:
    model, changed = make_model(), IDS.clone()
    changed[3] = 63
    assert torch.equal(model(IDS, [9, 14])[9:], model(changed, [9, 14])[9:])
    assert not torch.allclose(model(IDS, [23])[9:], model(changed, [23])[9:])


def test_rotary_tables_turn_by_position_over_powers_of_theta() -> None:
    cos, sin = rotary_tables(torch.tensor([0, 1, 5]), 4, 100.0)
    expected = torch.tensor([[0, 0], [1, 0.1], [5, 0.5]])
    torch.testing.assert_close(cos[:, 0], expected.cos().repeat(1, 2))
    torch.testing.assert_close(sin[:, 0], torch.cat((-expected.sin(), expected.sin()), -1))


def test_norm_and_turn_equal_their_formulas_forward_and_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    tables = rotary_tables(torch.tensor([0, 3, 7]), 6, 10.0)
    x, weight, slope = (
        torch.randn(size, generator=generator, dtype=torch.float64) for size in ((3, 2, 6), 6, (3, 2, 6))
    )
    x.requires_grad_()
    weight.requires_grad_()
    normed = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    cos, sin = tables[0][..., :3], tables[1][..., 3:]
    first, second = x.chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    for found, wanted, inputs in (
        (rms_norm(x, weight, 1e-5), normed, (x, weight)),
        (rotate(x, tables), turned, (x,)),
    ):
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(
            torch.autograd.grad(found, inputs, slope), torch.autograd.grad(wanted, inputs, slope)
        )
    assert rotate(x.detach().bfloat16(), tables).dtype == torch.bfloat16


def test_a_second_derivative_of_the_norm_is_refused_not_wrong() -> None:
    x, weight = torch.randn(3, 6, requires_grad=True), torch.ones(6)
    (slope,) = torch.autograd.grad(rms_norm(x, weight, 1e-5).sin().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize(("theta", "head_dim"), [(7e7, 128), (1e4, 64)])
def test_angles_at_the_end_of_a_context_of_262144_are_near_those_of_float64(theta: float, head_dim: int) -> None:
    positions = torch.tensor([0, 131_071, 262_143])
    cos, sin = rotary_tables(positions, head_dim, theta)
    steps = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = positions.double()[:, None] * theta**-steps
    half = head_dim // 2
    for found, wanted in ((cos[:, 0, half:], angles.cos()), (sin[:, 0, half:], angles.sin())):
        assert (found - wanted).abs().max() < 0.008


@pytest.mark.parametrize("checkpointing", [False, True])
def test_looped_gradient_is_the_sum_over_an_untied_unrolled_copy(make_model: Any, checkpointing: bool) -> None:
    looped = make_model(checkpointing, num_loops=3, skip_loop_final_norm=True)
    plain = make_model(num_loops=1, num_hidden_layers=6, skip_loop_final_norm=True)
    state = looped.state_dict()
    plain.load_state_dict(
        {
            name: state[name.replace(f"layers.{_layer(name)}.", f"layers.{_layer(name) % 2}.")]
            for name in plain.state_dict()
        }
    )
    _loss(looped, IDS, [9, 14]).backward()
    _loss(plain, IDS, [9, 14]).backward()
    summed: dict[str, torch.Tensor] = {}
    for name, parameter in plain.named_parameters():
        own = name.replace(f"layers.{_layer(name)}.", f"layers.{_layer(name) % 2}.")
        summed[own] = summed.get(own, torch.zeros_like(parameter)) + parameter.grad
    for name, parameter in looped.named_parameters():
        torch.testing.assert_close(parameter.grad, summed[name], atol=2e-4, rtol=1e-4)


def _layer(name: str) -> int:
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else -1


def test_skipping_the_norm_between_passes_equals_the_plain_model_with_repeated_layers(make_model: Any) -> None:
    looped = make_model(num_loops=2, skip_loop_final_norm=True)
    plain = make_model(num_loops=1, num_hidden_layers=4)
    state = looped.state_dict()
    plain.load_state_dict(
        {
            name: state[name.replace(f"layers.{_layer(name)}.", f"layers.{_layer(name) % 2}.")]
            for name in plain.state_dict()
        }
    )
    assert (looped(IDS) - plain(IDS)).abs().max() <= 1e-6
    with_norm = make_model(num_loops=2, skip_loop_final_norm=False)
    assert (with_norm(IDS) - plain(IDS)).abs().max() > 1e-2


def test_activation_checkpointing_changes_no_gradient(make_model: Any) -> None:
    gradients = []
    for checkpointing in (False, True):
        model = make_model(checkpointing)
        _loss(model, IDS, [9, 14]).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name


@pytest.mark.parametrize("loops", [1, 2, 3])
@pytest.mark.parametrize("skip", [False, True])
@torch.no_grad()
def test_decoding_with_one_cache_a_layer_and_pass_equals_the_full_forward(
    make_model: Any, loops: int, skip: bool
) -> None:
    model = make_model(num_loops=loops, skip_loop_final_norm=skip)
    cache = KeyValueCache(model.config.cache_slots())
    parts = [model(part, cache=cache) for part in IDS.split([7, 1, 1, 9, 5])]
    torch.testing.assert_close(torch.cat(parts), model(IDS), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_truncated_cache_goes_on_from_the_shared_beginning(make_model: Any) -> None:
    model = make_model()
    cache = KeyValueCache(model.config.cache_slots())
    model(IDS, cache=cache)
    cache.truncate(10)
    other = torch.cat([IDS[:10], IDS[12:20]])
    torch.testing.assert_close(model(other[10:], cache=cache), model(other)[10:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_another_number_of_passes_can_be_run_at_test_time(make_model: Any) -> None:
    two, three = make_model(num_loops=2), make_model(num_loops=3)
    assert torch.equal(two(IDS, num_loops=3), three(IDS))


def test_initial_weights_are_a_function_of_the_seed(make_model: Any) -> None:
    first, again, other = (make_model(seed=seed).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    assert torch.equal(first["model.norm.weight"], torch.ones(16))


def test_input_embeddings_begin_with_a_deviation_of_their_own(make_model: Any) -> None:
    """Nothing else is drawn otherwise, and a checkpoint's config says it only where it was chosen."""
    plain = make_model(tie_word_embeddings=False, hidden_size=32, initializer_range=0.05)
    wide = make_model(
        tie_word_embeddings=False, hidden_size=32, initializer_range=0.05, embedding_initializer_range=1.0
    )
    embeddings = "model.embed_tokens.weight"
    assert wide.state_dict()[embeddings].std().item() == pytest.approx(1.0, rel=0.05)
    assert torch.allclose(wide.state_dict()[embeddings], plain.state_dict()[embeddings] * 20)
    others = [name for name in plain.state_dict() if name != embeddings]
    assert all(torch.equal(plain.state_dict()[name], wide.state_dict()[name]) for name in others)
    assert "embedding_initializer_range" not in plain.config.to_json()
    assert wide.config.to_json()["embedding_initializer_range"] == 1.0
    assert wide.config.variants == []  # it is no other architecture: every export takes it


def test_wide_embeddings_that_are_the_output_too_are_refused() -> None:
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    with pytest.raises(ValidationError, match="tie_word_embeddings: false"):
        ModelConfig(**shape, intermediate_size=16, embedding_initializer_range=1.0)


@pytest.mark.parametrize("loops", [0, -1])
def test_no_pass_at_all_is_refused_and_not_taken_for_the_default(make_model: Any, loops: int) -> None:
    with pytest.raises(ValueError, match=f"num_loops {loops}: the stack runs at least once"):
        make_model()(torch.arange(4), num_loops=loops)
