"""A run that replaces personal data and judges languages: counts, dropped text as it was, tokens led back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from datamix.checks.corpus import check_corpus
from datamix.checks.result import CheckResult
from datamix.commands.quality import command as quality
from datamix.provenance import explain_token
from datamix.run import run_job
from datamix.stats import run_stats
from filters.text.classify import Example, TrainSettings, train_model
from pipelines.engine import InProcess
from schemas.document import document_id
from schemas.errors import InputError, RecipeError
from schemas.manifest import read_manifest
from schemas.progress import Quiet
from schemas.recipe import Recipe

ENGLISH = "the of and to in is that for it as with was on by this have from people garden town river they"
GERMAN = "der die und in den von zu das mit sich des auf ist im dem nicht ein eine als auch garten stadt"
WORDS = {"en": ENGLISH.split(), "de": GERMAN.split()}
CODE = "import os\n\n\ndef path_of(name):\n    # by NAME@uni-x.edu\n    return os.path.join(name)\n"


def prose(language: str, seed: int, words: int = 90) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS[language]) for _ in range(words)) + "."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model without a card, as one from elsewhere: plain words in, `en` or `de` out."""
    folder = tmp_path_factory.mktemp("lid")
    settings = TrainSettings(dimensions=8, epochs=20, buckets=1000)
    examples = [Example(f"{n}", "s", x, x, prose(x, n)) for n in range(60) for x in ("en", "de")]
    train_model(examples, ["de", "en"], settings, folder / "lid.bin", folder / "work")
    (folder / "card.json").unlink()
    return folder / "lid.bin"


ROWS = [
    *[{"id": f"e{n}", "text": prose("en", 200 + n) + f" Ask a{n}@uni-x.edu or a{n}@uni-x.edu."} for n in range(12)],
    *[{"id": f"g{n}", "text": prose("de", 300 + n) + " Frag bo@uni-x.edu."} for n in range(3)],
    *[{"id": f"c{n}", "text": CODE.replace("NAME", f"c{n}") * (n + 2), "language": "python"} for n in range(4)],
    {"id": "short", "text": "the of and mail cy@uni-x.edu"},
]


def recipe_of(folder: Path, model: Path, **parts: Any) -> Recipe:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    base: dict[str, Any] = {
        "name": "pii",
        "seed": 3,
        "engine": {"partitions": 2},
        "sources": [
            {"name": "rows", "kind": "jsonl", "path": str(path), "language_field": "language", "domain": "web"}
        ],
        "quality": {"language": {"model": str(model), "keep": ["en"]}},
        "classify": {"labels": ["web"]},
        "pii": {},
        "mixture": {"method": "proportional", "budget_tokens": 3000},
        "tokenizer": {"train": {"vocab_size": 400}},
        "curriculum": {"pretrain": [{"context_tokens": 256, "budget_tokens": 3000}]},
        "evaluate": {"tasks": 0, "heldout_documents": 1},
        "model": {
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "intermediate_size": 8,
        },
    }
    return Recipe.model_validate({**base, **parts})


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["source_id"]: row for row in pq.read_table(folder).to_pylist()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run_job(recipe_of(folder, model), folder / "run", Quiet(), until="shards", engine=InProcess())
    return folder / "run"


def test_kept_text_has_placeholders_and_dropped_text_is_as_it_was(run: Path) -> None:
    kept, dropped = rows_of(run / "corpus/kept"), rows_of(run / "corpus/dropped")
    given = {row["id"]: row for row in ROWS}
    for name, row in kept.items():
        assert "uni-x.edu" not in row["text"] and "<EMAIL_1>" in row["text"]
        assert row["id"] == document_id(given[name]["text"], "rows"), "the id is that of the text as it was read"
    assert kept["e3"]["text"].endswith(" Ask <EMAIL_1> or <EMAIL_1>.")
    assert {name: row["text"] for name, row in dropped.items()} == {name: given[name]["text"] for name in dropped}
    read = rows_of(run / "documents")
    assert {name: row["text"] for name, row in read.items()} == {name: row["text"] for name, row in given.items()}


