"""Languages of prose by a fastText model: who is judged, what is said, and odd texts."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from filters.text.classify import Example, TrainSettings, train_model
from filters.text.language import UNSURE, LanguageRule
from filters.text.quality import EMPTY, judge
from schemas.document import KEEP
from schemas.errors import RecipeError, UsageError

ENGLISH = "the of and to in is that for it as with was on by this have from people garden town river they"
GERMAN = "der die und in den von zu das mit sich des auf ist im dem nicht ein eine als auch garten stadt"
WORDS = {"en": ENGLISH.split(), "de": GERMAN.split()}
LATEX = r"\[ \int_0^1 x^{n} \, dx = \frac{1}{n+1} \] f\"ur $n \ge 0$ und $x = 1$. "
SOURCE = "import os\n\n\ndef f(x):\n    # der die das und nicht\n    return os.sep + x\n"


def prose(language: str, seed: int, between: str = " ") -> str:
    rng = random.Random(seed)
    return between.join(rng.choice(WORDS[language]) for _ in range(60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lid")
    examples = [Example(f"{n}", "s", x, x, prose(x, n)) for n in range(60) for x in ("en", "de")]
    settings = TrainSettings(dimensions=8, epochs=20, buckets=1000)
    train_model(examples, ["de", "en"], settings, folder / "lid.bin", folder / "work")
    (folder / "card.json").unlink()
    return folder / "lid.bin"


def verdicts(model: Path, texts: list[str], keep: tuple[str, ...] = ("en",), least: float = 0.65) -> list[str]:
    found = judge(pa.array(texts, pa.large_string()), [], language=LanguageRule.load(model, keep, least))
    assert len(found.language) == len(found.quality) == len(texts)
    return list(found.verdict.to_pylist())


def test_prose_is_judged_by_its_label_and_its_score(model: Path) -> None:
    mixed = " ".join(f"{a} {b}" for a, b in zip(WORDS["en"], WORDS["de"], strict=True))
    texts = [prose("en", 1000), prose("de", 1000), mixed]
    assert verdicts(model, texts)[:2] == [KEEP, "language:de"]
    assert verdicts(model, texts, keep=("en", "de"), least=0.999)[2] == UNSURE
    assert verdicts(model, texts, keep=("en", "de"), least=0) == [KEEP] * 3


def test_code_formulas_and_empty_texts_are_not_asked_about(model: Path) -> None:
    texts = [SOURCE, LATEX * 3, "", " \n", prose("de", 1)]
    rule = LanguageRule.load(model, ["en"], 0.65)
    found = judge(pa.array(texts), ["gopher"], language=rule)
    assert found.language.to_pylist() == [None, None, None, None, "de"]
    assert found.verdict.to_pylist()[:4] == [KEEP, KEEP, EMPTY, EMPTY]
    assert found.verdict.to_pylist()[4] == "language:de", "the language is the reason, before any rule for English"


@pytest.mark.parametrize("between", ["\n", "\r\n", "\u2028", " \0 ", "\x85", "\n\n", "\t"])
def test_line_ends_and_other_gaps_change_no_label(model: Path, between: str) -> None:
    rule = LanguageRule.load(model, ["en"], 0.65)
    assert rule.judge(pa.array([prose("en", 7, between), prose("de", 7, between)])) == [
        ("en", KEEP),
        ("de", "language:de"),
    ]


def test_odd_texts_get_one_verdict_each(model: Path) -> None:
    odd = ["x" * 1_000_000, "🙂", "__label__de " * 40, "\u2028a", "1 2 3", prose("en", 3) * 2000]
    found = verdicts(model, odd)
    assert len(found) == len(odd)
    assert set(found) <= {KEEP, UNSURE, "language:de"}
    assert found[-1] == KEEP


def test_labels_that_the_model_does_not_have_are_named_with_those_it_has(model: Path) -> None:
    with pytest.raises(RecipeError, match=r"has no label 'fr'; its 2 labels are de, en\. Name some of them in"):
        LanguageRule.load(model, ["en", "fr"], 0.5)


def test_a_model_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.bin: no such file\. Give the path of a fasttext language model"):
        LanguageRule.load(tmp_path / "none.bin", ["en"], 0.5)


def test_a_verdict_does_not_depend_on_the_other_texts(model: Path) -> None:
    texts = [prose(("en", "de")[n % 2], n) for n in range(6)] + [SOURCE, ""]
    assert verdicts(model, texts) == [verdicts(model, [text])[0] for text in texts]
