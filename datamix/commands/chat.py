"""`datamix chat`: read turns from the terminal or a pipe, print replies."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from datamix.checkpoints import find_checkpoint, run_of_checkpoint
from datamix.talk import Talk
from datamix.views.shard import visible
from schemas.errors import UsageError
from schemas.trajectory import Message

__all__ = ["command"]


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT|RUN")
@click.option("--tools", "family", metavar="FAMILY", help="Set up a held-out task of a family (office, repair, …).")
@click.option("--pool", metavar="FILE", help="What the family draws from (default: the run's).")
@click.option("--difficulty", type=click.FloatRange(1, 10), default=1.0, show_default=True, help="Of the task.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the task and of sampling.")
@click.option("--temperature", type=click.FloatRange(min=0), default=0.6, show_default=True, help="0: the likeliest.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=512, show_default=True, help="Of a reply.")
@click.option("--max-steps", type=click.IntRange(min=1), default=8, show_default=True, help="Replies to one turn.")
def command(
    checkpoint: str,
    family: str | None,
    pool: str | None,
    difficulty: float,
    seed: int,
    temperature: float,
    max_new_tokens: int,
    max_steps: int,
) -> None:
    """Talk with a trained model in the terminal.

    One line is one turn; the end of the input (Ctrl-D) ends it, so a pipe works too. Ctrl-C stops a reply, and at the
    prompt ends the talk. With --tools the model has the tools of a task family, which run in the sandbox; an empty line
    sends the task itself. A RUN means its final checkpoint.
    """
    folder = find_checkpoint(checkpoint)
    from pipelines.synthesis.environments.base import family_names, open_environment
    from pipelines.synthesis.rollout import HELDOUT_SEEDS
    from pipelines.synthesis.tokens import load_tokenizer
    from trainer.agent import ModelAgent
    from trainer.checkpoint import load_model
    from trainer.generate import Sampling
    from trainer.world import own_device

    if family is not None and family not in family_names():
        raise UsageError(f"--tools {family!r}: families are {', '.join(family_names())}")
    if math.isnan(temperature):
        raise UsageError("--temperature nan: give a number from 0 on")
    sampling = Sampling(temperature=temperature)
    agent = ModelAgent(load_model(folder).to(own_device()), load_tokenizer(folder), seed, max_new_tokens, sampling)
    with ExitStack() as stack:
        environment = task = None
        if family is not None:
            material = Path(pool) if pool else _pool_beside(folder, family)
            opened = open_environment(family, pool_path=material, split="heldout")
            environment = stack.enter_context(opened)
            task = environment.generate(seed=HELDOUT_SEEDS + seed, difficulty=difficulty)
        _converse(Talk(agent, environment, task, max_steps))


def _pool_beside(checkpoint: Path, family: str) -> Path | None:
    from pipelines.synthesis.pools.build import pool_place

    run = run_of_checkpoint(checkpoint)
    pool = pool_place(run / "trajectories", family) if run else None
    return pool if pool and pool.exists() else None


def _converse(talk: Talk) -> None:
    """Read, answer, print, until the input ends; then say whether the task is solved."""
    if talk.opening:
        click.echo(f"task (an empty line sends it):\n{visible(talk.opening)}\n")
    for line in _lines():
        text = line or talk.opening
        if text:
            _turn(talk, text)
    outcome = talk.outcome()
    if outcome is not None:
        click.echo(f"task solved: {'yes' if outcome.success else 'no'}")


def _turn(talk: Talk, text: str) -> None:
    """Say it and print what follows. In a terminal Ctrl-C stops this turn and not the talk."""
    try:
        for message in talk.say(text):
            _print(message)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
        talk.forget_unsettled()
        click.secho("(stopped: what is unfinished is forgotten)", fg="red", err=True)


def _lines() -> Iterator[str]:
    """Turns as they are typed, or the lines of a pipe."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  (line editing and history for input())
        while True:
            try:
                typed = input("> ")
            except EOFError:
                click.echo()
                return
            # bytes that are no UTF-8 come as surrogates, which no tokenizer takes
            yield typed.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    for raw in sys.stdin.buffer:
        yield raw.decode("utf-8", errors="replace").strip()


def _print(message: Message) -> None:
    """One message; what a model or a tool wrote cannot steer the terminal."""
    if message.role == "tool":
        click.secho(f"[{visible(message.name or 'tool')}] {visible(message.content)}", fg="cyan")
        return
    if message.reasoning:
        click.secho(visible(message.reasoning.strip()), dim=True)
    if message.content.strip():
        click.echo(visible(message.content.strip()))
    for call in message.tool_calls:
        click.secho(f"→ {visible(call.name)} {visible(call.arguments)}", fg="yellow")
    if message.stop == "length":
        full = not (message.content or message.reasoning or message.tool_calls)
        click.secho("(the context is full)" if full else "(cut: the reply reached its length)", fg="red", err=True)
