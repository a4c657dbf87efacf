"""Feature lines, training labels, training and prediction of the domain classifier."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.text.classify import (
    DomainModel,
    Example,
    TrainSettings,
    choose_examples,
    is_heldout,
    scores,
    train_model,
    training_label,
)
from filters.text.features import feature_lines
from filters.text.reference import reads_as_code
from schemas.errors import CheckError, InputError, RecipeError

SAMPLE = Path(__file__).parents[3] / "../shared/data"
LABELS = ["code", "math", "science", "web"]
VOCABULARY = {"math": "theorem proof lemma prime", "code": "return import print loop", "web": "garden city recipe rain"}
SMALL = TrainSettings(seed=1, buckets=1000, least_count=1, dimensions=8, epochs=20)


def line(text: str) -> str:
    return feature_lines(pa.array([text], pa.large_string()))[0].strip()


def examples(count: int = 30) -> list[Example]:
    rng = random.Random(1)
    rows = [
        Example(f"{label}{n}", "given", label, label, " ".join(rng.choices(words.split(), k=20)))
        for label, words in VOCABULARY.items()
        for n in range(count)
    ]
    rng.shuffle(rows)
    return rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Energy of E=mc2", "the energy of e = mc2"),
        ("np.linalg.norm(x_i, ord=2)", "xdot ( xsnake , ord = xnum )"),
        ("getValue HTTPServer NASA", "xcamel xcamel nasa"),
        ("3,141.59 and 7.", "xnum and xnum"),
        (r"\frac{a}{b} \\ \alpha", r"\frac { a } { b } \ \ \alpha"),
        (">>> a == b -> c", ">>> a == b -> c"),
        ("one\n    two\nthree\r\n", "one xind two xline three xline"),
        ("Größe — “Maß”", "größe — “ maß ”"),
        ("a\x00b\x07c", "a b c"),
        ("__label__math __label__web", "xsnake xsnake"),
        ("end of sentence.Next", "end of xdot"),
        ("", ""),
    ],
)
def test_feature_lines_hold_words_marks_and_shapes(text: str, expected: str) -> None:
    assert line(text) == expected


@given(st.lists(st.text(max_size=80), max_size=6), st.integers(4, 60))
def test_feature_lines_are_single_lines_without_labels_one_for_each_text(texts: list[str], limit: int) -> None:
    found = feature_lines(pa.array(texts, pa.string()), limit)
    assert len(found) == len(texts)
    for one in found:
        assert not re.search(r"[\n\r\0]|__label__", one)


def test_long_texts_are_read_at_the_beginning_the_middle_and_the_end() -> None:
    text = "alpha " * 1000 + "beta " * 1000 + "gamma " * 1000
    found = feature_lines(pa.array([text]), 400)[0]
    assert len(found) < 500
    assert [name in found for name in ("alpha", "beta", "gamma")] == [True, True, True]


def test_slices_and_nulls_keep_their_rows() -> None:
    column = pa.array(["zero", None, "two", "three"], pa.large_string())[1:3]
    assert [one.strip() for one in feature_lines(column)] == ["", "two"]


CODE_TEXTS = {
    "reference page": "pkg.optimize.solve\n\nsolve(fun, x0, *, tol=None)[source]\n\nFind it.\n\nParameters:\n\nfun\n",
    "program": "import os\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n    return 0\n",
    "session": "We can ask it:\n\n>>> x = 5\n>>> x + 1\n6\n",
    "basic": "IsDate Function\n\nSyntax:\n\nIsDate (Expression)\n\nReturn value:\n\nBoolean\n\nParameters:\n\nany\n",
    "c": '#include <stdio.h>\nint main(void) {\n  printf("hi");\n  return 0;\n}\n',
    "directive": "Algebra\n=======\n\n.. automodule:: pkg.algebra\n\n.. autoclass:: Quaternion\n   :members:\n",
}
CODE_TEXTS["exception page"] = "pkg.StopIt\n\nexception pkg.StopIt[source]\n\nRaised to stop a fit.\n"
CODE_TEXTS["functional program"] = (
    "module Label = struct\n  type t = string\n  let hash s =\n    let n = String.length s in\n"
    "    match n with\n    | 0 -> 0\n    | _ -> try int_of_string s with Failure _ -> n\nend\n"
)
OTHER_TEXTS = {
    "hol light": "let ADD_SYM = prove\n (`!m n. m + n = n + m`,\n  INDUCT_TAC THEN ASM_REWRITE_TAC[ADD_CLAUSES]);;\n",
    "prose": "The cell (see figure 2) is the unit of life. It returns energy to the body; all need it.\n",
    "problem": "Anna has 12 apples and gives 5 away. How many are left?\n12 - 5 = <<12-5=7>>7 are left.\n#### 7",
    "agda": "module Data.Nat where\n\n+-comm : ∀ m n → m + n ≡ n + m\n+-comm zero n = sym (+-identityʳ n)\n",
    "dictionary": "hash\n\n   <character> (#) ASCII character 35.\n\n   (1995-01-24)\n",
    "empty": "",
}


@pytest.mark.parametrize("name", CODE_TEXTS)
def test_programs_and_reference_pages_read_as_code(name: str) -> None:
    assert reads_as_code(CODE_TEXTS[name])
    assert training_label(CODE_TEXTS[name], "science", LABELS) == "code"
    assert training_label(CODE_TEXTS[name], "science", ["science", "web"]) == "science"


@pytest.mark.parametrize("name", OTHER_TEXTS)
def test_prose_problems_and_proofs_keep_their_label(name: str) -> None:
    assert not reads_as_code(OTHER_TEXTS[name])
    assert training_label(OTHER_TEXTS[name], "math", LABELS) == "math"


def test_a_line_of_brackets_costs_no_time_that_grows_with_its_square() -> None:
    assert not reads_as_code("a(" * 500_000)
    assert not reads_as_code(("f" + "(" * 140 + ")" * 140 + "x\n") * 10)


def test_three_small_models_in_one_process_are_equal_and_finite(tmp_path: Path) -> None:
    cards = [train_model(examples(), LABELS, SMALL, tmp_path / f"m{n}" / "model.bin", tmp_path) for n in range(3)]
    files = {(tmp_path / f"m{n}" / "model.bin").read_bytes() for n in range(3)}
    assert len(files) == 1
    assert cards[0] == cards[1] == cards[2]
    assert cards[0]["heldout"]["accuracy"] == 1.0
    assert cards[0]["missing"] == ["science"]


def test_another_seed_gives_another_model(tmp_path: Path) -> None:
    first = train_model(examples(), LABELS, SMALL, tmp_path / "a" / "model.bin", tmp_path)
    other = TrainSettings(**{**first["settings"], "seed": 2})
    assert train_model(examples(), LABELS, other, tmp_path / "b" / "model.bin", tmp_path)["digest"] != first["digest"]


def test_a_learning_rate_that_diverges_is_an_error_with_advice(tmp_path: Path) -> None:
    settings = TrainSettings(learning_rate=1e6, least_count=1, buckets=100, epochs=50)
    with pytest.raises(InputError, match=r"diverged.*learning rate 1e\+06.*between 0\.05 and 1"):
        train_model(examples(17), LABELS, settings, tmp_path / "model.bin", tmp_path)
    assert not (tmp_path / "model.bin").exists()


@pytest.mark.parametrize("rate", [10.0, 100.0])
def test_high_learning_rates_give_a_model_or_a_message(tmp_path: Path, rate: float) -> None:
    settings = TrainSettings(learning_rate=rate, least_count=1, buckets=100)
    try:
        card = train_model(examples(17), LABELS, settings, tmp_path / "model.bin", tmp_path)
    except InputError as error:
        assert "diverged" in str(error)
    else:
        assert card["heldout"]["documents"] > 0


@pytest.mark.parametrize(("count", "epochs"), [(30, 40), (1500, 14)])
def test_few_documents_are_read_more_often(tmp_path: Path, count: int, epochs: int) -> None:
    settings = TrainSettings(least_count=1, buckets=100, dimensions=4)
    card = train_model(examples(count), LABELS, settings, tmp_path / "model.bin", tmp_path)
    assert card["settings"]["epochs"] == epochs


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    for rows in ([], [Example("1", "s", "law", "law", "text")], [Example("1", "s", "math", "math", "  ")]):
        with pytest.raises(InputError, match="no document with text"):
            train_model(rows, LABELS, SMALL, tmp_path / "model.bin", tmp_path)


def test_predictions_align_with_texts_whatever_they_hold(tmp_path: Path) -> None:
    train_model(examples(), LABELS, SMALL, tmp_path / "model.bin", tmp_path)
    model = DomainModel.load(tmp_path / "model.bin", LABELS)
    texts = ["theorem proof\nlemma", "", "\x00", "x" * 1_000_000, "garden\r\ncity\u2028rain", None, "return import"]
    found = model.predict(pa.array(texts, pa.large_string()))
    assert len(found) == len(texts)
    assert [found[n][0] for n in (0, 4, 6)] == ["math", "web", "code"]
    assert all(0 <= score <= 1 for _, score in found)
    assert [model.predict(pa.array([t], pa.large_string()))[0] for t in texts] == found
    assert model.predict(pa.array([], pa.string())) == []


def test_the_spelling_of_a_label_in_a_text_does_not_move_its_score(tmp_path: Path) -> None:
    train_model(examples(), LABELS, SMALL, tmp_path / "model.bin", tmp_path)
    model = DomainModel.load(tmp_path / "model.bin")
    plain, leaked = model.predict(pa.array(["garden city some_name", "garden city __label__math"]))
    assert plain == leaked
    assert len(model.labels) == 3


def test_a_foreign_model_gets_plain_text_and_its_labels_are_checked(tmp_path: Path) -> None:
    import fasttext

    source = tmp_path / "train.txt"
    source.write_text("__label__A Alpha_One beta\n__label__B Gamma.Two delta\n" * 20, encoding="utf-8")
    fasttext.train_supervised(str(source), thread=1, minCount=1, dim=8, epoch=50, bucket=100, verbose=0).save_model(
        str(tmp_path / "foreign.bin")
    )
    model = DomainModel.load(tmp_path / "foreign.bin", ["A", "B"])
    assert [label for label, _ in model.predict(pa.array(["Alpha_One\nbeta", "Gamma.Two"]))] == ["A", "B"]
    with pytest.raises(RecipeError, match=r"has the labels A, B; classify\.labels are A, C"):
        DomainModel.load(tmp_path / "foreign.bin", ["A", "C"])


def test_files_that_are_no_model_and_cards_of_another_model_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_text("no model", encoding="utf-8")
    with pytest.raises(InputError, match=r"text\.bin: not a fastText model"):
        DomainModel.load(tmp_path / "text.bin")
    with pytest.raises(InputError, match="not a fastText model"):
        DomainModel.load(tmp_path / "absent.bin")
    train_model(examples(), LABELS, SMALL, tmp_path / "model.bin", tmp_path)
    card = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    (tmp_path / "card.json").write_text(json.dumps({**card, "digest": "0" * 64}), encoding="utf-8")
    with pytest.raises(CheckError, match=r"card\.json: describes another file"):
        DomainModel.load(tmp_path / "model.bin")


def test_choosing_from_parts_equals_choosing_from_the_whole() -> None:
    keys = [(f"id{n}", "ab"[n % 2], f"s{n % 3}") for n in range(200)]
    whole = [keys[n] for n in choose_examples(keys, 30, 5)]
    parts = [part[n] for part in (keys[:90], keys[90:]) for n in choose_examples(part, 30, 5)]
    assert [parts[n] for n in choose_examples(parts, 30, 5)] == whole
    assert sorted(label for _, label, _ in whole) == ["a"] * 30 + ["b"] * 30


def test_a_large_source_does_not_crowd_the_others_out() -> None:
    keys = [(f"big{n}", "a", "big") for n in range(500)] + [(f"small{n}", "a", "small") for n in range(20)]
    chosen = [keys[n][2] for n in choose_examples(keys, 100, 5)]
    assert (chosen.count("small"), chosen.count("big")) == (20, 80)


def test_about_one_document_in_ten_is_held_out_by_its_id() -> None:
    assert 80 < sum(is_heldout(str(n)) for n in range(1000)) < 120


def test_scores_are_accuracy_and_the_mean_f1_of_the_labels_that_occur() -> None:
    found = scores(["a", "a", "b", "c"], ["a", "b", "b", "c"], ["a", "b", "c", "d"])
    assert found["accuracy"] == 0.75
    assert found["f1"] == {"a": 2 / 3, "b": 2 / 3, "c": 1.0}
    assert found["macro_f1"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert scores([], [], ["a"]) == {"documents": 0, "accuracy": None, "macro_f1": None, "f1": {}}


@pytest.mark.skipif(not (SAMPLE / "classify").exists(), reason="the sample data is not beside this checkout")
def test_labels_by_reading_are_met_without_training_on_them(tmp_path: Path) -> None:
    import zstandard

    def read(path: Path) -> list[dict[str, str]]:
        with open(path, "rb") as handle:
            content = zstandard.ZstdDecompressor().stream_reader(handle).read()
        return [json.loads(row) for row in content.decode("utf-8").split("\n") if row]

    truth = read(SAMPLE / "classify" / "labelled.jsonl.zst")
    known = {row["id"] for row in truth}
    documents = [row for row in read(SAMPLE / "corpus" / "sample.jsonl.zst") if row["id"] not in known]
    settings = TrainSettings(seed=17)
    labels = [training_label(row["text"], row["domain"], LABELS) for row in documents]
    keys = [(row["id"], label, row["source"]) for row, label in zip(documents, labels, strict=True)]
    chosen = choose_examples(keys, settings.documents_per_label, settings.seed)
    lines = feature_lines(pa.array([documents[n]["text"] for n in chosen], pa.large_string()))
    rows = [
        Example(keys[n][0], keys[n][2], labels[n], documents[n]["domain"], one)
        for n, one in zip(chosen, lines, strict=True)
    ]
    train_model(rows, LABELS, settings, tmp_path / "model.bin", tmp_path)
    clear = [row for row in truth if not row["ambiguous"]]
    found = DomainModel.load(tmp_path / "model.bin", LABELS).predict(pa.array([row["text"] for row in clear]))
    result = scores([row["label"] for row in clear], [label for label, _ in found], LABELS)
    assert result["accuracy"] >= 0.93
    assert result["macro_f1"] >= 0.93
