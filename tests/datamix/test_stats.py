"""Statistics and report of a hand-made run whose every figure is known."""

from __future__ import annotations

import html.parser
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from datamix.commands.report import command as report_command
from datamix.commands.stats import command
from datamix.folder import claim_folder
from datamix.stats import run_stats
from pipelines.corpus.tables import VERDICT_SCHEMAS, documents_part, verdict_part, write_part
from schemas.document import DOCUMENT_SCHEMA
from schemas.errors import InputError
from schemas.files import sha256_file, write_json
from schemas.manifest import Manifest, write_manifest
from schemas.recipe import parse_recipe
from schemas.shard import ShardFile, ShardIndex, StageIndex, shard_schema, write_index

RECIPE = """
name: tiny
seed: 1
engine: {partitions: 1}
sources: [{name: a, kind: jsonl, path: a.jsonl}, {name: b, kind: jsonl, path: b.jsonl}]
classify: {labels: [math, code, web]}
mixture: {shares: {math: 0.5, code: 0.25, web: 0.25}, max_epochs: 2, budget_tokens: 200}
tokenizer: {train: {vocab_size: 300}}
curriculum: {pretrain: [{context_tokens: 64, budget_tokens: 1000}]}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16}
"""

# id, source, source_domain, quality, dedup, decontaminate, domain, tokens, split, epochs
DOCUMENTS: list[tuple[Any, ...]] = [
    ("0" * 32, "a", "math", "keep", "keep", "keep", "math", 40, "train", 2),
    ("1" * 32, "a", "math", "keep", "keep", "keep", "code", 50, "train", 1),
    ("2" * 32, "a", "math", "short", None, None, None, None, None, None),
    ("3" * 32, "b", "code", "keep", "near_duplicate", None, None, None, None, None),
    ("4" * 32, "b", "code", "keep", "keep", "benchmark", "code", None, None, None),
    ("5" * 32, "b", "code", "keep", "keep", "keep", "code", 30, "heldout", 0),
    ("6" * 32, "b", None, "keep", "keep", "keep", "math", 7, "unused", 0),
]


def build(run: Path) -> Path:
    """Write the run: documents and verdicts above, one SFT stage, a training of two steps."""
    claim_folder(run, parse_recipe(RECIPE))
    empty: dict[str, Any] = dict.fromkeys(DOCUMENT_SCHEMA.names)
    documents = [
        {**empty, "id": d[0], "text": "x", "source": d[1], "origin": f"{d[1]}#{n}", "source_domain": d[2]}
        for n, d in enumerate(DOCUMENTS)
    ]
    write_part(documents_part(run, 0), DOCUMENT_SCHEMA, [pa.RecordBatch.from_pylist(documents, DOCUMENT_SCHEMA)])
    for step, column in (("quality", 3), ("dedup", 4), ("decontaminate", 5), ("classify", 6)):
        schema = VERDICT_SCHEMAS[step]
        name = "domain" if step == "classify" else "verdict"
        rows = [{**dict.fromkeys(schema.names), "id": d[0], name: d[column]} for d in DOCUMENTS]
        write_part(verdict_part(run, step, 0), schema, [pa.RecordBatch.from_pylist(rows, schema)])
    kept = [d for d in DOCUMENTS if d[7] is not None]
    mixture = pa.table(
        {
            "id": [d[0] for d in kept],
            "domain": [d[6] for d in kept],
            "source": [d[1] for d in kept],
            "tokens": pa.array([d[7] for d in kept], pa.int64()),
            "split": [d[8] for d in kept],
            "epochs": pa.array([d[9] for d in kept], pa.int32()),
        }
    )
    (run / "mixture").mkdir()
    pq.write_table(mixture, run / "mixture/part-00000.parquet")
    write_json(
        run / "mixture/report.json", {"domains": {"math": {"limited_by": "others"}, "code": {"limited_by": None}}}
    )
    _write_shards(run)
    _write_training(run)
    for step in (
        "read",
        "quality",
        "dedup",
        "classify",
        "decontaminate",
        "corpus",
        "reweight",
        "shards",
        "train",
        "evaluate",
    ):
        write_manifest(run, Manifest(step, "k", []))
    return run


