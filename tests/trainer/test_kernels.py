"""The kernels with a gradient of their own equal the same formulas left to PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional

from trainer.kernels import rms_norm, swiglu


def _inputs(tokens: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    sizes = ((tokens, 6), (10, 6), (10, 6), (6, 10))
    return [torch.randn(size, generator=generator).requires_grad_() for size in sizes]


def _plain(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


@pytest.mark.parametrize("tokens", [1, 511, 512, 513, 1300])  # it works on 512 at a time
def test_swiglu_equals_its_formula_forward_and_gradient(differences: Callable[..., list[float]], tokens: int) -> None:
    assert max(differences(swiglu, _plain, _inputs(tokens))) < 1e-5


@pytest.mark.parametrize("shape", [(6,), (0, 6), (2, 3, 6), (3, 400, 6)])
def test_swiglu_takes_any_leading_dimensions_with_a_gradient_and_without(shape: tuple[int, ...]) -> None:
    x, (_, *weights) = torch.randn(shape, generator=torch.Generator().manual_seed(1)), _inputs(1)
    leaves = [part.detach().clone().requires_grad_() for part in (x, x)]
    out, expected = swiglu(leaves[0], *weights), _plain(leaves[1], *weights)
    with torch.no_grad():
        torch.testing.assert_close(swiglu(x, *weights), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    out.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)])
def test_swiglu_is_the_same_however_its_numbers_lie_in_memory(order: tuple[int, int, int]) -> None:
    x, (_, gate, up, down) = torch.randn(3, 200, 6, generator=torch.Generator().manual_seed(1)), _inputs(1)
    laid = x.permute(order).contiguous().permute(order).requires_grad_()
    turned = [weight.detach().t().contiguous().t().requires_grad_() for weight in (gate, up, down)]
    exact = [part.detach().clone(memory_format=torch.contiguous_format) for part in (x, gate, up, down)]
    out, expected = swiglu(laid, *turned), _plain(*(part.requires_grad_() for part in exact))
    out.sum().backward()  # a gradient that is one number, expanded
    expected.sum().backward()
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    for found, wanted in zip((laid, *turned), exact, strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("frozen", list(itertools.product([True, False], repeat=4)))
def test_swiglu_gives_a_gradient_to_what_asks_for_one(frozen: tuple[bool, ...]) -> None:
    parts, others = (
        [part.detach().requires_grad_(not own) for part, own in zip(_inputs(9), frozen, strict=True)] for _ in "ab"
    )
    out, expected = swiglu(*parts), _plain(*others)
    assert out.requires_grad == expected.requires_grad == (not all(frozen))
    if out.requires_grad:
        out.sum().backward()
        expected.sum().backward()
    for found, wanted in zip(parts, others, strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "sizes", [((10, 6), (1, 6), (6, 10)), ((10, 6), (10, 6), (3, 10)), ((10, 6), (10, 6), (10, 6))]
)
def test_swiglu_refuses_weights_that_do_not_fit(sizes: tuple[tuple[int, int], ...]) -> None:
    weights = [torch.zeros(size, requires_grad=True) for size in sizes]
    with pytest.raises(ValueError, match=r"gate \(10, 6\).*do not fit"):
        swiglu(torch.zeros(4, 6), *weights)


def test_swiglu_refuses_rows_of_another_width() -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        swiglu(torch.zeros(6, 4), *_inputs(1)[1:])  # 24 numbers, which would make four rows of six


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", range(4))
def test_swiglu_hides_no_number_that_is_not_finite(which: int, bad: float) -> None:
    results = []
    for function in (swiglu, _plain):
        parts = _inputs(600)
        with torch.no_grad():
            parts[which][3, 2] = bad
        out = function(*parts)
        out.sum().backward()
        results.append([out.isfinite(), *(part.grad.isfinite() for part in parts if part.grad is not None)])
    for found, wanted in zip(*results, strict=True):
        assert not (found & ~wanted).any()


def test_swiglu_keeps_two_numbers_for_each_inner_one_and_the_formula_four() -> None:
    def kept(function: object) -> int:
        numbers = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal numbers
            numbers += tensor.numel() if tensor.shape == (100, 10) else 0
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            function(*_inputs(100))  # type: ignore[operator]
        return numbers

    assert kept(swiglu) == 2 * 100 * 10
    assert kept(_plain) == 4 * 100 * 10


def test_swiglu_without_a_gradient_or_in_half_precision_is_the_formula() -> None:
    inputs = _inputs(700)
    with torch.no_grad():
        torch.testing.assert_close(swiglu(*inputs), _plain(*inputs))
    with torch.autocast("cpu", torch.bfloat16):
        half = swiglu(*inputs)
        assert torch.equal(
            half,
            functional.linear(
                functional.silu(functional.linear(inputs[0], inputs[1])) * functional.linear(inputs[0], inputs[2]),
                inputs[3],
            ),
        )
    assert half.dtype == torch.bfloat16
    half.sum().backward()
    assert inputs[0].grad is not None
    assert inputs[0].grad.dtype == torch.float32


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e18])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_equals_its_formula_at_any_size_and_in_half_precision(
    differences: Callable[..., list[float]], size: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(3, 7, 5, generator=generator) * size).to(dtype).requires_grad_()
    weight = torch.randn(5, generator=generator).requires_grad_()

    def definition(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    close = 1e-5 if dtype == torch.float32 else 2e-2
    assert max(differences(lambda x, weight: rms_norm(x, weight, 1e-6), definition, [x, weight])) < close
