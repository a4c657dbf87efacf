"""Loss over trained tokens; promise 5 of DESIGN §4: a mistake stays in context and is not trained, its recovery is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from schemas.errors import DatamixError
from trainer.groups import RowPlan, plan_row
from trainer.loss import weighted_cross_entropy
from trainer.model import LoopedTransformer
from trainer.optimizer import make_optimizer
from trainer.shards import Row
from trainer.step import NonFiniteError, StepSettings, gradient_step, group_loss
from trainer.world import World

SETTINGS = StepSettings("token-mean", clip_norm=1e9, bf16=False)


def _row(lengths: list[int], masks: list[list[int]] | None = None, seed: int = 0) -> Row:
    """A row of random ids; `masks` are trained positions in each segment (default: all but the first)."""
    ids = np.random.default_rng(seed).integers(0, 64, sum(lengths))
    targets = np.zeros(sum(lengths), dtype=np.bool_)
    for start, length, trained in zip(
        np.cumsum(lengths) - lengths, lengths, masks or [list(range(1, n)) for n in lengths], strict=True
    ):
        assert all(0 < t < length for t in trained)
        targets[[start + t for t in trained]] = True
    names = pa.scalar([f"seg-{seed}.{i}" for i in range(len(lengths))])
    return Row(f"part.arrow:{seed}", ids, targets, list(lengths), names)


def _gradients(model: LoopedTransformer, plans: list[RowPlan], settings: StepSettings = SETTINGS) -> dict[str, Any]:
    """Gradients that a step leaves behind (a learning rate of zero moves nothing)."""
    optimizer = make_optimizer(model, 0.0)
    counts = gradient_step(model, optimizer, plans, settings, World(), lambda tokens: None)
    return {"loss": counts.loss, **{n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}}


def _assert_equal(found: dict[str, Any], wanted: dict[str, Any], tolerance: float = 1e-6) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.allclose(torch.as_tensor(found[name]), torch.as_tensor(value), atol=tolerance), name


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_chunked_cross_entropy_equals_torch_forward_and_gradient(chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 5, generator=generator, requires_grad=True)
    matrix = torch.randn(11, 5, generator=generator, requires_grad=True)
    targets, weights = torch.arange(7) % 11, torch.rand(7, generator=generator)
    loss = weighted_cross_entropy(hidden, matrix, targets, weights, chunk)
    found = torch.autograd.grad(2 * loss, (hidden, matrix))
    each = torch.nn.functional.cross_entropy(hidden @ matrix.T, targets, reduction="none")
    wanted = torch.autograd.grad(2 * (each * weights).sum(), (hidden, matrix))
    torch.testing.assert_close(loss, (each * weights).sum())
    torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        torch.testing.assert_close(weighted_cross_entropy(hidden, matrix, targets, weights, chunk), loss.detach())


def test_a_row_in_groups_of_segments_has_the_gradient_of_the_whole_row(make_model: Any) -> None:
    row = _row([9, 4, 12, 4, 7])
    whole, grouped = plan_row(row, 1000), plan_row(row, 13)
    assert [g.segment_lengths for g in grouped.groups] == [[9, 4], [12], [4, 7]]
    assert len(whole.groups) == 1
    _assert_equal(_gradients(make_model(), [grouped]), _gradients(make_model(), [whole]))


def test_a_segment_above_the_group_size_is_a_group_of_its_own() -> None:
    assert [g.segment_lengths for g in plan_row(_row([3, 20, 3]), 10).groups] == [[3], [20], [3]]


def test_packed_loss_is_the_token_weighted_loss_of_the_parts(make_model: Any) -> None:
    packed = _row([9, 5], [[2, 3, 8], [1]])
    model = make_model()
    a = Row("a", packed.input_ids[:9], packed.targets[:9], [9], packed.segment_ids)
    b = Row("b", packed.input_ids[9:], packed.targets[9:], [5], packed.segment_ids)
    losses = [_gradients(model, [plan_row(row, 100)])["loss"] for row in (packed, a, b)]
    assert losses[0] == pytest.approx((3 * losses[1] + 1 * losses[2]) / 4, abs=1e-5)


def test_only_trained_targets_have_a_gradient_yet_masked_turns_change_later_logits(make_model: Any) -> None:
    row = _row([12], [[9, 10, 11]])  # tokens 1 to 8 are a masked turn
    model = make_model(tie_word_embeddings=False)
    group = plan_row(row, 100).groups[0]
    hidden: list[torch.Tensor] = []
    model.model.norm.register_forward_hook(lambda m, i, out: (out.retain_grad(), hidden.append(out))[0])
    group_loss(model, group, SETTINGS, 3).backward()
    assert (hidden[-1].grad[:8] == 0).all() and (hidden[-1].grad[8:11] != 0).any()  # predictions of masked tokens
    assert (hidden[-1].grad[11] == 0).all()

    ids = torch.from_numpy(row.input_ids.copy())
    changed = ids.clone()
    changed[4] = (changed[4] + 1) % 64
    assert not torch.allclose(model(ids)[9:], model(changed)[9:])


def test_the_identity_of_a_masked_target_has_no_influence_on_the_gradient_of_the_head(make_model: Any) -> None:
    row = _row([6], [[2]])
    other = Row(row.name, row.input_ids.copy(), row.targets, [6], row.segment_ids)
    other.input_ids[3:] = (other.input_ids[3:] + 11) % 64  # after the only target: neither seen nor trained
    _assert_equal(
        _gradients(make_model(tie_word_embeddings=False), [plan_row(row, 100)]),
        _gradients(make_model(tie_word_embeddings=False), [plan_row(other, 100)]),
        0.0,
    )


@pytest.mark.parametrize("loss", ["token-mean", "sample-mean"])
def test_uneven_masks_give_one_gradient_for_one_batch_of_four_and_four_of_one(make_model: Any, loss: str) -> None:
    settings = StepSettings(loss, 1e9, False)
    rows = [
        _row([8, 5], [[1], [2, 3]], 1),
        _row([6], [[1, 2, 3, 4, 5]], 2),
        _row([7, 3], [[], [1]], 3),
        _row([4], [[3]], 4),
    ]
    joined = Row(
        "joined",
        np.concatenate([r.input_ids for r in rows]),
        np.concatenate([r.targets for r in rows]),
        [n for r in rows for n in r.segment_lengths],
        pa.scalar(["s"] * 6),
    )
    four = _gradients(make_model(), [plan_row(row, 100) for row in rows], settings)
    one = _gradients(make_model(), [plan_row(joined, 100)], settings)
    _assert_equal(four, one)


def test_sample_mean_weighs_every_segment_with_a_target_alike(make_model: Any) -> None:
    settings = StepSettings("sample-mean", 1e9, False)
    row = _row([9, 6, 5], [[1, 2, 3, 4], [2], []])
    model = make_model()
    alone = []
    for start, end, count in ((0, 9, 4), (9, 15, 1)):
        part = Row("x", row.input_ids[start:end], row.targets[start:end], [end - start], row.segment_ids)
        assert part.targets.sum() == count
        alone.append(_gradients(model, [plan_row(part, 100)])["loss"])
    assert _gradients(model, [plan_row(row, 100)], settings)["loss"] == pytest.approx(sum(alone) / 2, abs=1e-5)


@pytest.mark.parametrize("empty", [0, 1, 5])
def test_rows_without_a_target_do_not_dilute_the_gradient(make_model: Any, empty: int) -> None:
    trained = plan_row(_row([8], [[1, 2, 3, 4]]), 100)
    blank = [plan_row(_row([6], [[]], seed=9 + i), 100) for i in range(empty)]
    _assert_equal(_gradients(make_model(), [*blank, trained]), _gradients(make_model(), [trained]), 0.0)


def test_a_batch_without_any_target_changes_nothing_and_is_counted(make_model: Any) -> None:
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = make_optimizer(model, 0.1)
    optimizer.param_groups[0]["lr"] = 1.0
    plans = [plan_row(_row([6], [[]], seed=i), 100) for i in range(3)]
    counts = gradient_step(model, optimizer, plans, SETTINGS, World(), lambda tokens: None)
    assert (counts.loss, counts.grad_norm, counts.rows_without_target, counts.trained_tokens) == (None, None, 3, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_segments_above_the_limit_are_left_out_and_counted() -> None:
    plan = plan_row(_row([8, 30, 5], [[1, 2], [4, 5, 6], [1]]), 100, max_segment_tokens=10)
    assert [g.segment_lengths for g in plan.groups] == [[8, 5]]
    assert (plan.left_out.segments, plan.left_out.tokens, plan.left_out.trained_tokens) == (1, 30, 3)
    assert (plan.tokens, plan.trained_tokens) == (13, 3)


def test_a_loss_that_is_not_finite_names_the_row_and_its_segments(make_model: Any) -> None:
    model = make_model()
    with torch.no_grad():
        model.model.norm.weight[0] = torch.nan
    with pytest.raises(NonFiniteError, match=r"part.arrow:4: the loss is nan in segments seg-4.0, seg-4.1"):
        _gradients(model, [plan_row(_row([5, 6], seed=4), 100)])
    assert issubclass(NonFiniteError, DatamixError)


def test_bf16_autocast_stays_near_float32(make_model: Any) -> None:
    plan = plan_row(_row([30, 20]), 100)
    exact = _gradients(make_model(), [plan])
    half = _gradients(make_model(), [plan], StepSettings("token-mean", 1e9, True))
    assert half["loss"] == pytest.approx(exact["loss"], rel=0.02)
    assert half["model.embed_tokens.weight"].dtype == torch.float32
