"""Lines and paragraphs that stand in many documents: counted by document, taken out, and nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.text.dedup.templates import LEAST_CHARACTERS, clean, count_pieces, join_counts, piece_hash, pieces

NOTICE = "This site uses cookies, press accept to go on."
TEXTS = st.text(alphabet="ab \n\r\t\u2028\x85\0", max_size=80)


@given(TEXTS, st.sampled_from(["line", "paragraph"]))
def test_pieces_and_their_breaks_are_the_text(text: str, unit: str) -> None:
    found = pieces(text, unit)
    assert "".join(text[begin:after] for begin, _, after in found) == text
    assert all(begin <= end <= after for begin, end, after in found)


@given(st.lists(st.sampled_from([NOTICE, "short", "a line of its own with enough letters in it", ""]), max_size=8))
def test_what_is_kept_and_what_is_removed_make_the_text_again(lines: list[str]) -> None:
    text = "\n".join(lines)
    cleaned = clean(text, "line", frozenset([piece_hash(NOTICE)]))
    whole = cleaned.text
    for at, piece in cleaned.removed:
        whole = whole[:at] + piece + whole[at:]
    assert whole == text
    assert NOTICE not in cleaned.text
    assert len(cleaned.removed) == lines.count(NOTICE)


def test_a_line_ends_at_a_newline_and_nowhere_else() -> None:
    text = f"{NOTICE}\u2028more\n{NOTICE}\x85\rend"
    assert len(pieces(text, "line")) == 2
    assert clean(text, "line", frozenset([piece_hash(NOTICE)])).removed == []


def test_documents_are_counted_and_not_occurrences() -> None:
    texts = [f"{NOTICE}\n{NOTICE}\nown {n}" for n in range(3)] + [f"  {NOTICE.replace(' ', '  ')}\t"]
    hashes, counts = count_pieces(texts, "line")
    assert dict(zip(hashes.tolist(), counts.tolist(), strict=True))[piece_hash(NOTICE)] == 4


def test_short_pieces_are_never_templates() -> None:
    assert piece_hash("x" * (LEAST_CHARACTERS - 1)) == 0
    assert piece_hash("}") == piece_hash("") == piece_hash(" " * 100) == 0
    assert count_pieces(["}\n" * 5] * 10, "line")[0].tolist() == []


@given(st.lists(TEXTS.map(lambda text: text.replace("a", NOTICE)), max_size=8), st.integers(0, 8))
def test_counts_of_parts_add_up_to_those_of_the_whole(texts: list[str], cut: int) -> None:
    whole = join_counts([count_pieces(texts, "line")])
    parts = join_counts([count_pieces(texts[cut:], "line"), count_pieces(texts[:cut], "line")])
    assert np.array_equal(whole[0], parts[0]) and np.array_equal(whole[1], parts[1])


def test_paragraphs_are_parted_by_lines_without_visible_characters() -> None:
    text = f"one\ntwo\n \t\n{NOTICE}\nand its second line\n\n\nthree"
    assert [text[b:e] for b, e, _ in pieces(text, "paragraph")] == [
        "one\ntwo",
        f"{NOTICE}\nand its second line",
        "three",
    ]
    template = piece_hash(f"{NOTICE} and its second line")
    assert clean(text, "paragraph", frozenset([template])).text == "one\ntwo\n \t\nthree"


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="line, paragraph"):
        pieces("text", "word")
