"""The trained model as an agent on held-out tasks, and what its runs look like to the detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from filters.trajectory.detectors import MISTAKE_RULES, detect
from pipelines.synthesis.chat import END_OF_TEXT, TURN_END, parse_reply, render_messages
from pipelines.synthesis.environments.base import open_environment
from pipelines.synthesis.rollout import HELDOUT_SEEDS, rollout
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import DatamixError
from schemas.progress import Progress
from schemas.recipe import EvaluateConfig
from schemas.trajectory import Message, Trajectory
from trainer.generate import Decoder, Sampling
from trainer.model import LoopedTransformer

__all__ = ["ModelAgent", "agent_results", "run_tasks"]


class ModelAgent:
    """A model that answers in the chat format. `written` counts the tokens that it wrote."""

    def __init__(
        self,
        model: LoopedTransformer,
        tokenizer: TextTokenizer,
        seed: int,
        max_new_tokens: int,
        sampling: Sampling | None = None,
    ) -> None:
        self.written = 0
        self._tokenizer, self._max_new_tokens = tokenizer, max_new_tokens
        self._sampling = sampling or Sampling()
        self._decoder = Decoder(model)
        self._generator = torch.Generator().manual_seed(seed % 2**63)
        self._stops = {tokenizer.control_id(TURN_END), tokenizer.control_id(END_OF_TEXT)}

    def act(self, messages: list[Message], tools: str) -> Message:
        """The next turn. `stop` is "stop" when the model ended it, "length" when it ran out of tokens or of room."""
        prompt: list[int] = []
        for piece in render_messages(messages, tools, generation_prompt=True, form=self._tokenizer.call_form):
            if piece.control:
                prompt.append(self._tokenizer.control_id(piece.text))
            else:
                prompt += self._tokenizer.encode(piece.text).tolist()
        try:
            ids = self._decoder.continue_(prompt, self._max_new_tokens, self._stops, self._sampling, self._generator)
        except ValueError:  # the conversation fills the model's context
            return Message("assistant", stop="length")
        self.written += len(ids)
        calls = sum(len(message.tool_calls) for message in messages)
        reply = parse_reply(self._tokenizer.decode(ids), tools, first_call=calls).to_message()
        reply.stop = "stop" if ids[-1] in self._stops else "length"
        return reply


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task: what happened and how many tokens the model wrote."""

    trajectory: Trajectory
    tokens: int


def run_tasks(
    model: LoopedTransformer,
    tokenizer: TextTokenizer,
    config: EvaluateConfig,
    pool: Path,
    seed: int,
    progress: Progress,
) -> tuple[list[TaskRun], str | None]:
    """Let the model do `config.tasks` held-out tasks, difficulties spread evenly over `config.difficulty`.

    Returns the runs and, when the family could not give a task (no pool, no held-out module), why. Sampling of task n
    is seeded by seed + n.
    """
    low, high = config.difficulty
    runs: list[TaskRun] = []
    try:
        with (
            open_environment(config.family, pool_path=pool if pool.exists() else None, split="heldout") as environment,
            progress.task("evaluate agent tasks", config.tasks) as advance,
        ):
            for number in range(config.tasks):
                difficulty = low + (high - low) * number / max(1, config.tasks - 1)
                task = environment.generate(seed=HELDOUT_SEEDS + number, difficulty=difficulty)
                agent = ModelAgent(model, tokenizer, seed + number, config.max_new_tokens)
                runs.append(TaskRun(rollout(environment, task, agent, config.max_steps), agent.written))
                advance(1)
    except DatamixError as problem:
        return runs, str(problem)
    return runs, None


def agent_results(runs: Sequence[TaskRun]) -> dict[str, Any]:
    """Figures over task runs; a rate whose denominator is 0 is None.

    success_rate: of tasks. error_rate: of assistant turns, those with a mistake (rules R2, R3, R4, R5, R13).
    repeated_mistake_rate: of mistaken turns, those that repeat an earlier mistake (R5).
    recovery_rate: of mistaken turns, those that a later turn mends (R9).
    by_difficulty: the same figures for the tasks of each difficulty, rounded to a whole number.
    """
    groups: dict[int, list[TaskRun]] = {}
    for run in runs:
        if run.trajectory.task.difficulty is not None:
            groups.setdefault(round(run.trajectory.task.difficulty), []).append(run)
    return {
        **_figures(runs),
        "by_difficulty": {str(level): _figures(groups[level]) for level in sorted(groups)},
        "by_task": [
            {
                "task": run.trajectory.task.id,
                "difficulty": run.trajectory.task.difficulty,
                "success": run.trajectory.outcome.success,
                "steps": run.trajectory.stats.turns,
                "tokens": run.tokens,
                "flags": run.trajectory.flags,
            }
            for run in runs
        ],
    }


def _figures(runs: Sequence[TaskRun]) -> dict[str, Any]:
    turns = mistaken = repeated = recovered = 0
    for run in runs:
        found = detect(run.trajectory)
        wrong = {f.message for f in found.findings if f.rule in MISTAKE_RULES and f.message is not None}
        turns += run.trajectory.stats.turns
        mistaken += len(wrong)
        repeated += len({f.message for f in found.findings if f.rule == "R5" and f.message is not None})
        recovered += len(found.recovered)
    successes = sum(run.trajectory.outcome.success is True for run in runs)
    tokens = sum(run.tokens for run in runs)
    return {
        "tasks": len(runs),
        "successes": successes,
        "success_rate": _rate(successes, len(runs)),
        "steps": turns,
        "steps_per_task": _rate(turns, len(runs)),
        "tokens": tokens,
        "tokens_per_task": _rate(tokens, len(runs)),
        "error_rate": _rate(mistaken, turns),
        "repeated_mistake_rate": _rate(repeated, mistaken),
        "recovery_rate": _rate(recovered, mistaken),
    }


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
