"""Token counts for batches of anybody's pipeline: what `Reweight` of either engine counts with."""

from __future__ import annotations

from typing import Any

__all__ = ["TokenCount"]


class TokenCount:
    """Tokens of texts by a tokenizer folder, loaded when first used in a worker."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._tokenizer: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_tokenizer": None}

    def __call__(self, texts: list[str]) -> list[int]:
        from pipelines.corpus.reweight import END_OF_TEXT_TOKENS
        from pipelines.synthesis.tokens import load_tokenizer

        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.folder)
        return [count + END_OF_TEXT_TOKENS for count in self._tokenizer.count_batch(texts)]
