"""The kernels with a gradient of their own equal the same formulas left to PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional

from trainer.kernels import swiglu


def _inputs(tokens: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    sizes = ((tokens, 6), (10, 6), (10, 6), (6, 10))
    return [torch.randn(size, generator=generator).requires_grad_() for size in sizes]


def _plain(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


@pytest.mark.parametrize("tokens", [1, 511, 512, 513, 1300])  # it works on 512 at a time
def test_swiglu_equals_its_formula_forward_and_gradient(tokens: int) -> None:
    inputs = _inputs(tokens)
    exact = [part.detach().double().requires_grad_() for part in inputs]
    out, expected = swiglu(*inputs), _plain(*exact)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()

    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    for found, wanted in zip(inputs, exact, strict=True):
        assert found.grad is not None
        assert wanted.grad is not None
        torch.testing.assert_close(found.grad.double(), wanted.grad, atol=float(wanted.grad.abs().max()) * 1e-5, rtol=0)


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
    assert half.dtype == torch.bfloat16
    half.sum().backward()
    assert inputs[0].grad is not None
    assert inputs[0].grad.dtype == torch.float32
