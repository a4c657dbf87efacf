"""A whole run with stages that have mixtures of their own: shards, check, stats and explain agree with the mixture."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from datamix.checks.mixture import check_mixture, check_stage, stage_uses
from datamix.checks.result import CheckResult
from datamix.commands.check import command as check
from datamix.commands.explain import command as explain
from datamix.commands.stats import command as stats_command
from datamix.run import run_job
from datamix.stats import run_stats
from pipelines.engine import InProcess, open_engine
from schemas.progress import Quiet
from schemas.recipe import Recipe, parse_recipe
from schemas.shard import read_index

RECIPE = """
name: staged
seed: 5
engine: {partitions: 2}
quality: {rules: []}
sources:
  - {name: library, kind: jsonl, path: INPUT/library.jsonl, domain_field: domain}
  - {name: letters, kind: jsonl, path: INPUT/letters.jsonl, domain_field: domain}
classify: {labels: [code, web]}
mixture: {shares: {code: 0.5, web: 0.5}, max_epochs: 4, budget_tokens: 30000}
tokenizer: {train: {vocab_size: 500, sample_bytes: 100000}}
curriculum:
  pretrain:
    - {name: diverse, context_tokens: 128, budget_tokens: 16000}
    - {name: best, context_tokens: 128, budget_tokens: 9000, mixture: {shares: {code: 0.7, web: 0.3}, min_quality: 0.4}}
    - context_tokens: 256
      budget_tokens: 5000
      mixture: {shares_by_source: {library: 0.25, letters: 0.75}, max_epochs: 6}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 32}