def _write_shards(run: Path) -> None:
    schema = shard_schema(300)
    row = {
        "input_ids": [1] * 6,
        "loss_mask": [False, True, True, False, False, True],
        "segment_lengths": [4, 2],
        "segment_ids": ["<b>t</b>", "u"],
        "mask_reasons": [{"tokens": 6, "reason": "x"}],
    }
    path = run / "shards/sft-64K/part-00000.arrow"
    path.parent.mkdir(parents=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([row], schema))
    file = ShardFile("sft-64K/part-00000.arrow", sha256_file(path), path.stat().st_size, 1, 6, 3, 2)
    shares = {
        "agentic": {"wanted": 0.75, "reached": 1.0, "trained_tokens": 3, "shortfall": 0},
        "general": {"wanted": 0.25, "reached": 0.0, "trained_tokens": 0, "shortfall": 1},
    }
    report = {"fill": 0.75, "shares": shares, "kinds_without_supply": ["general"]}
    stage = StageIndex("sft-64K", "sft", 8, [file], report)
    write_index(run / "shards", ShardIndex(300, "t", "r", [stage]))
    audit = [("trajectory", "too_long", 100, 10), ("trajectory", "too_long", 50, 5), ("document", "over_budget", 7, 7)]
    names = ("record", "reason", "tokens", "trained_tokens")
    rows = [dict(zip(names, row, strict=True), id=str(n), copies=1) for n, row in enumerate(audit)]
    pq.write_table(pa.Table.from_pylist(rows), run / "shards/audit.parquet")


def _write_training(run: Path) -> None:
    lines = [{"step": n, "stage": "sft-64K", "phase": "sft", "loss": 5.5 - n, "tokens": 6} for n in range(2)]
    (run / "train").mkdir()
    (run / "train/metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    stage = {
        "stage": "sft-64K", "phase": "sft", "steps": 2, "rows": 2, "segments": 4, "tokens": 12, "trained_tokens": 6,
        "left_out_segments": 0, "left_out_tokens": 0, "left_out_trained_tokens": 0, "first_loss": 5.5, "last_loss": 4.5,
    }  # fmt: skip
    losses = {"documents": 1, "tokens": 30, "unigram_loss": 6.0, "pretrain_loss": None, "loss": 4.25}
    agent = {"family": "repair", "tasks": 4, "successes": 1, "problem": None}
    (run / "evaluate").mkdir()
    write_json(run / "evaluate/results.json", {"heldout": {"code": losses}, "heldout_total": losses, "agent": agent})
    write_json(run / "train/summary.json", {"steps": 2, "parameters": 1234, "stages": [stage], "key": "k"})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("made") / "run")


def test_documents_and_drops_are_counted_from_the_verdicts(run: Path) -> None:
    documents = run_stats(run)["documents"]
    assert documents == {
        "read": 7,
        "set_aside": 0,
        "dropped": {"quality": {"short": 1}, "dedup": {"near_duplicate": 1}, "decontaminate": {"benchmark": 1}},
        "kept": 4,
    }


def test_shares_are_of_used_tokens_and_limits_are_said(run: Path) -> None:
    domains = run_stats(run)["domains"]
    math, code, web = domains["math"], domains["code"], domains["web"]
    assert (math["tokens"], math["supply_tokens"], math["epochs"], math["used_documents"]) == (80, 47, 1.7021, 1)
    assert (code["tokens"], code["supply_tokens"], code["heldout_tokens"]) == (50, 50, 30)
    assert (math["share"], math["target_share"]) == (80 / 130, 0.5)
    assert math["difference"] == 80 / 130 - 0.5
    assert math["limit"] == "takes what other domains lack"
    assert (web["tokens"], web["share"], web["limit"]) == (0, 0.0, "no documents of this domain")
    assert sum(entry["share"] for entry in domains.values()) == pytest.approx(1)


def test_documents_by_domain_follow_every_step(run: Path) -> None:
    stats = run_stats(run)
    # a document dropped before it was classified counts under the domain that its source claims
    assert stats["domains"]["math"]["documents"] == {"read": 3, "quality": 2, "dedup": 2, "decontaminate": 2}
    assert stats["domains"]["code"]["documents"] == {"read": 4, "quality": 4, "dedup": 3, "decontaminate": 2}
    assert stats["sources"]["b"]["documents"] == {"read": 4, "quality": 4, "dedup": 3, "decontaminate": 2}
    assert stats["sources"]["a"]["tokens"] == 130


