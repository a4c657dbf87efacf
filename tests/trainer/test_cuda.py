"""What a CUDA device computes equals what the CPU computes; skipped where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trainer.attention import segment_attention
from trainer.generate import Decoder, Sampling
from trainer.heldout import model_loss
from trainer.world import own_device

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_half_precision_attention_over_segments_equals_float32_on_the_cpu() -> None:
    generator, lengths = torch.Generator().manual_seed(0), [5, 300, 1, 64]
    exact = [torch.randn(sum(lengths), n, 64, generator=generator).requires_grad_() for n in (4, 2, 2)]
    half = [part.detach().to("cuda", torch.bfloat16).requires_grad_() for part in exact]
    expected, out = segment_attention(*exact, lengths), segment_attention(*half, lengths)
    expected.sum().backward()
    out.sum().backward()

    torch.testing.assert_close(out.float().cpu(), expected, atol=0.03, rtol=0.03)
    for found, wanted in zip(half, exact, strict=True):
        assert found.grad is not None
        torch.testing.assert_close(found.grad.float().cpu(), wanted.grad, atol=0.1, rtol=0.05)


def test_held_out_loss_and_greedy_writing_are_those_of_the_cpu(make_model: Any) -> None:
    model = make_model()
    pieces = [np.arange(1, 40), np.arange(20, 25)]
    loss = model_loss(model, pieces, bf16=False)
    written = Decoder(model).continue_([5, 9, 2], 12, {-1}, Sampling(temperature=0), torch.Generator())

    model.to(own_device())
    again = Decoder(model).continue_([5, 9, 2], 12, {-1}, Sampling(temperature=0), torch.Generator())
    assert model.output_weight.is_cuda
    assert model_loss(model, pieces, bf16=False) == pytest.approx(loss, rel=1e-4)
    assert again == written
