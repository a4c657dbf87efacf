"""Attention whose gradient is made of tiles equals attention from its definition, and is used only where it pays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trainer.attention
from trainer.attention import segment_attention
from trainer.tiles import tiled_attention, worth_tiling


def _inputs(segments: int, tokens: int, group: int, kv_heads: int, head_dim: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    heads = (group * kv_heads, kv_heads, kv_heads)
    return [torch.randn(segments, tokens, n, head_dim, generator=generator).requires_grad_() for n in heads]


def _plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention from its definition."""
    group = query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(group, 2), value.repeat_interleave(group, 2)
    scores = torch.einsum("bihd,bjhd->bhij", query, key) / query.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(future, -torch.inf).softmax(-1), value)


Differences = Callable[..., list[float]]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.integers(1, 3),
    tokens=st.integers(1, 300),
    group=st.integers(1, 5),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([2, 8, 32]),
)
def test_equals_the_definition_forward_and_gradient(
    differences: Differences, segments: int, tokens: int, group: int, kv_heads: int, head_dim: int
) -> None:
    assert max(differences(tiled_attention, _plain, _inputs(segments, tokens, group, kv_heads, head_dim))) < 3e-6


@pytest.mark.parametrize("tokens", [127, 128, 129, 511, 512, 513, 1024, 1153])
def test_equals_the_definition_at_the_edges_of_tiles(differences: Differences, tokens: int) -> None:
    assert max(differences(tiled_attention, _plain, _inputs(1, tokens, 2, 1, 8))) < 3e-6


