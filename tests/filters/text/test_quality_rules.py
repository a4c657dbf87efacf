"""Each published rule keeps what lies inside its bound and drops what lies outside, and names itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from filters.text.judges import JUDGES
from filters.text.quality import EMPTY, judge
from filters.text.rules import C4, Code, FineWeb, Gopher
from schemas.document import KEEP

SENTENCE = "The people of the town have a garden and they like to work with it. "  # 15 words, 5 of the stop words
PROSE = SENTENCE * 4
WORDS = PROSE.split()


def verdict(text: str | None, *rules: str, **thresholds: Any) -> Any:
    judged = judge(pa.array([text], pa.large_string()), rules, {k.replace("_", "-"): v for k, v in thresholds.items()})
    return judged.verdict.to_pylist()[0]


def test_the_thresholds_are_the_published_ones() -> None:
    gopher = Gopher()
    assert (gopher.min_words, gopher.max_words) == (50, 100_000)
    assert (gopher.min_mean_word_length, gopher.max_mean_word_length) == (3, 10)
    assert (gopher.max_symbols_per_word, gopher.max_bullet_lines, gopher.max_ellipsis_lines) == (0.1, 0.9, 0.3)
    assert (gopher.min_alphabetic_words, gopher.min_stop_words) == (0.8, 2)
    assert gopher.stop_words == ("the", "be", "to", "of", "and", "that", "have", "with")
    repetition = JUDGES["gopher-repetition"][1]
    assert repetition.max_duplicate_ngram == ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1))
    assert repetition.max_top_ngram == ((2, 0.2), (3, 0.18), (4, 0.16))
    assert (FineWeb().max_unpunctuated, FineWeb().max_duplicate_line_characters, FineWeb().max_short_lines) == (
        0.12,
        0.1,
        0.67,
    )
    assert (C4().min_sentences, C4().min_line_words) == (3, 5)
    assert (Code().max_mean_line, Code().max_line, Code().min_alphanumeric) == (100, 1000, 0.25)


GOPHER = [
    ("fifty words are enough", " ".join(WORDS[:50]), KEEP),
    ("forty-nine are not", " ".join(WORDS[:49]), "few_words"),
    ("a hundred thousand words are allowed", " ".join((WORDS * 1700)[:100_000]), KEEP),
    ("one more is not", " ".join((WORDS * 1700)[:100_001]), "many_words"),
    ("short words", "a to I of " * 20, "short_words"),
    ("long words", "thereabouts internationalisation characterisations of and " * 12, "long_words"),
    ("hash signs on a tenth of the words", PROSE + "# " * 6, KEEP),
    ("hash signs on more", PROSE + "# " * 8, "hash_signs"),
    ("ellipses", PROSE.replace("of", "of...").replace("and", "and…"), "ellipses"),
    ("nine of ten lines are bullets", "\n".join(["- " + SENTENCE] * 9 + [SENTENCE]), KEEP),
    ("all lines are bullets", "\n".join(["• " + SENTENCE] * 5), "bullet_lines"),
    (
        "lines that trail off",
        "\n".join([SENTENCE.strip(" .") + "...", SENTENCE, SENTENCE.strip() + "…"] * 4),
        "ellipsis_lines",
    ),
    ("words without letters", PROSE + "12 34 56 78 " * 5, "few_alphabetic_words"),
    ("one stop word", "the garden town people like work every year, said many old friends. " * 6, "few_stop_words"),
    ("two stop words in capitals", "The garden town people like work AND every year, said many friends. " * 6, KEEP),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in GOPHER], ids=[case[0] for case in GOPHER])
def test_gopher(text: str, expected: str) -> None:
    assert verdict(text, "gopher") == (expected if expected == KEEP else f"gopher:{expected}")


def unique(count: int, start: int = 0) -> str:
    """Different sentences about different things: nothing repeats."""
    syllables = ["ba", "ke", "mi", "no", "ru", "sa", "ti", "vo"]
    name = lambda n: "".join(syllables[n // 8**k % 8] for k in range(4))  # noqa: E731
    return "\n".join(
        f"The {name(n * 5)} and {name(n * 5 + 1)} go to {name(n * 5 + 2)} {name(n * 5 + 3)} with {name(n * 5 + 4)}."
        for n in range(start, start + count)
    )


PARAGRAPHS = "\n\n".join([*[f"{unique(1, n)}\n{n}" for n in range(6)], *["Go on.\nSo"] * 5])
EXAMPLES = "\n".join(f"{line} for example" for line in unique(20).split("\n")).replace(" with ", " for example ")
REPETITION = [
    ("nothing repeats", unique(20), KEEP),
    ("a third of the lines repeat", unique(20) + "\n" + "\n".join(["See the end."] * 12), "duplicate_lines"),
    (
        "few lines but many characters repeat",
        unique(9) + ("\n" + unique(4, 90).replace("\n", " ")) * 2,
        "duplicate_line_characters",
    ),
    ("paragraphs repeat", PARAGRAPHS, "duplicate_lines"),
    ("one pair of words is everywhere", EXAMPLES.replace(" and ", " for example "), "top_2_gram"),
    ("a long passage stands twice", unique(12) + "\n" + " ".join(unique(6).split()), "duplicate_5_grams"),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in REPETITION], ids=[case[0] for case in REPETITION])
def test_gopher_repetition(text: str, expected: str) -> None:
    assert verdict(text, "gopher-repetition") == (expected if expected == KEEP else f"gopher-repetition:{expected}")


LINE = "People in the town like their garden very much."
C4_CASES = [
    ("three sentences", f"{LINE}\n{LINE}\n{LINE}", KEEP),
    ("two sentences", f"{LINE}\n{LINE}", "few_sentences"),
    ("several sentences in a line count", f"{LINE} {LINE} {LINE}", KEEP),
    ("a line without an end does not count", f"{LINE}\n{LINE}\n{LINE[:-1]}", "few_sentences"),
    ("a line of four words does not count", f"{LINE}\n{LINE}\nThey like it much.", "few_sentences"),
    (
        "a line about scripts does not count",
        f"{LINE}\n{LINE}\nPlease turn on Javascript in your browser.",
        "few_sentences",
    ),
    (
        "a line about cookies does not count",
        f"{LINE}\n{LINE}\nThis site and others use cookies every day.",
        "few_sentences",
    ),
    ("a curly bracket", f"{LINE}\n{LINE}\n{LINE} {{x}}.", "curly_bracket"),
    ("filler text", f"{LINE}\n{LINE}\n{LINE} Lorem Ipsum dolor.", "lorem_ipsum"),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in C4_CASES], ids=[case[0] for case in C4_CASES])
def test_c4(text: str, expected: str) -> None:
    assert verdict(text, "c4") == (expected if expected == KEEP else f"c4:{expected}")


FINEWEB = [
    ("most lines end in punctuation", unique(10), KEEP),
    ("one line of eight does", "\n".join([unique(1), *unique(7, 50).replace(".", "").split("\n")]), KEEP),
    (
        "one line of nine does not suffice",
        "\n".join([unique(1), *unique(8, 50).replace(".", "").split("\n")]),
        "few_lines_end_in_punctuation",
    ),
    ("a tenth of the characters in repeated lines", unique(8) + "\n" + unique(1), "duplicate_line_characters"),
    ("two thirds of the lines are short", unique(3) + "\n" + "\n".join(f"Go to {n}." for n in range(7)), "short_lines"),
    ("under two thirds", unique(4) + "\n" + "\n".join(f"Go to {n}." for n in range(8)), KEEP),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in FINEWEB], ids=[case[0] for case in FINEWEB])
def test_fineweb(text: str, expected: str) -> None:
    assert verdict(text, "fineweb") == (expected if expected == KEEP else f"fineweb:{expected}")


BODY = "import os\n\ndef join(parts):\n    path = os.sep.join(parts)\n    return path\n"
CODE = [
    ("an ordinary file", BODY, KEEP),
    ("one line of a thousand characters", BODY * 40 + "x = '" + "a" * 994 + "'\n", KEEP),
    ("one line longer", BODY * 40 + "x = '" + "a" * 995 + "'\n", "longest_line"),
    ("long lines throughout", "".join(f"value_{n} = compute({'argument, ' * 11})\n" for n in range(9)), "long_lines"),
    ("hardly a letter", "    x = ((((), []), {}), ((), ()), [[]], (((({}))))), [{}, {}]\n" * 20, "few_alphanumerics"),
    ("written by a program", "# Auto-generated by build.py\n" + BODY, "generated"),
    ("says that it was generated", '"""This file was automatically generated from a.proto"""\n' + BODY, "generated"),
    ("talks about generating", "# checks that names are not automatically generated twice\n" + BODY, KEEP),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in CODE], ids=[case[0] for case in CODE])
def test_code(text: str, expected: str) -> None:
    assert verdict(text, "code") == (expected if expected == KEEP else f"code:{expected}")


EQUATION = r"\[ \int_0^1 x^{n} \, dx = \frac{1}{n+1} \] for $n \ge 0$ and $x = 1$."


def test_formula() -> None:
    assert verdict(EQUATION * 2, "formula") == KEEP
    assert verdict("$x = 1$ and $y = 2$", "formula") == "formula:few_words"
    repeated = "\n".join([EQUATION] * 9)
    assert verdict(repeated, "formula") == "formula:duplicate_line_characters"


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t\u2028\u00a0", None])
def test_a_text_without_words_is_empty_by_every_rule_set(text: str | None) -> None:
    assert verdict(text) == EMPTY
    assert verdict(text, *JUDGES) == EMPTY


@pytest.mark.parametrize(
    "text", ["!!!", "🙂", "x" * 1_000_000, "…", "\x00", "\u2028a", "{", "a\x85b", "a" * 100 + "\n" * 100_000]
)
@pytest.mark.parametrize("rules", [[name] for name in JUDGES], ids=str)
def test_any_text_gets_a_verdict_and_a_score(text: str, rules: list[str]) -> None:
    judged = judge(pa.array([text]), rules)
    assert judged.verdict.to_pylist()[0] == KEEP or judged.verdict.to_pylist()[0].startswith(f"{rules[0]}:")
    assert 0 <= judged.quality.to_pylist()[0] <= 1


def test_no_text_gives_no_verdict() -> None:
    judged = judge(pa.array([], pa.string()), list(JUDGES))
    assert (judged.verdict.to_pylist(), judged.quality.to_pylist()) == ([], [])
    assert (judged.verdict.type, judged.quality.type) == (pa.string(), pa.float32())


def test_the_first_rule_set_that_is_named_gives_the_reason() -> None:
    text = "short { text"
    assert verdict(text, "gopher", "c4") == "gopher:few_words"
    assert verdict(text, "c4", "gopher") == "c4:curly_bracket"


def test_thresholds_can_be_replaced() -> None:
    few = " ".join(WORDS[:20])
    assert verdict(few, "gopher") == "gopher:few_words"
    assert verdict(few, "gopher", gopher=replace(Gopher(), min_words=20)) == KEEP
