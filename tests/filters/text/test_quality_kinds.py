"""Prose rules judge prose: source files, LaTeX and formal mathematics pass them untouched, whatever their label."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import filters.text.judges
from filters.text import quality
from filters.text.judges import JUDGES
from filters.text.kinds import CODE, FORMULA, MIXED, PROSE, kinds_of
from filters.text.lines import split_lines
from filters.text.quality import judge
from filters.text.repetition import duplicate_ngram_share, duplicate_piece_shares, ngram_hashes, top_ngram_share
from filters.text.words import split_words
from schemas.document import KEEP

ALL_PROSE_RULES = [name for name in JUDGES if name not in ("code", "formula")]

SOURCES = {
    "python": inspect.getsource(filters.text.judges),
    "python with many comments": "# "
    + "\n# ".join("This is the licence of the file, and it is long." for _ in range(9))
    + "\n\nimport os\nNAMES = {\n"
    + "".join(f"    'n{n}',\n" for n in range(40))
    + "}\n",
    "python module of one class": inspect.getsource(json.JSONDecoder),
    "c": "#include <stdio.h>\n\nint main(void) {\n    int i;\n"
    '    for (i = 0; i < 10; i++) {\n        printf("%d\\n", i);\n    }\n'
    "    return 0;\n}\n",
    "rust": "use std::fmt;\n\npub fn add(a: i32, b: i32) -> i32 {\n    let c = a + b;\n    c\n}\n",
    "agda": "module Data.Nat where\n\nopen import Relation.Binary\n\n+-comm : ∀ m n → m + n ≡ n + m\n"
    "+-comm zero n = sym (+-identityʳ n)\n"
    "+-comm (suc m) n = begin\n  suc m + n   ≡⟨⟩\n  suc (m + n) ≡⟨ cong suc (+-comm m n) ⟩\n  suc (n + m) ∎\n",
    "hol": "let ADD_SYM = prove\n (`!m n. m + n = n + m`,\n  INDUCT_TAC THEN ASM_REWRITE_TAC[ADD_CLAUSES]);;\n\n"
    "let LE_REFL = prove\n (`!n. n <= n`,\n  INDUCT_TAC THEN REWRITE_TAC[LE]);;\n",
    "metamath": "$( Closure of addition. $)\n  addcl $p |- ( ( A e. CC /\\ B e. CC ) -> ( A + B ) e. CC ) $=\n"
    "    ( caddc co cc wcel wa ax-addcl ) ABCD $.\n",
    "latex": r"\begin{theorem} Let $f \colon X \to Y$ be continuous. Then $f(K)$ is compact. \end{theorem}"
    "\n"
    r"\begin{proof} $f^{-1}(U_i)$ covers $K$, so $K \subseteq \bigcup_{i=1}^n f^{-1}(U_i)$. \end{proof}",
    "worked problem": "Natalia sold 48/2 = 24 clips in May. She sold 48 + 24 = 72 clips in all.\n#### 72",
}


@pytest.mark.parametrize("name", SOURCES)
def test_no_prose_rule_removes_code_or_formulas(name: str) -> None:
    assert judge(pa.array([SOURCES[name]]), ALL_PROSE_RULES).verdict.to_pylist() == [KEEP]


@pytest.mark.parametrize("name", SOURCES)
def test_no_code_or_formula_rule_removes_ordinary_files(name: str) -> None:
    assert judge(pa.array([SOURCES[name]]), ["code"]).verdict.to_pylist() == [KEEP]


def kind(text: str) -> int:
    texts = pa.array([text], pa.large_string())
    return int(kinds_of(texts, split_words(texts), split_lines(texts)).kind[0])


STORY = (
    "The people of the town went to the river in the morning, for it was warm and they wanted to swim; if the "
    "water was too cold, they sat on the bank and told stories.\n"
)


def test_kinds_of_plain_examples() -> None:
    assert kind(STORY * 3) == PROSE
    assert kind("") == kind("...") == PROSE
    assert kind(SOURCES["python"]) == kind(SOURCES["c"]) == kind(SOURCES["rust"]) == CODE
    assert kind(SOURCES["latex"]) == kind(SOURCES["worked problem"]) == FORMULA
    assert kind("\n".join([STORY * 6, *["def f(x):", "    return x"] * 4])) == MIXED


def test_lists_headings_and_dates_are_prose() -> None:
    listed = "# Notes\n\n" + "".join(
        f"- On 2024-05-{n:02d} the group met and spoke of the plan.\n" for n in range(1, 9)
    )
    assert kind(listed) == PROSE
    assert kind('class="summary" title="Ends"\n\n' + STORY * 3) == PROSE


def naive(words: list[str], n: int) -> tuple[float, float]:
    """Top and duplicate n-gram shares by plain counting."""
    total = sum(map(len, words)) or 1
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    counts = {gram: grams.count(gram) for gram in grams}
    most = max(counts.values(), default=0)
    top = max((len("".join(g)) * c for g, c in counts.items() if c == most), default=0) if most > 1 else 0
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    for i, gram in enumerate(grams):
        if gram in seen:
            covered |= set(range(i, i + n))
        seen.add(gram)
    return min(1.0, top / total), sum(len(words[i]) for i in covered) / total


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(["a", "bb", "c", "dd"]), max_size=14), max_size=5), n=st.integers(2, 6))
def test_ngram_shares_are_what_plain_counting_gives(texts: list[list[str]], n: int) -> None:
    batch = pa.array([" ".join(words) for words in texts], pa.large_string())
    words = split_words(batch)
    hashes = words.hashes()
    expected = [naive(text, n) for text in texts]
    assert top_ngram_share(words, hashes, n).tolist() == pytest.approx([top for top, _ in expected])
    assert duplicate_ngram_share(words, hashes, n).tolist() == pytest.approx([double for _, double in expected])


def test_ngrams_with_colliding_sort_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    words = split_words(pa.array(["a b c d a b c d x a b", "a b a b"], pa.large_string()))
    hashes = words.hashes()
    expected = duplicate_ngram_share(words, hashes, 2).tolist(), top_ngram_share(words, hashes, 2).tolist()
    low_only = lambda hashed, n: ngram_hashes(hashed, n) & 0xFFFFFFFF  # noqa: E731  (the sort key sees high bits)
    monkeypatch.setattr("filters.text.repetition.ngram_hashes", low_only)
    assert (duplicate_ngram_share(words, hashes, 2).tolist(), top_ngram_share(words, hashes, 2).tolist()) == expected


def test_duplicate_pieces_count_from_the_second_occurrence_on() -> None:
    lines = split_lines(pa.array(["ab\ncdef\nab\n\nab", "x", ""], pa.large_string()))
    pieces, characters = duplicate_piece_shares(lines.text, lines.doc, lines.documents)
    assert pieces.tolist() == [0.5, 0, 0]
    assert characters.tolist() == [0.4, 0, 0]


TEXT = st.one_of(
    st.text(max_size=60),
    st.sampled_from([*SOURCES.values(), STORY * 3, STORY, "# a\n" * 30, "word " * 60]),
)


@settings(max_examples=12, deadline=None)
@given(texts=st.lists(TEXT, max_size=6), size=st.sampled_from([1, 300, 10_000]))
def test_a_verdict_does_not_depend_on_the_other_texts(texts: list[str], size: int) -> None:
    alone = [judge(pa.array([text], pa.large_string()), list(JUDGES)) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "SLICE_BYTES", size)
        together = judge(pa.array(texts, pa.large_string()), list(JUDGES))
    assert together.verdict.to_pylist() == [one.verdict.to_pylist()[0] for one in alone]
    assert together.quality.to_pylist() == [one.quality.to_pylist()[0] for one in alone]


def test_better_texts_score_higher() -> None:
    texts = [STORY * 8, STORY + "12 34 56 " * 40, "buy now !!! " * 60]
    scores = judge(pa.array(texts), []).quality.to_pylist()
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3


def test_source_files_of_the_sample_corpus_survive_the_prose_rules() -> None:
    sample = Path(__file__).parents[3] / "../shared/data/corpus/sample.jsonl.zst"
    if not sample.exists():
        pytest.skip("the sample corpus is not beside the repository; SOURCES above is the small form")
    from pipelines.corpus.read.jsonl import read_jsonl
    from pipelines.corpus.read.records import Record
    from schemas.recipe import SourceConfig

    wanted = ("pypi:", "cpython", "debian:agda", "debian:hol", "debian:metamath", "github:openai")
    config = SourceConfig(name="s", kind="jsonl", path="x")
    records = [found.fields for found in read_jsonl(str(sample), config) if isinstance(found, Record)]
    texts = [fields["text"] for fields in records if fields["source"].startswith(wanted)][::12]
    verdicts = judge(pa.array(texts, pa.large_string()), ["gopher"]).verdict.to_pylist()
    assert sum(verdict == KEEP for verdict in verdicts) / len(verdicts) >= 0.998
