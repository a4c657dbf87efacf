"""A trajectory becomes token ids, mask and reasons together, piece by piece, while it is rendered.

What is trained: of an assistant message with `train` True everything that the model would write, that is the think
block, the content, the calls and the `<|im_end|>` that ends the turn. Never trained: `<|im_start|>assistant\\n`, the
line break after `<|im_end|>`, every other role. Because the mask is made with the ids, no character offset is looked
up afterwards and no tokenizer can shift it.

Pieces are encoded one by one; a piece ends only at a control token or where a model starts to write (after the
generation prompt), so the ids are those that inference sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.synthesis.chat import Piece, render_messages
from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import InputError
from schemas.trajectory import Message, Trajectory

__all__ = ["TRAINED", "Rendered", "assemble", "mask_reason", "render_batch", "render_prompt_ids", "turn_reason"]

TRAINED = "trained"


@dataclass(slots=True)
class Rendered:
    """One trajectory in tokens. `ids` (n,) uint32, `mask` (n,) bool, `runs` run-length reasons summing to n tokens."""

    ids: npt.NDArray[np.uint32]
    mask: npt.NDArray[np.bool_]
    runs: list[tuple[int, str]]

    @classmethod
    def empty(cls) -> Rendered:
        """Nothing at all: what a trajectory that could not be rendered has."""
        return cls(np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.bool_), [])

    @property
    def trained(self) -> int:
        """Tokens that are trained on."""
        return int(self.mask.sum())


def mask_reason(message: Message) -> str:
    """Why an assistant message is not trained: its reasons joined by a comma, else what its flag says."""
    if message.mask_reasons:
        return ",".join(message.mask_reasons)
    return "masked" if message.train is False else "unlabelled"


def turn_reason(message: Message) -> str:
    """The reason that the tokens of a message's body carry: trained, a mask reason, or the role."""
    if message.role != "assistant":
        return message.role
    return TRAINED if message.train else mask_reason(message)


def render_batch(
    tokenizer: TextTokenizer, trajectories: Sequence[Trajectory], *, form: str = "xml"
) -> list[Rendered | InputError]:
    """Render trajectories in our chat format; one that cannot be rendered gives its error in its place.

    `form` is how calls are written (CALL_FORMS).
    Equal pieces (headers, tool lists) are encoded once in a batch. Memory: the batch's text and tokens.
    """
    rendered: list[list[Piece] | InputError] = []
    for trajectory in trajectories:
        try:
            rendered.append(render_messages(trajectory.messages, trajectory.tools, form=form))
        except InputError as error:
            rendered.append(error)
    results: list[Rendered | InputError] = []
    encoded = _encode_pieces(tokenizer, [pieces for pieces in rendered if not isinstance(pieces, InputError)])
    for trajectory, pieces in zip(trajectories, rendered, strict=True):
        if isinstance(pieces, InputError):
            results.append(pieces)
            continue
        reasons = [turn_reason(message) for message in trajectory.messages]
        labelled = [
            (
                encoded[piece.text, piece.control],
                piece.part if piece.part != "assistant" else reasons[piece.message],
            )
            for piece in pieces
        ]
        results.append(assemble(labelled))
    return results


def render_prompt_ids(tokenizer: TextTokenizer, pieces: Sequence[Piece]) -> npt.NDArray[np.uint32]:
    """Ids of any pieces, for example of a prompt that a model continues."""
    encoded = _encode_pieces(tokenizer, [pieces])
    return assemble([(encoded[piece.text, piece.control], piece.part) for piece in pieces]).ids


def assemble(labelled: Sequence[tuple[npt.NDArray[np.uint32], str]]) -> Rendered:
    """Join (ids, reason) parts in order; mask and reasons follow from the reason of each part."""
    runs: list[tuple[int, str]] = []
    for ids, reason in labelled:
        if not ids.size:
            continue
        if runs and runs[-1][1] == reason:
            runs[-1] = (runs[-1][0] + int(ids.size), reason)
        else:
            runs.append((int(ids.size), reason))
    joined = np.concatenate([ids for ids, _ in labelled]) if labelled else np.empty(0, dtype=np.uint32)
    lengths = [count for count, _ in runs]
    mask = np.repeat(np.array([reason == TRAINED for _, reason in runs], dtype=np.bool_), lengths)
    return Rendered(joined, mask, runs)


def _encode_pieces(
    tokenizer: TextTokenizer, conversations: Sequence[Sequence[Piece]]
) -> dict[tuple[str, bool], npt.NDArray[np.uint32]]:
    keys = dict.fromkeys((piece.text, piece.control) for pieces in conversations for piece in pieces)
    texts = [text for text, control in keys if not control]
    encoded: dict[tuple[str, bool], npt.NDArray[np.uint32]] = {
        (text, False): ids for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)
    }
    for text, control in keys:
        if control:
            encoded[text, True] = np.array([tokenizer.control_id(text)], dtype=np.uint32)
    return encoded
