"""The step classify on a run folder: trained in the run or given, odd texts, missing labels, worker counts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.corpus.classify import step
from pipelines.corpus.tables import documents_part, verdict_part
from pipelines.engine import open_engine
from schemas.errors import InputError, RecipeError

MakeRun = Callable[..., RunContext]

WORDS = {
    "math": "theorem proof lemma integral prime equation",
    "code": "return import function class loop string",
    "science": "cell energy protein planet atom reaction",
    "web": "holiday recipe letter garden city weather",
}


def documents(count: int = 60, labels: tuple[str, ...] = tuple(WORDS)) -> list[dict[str, Any]]:
    rng = random.Random(3)
    return [
        {"text": " ".join(rng.choices(WORDS[label].split(), k=40)) + f" {n}", "source_domain": label}
        for label in labels
        for n in range(count)
    ]


def verdicts(context: RunContext) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for part in range(context.recipe.engine.partitions):
        given = pq.read_table(documents_part(context.run, part), columns=["id", "origin"]).to_pylist()
        found = pq.read_table(verdict_part(context.run, "classify", part)).to_pylist()
        assert [d["id"] for d in given] == [v["id"] for v in found]
        rows |= {d["origin"]: v for d, v in zip(given, found, strict=True)}
    return rows


def keep_all(context: RunContext, *, dropped: frozenset[str] = frozenset()) -> RunContext:
    """Verdicts of the step dedup that keep everything but some origins."""
    import pyarrow as pa

    from pipelines.corpus.tables import VERDICT_SCHEMAS, write_part

    schema = VERDICT_SCHEMAS["dedup"]
    for part in range(context.recipe.engine.partitions):
        rows = pq.read_table(documents_part(context.run, part), columns=["id", "origin"]).to_pylist()
        verdict = [{"id": r["id"], "verdict": "duplicate:near" if r["origin"] in dropped else "keep"} for r in rows]
        write_part(verdict_part(context.run, "dedup", part), schema, [pa.RecordBatch.from_pylist(verdict, schema)])
    return context


ODD = {
    "empty": "",
    "blank": "  \n\n ",
    "nul": "proof\x00lemma\x00",
    "newlines": "theorem\r\nproof\u2028lemma\x85\n",
    "long": "x" * 1_000_000,
    "surrogate-like": "\ufffd\ufffe",
    "label": "__label__web __label__math",
}


def test_every_document_gets_one_domain_and_one_score(make_run: MakeRun) -> None:
    odd = [{"text": text, "origin": name} for name, text in ODD.items()]
    gone = [{"text": "dropped before", "origin": "gone"}, {"text": "bad", "origin": "bad", "quality_verdict": "no"}]
    context = keep_all(make_run(documents() + odd + gone), dropped=frozenset({"gone"}))
    output = step(context)
    rows = verdicts(context)
    for name in ODD:
        assert rows[name]["domain"] in WORDS
        assert 0 <= rows[name]["domain_score"] <= 1
    assert rows["gone"]["domain"] is rows["bad"]["domain"] is rows["gone"]["domain_score"] is None
    assert output.counts["documents_in"] == 240 + len(ODD) == sum(output.counts["domains"].values())
    assert output.counts["documents_with_source_domain"] == 240
    assert output.counts["as_source_domain"] == 240
    card = json.loads((context.run / "classifier" / "card.json").read_text(encoding="utf-8"))
    assert card["counts"] == dict.fromkeys(["math", "code", "science", "web"], 60)
    assert card["heldout"]["accuracy"] == 1.0
    assert card["heldout"]["documents"] + sum(card["trained"].values()) == 240
    assert not (context.run / "spill").exists()


def test_two_workers_and_one_train_and_write_the_same_bytes(make_run: MakeRun) -> None:
    a = step(keep_all(make_run(documents(20), folder="one")))
    b = step(keep_all(make_run(documents(20), folder="two", engine=open_engine("datatrove", 2))))
    assert [f.read_bytes() for f in a.files] == [f.read_bytes() for f in b.files]
    assert a.counts == b.counts
    assert {f.name for f in a.files} >= {"model.bin", "card.json"}


def test_a_model_of_an_earlier_run_can_be_given_and_its_labels_are_checked(make_run: MakeRun) -> None:
    first = keep_all(make_run(documents(20), folder="first"))
    step(first)
    model = str(first.run / "classifier" / "model.bin")
    second = keep_all(make_run(documents(20), folder="second", classify={"model": model}))
    output = step(second)
    assert verdicts(second) == verdicts(first)
    assert output.counts["model"]["trained"] is False
    assert not (second.run / "classifier").exists()
    other = make_run(documents(5), folder="third", classify={"model": model, "labels": ["math", "law"]})
    with pytest.raises(RecipeError, match=r"the model has the labels code, math, science, web; .* law, math"):
        step(keep_all(other))


def test_labels_without_documents_are_said(make_run: MakeRun) -> None:
    rows = [*documents(20, ("math", "code")), {"text": "some law text", "source_domain": "law"}]
    context = keep_all(make_run(rows))
    output = step(context)
    assert output.counts["model"]["missing"] == ["science", "web"]
    assert output.counts["model"]["other_source_domains"] == {"law": 1}
    assert set(output.counts["domains"]) <= {"math", "code"}
    said = "\n".join(context.progress.lines)  # type: ignore[attr-defined]
    assert "no document of label science" in said
    assert "1 documents say domain 'law'" in said


def test_one_label_alone_is_what_everything_gets(make_run: MakeRun) -> None:
    context = keep_all(make_run(documents(15, ("code",))))
    assert step(context).counts["domains"] == {"code": 15}


def test_documents_without_any_domain_are_an_error_that_says_what_to_do(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match=r"no document with text has one of the labels.*domain_field"):
        step(keep_all(make_run([{"text": "no domain here"}])))


def test_an_empty_corpus_has_empty_verdicts(make_run: MakeRun) -> None:
    context = keep_all(make_run([]))
    output = step(context)
    assert output.counts["documents_in"] == 0
    assert verdicts(context) == {}
    assert not (Path(context.run) / "classifier" / "model.bin").exists()
