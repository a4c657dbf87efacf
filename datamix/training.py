"""The last two steps of the main job as the runner wants them: thin adapters around the trainer."""

from __future__ import annotations

from typing import Any

from pipelines.context import RunContext, StepOutput

__all__ = ["evaluate_step", "train_step"]

_SUMMED = ("rows", "tokens", "trained_tokens", "left_out_segments", "left_out_tokens", "left_out_trained_tokens")


def train_step(context: RunContext) -> StepOutput:
    """Train all phases from the run's shards; an interrupted training goes on from its last checkpoint.

    A SIGTERM is passed on as an interrupt once the trainer has saved, so that the run does not count as finished.
    """
    from trainer.signals import TrainingStopped
    from trainer.train import train

    try:
        summary = train(context.recipe, context.run, context.progress)
    except TrainingStopped as stopped:
        context.progress.say(str(stopped))
        raise KeyboardInterrupt from stopped
    counts: dict[str, Any] = {"steps": summary.steps, "parameters": summary.parameters}
    for name in _SUMMED:
        counts[name] = sum(stage[name] for stage in summary.stages)
    counts["stages"] = summary.stages
    return StepOutput(summary.files, counts)


def evaluate_step(context: RunContext) -> StepOutput:
    """Held-out loss by domain and agent tasks, with the final checkpoint."""
    from trainer.evaluate import evaluate

    results = evaluate(context.recipe, context.run, context.progress)
    return StepOutput([context.run / "evaluate" / "results.json"], results)
