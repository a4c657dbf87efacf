"""Which renderer a tokenizer folder asks for: ours for our template, the careful one for any other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pipelines.curriculum.render import Rendered, render_batch
from pipelines.curriculum.template import chat_template, form_of
from pipelines.synthesis.chat import CONTROL_TOKENS, render_messages
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import InputError
from schemas.trajectory import Trajectory

__all__ = ["Renderer", "chat_template_of", "open_renderer"]


class Renderer(Protocol):
    """Trajectories to tokens, and tokens back to messages."""

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[list[Rendered] | InputError]:
        """Each trajectory as one rendering, or several when it is split at user turns, or the error that it gave."""
        ...

    def message_at(self, trajectory: Trajectory, part: int, offset: int) -> int | None:
        """Which message holds token `offset` of rendering `part`; None when it belongs to none (template, header)."""
        ...


class _OwnRenderer:
    """Our chat format, calls in one of its two forms."""

    def __init__(self, tokenizer: TextTokenizer, form: str) -> None:
        self._tokenizer = tokenizer
        self._form = form

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[list[Rendered] | InputError]:
        found = render_batch(self._tokenizer, trajectories, form=self._form)
        return [one if isinstance(one, InputError) else [one] for one in found]

    def message_at(self, trajectory: Trajectory, part: int, offset: int) -> int | None:
        """The pieces are encoded again one by one, as they were when they were rendered."""
        end = 0
        for piece in render_messages(trajectory.messages, trajectory.tools, form=self._form):
            end += 1 if piece.control else len(self._tokenizer.encode(piece.text))
            if offset < end:
                return piece.message if piece.message >= 0 else None
        return None


def open_renderer(tokenizer: TextTokenizer, *, history: str = "refuse") -> Renderer:
    """The renderer of the folder's chat template.

    `history` says what happens where a template rewrites earlier turns: refuse or split. A folder without a template is
    rendered in our format if it has our control tokens. Raises InputError when it has neither.
    """
    source = chat_template_of(tokenizer.folder, tokenizer.config.get("chat_template"))
    if source is None and set(CONTROL_TOKENS[1:]) <= set(tokenizer.controls):
        source = chat_template(tokenizer.call_form)
    if source is None:
        raise InputError(
            "the tokenizer has no chat template, and lacks the tokens of ours",
            path=str(tokenizer.folder / "chat_template.jinja"),
            todo="Put a chat_template.jinja in the folder, or train a tokenizer with the run",
        )
    form = form_of(source)
    if form is None:
        from pipelines.curriculum.foreign import ForeignRenderer

        return ForeignRenderer(tokenizer, source, history=history)
    return _OwnRenderer(tokenizer, form)


def chat_template_of(folder: Path, configured: object) -> str | None:
    """chat_template.jinja, else the template of tokenizer_config.json (of several, tool_use or default)."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    if isinstance(configured, str):
        return configured
    if isinstance(configured, list):
        named = {t.get("name"): t.get("template") for t in configured if isinstance(t, dict)}
        for name in ("tool_use", "default"):
            if isinstance(named.get(name), str):
                return str(named[name])
    return None
