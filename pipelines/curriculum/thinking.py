"""What becomes of the thinking of earlier turns: kept, dropped, or each turn trained in a rendering of its own.

Serving often drops the think blocks of turns before the last user message for plain chat and keeps them for agent
work, so a recipe has the choice: `keep` renders what was said; `drop` empties the
think blocks before the last user message and still trains those answers; `split` renders a conversation once for each
user message, as it looked then: earlier blocks empty, only the answers after that message trained.
"""

from __future__ import annotations

from dataclasses import replace

from pipelines.synthesis.chat import split_thinking
from schemas.trajectory import Message, Trajectory

__all__ = ["EARLIER_TURN", "by_user_turn", "prepare_thinking"]

EARLIER_TURN = "earlier_turn"  # the reason of an answer that another part of a split trajectory trains


def prepare_thinking(trajectory: Trajectory, mode: str) -> tuple[list[Trajectory], int]:
    """(what to render, how many think blocks were emptied in all of it). `mode` is keep, drop or split."""
    if mode == "keep" or not _thinks_before_last_user(trajectory):
        return [trajectory], 0
    parts = by_user_turn(trajectory) if mode == "split" else [trajectory]
    emptied = [_emptied(part) for part in parts]
    return [part for part, _ in emptied], sum(count for _, count in emptied)


def by_user_turn(trajectory: Trajectory) -> list[Trajectory]:
    """The trajectory up to the last answer to each user turn; only the answers after that turn keep their flags.

    User messages in a row are one turn. A turn that nobody answers gives no part.
    """
    messages = trajectory.messages
    users = [i for i, m in enumerate(messages) if m.role == "user"]
    starts = [0, *(i for i in users[1:] if messages[i - 1].role != "user")]
    parts = []
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        masked = [
            replace(m, train=False, mask_reasons=[EARLIER_TURN]) if m.role == "assistant" and i < start else m
            for i, m in enumerate(messages[:end])
        ]
        if any(m.role == "assistant" for m in masked[start:]):
            parts.append(replace(trajectory, messages=masked))
    return parts


def _last_user(messages: list[Message]) -> int:
    return max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)


def _thinks_before_last_user(trajectory: Trajectory) -> bool:
    last = _last_user(trajectory.messages)
    return any(m.role == "assistant" and split_thinking(m.content, m.reasoning)[0] for m in trajectory.messages[:last])


def _emptied(trajectory: Trajectory) -> tuple[Trajectory, int]:
    last = _last_user(trajectory.messages)
    messages, count = [], 0
    for i, message in enumerate(trajectory.messages):
        reasoning, content = split_thinking(message.content, message.reasoning)
        if message.role == "assistant" and i < last and reasoning:
            message = replace(message, reasoning="", content=content)
            count += 1
        messages.append(message)
    return replace(trajectory, messages=messages), count
