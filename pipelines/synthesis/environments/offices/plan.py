"""From (seed, difficulty) to a world: which kinds of task, how much of each, and what is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

from pipelines.synthesis.environments.offices.accounts import make_reconciling
from pipelines.synthesis.environments.offices.calendars import make_clashes
from pipelines.synthesis.environments.offices.contacts import make_merging
from pipelines.synthesis.environments.offices.filing import make_filing, make_renaming
from pipelines.synthesis.environments.offices.letters import make_replies, make_requests
from pipelines.synthesis.environments.offices.questions import make_questions
from pipelines.synthesis.environments.offices.sheets import make_sheet_goal
from pipelines.synthesis.environments.offices.world import Builder, Goal, World

__all__ = ["KINDS", "build_world", "target_tokens"]

KINDS: dict[str, tuple[Callable[[Builder, float], Goal], float]] = {
    "file": (make_filing, 60_000),
    "rename": (make_renaming, 60_000),
    "merge": (make_merging, 18_000),
    "reconcile": (make_reconciling, 60_000),
    "answer": (make_questions, 50_000),
    "reply": (make_replies, 60_000),
    "clash": (make_clashes, 50_000),
    "sheet": (make_sheet_goal, 55_000),
    "requests": (make_requests, 55_000),
}
"""Kind: its maker, and the most tokens of work that it is good for."""

FIRST_TOKENS, LAST_TOKENS = 1_150, 200_000  # of a whole run at difficulty 1 and 10
OVERHEAD_TOKENS = 500  # system prompt, tools, first look, answer
SYSTEMS = (
    "You are the office assistant of {user} at {firm}. You work in the shared folder and the database with the tools "
    "given; paths are relative to the folder. Read before you act, touch only what the task is about, and answer "
    "without a tool call when all is done.",
    "You assist {user} of {firm} in the office. The tools work on the shared folder (relative paths) and the "
    "database. Look first, change nothing beyond the task, and finish with a message without a tool call.",
)


def target_tokens(difficulty: float) -> float:
    """How long a run of this difficulty should be: geometric between the two ends."""
    return float(FIRST_TOKENS * (LAST_TOKENS / FIRST_TOKENS) ** ((difficulty - 1) / 9))


def _goals_wanted(generator: random.Random, difficulty: float) -> int:
    """One goal below 3, up to six at 10."""
    return max(1, min(6, round(generator.uniform(-0.4, 0.6) + 0.55 * (difficulty - 1))))


@lru_cache(maxsize=8)
def build_world(seed: int, difficulty: float) -> World:
    """The world of a task; equal for equal arguments. Cost: milliseconds at 1, some tenths of a second at 10."""
    generator = random.Random(f"office:{seed}:{difficulty:g}")  # noqa: S311 - seeded on purpose
    builder = Builder(generator, difficulty)
    kinds = generator.sample(sorted(KINDS), _goals_wanted(generator, difficulty))
    left = max(200.0, target_tokens(difficulty) - OVERHEAD_TOKENS)
    budgets: dict[str, float] = {}
    for place, kind in enumerate(sorted(kinds, key=lambda name: (KINDS[name][1], name))):
        budgets[kind] = min(KINDS[kind][1], left / (len(kinds) - place))
        left -= budgets[kind]
    goals = tuple(KINDS[kind][0](builder, budgets[kind]) for kind in kinds)
    system = generator.choice(SYSTEMS).format(user=builder.user.name, firm=builder.firm.name)
    return World(
        system,
        _instruction(generator, builder, goals),
        builder.files,
        frozenset(builder.folders),
        builder.tables,
        goals,
        builder.user.name,
    )


def _instruction(generator: random.Random, builder: Builder, goals: tuple[Goal, ...]) -> str:
    sender = builder.user.first
    if len(goals) == 1:
        return generator.choice(("{t}", "{t}\nThanks, {s}", "{t}\n{s}")).format(t=goals[0].text, s=sender)
    opening = generator.choice(
        ("Please take care of these things:", "There are several jobs today:", "To be done, in any order:", "My list:")
    )
    listed = "\n".join(f"{number}. {goal.text}" for number, goal in enumerate(goals, 1))
    return f"{opening}\n{listed}\nThanks, {sender}" if generator.random() < 0.5 else f"{opening}\n{listed}"
