"""The language of prose by a fastText model: its label for each text, and which texts stay.

Any fastText language model will do: lid.176.bin (labels `en`, `de`, …), GlotLID (`eng_Latn`, …), or one trained here
with `datamix classify train --label-field language`. A model trained on prose says nothing sensible about source code
and formulas, so only what is prose (filters.text.kinds) is judged; code, formulas and mixtures keep the language that
their source claims, and stay. The beginning of a long text is judged. The model is held once a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from filters.text.classify import DomainModel
from schemas.document import KEEP
from schemas.errors import RecipeError, UsageError

__all__ = ["UNSURE", "LanguageRule"]

UNSURE = "language:unsure"
_SHOWN_LABELS = 40


@dataclass(frozen=True, slots=True)
class LanguageRule:
    """A loaded model, the labels that stay and the least score for them. Cannot be pickled: give tasks the path."""

    model: DomainModel
    keep: frozenset[str]
    min_score: float

    @classmethod
    def load(cls, model: str | Path, keep: Sequence[str], min_score: float) -> LanguageRule:
        """Load the model.

        Raises UsageError when there is no such file, InputError when it is no model, RecipeError when `keep` names a
        label it does not have.
        """
        if not Path(model).is_file():
            raise UsageError(f"quality.language {model}: no such file. Give the path of a fasttext language model")
        loaded = DomainModel.load(model)
        unknown = [label for label in keep if label not in loaded.labels]
        if unknown:
            known = ", ".join(loaded.labels[:_SHOWN_LABELS])
            more = len(loaded.labels) - _SHOWN_LABELS
            raise RecipeError(
                f"quality.language {model}: the model has no label {unknown[0]!r}; its {len(loaded.labels)} labels are "
                f"{known}{f' and {more} more' if more > 0 else ''}. Name some of them in quality.language.keep"
            )
        return cls(loaded, frozenset(keep), min_score)

    def judge(self, texts: pa.Array) -> list[tuple[str, str]]:
        """(label, verdict) of every text: KEEP, 'language:LABEL' for another language, UNSURE below the least score."""
        return [(label, self._verdict(label, score)) for label, score in self.model.predict(texts)]

    def _verdict(self, label: str, score: float) -> str:
        if label not in self.keep:
            return f"language:{label}"
        return KEEP if score >= self.min_score else UNSURE
