"""Rendering with any Hugging Face chat template: message by message, checked against the whole.

The text of a conversation up to message i, with and without the opening of an assistant turn, says where the words of
each assistant message lie in the whole text. The whole is then encoded part by part at those places, so ids and mask
are made together. Rules:

- What is trained ends with the control token that ends the turn. A template whose turns have no end of their own
  trains the control token that opens the next turn, which is what a model must write to stop.
- Text of data that spells a control token is broken by a private-use character before the template sees it, which is
  taken out again after the control tokens have been found: it is encoded as plain text.
- A template that writes earlier turns differently once later ones follow (drops their thinking) would train text that
  inference never sees, or nothing. That is detected: `history: refuse` gives an error for that trajectory, `split`
  renders it once for each user turn, training only the answers after that turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.curriculum.jinja import ChatTemplate
from pipelines.curriculum.render import TRAINED, Rendered, assemble, turn_reason
from pipelines.curriculum.template import template_messages
from pipelines.curriculum.thinking import by_user_turn
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import InputError
from schemas.trajectory import Message, Trajectory

__all__ = ["ForeignRenderer", "HistoryError"]

_PRIVATE = range(0xE000, 0xF8FF)


class HistoryError(InputError):
    """The template writes an earlier turn differently once later messages follow."""


@dataclass(slots=True)
class _Part:
    """Characters `start`…`end` of the whole text, why they are (not) trained, and their message (-1: of none)."""

    start: int
    end: int
    reason: str
    message: int = -1


class ForeignRenderer:
    """Renders with the template of a tokenizer folder. Cost: the text of each prefix that ends at a message."""

    def __init__(self, tokenizer: TextTokenizer, source: str, *, history: str = "refuse") -> None:
        config = tokenizer.config
        variables = {key: _spelled(config.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
        self._tokenizer = tokenizer
        self._template = ChatTemplate(source, variables, str(tokenizer.folder / "chat_template.jinja"))
        self._split = history == "split"
        spellings = sorted((t for t in tokenizer.controls if len(t) > 1), key=len, reverse=True)
        self._longest = max(map(len, spellings), default=0)
        self._spelling = re.compile("|".join(map(re.escape, spellings)) or r"(?!)")

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[list[Rendered] | InputError]:
        """Each trajectory as one rendering (or one a user turn, when split), or the error that it gave."""
        results: list[list[Rendered] | InputError] = []
        for trajectory in trajectories:
            try:
                results.append(self._render(trajectory))
            except InputError as error:
                results.append(error)
        return results

    def message_at(self, trajectory: Trajectory, part: int, offset: int) -> int | None:
        """Which message holds token `offset` of rendering `part` of a trajectory.

        None for what the template adds, and outside the rendering. Where the ends of neighbouring messages cannot be
        told apart, the last of them.
        """
        parts, text, private = self._cut_renderings(trajectory)[part]
        end = 0
        for one in parts:
            end += len(self._encode([one], text, private).ids)
            if offset < end:
                return one.message if one.message >= 0 else None
        return None

    def _render(self, trajectory: Trajectory) -> list[Rendered]:
        if not trajectory.messages:
            return [Rendered.empty()]
        return [self._encode(*cut) for cut in self._cut_renderings(trajectory)]

    def _cut_renderings(self, trajectory: Trajectory) -> list[tuple[list[_Part], str, str]]:
        try:
            return [self._cut(trajectory)]
        except HistoryError:
            if not self._split:
                raise
        return [self._cut(part) for part in by_user_turn(trajectory)]

    def _cut(self, trajectory: Trajectory) -> tuple[list[_Part], str, str]:
        """(parts of the whole text, the text, the character that breaks spelled control tokens)."""
        private = _unused_character(trajectory)
        messages = self._messages(trajectory.messages, private)
        tools = self._protect(_tools(trajectory.tools), private)
        text, messages = self._try(messages, tools)
        return self._parts(trajectory.messages, messages, tools, text), text, private

    def _try(self, messages: list[dict[str, Any]], tools: Any) -> tuple[str, list[dict[str, Any]]]:
        """The whole text; templates that take arguments as JSON text get them so."""
        try:
            return self._template.render(messages, tools), messages
        except InputError:
            as_text = [_arguments_as_text(message) for message in messages]
            if as_text == messages:
                raise
            return self._template.render(as_text, tools), as_text

    def _parts(self, source: Sequence[Message], messages: list[dict[str, Any]], tools: Any, text: str) -> list[_Part]:
        """The whole text cut where messages end. A message whose end cannot be told shares a part with the next one."""
        parts: list[_Part] = []
        at = 0
        unplaced: list[str] = []
        end: int | None
        for index, message in enumerate(source):
            reason = turn_reason(message)
            try:
                if message.role == "assistant":
                    start, end = self._answer(text, messages, tools, index)
                    if start < at or end <= start:
                        raise HistoryError(f"the chat template moves message {index}", field=f"messages[{index}]")
                else:
                    start, end = at, self._boundary(text, messages[: index + 1], tools)
            except HistoryError:
                if reason == TRAINED:
                    raise
                start, end = at, None
            if end is None or end <= at:
                unplaced.append(reason)
                continue
            lead = "+".join(dict.fromkeys(unplaced)) or "header"
            if message.role == "assistant":
                parts += [_Part(at, start, lead), _Part(start, end, reason, index)]
            else:
                parts.append(_Part(at, end, "+".join(dict.fromkeys([*unplaced, reason])), index))
            at, unplaced = end, []
        parts.append(_Part(at, len(text), "+".join(dict.fromkeys(unplaced)) or "header"))
        return parts

    def _so_far(self, messages: list[dict[str, Any]], tools: Any) -> str | None:
        """The text of a beginning; None where the template refuses it (a conversation without a user, for one)."""
        try:
            return self._template.render(messages, tools)
        except InputError:
            return None

    def _boundary(self, text: str, messages: list[dict[str, Any]], tools: Any) -> int | None:
        """Where a message ends in the whole text, when the text so far is how the whole begins."""
        so_far = self._so_far(messages, tools)
        return len(so_far) if so_far is not None and text.startswith(so_far) else None

    def _answer(self, text: str, messages: list[dict[str, Any]], tools: Any, index: int) -> tuple[int, int]:
        """First and last character of what the model writes as message `index`, its end token included."""
        closed = self._template.render(messages[: index + 1], tools)
        start = self._opening(closed, messages[:index], tools)
        tail = list(self._spelling.finditer(closed, start))
        end = tail[-1].end() if tail and not closed[tail[-1].end() :].strip() else None
        common = _common(closed, text)
        if end is not None and common >= end:
            return start, end
        bare = len(closed.rstrip()) if end is None else tail[-1].start()
        if common < max(bare, start):
            raise HistoryError(
                f"the chat template writes message {index} differently once later messages follow",
                path=str(self._tokenizer.folder),
                field=f"messages[{index}]",
                todo="Set curriculum.history to split, or use a template that keeps earlier turns as they were",
            )
        following = self._spelling.match(text, common) or self._spelling.match(text, bare)
        return start, following.end() if following else common

    def _opening(self, closed: str, before: list[dict[str, Any]], tools: Any) -> int:
        """Where an answer begins in `closed`: after what the template puts before it, as far as that is there.

        A prompt may hold more than the history (an opening think tag) or less (an end token at the last turn only).
        Words that the history has and `closed` has not (a system text that only an unanswered turn carries) would
        move the opening into an earlier turn: HistoryError.
        """
        opened = self._template.render(before, tools, prompt=True)
        if closed.startswith(opened):
            return len(opened)
        history = self._so_far(before, tools)
        so_far = history or ""
        at = self._aligned(closed, _common(so_far, closed))
        said = opened if history is None else so_far
        lost = self._spelling.sub("", said[self._aligned(closed, _common(said, closed)) :])
        if lost.replace("<think>", "").replace("</think>", "").strip():
            raise HistoryError(
                f"the chat template writes what comes before message {len(before)} differently once it is answered",
                path=str(self._tokenizer.folder),
                field=f"messages[{len(before)}]",
                todo="Use a template that keeps earlier turns as they were",
            )
        header = opened[len(so_far) :] if opened.startswith(so_far) else opened[at:]
        return self._aligned(closed, at + _common(header, closed[at:]))

    def _aligned(self, text: str, at: int) -> int:
        """`at`, or the start of the control token that it would cut."""
        for match in self._spelling.finditer(text, max(0, at - self._longest)):
            if match.start() < at < match.end():
                return match.start()
            if match.start() >= at:
                break
        return at

    def _encode(self, parts: Sequence[_Part], text: str, private: str) -> Rendered:
        pieces: list[tuple[str, bool, str]] = []
        for part in parts:
            at = part.start
            for match in self._spelling.finditer(text, part.start, part.end):
                pieces.append((text[at : match.start()].replace(private, ""), False, part.reason))
                pieces.append((match[0], True, part.reason))
                at = match.end()
            pieces.append((text[at : part.end].replace(private, ""), False, part.reason))
        kept = [piece for piece in pieces if piece[0]]
        encoded = iter(self._tokenizer.encode_batch([spelled for spelled, control, _ in kept if not control]))
        return assemble(
            [
                (
                    np.array([self._tokenizer.control_id(spelled)], dtype=np.uint32) if control else next(encoded),
                    reason,
                )
                for spelled, control, reason in kept
            ]
        )

    def _messages(self, messages: Sequence[Message], private: str) -> list[dict[str, Any]]:
        made = []
        for source, message in zip(messages, template_messages(messages), strict=True):
            protected = self._protect(message, private)
            protected["role"] = message["role"]
            if source.role == "assistant" and source.reasoning is None:
                protected["content"] = self._protect(message["content"], private, keep=("<think>", "</think>"))
            made.append(protected)
        return made

    def _protect(self, value: Any, private: str, keep: tuple[str, ...] = ()) -> Any:
        """`value` with every spelled control token broken after its first character."""
        if isinstance(value, str):
            return self._spelling.sub(lambda m: m[0] if m[0] in keep else m[0][0] + private + m[0][1:], value)
        if isinstance(value, dict):
            return {self._protect(k, private): self._protect(v, private, keep) for k, v in value.items()}
        if isinstance(value, list):
            return [self._protect(item, private, keep) for item in value]
        return value


def _common(left: str, right: str) -> int:
    """How many first characters two texts share: by halving, so that equal texts cost one comparison of memory."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _unused_character(trajectory: Trajectory) -> str:
    text = json.dumps([trajectory.tools, trajectory.to_row()["messages"]], ensure_ascii=False)
    for code in _PRIVATE:
        if chr(code) not in text:
            return chr(code)
    raise InputError("the text uses every private-use character", field="messages")


def _tools(tools: str) -> list[Any] | None:
    try:
        parsed = json.loads(tools or "[]")
    except ValueError:
        return None
    return parsed if isinstance(parsed, list) and parsed else None


def _arguments_as_text(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    made = []
    for call in calls:
        function = call["function"]
        arguments = function["arguments"]
        spelled = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        made.append({**call, "function": {**function, "arguments": spelled}})
    return {**message, "tool_calls": made}


def _spelled(token: Any) -> str:
    """A special token of tokenizer_config.json, which may be text, a dict or null."""
    spelled = token.get("content") if isinstance(token, dict) else token
    return spelled if isinstance(spelled, str) else ""
