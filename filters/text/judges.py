"""The rule sets applied to a batch: each judge gives, rule by rule, the texts that break it.

A judge takes the measures of a batch (`Batch`) and its thresholds and yields (reason, mask) pairs in a fixed order;
the first reason that holds for a text is its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filters.text.lines import Lines, count_pattern, split_lines, split_paragraphs
from filters.text.repetition import duplicate_ngram_share, duplicate_piece_shares, top_ngram_share
from filters.text.rules import C4, Code, FineWeb, Formula, Gopher, GopherRepetition
from filters.text.words import Floats, Words, per_document, split_words

__all__ = ["JUDGES", "Batch", "Broken"]

Mask = npt.NDArray[np.bool_]
Broken = tuple[str, Mask]

BULLET = r"^[•‣▪●◦∙·*-]\s"
ELLIPSIS_END = r"(?:\.\.\.|…)$"
TERMINAL = r"[.!?:;。！？…][\"'”’)\]]*$|[\"”]$"
SENTENCE_END = r"[.!?][\"'”’)]*(?:\s|$)"


@dataclass
class Batch:
    """A batch of texts (large_string, no nulls) with its measures, each computed once when first asked for."""

    texts: pa.Array

    @cached_property
    def words(self) -> Words:
        """The texts as words."""
        return split_words(self.texts)

    @cached_property
    def lines(self) -> Lines:
        """The texts as lines."""
        return split_lines(self.texts)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """Hash of every word."""
        return self.words.hashes()

    @cached_property
    def characters(self) -> Floats:
        """Characters of each text, white space included."""
        return np.asarray(pc.utf8_length(self.texts).to_numpy(zero_copy_only=False), np.float64)

    @cached_property
    def alphabetic(self) -> Floats:
        """Share of words with a letter."""
        return self.words.share(
            pc.match_substring_regex(self.words.vocabulary, r"\p{L}").to_numpy(zero_copy_only=False)
        )

    @cached_property
    def alphanumeric(self) -> Floats:
        """Share of letters and digits in all characters."""
        known = pc.count_substring_regex(self.words.vocabulary, r"[\p{L}\p{N}]").to_numpy(zero_copy_only=False)
        counted = known[self.words.code] if len(self.words.code) else np.zeros(0)
        return per_document(self.words.doc, counted, self.words.documents) / np.maximum(self.characters, 1)

    @cached_property
    def duplicate_lines(self) -> tuple[Floats, Floats]:
        """Repeated lines: share of lines, share of their characters."""
        return duplicate_piece_shares(self.lines.text, self.lines.doc, self.lines.documents)

    @cached_property
    def mean_line(self) -> Floats:
        """Mean characters of a line (not empty, trimmed)."""
        lengths = per_document(self.lines.doc, self.lines.lengths(), self.lines.documents)
        return lengths / np.maximum(self.lines.count, 1)

    @cached_property
    def longest_line(self) -> Floats:
        """Characters of the longest line."""
        longest = np.zeros(self.lines.documents)
        np.maximum.at(longest, self.lines.doc, self.lines.lengths())
        return longest

    @cached_property
    def sentences(self) -> Floats:
        """Places that look like the end of a sentence."""
        return count_pattern(self.texts, SENTENCE_END)

    def occurrences(self, literal: str) -> Floats:
        """How often a literal string occurs in each text."""
        return np.asarray(pc.count_substring(self.texts, literal).to_numpy(zero_copy_only=False), np.float64)


def judge_gopher(batch: Batch, rule: Gopher) -> Iterator[Broken]:
    """MassiveText's quality rules."""
    words, lines = batch.words, batch.lines
    count = np.maximum(words.count, 1)
    mean = words.characters / count
    yield "few_words", words.count < rule.min_words
    yield "many_words", words.count > rule.max_words
    yield "short_words", mean < rule.min_mean_word_length
    yield "long_words", mean > rule.max_mean_word_length
    yield "hash_signs", batch.occurrences("#") / count > rule.max_symbols_per_word
    yield "ellipses", (batch.occurrences("...") + batch.occurrences("…")) / count > rule.max_symbols_per_word
    yield "bullet_lines", lines.share(BULLET) > rule.max_bullet_lines
    yield "ellipsis_lines", lines.share(ELLIPSIS_END) > rule.max_ellipsis_lines
    yield "few_alphabetic_words", batch.alphabetic < rule.min_alphabetic_words
    yield "few_stop_words", _different(words, rule.stop_words) < rule.min_stop_words


