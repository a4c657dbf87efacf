"""One optimizer step over the rows of a batch: exact whatever the groups, the rows and the processes are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.errors import DatamixError
from trainer.groups import Group, RowPlan
from trainer.model import LoopedTransformer
from trainer.sharding import whole
from trainer.world import World

__all__ = ["NonFiniteError", "StepCounts", "StepSettings", "gradient_step", "group_loss"]


class NonFiniteError(DatamixError):
    """A loss or gradient became infinite or not a number; the model before the step was saved."""


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The parts of the recipe that a step needs."""

    loss: str
    clip_norm: float
    bf16: bool


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a step saw, over all processes. `loss` is the mean that was minimised, None when nothing was trained."""

    loss: float | None
    grad_norm: float | None
    rows: int
    segments: int
    tokens: int
    trained_tokens: int
    rows_without_target: int
    left_out_segments: int
    left_out_tokens: int
    left_out_trained_tokens: int


def gradient_step(
    model: LoopedTransformer,
    optimizer: torch.optim.Optimizer,
    plans: list[RowPlan],
    settings: StepSettings,
    world: World,
    advance: Callable[[int], None],
) -> StepCounts:
    """Accumulate the gradient of this process's rows, sum it over the processes, clip, and step.

    The divisor is the number of trained tokens (token-mean) or of segments with one (sample-mean) over the whole
    step, so rows and segments without any neither add to the loss nor dilute it. When the step has none at all
    nothing is changed. `advance` is told the tokens of each row when it is done; it may raise to abandon the step,
    which leaves model and optimizer untouched. Raises NonFiniteError, naming the row and its segments.
    """
    trained = sum(plan.trained_tokens for plan in plans)
    counts = world.total(
        [
            trained,
            sum(plan.trained_segments for plan in plans),
            len(plans),
            sum(len(group.segments) for plan in plans for group in plan.groups),
            sum(plan.tokens for plan in plans),
            sum(plan.trained_tokens == 0 for plan in plans),
            sum(plan.left_out.segments for plan in plans),
            sum(plan.left_out.tokens for plan in plans),
            sum(plan.left_out.trained_tokens for plan in plans),
        ]
    )
    trained, samples, rows, segments, tokens, empty, *left_out = (int(count) for count in counts)
    optimizer.zero_grad(set_to_none=True)
    divisor = trained if settings.loss == "token-mean" else samples
    loss_sum, fault = 0.0, ""
    idle = _idle_runs(plans, world)
    for owner, group in [(plan, group) for plan in plans for group in plan.groups]:
        if group.trained_tokens and (world.sharded or not fault):
            loss = group_loss(model, group, settings, divisor, world)
            loss_sum += float(loss.detach())
            if not math.isfinite(loss_sum):
                fault = fault or _fault(owner, group, loss_sum)
            if world.sharded or not fault:
                loss.backward()  # type: ignore[no-untyped-call]
        advance(len(group.input_ids))
    for _ in range(idle):
        group_loss(model, _IDLE, settings, 1, world, weight=0.0).backward()  # type: ignore[no-untyped-call]
    if world.total([float(bool(fault))])[0]:  # every process leaves together
        raise NonFiniteError(fault or "another process met a loss that is not finite: see its message")
    loss_mean, grad_norm = None, None
    if trained:
        grad_norm = _sum_and_clip(model, settings.clip_norm, world)
        if not math.isfinite(grad_norm):
            raise NonFiniteError(
                f"the gradient's norm is {grad_norm} over rows {', '.join(p.row.name for p in plans)}. "
                "Lower train.learning_rate or train in fp32"
            )
        optimizer.step()
        loss_mean = world.total([loss_sum])[0]
    return StepCounts(loss_mean, grad_norm, rows, segments, tokens, trained, empty, *left_out)


def _idle_runs(plans: list[RowPlan], world: World) -> int:
    """Runs without effect that this process needs: a sharded layer works only when all processes run it together."""
    if not world.sharded:
        return 0
    runs = sum(group.trained_tokens > 0 for plan in plans for group in plan.groups)
    return world.most(runs) - runs


_IDLE = Group(torch.zeros(2, dtype=torch.int64), torch.tensor([False, True]), [2], [0])


def group_loss(
    model: LoopedTransformer,
    group: Group,
    settings: StepSettings,
    divisor: int,
    world: World | None = None,
    weight: float = 1.0,
) -> Tensor:
    """This group's part of the step's loss, times `weight`: a float32 scalar.

    token-mean: sum over trained tokens / divisor; sample-mean: sum over segments of their mean / divisor.
    """
    world = world or World()
    device = world.device
    targets = group.targets.nonzero()[:, 0]
    if settings.loss == "token-mean":
        weights = torch.full(targets.shape, 1 / divisor, dtype=torch.float32)
    else:
        by_segment = group.trained_by_segment()
        segment_of = torch.repeat_interleave(torch.tensor(group.segment_lengths))[targets]
        weights = 1 / (by_segment[segment_of].to(torch.float32) * divisor)
    # casts of weights are kept for the next pass, except where that would keep what FSDP2 lets go
    half = torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16, cache_enabled=not world.sharded)
    with half:
        weights = weights.to(device) * weight
        return model.loss(group.input_ids.to(device), group.segment_lengths, targets.to(device), weights)


def _fault(plan: RowPlan, group: Group, loss: float) -> str:
    names = [plan.row.segment_name(segment) for segment in group.segments]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return (
        f"{plan.row.name}: the loss is {loss} in segments {shown}. "
        "Look at them with 'datamix show', lower train.learning_rate or train in fp32"
    )


def _sum_and_clip(model: LoopedTransformer, clip_norm: float, world: World) -> float:
    """Sum gradients over the processes and scale them to at most `clip_norm`; returns the norm before."""
    parameters = list(model.parameters())
    if world.sharded:  # summed in backward
        return float(whole(torch.nn.utils.clip_grad_norm_(parameters, clip_norm)))
    for parameter in parameters:
        if parameter.grad is None:  # this process had no trained token
            parameter.grad = torch.zeros_like(parameter)
    if world.size > 1:
        flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        world.sum_(flat)
        offset = 0
        for parameter in parameters:
            parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
    return float(torch.nn.utils.clip_grad_norm_(parameters, clip_norm))