def test_prose_of_another_language_goes_and_code_is_not_judged(run: Path) -> None:
    kept, dropped = rows_of(run / "corpus/kept"), rows_of(run / "corpus/dropped")
    assert {name: row["verdict"] for name, row in dropped.items() if name[0] == "g"} == dict.fromkeys(
        ("g0", "g1", "g2"), "language:de"
    )
    assert dropped["g0"]["language"] == "de"
    assert {row["language"] for name, row in kept.items() if name[0] == "e"} == {"en"}
    assert {row["language"] for name, row in kept.items() if name[0] == "c"} == {"python"}, "what the source claims"
    counts = read_manifest(run, "quality").counts  # type: ignore[union-attr]
    assert counts["languages"]["de"] == 3
    assert sum(counts["languages"].values()) == 16, "prose only"
    assert len(counts["language_model"]["digest"]) == 64


def test_replacements_are_counted_in_manifest_stats_and_explanation(run: Path) -> None:
    kept = rows_of(run / "corpus/kept")
    wanted = sum(2 if name[0] == "e" else 2 + int(name[1:]) for name in kept)
    counts = read_manifest(run, "corpus").counts  # type: ignore[union-attr]
    assert counts["replaced"] == {"email": wanted, "ip": 0, "key": 0, "phone": 0}
    assert counts["documents_with_replacements"] == len(kept)
    assert run_stats(run)["documents"]["replaced"] == counts["replaced"]
    found = explain_token(f"{run}/shards/pretrain-0-256/part-00000.arrow:0:5")["document"]
    assert found["replaced"]["email"] >= 2
    assert found["origin"] == f"rows.jsonl#{[row['id'] for row in ROWS].index(found['source_id']) + 1}"
    result = CheckResult(str(run), "run")
    names = ("read", "quality", "dedup", "classify", "decontaminate", "corpus", "reweight")
    manifests = {name: read_manifest(run, name) for name in names}
    check_corpus(run, manifests, 2, result, Quiet())  # type: ignore[arg-type]
    assert result.faults == []


def test_a_recipe_without_pii_leaves_every_text_alone(tmp_path: Path, model: Path) -> None:
    recipe = recipe_of(tmp_path, model, pii=None, quality={"rules": []})
    run_job(recipe, tmp_path / "run", Quiet(), until="corpus", engine=InProcess())
    assert {name: row["text"] for name, row in rows_of(tmp_path / "run/corpus/kept").items()} == {
        row["id"]: row["text"] for row in ROWS
    }
    assert "replaced" not in read_manifest(tmp_path / "run", "corpus").counts  # type: ignore[union-attr]


def test_a_model_of_other_labels_is_refused_with_its_labels(tmp_path: Path, model: Path) -> None:
    wrong = {"language": {"model": str(model), "keep": ["en", "eng_Latn"]}}
    with pytest.raises(RecipeError, match=r"has no label 'eng_Latn'; its 2 labels are de, en\. Name some of them"):
        run_job(recipe_of(tmp_path, model, quality=wrong), tmp_path / "run", Quiet(), engine=InProcess())
    assert not (tmp_path / "run/verdicts").exists()
    none = tmp_path / "none.bin"
    none.write_bytes(b"no model")
    with pytest.raises(InputError, match=r"none\.bin.*not a fastText model"):
        wrong = {"language": {"model": str(none), "keep": ["en"]}}
        run_job(recipe_of(tmp_path, model, quality=wrong), tmp_path / "run2", Quiet(), engine=InProcess())


def test_the_command_judges_languages_and_replaces_what_is_asked(tmp_path: Path, model: Path) -> None:
    recipe_of(tmp_path, model)
    arguments = [str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out"), "--workers", "1", "--json"]
    language = ["--language-model", str(model), "--languages", "en"]
    done = CliRunner().invoke(quality, [*arguments, *language, "--pii", "email,ip"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["dropped"]["language:de"] == 3
    assert summary["replaced"] == {"email": 24 + 2 + 3 + 4 + 5, "ip": 0}
    kept = rows_of(tmp_path / "out/kept")
    assert all("<EMAIL_1>" in row["text"] for row in kept.values()) and kept["e0"]["language"] == "en"
    assert rows_of(tmp_path / "out/dropped")["g1"]["text"].endswith("bo@uni-x.edu.")
    alone = CliRunner().invoke(quality, [*arguments, "--languages", "en"])
    assert alone.exit_code == 2 and "--language-model and --languages go together" in alone.output