def _different(words: Words, wanted: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """How many of the wanted words each text has, in any case, shape (documents,)."""
    found = pc.index_in(pc.utf8_lower(words.vocabulary), pa.array(wanted, words.vocabulary.type))
    number = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)[words.code] if len(words.code) else np.zeros(0, int)
    hits = number >= 0
    pairs = np.unique(words.doc[hits] * len(wanted) + number[hits])
    return np.bincount(pairs // len(wanted), minlength=words.documents)


def judge_repetition(batch: Batch, rule: GopherRepetition) -> Iterator[Broken]:
    """MassiveText's repetition rules."""
    lines, line_characters = batch.duplicate_lines
    yield "duplicate_lines", lines > rule.max_duplicate_lines
    yield "duplicate_line_characters", line_characters > rule.max_duplicate_line_characters
    paragraphs = split_paragraphs(batch.texts)
    pieces, characters = duplicate_piece_shares(paragraphs.text, paragraphs.doc, paragraphs.documents)
    yield "duplicate_paragraphs", pieces > rule.max_duplicate_paragraphs
    yield "duplicate_paragraph_characters", characters > rule.max_duplicate_paragraph_characters
    for n, most in rule.max_top_ngram:
        yield f"top_{n}_gram", top_ngram_share(batch.words, batch.hashes, n) > most
    for n, most in rule.max_duplicate_ngram:
        yield f"duplicate_{n}_grams", duplicate_ngram_share(batch.words, batch.hashes, n) > most


def judge_c4(batch: Batch, rule: C4) -> Iterator[Broken]:
    """C4's page rules, with its line rules as a count of the sentences that would be left."""
    lines = batch.lines
    ends = pc.match_substring_regex(lines.text, rule.line_ends).to_numpy(zero_copy_only=False)
    long = pc.list_value_length(pc.utf8_split_whitespace(lines.text)).to_numpy(zero_copy_only=False)
    bad = pc.match_substring_regex(lines.text, rule.bad_lines).to_numpy(zero_copy_only=False)
    kept = ends & (long >= rule.min_line_words) & ~bad
    found = pc.count_substring_regex(lines.text, SENTENCE_END).to_numpy(zero_copy_only=False)
    sentences = per_document(lines.doc[kept], found[kept], lines.documents)
    yield "curly_bracket", batch.occurrences("{") > 0
    yield "lorem_ipsum", count_pattern(batch.texts, rule.bad_pages) > 0
    yield "few_sentences", sentences < rule.min_sentences


def judge_fineweb(batch: Batch, rule: FineWeb) -> Iterator[Broken]:
    """FineWeb's line rules."""
    lines = batch.lines
    yield "few_lines_end_in_punctuation", lines.share(TERMINAL) <= rule.max_unpunctuated
    yield "duplicate_line_characters", batch.duplicate_lines[1] >= rule.max_duplicate_line_characters
    yield "short_lines", lines.share_of(lines.lengths() <= rule.short_line) >= rule.max_short_lines


def judge_code(batch: Batch, rule: Code) -> Iterator[Broken]:
    """File rules for source code."""
    start = pc.utf8_slice_codeunits(batch.texts, 0, rule.generated_within)
    yield "generated", count_pattern(start, rule.generated) > 0
    yield "long_lines", batch.mean_line > rule.max_mean_line
    yield "longest_line", batch.longest_line > rule.max_line
    yield "few_alphanumerics", batch.alphanumeric < rule.min_alphanumeric


def judge_formula(batch: Batch, rule: Formula) -> Iterator[Broken]:
    """Rules for formulas and formal mathematics."""
    yield "few_words", batch.words.count < rule.min_words
    yield "duplicate_line_characters", batch.duplicate_lines[1] > rule.max_duplicate_line_characters


JUDGES: dict[str, tuple[Callable[[Batch, Any], Iterator[Broken]], Any]] = {
    "gopher": (judge_gopher, Gopher()),
    "gopher-repetition": (judge_repetition, GopherRepetition()),
    "c4": (judge_c4, C4()),
    "fineweb": (judge_fineweb, FineWeb()),
    "code": (judge_code, Code()),
    "formula": (judge_formula, Formula()),
}
"""By the name a recipe uses: the judge and its published thresholds."""
