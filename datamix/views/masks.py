"""Two policies on the same trajectories: which turns each trains, turn by turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filters.trajectory.configure import Settings, configured_policy
from filters.trajectory.decide import decide
from filters.trajectory.policies import Policy
from pipelines.synthesis.ingest.store import read_trajectories
from schemas.trajectory import Message, Trajectory

__all__ = ["Comparison", "Difference", "compare", "decided_turns"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One assistant turn that only one policy trains: 'T', or 'M' with its reason, under each."""

    trajectory: str
    row: int
    message: int
    first: str
    second: str


@dataclass(slots=True)
class Comparison:
    """Totals under two policies, and every turn in which they differ."""

    first: str
    second: str
    read: int = 0
    totals: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    dropped: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    differences: list[Difference] = field(default_factory=list)
    with_tokens: bool = False

    def counts(self, name: str) -> tuple[int, int] | None:
        """(first, second) of a total; None for tokens without a tokenizer."""
        if name == "tokens" and not self.with_tokens:
            return None
        return self.totals[0][name], self.totals[1][name]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        names = ["trajectories", "turns", "characters"] + (["tokens"] if self.with_tokens else [])
        return {
            "read": self.read,
            "policies": [
                {
                    "policy": policy,
                    "trained": {name: self.totals[side][name] for name in names},
                    "dropped": dict(self.dropped[side]),
                }
                for side, policy in enumerate((self.first, self.second))
            ],
            "differences": [asdict(difference) for difference in self.differences],
        }


def compare(
    path: str | Path, first: str, second: str, tokenizer: str | Path | None = None, rules: Settings | None = None
) -> Comparison:
    """Apply both policies to every trajectory of a file; `rules` changes single rules of the first.

    Raises UsageError for an unknown policy or rule, InputError for what is no trajectory file. Memory: 64 trajectories
    and the differences.
    """
    policies = (configured_policy(first, rules or {}, place="--rule "), configured_policy(second, {}))
    result = Comparison(first + (" changed" if rules else ""), second, with_tokens=tokenizer is not None)
    counter = _TokenCounter(tokenizer) if tokenizer is not None else None
    for row, trajectory in enumerate(read_trajectories(path)):
        result.read += 1
        words = []
        for side, policy in enumerate(policies):
            decided, kept, reasons = decided_turns(trajectory, policy)
            words.append(decided)
            result.dropped[side].update(reasons)
            totals = result.totals[side]
            trained = [index for index, word in decided.items() if word == "T"]
            totals["turns"] += len(trained)
            totals["characters"] += sum(_characters(trajectory.messages[index]) for index in trained)
            totals["trajectories"] += bool(trained)
            if counter is not None:
                totals["tokens"] += counter.trained(kept)
        for index in words[0]:
            one, other = words[0][index], words[1][index]
            if (one == "T") != (other == "T"):
                result.differences.append(Difference(trajectory.id, row, index, one, other))
    return result


def decided_turns(trajectory: Trajectory, policy: Policy) -> tuple[dict[int, str], list[Trajectory], list[str]]:
    """({index of an assistant turn: 'T' or 'M reason'}, what is kept, reasons of what is dropped).

    Pieces of a split trajectory are matched to it turn by turn in order: a turn is trained when a piece trains it.
    """
    decision = decide(trajectory, policy, redact=False).decision
    reasons = [reason for _, reason in decision.dropped]
    fallback = f"M {reasons[0]}" if reasons else "M cut"
    words = {index: fallback for index, message in enumerate(trajectory.messages) if message.role == "assistant"}
    at = 0
    for piece in decision.trajectories:
        for message in piece.messages:
            if message.role != "assistant" or message.author == "copied":
                continue
            found = _same(trajectory.messages, message, at)
            if found is None:
                continue
            at = found + 1
            words[found] = "T" if message.train else f"M {','.join(message.mask_reasons) or 'masked'}"
    for index, message in enumerate(trajectory.messages):
        if message.role == "assistant" and message.author == "copied" and words[index] == fallback:
            words[index] = "M author=copied"
    return words, decision.trajectories, reasons


def _same(messages: list[Message], wanted: Message, start: int) -> int | None:
    """The first message from `start` on with the same words."""
    for index in range(start, len(messages)):
        message = messages[index]
        if (
            message.role == "assistant"
            and message.content == wanted.content
            and message.tool_calls == wanted.tool_calls
        ):
            return index
    return None


def _characters(message: Message) -> int:
    """What the model would write: reasoning, content, names and arguments of calls."""
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return len(message.content) + len(message.reasoning or "") + calls


class _TokenCounter:
    """Trained tokens as the curriculum's renderer makes them."""

    def __init__(self, folder: str | Path) -> None:
        from pipelines.curriculum.renderers import open_renderer
        from pipelines.synthesis.tokens import load_tokenizer

        self._render = open_renderer(load_tokenizer(folder))

    def trained(self, trajectories: list[Trajectory]) -> int:
        """Sum over the trajectories; one that cannot be rendered counts nothing."""
        if not trajectories:
            return 0
        return sum(part.trained for found in self._render(trajectories) if isinstance(found, list) for part in found)
