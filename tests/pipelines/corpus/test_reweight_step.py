"""The step reweight on a run folder with a real tokenizer: tokens, shares, splits, worker counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from pipelines.context import RunContext
from pipelines.corpus.reweight import mixture_part, step
from pipelines.corpus.tables import corpus_part, documents_part, write_part
from pipelines.engine import open_engine
from schemas.document import DOCUMENT_SCHEMA

MakeRun = Callable[..., RunContext]
SHARES = {"math": 0.5, "code": 0.3, "web": 0.2}


def kept_run(make_run: MakeRun, documents: list[dict[str, Any]], **parts: Any) -> RunContext:
    """A run whose kept corpus is all its documents, with a tokenizer of one token a character."""
    context = make_run(documents, **parts)
    for part in range(context.recipe.engine.partitions):
        table = pq.read_table(documents_part(context.run, part))
        write_part(corpus_part(context.run, "kept", part), DOCUMENT_SCHEMA, table.to_batches())
    letters = {chr(code): number for number, code in enumerate(range(32, 127))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    tokenizer.add_special_tokens(["<|endoftext|>"])
    folder = Path(context.run) / "tokenizer"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return context


def documents(count: int = 600) -> list[dict[str, Any]]:
    domains = ["math", "code", "web"]
    return [
        {"text": f"{n:04d} " + "x" * (n * 37 % 200), "source": f"s{n % 2}", "domain": domains[n % 3]}
        for n in range(count)
    ]


def rows_of(context: RunContext) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for part in range(context.recipe.engine.partitions):
        kept = pq.read_table(corpus_part(context.run, "kept", part)).to_pylist()
        mixed = pq.read_table(mixture_part(context.run, part)).to_pylist()
        assert [r["id"] for r in kept] == [r["id"] for r in mixed]
        rows += [{**m, "text": k["text"]} for k, m in zip(kept, mixed, strict=True)]
    return rows


def test_tokens_are_counted_with_the_end_of_text_and_shares_are_met(make_run: MakeRun) -> None:
    context = kept_run(
        make_run, documents(), mixture={"method": "target", "shares": SHARES, "budget_tokens": 30_000, "max_epochs": 4}
    )
    output = step(context)
    rows = rows_of(context)
    assert all(row["tokens"] == len(row["text"]) + 1 for row in rows)
    used = {d: sum(r["tokens"] * r["epochs"] for r in rows if r["domain"] == d) for d in SHARES}
    total = sum(used.values())
    assert abs(total - 30_000) <= 30
    for domain, share in SHARES.items():
        assert abs(used[domain] / total - share) < 0.001
    report = json.loads((context.run / "mixture" / "report.json").read_text(encoding="utf-8"))
    assert {d: report["domains"][d]["tokens"] for d in SHARES} == used
    assert report["totals"]["documents_heldout"] == sum(r["split"] == "heldout" for r in rows) == 12
    assert output.counts["documents_in"] == output.counts["train"] + output.counts["heldout"] + output.counts["unused"]
    assert output.files[-1].name == "report.json"
    assert not (context.run / "spill").exists()


def test_two_workers_and_one_write_the_same_bytes(make_run: MakeRun) -> None:
    mixture = {"method": "target", "shares": SHARES, "budget_tokens": 20_000}
    a = step(kept_run(make_run, documents(90), folder="one", mixture=mixture))
    b = step(kept_run(make_run, documents(90), folder="two", mixture=mixture, engine=open_engine("datatrove", 2)))
    assert [f.read_bytes() for f in a.files] == [f.read_bytes() for f in b.files]
    assert a.counts == b.counts


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "math has a share and gets nothing: it has no documents"),
        (documents(30), "Add documents, raise mixture.max_epochs or lower budget_tokens"),
        ([{"text": "y" * 5000, "domain": "math"}] * 4, "no document fits into so few tokens"),
    ],
)
def test_what_cannot_be_reached_is_said_and_not_raised(
    make_run: MakeRun, texts: list[dict[str, Any]], said: str
) -> None:
    budget = 100 if texts and len(texts) == 4 else 10**7
    shares = {"math": 0.5, "code": 0.5}
    context = kept_run(make_run, texts, mixture={"method": "target", "shares": shares, "budget_tokens": budget})
    output = step(context)
    assert any(said in line for line in context.progress.lines)  # type: ignore[attr-defined]
    assert output.counts["documents_in"] == len(texts)


def test_documents_without_a_domain_are_counted_as_unknown(make_run: MakeRun) -> None:
    context = kept_run(make_run, [{"text": "abc"}, {"text": "defg"}])
    step(context)
    assert {row["domain"] for row in rows_of(context)} == {"unknown"}
    assert isinstance(pq.read_schema(mixture_part(context.run, 0)), pa.Schema)
