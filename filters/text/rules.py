"""Thresholds of the quality rules, each with the paper that it is from. A recipe names a set; the numbers are defaults.

A rule set is a frozen dataclass; the judges in `filters.text.judges` read it. A text is dropped when a measure lies
outside the stated bound; a measure equal to the bound keeps it, unless the paper says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["C4", "Code", "FineWeb", "Formula", "Gopher", "GopherRepetition"]


@dataclass(frozen=True, slots=True)
class Gopher:
    """Quality rules of MassiveText (arXiv 2112.11446, appendix A.1.1). Words are split at white space."""

    min_words: int = 50
    max_words: int = 100_000
    min_mean_word_length: float = 3
    max_mean_word_length: float = 10
    max_symbols_per_word: float = 0.1  # hash signs, and ellipses, each against the number of words
    max_bullet_lines: float = 0.9
    max_ellipsis_lines: float = 0.3
    min_alphabetic_words: float = 0.8  # share of words with at least one letter
    min_stop_words: int = 2  # different ones
    stop_words: tuple[str, ...] = ("the", "be", "to", "of", "and", "that", "have", "with")


@dataclass(frozen=True, slots=True)
class GopherRepetition:
    """Repetition rules of MassiveText (arXiv 2112.11446, table A1). Shares of lines, paragraphs or characters.

    A repeat is the second or a later occurrence (as in datatrove); characters are counted in words.
    """

    max_duplicate_lines: float = 0.30
    max_duplicate_paragraphs: float = 0.30
    max_duplicate_line_characters: float = 0.20
    max_duplicate_paragraph_characters: float = 0.20
    max_top_ngram: tuple[tuple[int, float], ...] = ((2, 0.20), (3, 0.18), (4, 0.16))
    max_duplicate_ngram: tuple[tuple[int, float], ...] = (
        (5, 0.15),
        (6, 0.14),
        (7, 0.13),
        (8, 0.12),
        (9, 0.11),
        (10, 0.10),
    )


@dataclass(frozen=True, slots=True)
class C4:
    """Page rules of C4 (arXiv 1910.10683, section 2.2).

    C4 edits pages; datamix judges whole texts: lines that C4 would remove do not count towards the sentences that a
    page must have. The list of bad words is not carried.
    """

    min_sentences: int = 3
    min_line_words: int = 5
    line_ends: str = r"[.!?\"”]$"
    bad_lines: str = r"(?i)javascript|terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies"
    bad_pages: str = r"(?i)lorem ipsum"


@dataclass(frozen=True, slots=True)
class FineWeb:
    """The three rules of FineWeb's own (arXiv 2406.17557, section 3.6); a text at the bound is dropped, as there."""

    max_unpunctuated: float = 0.12  # dropped when no more lines than this end in punctuation
    max_duplicate_line_characters: float = 0.1
    max_short_lines: float = 0.67
    short_line: int = 30  # characters


@dataclass(frozen=True, slots=True)
class Code:
    """File rules of Codex (arXiv 2107.03374, section 3.1) with the share of alphanumerics of The Stack's users
    (SantaCoder, arXiv 2301.03988, section 4.1). A code file is also dropped when it says that it is generated."""

    max_mean_line: float = 100
    max_line: int = 1000
    min_alphanumeric: float = 0.25  # of all characters
    generated: str = (
        r"(?i)(?:^|\n)\W*auto-?generated|@generated|automatically generated (?:by|from)"
        r"|(?:file|code|module) (?:is|was|has been) (?:auto-?|automatically )generated"
    )
    generated_within: int = 1000  # characters from the start


@dataclass(frozen=True, slots=True)
class Formula:
    """Rules for LaTeX, formal mathematics and worked problems, chosen by datamix: only what is no text at all goes."""

    min_words: int = 10
    max_duplicate_line_characters: float = 0.6