def test_stages_have_fill_and_the_longest_segment(run: Path) -> None:
    stage = run_stats(run)["stages"][0]
    assert (stage["name"], stage["rows"], stage["tokens"], stage["trained_tokens"]) == ("sft-64K", 1, 6, 3)
    assert (stage["fill"], stage["longest_segment"], stage["segments"]) == (0.75, 4, 2)


def test_stage_shares_and_what_is_left_out_have_their_token_bill(run: Path) -> None:
    stats = run_stats(run)
    agentic, general = stats["stages"][0]["shares"]["agentic"], stats["stages"][0]["shares"]["general"]
    assert (agentic["trained_tokens"], agentic["target_share"], agentic["share"]) == (3, 0.75, 1.0)
    assert (agentic["difference"], agentic["feasible_share"], agentic["limit"]) == (0.25, 1.0, None)
    assert (general["feasible_share"], general["shortfall_tokens"]) == (0.0, 1)
    assert general["limit"] == "no trajectories of this kind"
    assert stats["left_out"] == [
        {"record": "document", "reason": "over_budget", "records": 1, "copies": 1, "tokens": 7, "trained_tokens": 7},
        {"record": "trajectory", "reason": "too_long", "records": 2, "copies": 2, "tokens": 150, "trained_tokens": 15},
    ]


def test_json_and_tables_come_from_the_same_figures(run: Path) -> None:
    runner = CliRunner()
    stats = json.loads(runner.invoke(command, [str(run), "--json"]).stdout)
    assert {"tokens", "target_share", "share"} <= set(stats["domains"]["math"])
    shown = runner.invoke(command, [str(run)])
    assert shown.exit_code == 0, shown.output
    for text in (
        "near_duplicate",
        "61.54%",
        "sft-64K",
        "75.00%",
        "1,234 parameters",
        "too_long",
        "1 of 4 held-out repair tasks solved",
    ):
        assert text in shown.output


def test_by_chooses_the_tables_and_refuses_others(run: Path) -> None:
    runner = CliRunner()
    only = json.loads(runner.invoke(command, [str(run), "--by", "source", "--json"]).stdout)
    assert "sources" in only and "domains" not in only and "stages" not in only
    refused = runner.invoke(command, [str(run), "--by", "colour"])
    assert "--by 'colour': give one or more of domain, source, stage" in str(refused.exception)


def test_unfinished_run_has_the_figures_of_its_finished_steps(tmp_path: Path) -> None:
    build(tmp_path / "run")
    for step in ("dedup", "classify", "decontaminate", "corpus", "reweight", "shards", "train", "evaluate"):
        (tmp_path / f"run/manifests/{step}.json").unlink()
    stats = run_stats(tmp_path / "run")
    assert stats["documents"]["dropped"] == {"quality": {"short": 1}}
    assert stats["stages"] == []
    assert "tokens" not in stats["domains"]["math"]
    assert CliRunner().invoke(command, [str(tmp_path / "run")]).exit_code == 0


class _Page(html.parser.HTMLParser):
    """Collects what a page would fetch, and its text outside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_report_is_one_file_that_fetches_nothing(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    done = CliRunner().invoke(report_command, [str(run), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert page.fetched == []
    assert page.tags.count("table") == 3
    assert (
        text.count('class="plotly-graph-div"') == 7
    )  # shares, documents, drops, composition, lengths, loss, held-out loss
    assert "near_duplicate" in text


def test_report_without_plotly_names_the_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    monkeypatch.delitem(sys.modules, "datamix.report_plots", raising=False)
    refused = CliRunner().invoke(report_command, [str(run)])
    assert "pip install 'datamix[report]'" in str(refused.exception)


@pytest.mark.parametrize("name", ["mixture/report.json", "train/summary.json", "evaluate/results.json"])
def test_damaged_output_is_named(small_run: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(small_run, run)
    (run / name).write_text('{"cut', encoding="utf-8")
    with pytest.raises(InputError, match=rf"{name}: not JSON"):
        run_stats(run)
