"""The trained model as an agent on held-out tasks."""

from __future__ import annotations

from pathlib import Path

import torch

from pipelines.synthesis.chat import END_OF_TEXT, TURN_END, parse_reply, render_messages
from pipelines.synthesis.rollout import rollout
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import CheckError, DatamixError
from schemas.progress import Progress
from schemas.recipe import EvaluateConfig
from schemas.trajectory import Message
from trainer.agent_tasks import TaskRun, agent_results, heldout_tasks, open_heldout
from trainer.generate import Decoder, Sampling
from trainer.model import LoopedTransformer

__all__ = ["ModelAgent", "TaskRun", "agent_results", "run_tasks"]


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
        """Raises CheckError when the tokenizer has tokens that the model does not know."""
        if tokenizer.vocab_size > model.config.vocab_size:
            raise CheckError(
                f"{tokenizer.folder / 'tokenizer.json'}: {tokenizer.vocab_size} tokens, the model knows "
                f"{model.config.vocab_size}: it is another model's tokenizer. Restore it"
            )
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


def run_tasks(
    model: LoopedTransformer,
    tokenizer: TextTokenizer,
    config: EvaluateConfig,
    folder: Path,
    seed: int,
    progress: Progress,
) -> tuple[list[TaskRun], str | None]:
    """Let the model do `config.tasks` held-out tasks of `config.family`, difficulties spread over `config.difficulty`.

    `folder` is the run's trajectories, where pools lie. Returns the runs and, when the family could not give a task (no
    pool, no held-out material), why. Sampling of task n is seeded by seed + n.
    """
    runs: list[TaskRun] = []
    try:
        with (
            open_heldout(config.family, folder) as environment,
            progress.task(f"evaluate agent tasks ({config.family})", config.tasks) as advance,
        ):
            for number, task in enumerate(heldout_tasks(environment, config)):
                agent = ModelAgent(model, tokenizer, seed + number, config.max_new_tokens)
                runs.append(TaskRun(rollout(environment, task, agent, config.max_steps), agent.written))
                advance(1)
    except DatamixError as problem:
        return runs, str(problem)
    return runs, None
