from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.attention import cached_attention, segment_attention


def _plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of one segment from its definition, in float64."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) / q.shape[-1] ** 0.5
    future = torch.ones(q.shape[0], q.shape[0], dtype=torch.bool).triu(1)
    return torch.einsum("hij,jhd->ihd", scores.masked_fill(future, -torch.inf).softmax(-1), v)


def _inputs(tokens: int, heads: int, kv_heads: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    shapes = ((heads, 8), (kv_heads, 8), (kv_heads, 8))
    return [torch.randn(tokens, *shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), kv_heads=st.sampled_from([1, 2, 4]))
def test_equals_every_segment_alone_forward_and_gradient(lengths: list[int], kv_heads: int) -> None:
    packed = _inputs(sum(lengths), 4, kv_heads)
    alone = [x.detach().clone().requires_grad_() for x in packed]
    weights = torch.randn(sum(lengths), 4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    out = segment_attention(*packed, lengths)
    (out * weights).sum().backward()
    expected = torch.cat([_plain(*parts) for parts in zip(*(x.split(lengths) for x in alone), strict=True)])
    (expected * weights).sum().backward()

    torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-9)
    for found, wanted in zip(packed, alone, strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, atol=1e-12, rtol=1e-9)


def test_nothing_leaks_from_an_earlier_segment_as_it_would_under_plain_causal_attention() -> None:
    q, k, v = (x.detach() for x in _inputs(10, 4, 2))
    changed = v.clone()
    changed[:4] += 1

    assert torch.equal(segment_attention(q, k, v, [4, 6])[4:], segment_attention(q, k, changed, [4, 6])[4:])
    assert not torch.allclose(segment_attention(q, k, v, [10])[4:], segment_attention(q, k, changed, [10])[4:])


@pytest.mark.parametrize("lengths", [[3, 3], [5, 0], [6, -1], []])
def test_lengths_that_do_not_cover_the_tokens_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="do not cover 5 tokens"):
        segment_attention(*_inputs(5, 2, 1), lengths)


@pytest.mark.parametrize("new", [1, 3, 9])
def test_the_last_tokens_of_a_cached_sequence_see_all_before_them(new: int) -> None:
    q, k, v = (x.detach() for x in _inputs(9, 4, 2))
    torch.testing.assert_close(cached_attention(q[-new:], k, v), _plain(q, k, v)[-new:], atol=1e-12, rtol=1e-9)
