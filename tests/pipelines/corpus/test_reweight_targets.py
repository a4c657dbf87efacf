"""The step reweight with targets by source, methods, floors, quality and stages, on a folder with a real tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from pipelines.context import RunContext
from pipelines.corpus.reweight import MIXTURE_SCHEMA, STAGE_USES, mixture_part, step
from pipelines.corpus.tables import corpus_part, documents_part, verdict_part, write_part
from pipelines.engine import open_engine
from schemas.document import DOCUMENT_SCHEMA

MakeRun = Callable[..., RunContext]
SOURCES = [{"name": name, "kind": "jsonl", "path": f"{name}.jsonl"} for name in ("s0", "s1", "s2")]
NEAR = 0.001  # 0.1 percentage point


def documents(count: int = 3000) -> list[dict[str, Any]]:
    rng = np.random.default_rng(8)
    domains, sources = (
        rng.choice(["math", "code", "web"], count),
        rng.choice(["s0", "s1", "s2"], count, p=[0.6, 0.3, 0.1]),
    )
    sizes, quality = rng.integers(5, 120, count), rng.random(count)
    columns = zip(domains.tolist(), sources.tolist(), sizes.tolist(), quality.tolist(), strict=True)
    return [
        {"text": f"{n:05d} " + "x" * size, "domain": domain, "source": source, "quality": score}
        for n, (domain, source, size, score) in enumerate(columns)
    ]


def kept_run(make_run: MakeRun, rows: list[dict[str, Any]], **parts: Any) -> RunContext:
    """A run whose kept corpus is all its documents, with a tokenizer of one token a character."""
    context = make_run(rows, sources=SOURCES, **parts)
    for part in range(context.recipe.engine.partitions):
        table = pq.read_table(documents_part(context.run, part))
        quality = pq.read_table(verdict_part(context.run, "quality", part)).column("quality")
        table = table.set_column(DOCUMENT_SCHEMA.get_field_index("quality"), DOCUMENT_SCHEMA.field("quality"), quality)
        write_part(corpus_part(context.run, "kept", part), DOCUMENT_SCHEMA, table.to_batches())
    letters = {chr(code): number for number, code in enumerate(range(32, 127))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    tokenizer.add_special_tokens(["<|endoftext|>"])
    (Path(context.run) / "tokenizer").mkdir()
    tokenizer.save(str(Path(context.run) / "tokenizer" / "tokenizer.json"))
    return context


def mixed(context: RunContext) -> list[dict[str, Any]]:
    return [
        row for part in range(context.recipe.engine.partitions)
        for row in pq.read_table(mixture_part(context.run, part)).to_pylist()
    ]  # fmt: skip


def shares(rows: list[dict[str, Any]], column: str) -> dict[str, float]:
    found: dict[str, int] = {}
    for row in rows:
        found[row[column]] = found.get(row[column], 0) + row["tokens"] * row["epochs"]
    return {name: tokens / sum(found.values()) for name, tokens in found.items()}


def report_of(context: RunContext) -> Any:
    return json.loads((context.run / "mixture" / "report.json").read_text(encoding="utf-8"))


def test_shares_by_domain_and_source_in_tokens(make_run: MakeRun) -> None:
    by_domain, by_source = {"math": 0.5, "code": 0.3, "web": 0.2}, {"s0": 0.4, "s1": 0.4, "s2": 0.2}
    mixture = {"shares": by_domain, "shares_by_source": by_source, "budget_tokens": 150_000}
    context = kept_run(make_run, documents(), mixture=mixture)
    step(context)
    rows = mixed(context)
    for wanted, column in ((by_domain, "domain"), (by_source, "source")):
        reached = shares(rows, column)
        assert all(abs(reached[name] - share) < NEAR for name, share in wanted.items())
    assert report_of(context)["sources"]["s2"]["target_tokens"] == 30_000
    assert pq.read_schema(mixture_part(context.run, 0)).names == MIXTURE_SCHEMA.names


def test_unimax_by_source_and_what_is_said_of_a_source_that_runs_dry(make_run: MakeRun) -> None:
    context = kept_run(
        make_run, documents(600), mixture={"method": "unimax", "by": "source", "budget_tokens": 60_000, "max_epochs": 2}
    )
    step(context)
    report = report_of(context)
    assert report["sources"]["s2"]["epochs_mean"] == 2
    large = [report["sources"][name]["tokens"] for name in ("s0", "s1")]
    if report["sources"]["s1"]["epochs_mean"] < 2:
        assert abs(large[0] - large[1]) <= 60
    floors = {"method": "proportional", "min_shares_by_source": {"s2": 0.5}, "budget_tokens": 60_000, "max_epochs": 1}
    other = kept_run(make_run, documents(600), folder="floors", mixture=floors)
    step(other)
    lines: list[str] = other.progress.lines  # type: ignore[attr-defined]
    assert any(line.startswith("reweight: source s2: target 50.00%, reached") for line in lines)
    assert report_of(other)["sources"]["s2"]["limited_by"] == "supply"


def staged(folder: str, make_run: MakeRun, **parts: Any) -> RunContext:
    stages = [
        {"name": "diverse", "context_tokens": 64, "budget_tokens": 90_000},
        {"name": "best", "context_tokens": 64, "budget_tokens": 30_000,
         "mixture": {"shares": {"math": 0.6, "code": 0.3, "web": 0.1}, "min_quality": 0.7}},
    ]  # fmt: skip
    mixture = {"shares": {"math": 0.2, "code": 0.3, "web": 0.5}, "budget_tokens": 120_000}
    return kept_run(make_run, documents(2000), folder=folder, mixture=mixture, curriculum={"pretrain": stages}, **parts)


def test_stages_have_a_column_of_uses_and_the_same_bytes_on_two_workers(make_run: MakeRun) -> None:
    one = staged("one", make_run)
    two = staged("two", make_run, engine=open_engine("datatrove", 2))
    first, second = step(one), step(two)
    assert [f.read_bytes() for f in first.files] == [f.read_bytes() for f in second.files]
    rows = mixed(one)
    assert pq.read_schema(mixture_part(one.run, 0)).names == [*MIXTURE_SCHEMA.names, STAGE_USES.name]
    assert all(sum(row[STAGE_USES.name]) == row["epochs"] for row in rows)
    scores = {
        row["id"]: row["quality"]
        for part in range(one.recipe.engine.partitions)
        for row in pq.read_table(corpus_part(one.run, "kept", part), columns=["id", "quality"]).to_pylist()
    }
    assert min(scores[row["id"]] for row in rows if row[STAGE_USES.name][1]) >= 0.7
    assert min(scores[row["id"]] for row in rows if row[STAGE_USES.name][0]) < 0.1
    best = [{**row, "epochs": row[STAGE_USES.name][1]} for row in rows]
    for name, share in {"math": 0.6, "code": 0.3, "web": 0.1}.items():
        assert abs(shares(best, "domain")[name] - share) < NEAR
    assert first.counts["stages"] == {
        "pretrain-0-diverse": sum(r["tokens"] * r[STAGE_USES.name][0] for r in rows),
        "pretrain-1-best": sum(r["tokens"] * r[STAGE_USES.name][1] for r in rows),
    }


def test_a_threshold_that_nothing_passes_is_said(make_run: MakeRun) -> None:
    mixture = {"shares": {"math": 0.5, "code": 0.5}, "min_quality": 1.0, "budget_tokens": 1000}
    context = kept_run(make_run, documents(60), mixture=mixture)
    step(context)
    lines: list[str] = context.progress.lines  # type: ignore[attr-defined]
    assert any("none of its documents may be used (held out, or below min_quality)" in line for line in lines)
    assert report_of(context)["totals"]["tokens"] == 0


@pytest.mark.parametrize("temperature", [1, 5])
def test_temperature_through_the_step(make_run: MakeRun, temperature: float) -> None:
    mixture = {"method": "temperature", "temperature": temperature, "by": "source", "budget_tokens": 40_000}
    context = kept_run(make_run, documents(2000), mixture=mixture)
    step(context)
    entries = report_of(context)["sources"]
    weights = {name: entry["supply_tokens"] ** (1 / temperature) for name, entry in entries.items()}
    for name, share in shares(mixed(context), "source").items():
        assert abs(share - weights[name] / sum(weights.values())) < NEAR