evaluate: {heldout_documents: 1, tasks: 0}
"""
TEXT = "the of and to water light table number green morning paper stone river window garden letter"
WORDS = TEXT.split()


def lines(name: str) -> list[str]:
    """Sixty code and sixty web texts; letters have other words, and shorter texts, than the library."""
    shift = len(name)
    rows = []
    for number in range(60):
        words = [WORDS[(number * 7 + k * k * shift) % len(WORDS)] for k in range(30 + number % (40 + shift))]
        code = "\n".join(f"def {w}_{number}_{k}(value):\n    return value + {k}" for k, w in enumerate(words[:9]))
        rows.append({"id": f"c{number}", "text": f"# {name} {number}\n{code}\n", "domain": "code"})
        rows.append({"id": f"w{number}", "text": f"{name} {number}: {' '.join(words)}.", "domain": "web"})
    return [json.dumps(row) for row in rows]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("input")
    for name in ("library", "letters"):
        (folder / f"{name}.jsonl").write_text("\n".join(lines(name)) + "\n", encoding="utf-8")
    return parse_recipe(RECIPE.replace("INPUT", str(folder)))


@pytest.fixture(scope="module")
def run(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("staged") / "run"
    run_job(recipe, folder, Quiet(), engine=InProcess(), until="shards")
    return folder


def mixture_rows(run: Path) -> dict[str, dict[str, Any]]:
    return {r["id"]: r for p in sorted((run / "mixture").glob("part-*")) for r in pq.read_table(p).to_pylist()}


def segments(run: Path, stage: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for path in sorted((run / "shards" / stage).glob("*.arrow")):
        for row in pa.ipc.open_file(path).read_all().to_pylist():
            found += zip(row["segment_ids"], row["segment_lengths"], strict=True)
    return found


def test_each_stage_s_shards_hold_what_the_mixture_gave_it(run: Path) -> None:
    rows = mixture_rows(run)
    stages = [stage.name for stage in read_index(run / "shards").stages]
    assert stages == ["pretrain-0-diverse", "pretrain-1-best", "pretrain-2-256"]
    wanted = [{"code": 0.5, "web": 0.5}, {"code": 0.7, "web": 0.3}, {"code": 0.5, "web": 0.5}]
    for place, stage in enumerate(stages):
        found: Counter[str] = Counter()
        for name, tokens in segments(run, stage):
            found[name.split("@")[0]] += tokens
        assert found == {i: r["tokens"] * r["stage_epochs"][place] for i, r in rows.items() if r["stage_epochs"][place]}
        total = sum(found.values())
        for domain, share in wanted[place].items():
            reached = sum(tokens for i, tokens in found.items() if rows[i]["domain"] == domain) / total
            assert abs(reached - share) < 0.02  # a few dozen documents
        if place == 2:
            letters = sum(tokens for i, tokens in found.items() if rows[i]["source"] == "letters") / total
            assert abs(letters - 0.75) < 0.02


def test_epochs_count_on_from_stage_to_stage_and_never_twice(run: Path) -> None:
    rows = mixture_rows(run)
    stages = [stage.name for stage in read_index(run / "shards").stages]
    epochs: dict[str, list[set[int]]] = {}
    for place, stage in enumerate(stages):
        for name, _ in segments(run, stage):
            record, _, rest = name.partition("@")
            epochs.setdefault(record, [set(), set(), set()])[place].add(int(rest.split(".")[0]))
    for record, seen in epochs.items():
        assert [len(part) for part in seen] == rows[record]["stage_epochs"]
        assert sorted(set().union(*seen)) == list(range(rows[record]["epochs"]))
    assert max(r["epochs"] for r in rows.values()) > 1


def test_check_recounts_every_stage(run: Path, tmp_path: Path) -> None:
    assert CliRunner().invoke(check, [str(run)]).exit_code == 0
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "mixture" / "report.json"
    report = json.loads(path.read_text(encoding="utf-8"))
    report["stages"][1]["domains"]["code"]["tokens"] += 1
    path.write_text(json.dumps(report), encoding="utf-8")
    result = CheckResult("run", "run")
    check_mixture(copy, result)
    assert [fault.path for fault in result.faults] == ["mixture/report.json: stage pretrain-1-best"]
    assert "tokens by domain" in result.faults[0].problem
    uses = stage_uses(run)
    assert uses is not None
    other = pl.DataFrame(segments(run, "pretrain-0-diverse"), schema=["id", "tokens"], orient="row")
    check_stage(uses, 1, "pretrain-1-best", other, result)
    assert "not in this stage as often as the mixture says" in result.faults[-1].problem


def test_stats_show_the_stages(run: Path) -> None:
    stats = run_stats(run)
    assert [stage["name"] for stage in stats["stage_mixtures"]] == [stage["name"] for stage in stats["stages"]]
    assert stats["domains"]["code"]["target_share"] == pytest.approx((8000 + 6300 + 2500) / 30_000)
    assert abs(stats["domains"]["code"]["difference"]) < 0.01
    shown = CliRunner().invoke(stats_command, [str(run), "--by", "stage"])
    assert shown.exit_code == 0
    assert "Mixtures of the pretraining stages" in shown.output
    assert "source letters" in shown.output


def test_explain_names_the_stage_and_the_uses_by_stage(run: Path) -> None:
    place = f"{run}/shards/pretrain-1-best/part-00000.arrow:0:3"
    found = json.loads(CliRunner().invoke(explain, [place, "--json"]).stdout)
    document = found["document"]
    assert found["stage"] == "pretrain-1-best"
    assert sum(document["stage_epochs"]) == document["epochs"] > document["epoch"]
    assert document["quality"] >= 0.4


def test_explained_values_stand_in_one_column(run: Path) -> None:
    place = f"{run}/shards/pretrain-1-best/part-00000.arrow:0:3"
    lines = CliRunner().invoke(explain, [place]).stdout.splitlines()
    width = max(len(line.split(" ")[0]) for line in lines)
    assert {line[width] for line in lines} == {" "}
    assert all(line[width + 1] != " " for line in lines)


@pytest.mark.parametrize(("engine", "workers"), [("datatrove", 2), ("beam", 1)])
def test_the_same_bytes_on_both_engines(recipe: Recipe, run: Path, tmp_path: Path, engine: str, workers: int) -> None:
    other = tmp_path / "run"
    run_job(recipe, other, Quiet(), engine=open_engine(engine, workers), until="shards")
    for path in sorted([*run.glob("mixture/*"), *run.glob("shards/**/*")]):
        if path.is_file():
            assert (other / path.relative_to(run)).read_bytes() == path.read_bytes()
