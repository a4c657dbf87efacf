"""Which renderer a tokenizer folder asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pipelines.curriculum.render import Rendered, render_batch
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import InputError
from schemas.trajectory import Trajectory

__all__ = ["Renderer", "open_renderer"]

Renderer = Callable[[Sequence[Trajectory]], list["Rendered | InputError"]]


def open_renderer(tokenizer: TextTokenizer) -> Renderer:
    """The renderer of the folder's chat template."""
    return partial(render_batch, tokenizer)
