"""Quality of texts: a verdict with its reason, and a score from 0 to 1. Batch in, arrays out, no engine inside.

Each text is judged by what it is made of: prose by the prose rule sets that are named (gopher, gopher-repetition, c4,
fineweb), code by `code`, formulas by `formula`; a mixture of them is only refused when it is empty. So a prose rule
never removes a source file or a page of LaTeX. With a language rule, prose is judged by its language before all else.
Cost: about 8 MB of text a CPU second with all rule sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filters.text.judges import JUDGES, Batch
from filters.text.kinds import CODE, FORMULA, MIXED, PROSE, Kinds, kinds_of
from filters.text.language import LanguageRule
from filters.text.repetition import duplicate_ngram_share
from filters.text.words import Floats
from schemas.document import KEEP

__all__ = ["EMPTY", "Judgement", "judge"]

EMPTY = "empty"
SLICE_BYTES = 4 << 20  # texts judged at once; measures take about 20 times their bytes

_KIND_OF_RULES = {"code": CODE, "formula": FORMULA}  # every other rule set is for prose


@dataclass(frozen=True, slots=True)
class Judgement:
    """For each text: the verdict (KEEP, EMPTY or 'rule set:reason') as string, the score as float32, the language as
    string (null where none was judged)."""

    verdict: pa.Array
    quality: pa.Array
    language: pa.Array


def judge(
    texts: pa.Array,
    rules: Sequence[str],
    thresholds: Mapping[str, Any] | None = None,
    language: LanguageRule | None = None,
) -> Judgement:
    """Judge texts by the named rule sets, prose by its `language` before.

    `texts`: string or large_string of shape (N,), nulls count as empty. `rules`: names in `JUDGES`; the order decides
    which reason is given when several hold. `thresholds` replaces the published numbers of a set by another instance
    of its dataclass. The result of a text does not depend on the others. Raises KeyError for an unknown rule set.
    """
    chosen = {name: (thresholds or {}).get(name, JUDGES[name][1]) for name in rules}
    whole = pc.fill_null(texts.cast(pa.large_string()), "")
    parts = [_judge_slice(part, chosen, language) for part in _slices(whole)]
    verdicts = [verdict for part, _, _ in parts for verdict in part]
    scores = np.concatenate([score for _, score, _ in parts]) if parts else np.zeros(0)
    languages = [label for _, _, labels in parts for label in labels]
    return Judgement(
        pa.array(verdicts, pa.string()),
        pa.array(scores.astype(np.float32), pa.float32()),
        pa.array(languages, pa.string()),
    )


def _slices(texts: pa.Array) -> Iterator[pa.Array]:
    """Runs of texts of about SLICE_BYTES, at least one text each."""
    sizes = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False))
    start = 0
    while start < len(texts):
        done = int(sizes[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(sizes, done + SLICE_BYTES, "right")))
        yield texts.slice(start, end - start)
        start = end


def _judge_slice(
    texts: pa.Array, rules: Mapping[str, Any], language: LanguageRule | None
) -> tuple[list[str], Floats, list[str | None]]:
    batch = Batch(texts)
    kinds = kinds_of(texts, batch.words, batch.lines)
    verdict = np.full(len(texts), KEEP, object)
    verdict[batch.words.count == 0] = EMPTY
    languages = np.full(len(texts), None, object)
    spoken = np.flatnonzero((kinds.kind == PROSE) & (verdict == KEEP))
    if language is not None and len(spoken):
        found = language.judge(texts.take(pa.array(spoken)))
        languages[spoken] = [label for label, _ in found]
        verdict[spoken] = [reason for _, reason in found]
    for name, rule in rules.items():
        judged = kinds.kind == _KIND_OF_RULES.get(name, PROSE)
        if not judged.any():
            continue
        for reason, broken in JUDGES[name][0](batch, rule):
            verdict[broken & judged & (verdict == KEEP)] = f"{name}:{reason}"
    score = _score(batch, kinds)
    score[batch.words.count == 0] = 0
    return verdict.tolist(), score, languages.tolist()


def _score(batch: Batch, kinds: Kinds) -> Floats:
    """The mean of five or six measures, each brought to 0 (bad) .. 1 (good); which ones depends on the kind.

    Ours, for ordering texts (which duplicate to keep, what to train on late), not for dropping them.
    """
    words = batch.words
    fresh_lines = 1 - _ramp(batch.duplicate_lines[1], 0, 0.3)
    fresh_words = 1 - _ramp(duplicate_ngram_share(words, batch.hashes, 5), 0, 0.3)
    sentence = words.count / np.maximum(batch.sentences, 1)
    prose = [
        _ramp(words.count, 50, 300),
        _ramp(batch.alphabetic, 0.7, 0.95),
        _ramp(kinds.function_words, 0.1, 0.3),
        np.minimum(_ramp(sentence, 3, 10), 1 - _ramp(sentence, 40, 120)),
        fresh_lines,
        fresh_words,
    ]
    code = [
        _ramp(batch.lines.count, 5, 40),
        _ramp(batch.alphanumeric, 0.25, 0.55),
        1 - _ramp(batch.mean_line, 60, 100),
        _ramp(kinds.function_words, 0, 0.1),  # comments and docstrings are in words
        fresh_lines,
    ]
    formula = [_ramp(words.count, 20, 200), _ramp(kinds.function_words, 0, 0.15), fresh_lines, fresh_words]
    by_kind = {PROSE: prose, CODE: code, FORMULA: formula, MIXED: [*prose[:1], *prose[2:]]}
    score = np.zeros(words.documents)
    for kind, parts in by_kind.items():
        score = np.where(kinds.kind == kind, np.mean(parts, axis=0), score)
    return score


def _ramp(values: Any, low: float, high: float) -> Floats:
    """0 up to `low`, 1 from `high`, linear between. Shape (documents,)."""
    return np.clip((np.asarray(values, np.float64) - low) / (high - low), 0, 1)