@pytest.mark.parametrize("group", [7, 12, 48])  # tiles of at most 72, 40 and 16 tokens
def test_equals_the_definition_with_many_query_heads_for_a_key_head(differences: Differences, group: int) -> None:
    assert max(differences(tiled_attention, _plain, _inputs(1, 150, group, 1, 4))) < 3e-6


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("order", [(0, 3, 2, 1), (3, 2, 1, 0), (0, 2, 1, 3), (1, 3, 0, 2)])
def test_equals_the_definition_however_the_numbers_lie_in_memory(
    differences: Differences, order: tuple[int, ...], group: int
) -> None:
    laid: list[torch.Tensor] = []
    for part in _inputs(2, 140, group, 2, 8):
        back = [order.index(place) for place in range(4)]
        laid.append(part.detach().permute(order).contiguous().permute(back).requires_grad_())
    assert all(part.stride() != part.contiguous().stride() for part in laid)
    assert max(differences(tiled_attention, _plain, laid)) < 3e-6


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 600, 5, 8), (1, 600, 2, 8), (1, 600, 2, 8)),
        ((1, 600, 4, 8), (1, 500, 2, 8), (1, 500, 2, 8)),
        ((2, 600, 4, 8), (1, 600, 2, 8), (1, 600, 2, 8)),
        ((1, 600, 4, 8), (1, 600, 2, 4), (1, 600, 2, 4)),
        ((1, 600, 4, 8), (1, 600, 2, 8), (1, 600, 1, 8)),
        ((1, 600, 4, 8), (1, 600, 2, 8), (1, 600, 2, 6)),
        ((1, 600, 4, 8), (1, 600, 0, 8), (1, 600, 0, 8)),
        ((1, 600, 4, 0), (1, 600, 2, 0), (1, 600, 2, 0)),
        ((1, 0, 4, 8), (1, 0, 2, 8), (1, 0, 2, 8)),
        ((0, 600, 4, 8), (0, 600, 2, 8), (0, 600, 2, 8)),
        ((600, 4, 8), (600, 2, 8), (600, 2, 8)),
    ],
)
def test_shapes_that_do_not_fit_are_refused_before_the_kernel_reads_beyond_them(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    query, key, value = (torch.zeros(shape, requires_grad=True) for shape in shapes)
    with pytest.raises(ValueError, match="do not fit"):
        tiled_attention(query, key, value)


def test_scores_far_beyond_the_exponential_keep_their_gradient_finite() -> None:
    query, key, value = _inputs(1, 200, 2, 1, 8)
    sharp = [query.detach().mul(300).requires_grad_(), key, value]
    _, expected = tiled_attention(*sharp), _plain(*(part.detach().double() for part in sharp))
    out = tiled_attention(*sharp)
    out.sum().backward()

    torch.testing.assert_close(out.double(), expected, atol=1e-3, rtol=0)
    assert all(part.grad is not None and bool(part.grad.isfinite().all()) for part in sharp)


def test_an_early_output_has_no_gradient_for_later_keys_and_values() -> None:
    query, key, value = _inputs(1, 140, 2, 1, 4)
    tiled_attention(query, key, value)[:, :50].sum().backward()

    for part in (query, key, value):
        assert part.grad is not None
        assert not part.grad[:, 50:].any()
        assert part.grad[:, 1:50].any()


@pytest.mark.parametrize(
    ("which", "spoilt"),  # of the output and the gradients of query, key and value: where the bad token 300 must show
    [
        (0, (slice(300, 301), slice(300, 301), slice(0, 301), slice(0, 301))),
        (1, (slice(300, 600), slice(300, 600), slice(0, 600), slice(0, 600))),
        (2, (slice(300, 600), slice(300, 600), slice(0, 600), slice(0, 0))),
    ],
)
def test_a_nan_shows_in_all_that_depends_on_it(which: int, spoilt: tuple[slice, ...]) -> None:
    inputs = _inputs(1, 600, 2, 1, 8)
    with torch.no_grad():
        inputs[which][0, 300] = torch.nan
    out = tiled_attention(*inputs)
    out.sum().backward()
    for found, where in zip((out, *(part.grad for part in inputs)), spoilt, strict=True):
        assert found is not None
        assert found[0, where].isnan().all()


def test_a_second_derivative_is_refused_not_wrong() -> None:
    query, key, value = _inputs(1, 5, 2, 1, 4)
    (first,) = torch.autograd.grad(tiled_attention(query, key, value).square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_it_is_used_in_float32_with_shared_keys_for_512_to_4096_tokens_when_a_gradient_is_wanted() -> None:
    def worth(tokens: int, group: int = 2, dtype: torch.dtype = torch.float32, wanted: bool = True) -> bool:
        query = torch.empty(1, tokens, 2 * group, 8, dtype=dtype, requires_grad=wanted)
        return worth_tiling(query, torch.empty(1, tokens, 2, 8, dtype=dtype, requires_grad=wanted))

    assert [worth(tokens) for tokens in (511, 512, 4096, 4097)] == [False, True, True, False]
    assert not worth(1024, group=1)
    assert not worth(1024, dtype=torch.bfloat16)
    assert not worth(1024, wanted=False)
    with torch.no_grad():
        assert not worth(1024)


def test_a_row_of_short_and_long_segments_equals_the_same_row_without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [600, 30, 512, 600, 1]
    gradients = []
    for tiles in (True, False):
        if not tiles:
            monkeypatch.setattr(trainer.attention, "worth_tiling", lambda query, key: False)
        query, key, value = (part[0] for part in _inputs(1, sum(lengths), 3, 2, 8))
        leaves = [part.detach().requires_grad_() for part in (query, key, value)]
        out = segment_attention(*leaves, lengths)
        (out * torch.linspace(0, 1, out.numel()).view(out.shape)).sum().backward()
        gradients.append([out, *(leaf.grad for leaf in leaves)])
    for with_tiles, without in zip(*gradients, strict=True):
        assert with_tiles is not None
        torch.testing.assert_close(with_tiles, without, atol=2e-5, rtol=1e-5)


def test_a_row_of_equal_segments_that_lies_turned_in_memory_equals_the_one_that_does_not() -> None:
    query, key, value = (part[0].detach() for part in _inputs(1, 1024, 2, 2, 8))
    expected = segment_attention(query.requires_grad_(), key, value, [512, 512])
    turned = [part.detach().permute(2, 1, 0).contiguous().permute(2, 1, 0) for part in (query, key, value)]
    turned[0].requires_grad_()
    out = segment_attention(*turned, [512, 512])
    torch.testing.assert_close(out, expected)
    for parts in ((out, turned[0]), (expected, query)):
        parts[0].square().sum().backward()
    assert query.grad is not None
    assert turned[0].grad is not None
    torch.testing.assert_close(turned[0].grad, query.grad)
