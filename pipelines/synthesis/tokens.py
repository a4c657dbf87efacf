"""A tokenizer folder, loaded so that text from data never becomes a control token.

Any Hugging Face folder with a `tokenizer.json` works. Two copies are held: the full one decodes; the plain one has no
added tokens, so `encode` of a text that spells `<|im_end|>` gives ordinary tokens. Where a model's own vocabulary
would still give a control id (unigram models look whole words up), the spelling is encoded in two parts instead.
The renderer puts control ids in itself (`control_id`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.synthesis.chat import CALL_FORMS, END_OF_TEXT
from schemas.errors import InputError
from schemas.files import sha256_file

__all__ = ["TextTokenizer", "load_tokenizer"]

Ids = npt.NDArray[np.uint32]
BATCH_CHARACTERS = 1_000_000


class TextTokenizer:
    """Text to ids and back.

    `vocab_size` is the highest id plus one; `controls` maps each added token to its id; `digest` is the SHA-256 of
    tokenizer.json. Encoding uses one thread: steps run several processes, and the library's own threads deadlock
    after a fork.
    """

    def __init__(self, folder: Path) -> None:
        import tokenizers

        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise InputError("no tokenizer.json here", path=str(folder), todo="Give a Hugging Face tokenizer folder")
        try:
            raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            raw["truncation"] = raw["padding"] = None
            self._full = tokenizers.Tokenizer.from_str(json.dumps(raw))
            added = raw.get("added_tokens") or []
            raw["added_tokens"] = []
            raw["post_processor"] = None
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(raw))
        except Exception as error:  # the library raises bare Exception for everything that it cannot read
            raise InputError(f"not a tokenizer ({error})", path=str(path), todo="Save the tokenizer again") from error
        self.folder = folder
        self.controls: dict[str, int] = {token["content"]: token["id"] for token in added}
        vocabulary = self._full.get_vocab(with_added_tokens=True)
        self.vocab_size: int = max(vocabulary.values(), default=-1) + 1
        self._control_ids = np.array(sorted(self.controls.values()), dtype=np.uint32)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tokenizer.json."""
        return sha256_file(self.folder / "tokenizer.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        """tokenizer_config.json, or {} when the folder has none."""
        path = self.folder / "tokenizer_config.json"
        try:
            loaded = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except ValueError as error:
            raise InputError(f"not JSON ({error})", path=str(path), todo="Give a whole tokenizer folder") from None
        return loaded if isinstance(loaded, dict) else {}

    @property
    def call_form(self) -> str:
        """How calls are written in our chat format: `tool_call_format` of tokenizer_config.json, else xml."""
        form = self.config.get("tool_call_format")
        return form if form in CALL_FORMS else CALL_FORMS[0]

    @property
    def end_of_text_id(self) -> int:
        """The token that ends a document: `<|endoftext|>`, else the folder's `eos_token`."""
        named = self.config.get("eos_token")
        spelled = named.get("content") if isinstance(named, dict) else named
        for candidate in (END_OF_TEXT, spelled):
            if candidate in self.controls:
                return self.controls[candidate]
        raise InputError(
            "no end-of-text token",
            path=str(self.folder),
            field="eos_token",
            todo=f"Add {END_OF_TEXT} to the tokenizer or name eos_token in tokenizer_config.json",
        )

    def control_id(self, token: str) -> int:
        """The id of a control token. Raises InputError when the tokenizer has no such token."""
        try:
            return self.controls[token]
        except KeyError:
            raise InputError(
                f"the tokenizer has no token {token!r}",
                path=str(self.folder / "tokenizer.json"),
                field="added_tokens",
                todo="Use a tokenizer that has it, or one with its own chat template",
            ) from None

    def encode(self, text: str) -> Ids:
        """Ids (uint32) of a text of data; no control token among them."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text. Raises InputError when a text holds a lone surrogate (no UTF-8 form).

        Memory: the ids, and about 100 bytes a token for BATCH_CHARACTERS of text at a time (one text at least).
        """
        made: list[Ids] = []
        for group in _groups(texts):
            encodings = self._encodings(group)
            made.extend(
                self._checked(text, np.array(encoding.ids, dtype=np.uint32))
                for text, encoding in zip(group, encodings, strict=True)
            )
        return made

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """How many ids each text has: `len` of `encode_batch`, without making the arrays."""
        if not self._may_give_controls:
            return [len(encoding) for group in _groups(texts) for encoding in self._encodings(group)]
        return [len(ids) for ids in self.encode_batch(texts)]

    def _encodings(self, texts: Sequence[str]) -> list[Any]:
        try:
            encodings: list[Any] = self._plain.encode_batch_fast(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError) as error:
            raise InputError(f"text that UTF-8 cannot hold ({error})", todo="Remove lone surrogates") from error
        return encodings

    @cached_property
    def _may_give_controls(self) -> bool:
        """Whether the model can reach a control id from text: byte-pair merges never make a token that has no merge."""
        model = json.loads(self._plain.to_str())["model"]
        if model.get("type") != "BPE" or model.get("ignore_merges"):
            return True
        merged = {"".join(m) if isinstance(m, list) else m.replace(" ", "") for m in model.get("merges", [])}
        return any(token in merged or len(token) == 1 for token in self.controls)

    def _checked(self, text: str, ids: Ids) -> Ids:
        if not self._may_give_controls or not np.isin(ids, self._control_ids).any():
            return ids
        parts = self._spelling.sub(lambda match: f"{match[0][0]}\0{match[0][1:]}", text).split("\0")
        if "\0" in text or len(parts) == 1:
            raise InputError("the tokenizer turns plain text into control tokens", path=str(self.folder))
        pieces = [np.array(e.ids, dtype=np.uint32) for e in self._encodings(parts)]
        joined: Ids = np.concatenate(pieces)
        if np.isin(joined, self._control_ids).any():
            raise InputError("the tokenizer turns plain text into control tokens", path=str(self.folder))
        return joined

    @cached_property
    def _spelling(self) -> re.Pattern[str]:
        longest_first = sorted((t for t in self.controls if len(t) > 1), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """The text of ids, control tokens spelled out. Bytes that are no UTF-8 become U+FFFD."""
        text: str = self._full.decode([int(i) for i in ids], skip_special_tokens=False)
        return text

    def token(self, token_id: int) -> str | None:
        """How the vocabulary spells one id; None for an id that it does not have."""
        spelled: str | None = self._full.id_to_token(token_id)
        return spelled


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for text in texts:
        if group and size + len(text) > BATCH_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group


def load_tokenizer(folder: str | os.PathLike[str]) -> TextTokenizer:
    """Load the tokenizer of a folder (about 0.1 s for 150,000 tokens). Raises InputError when it cannot be read."""
    return TextTokenizer(Path(folder))
