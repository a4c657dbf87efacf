"""A whole small run from real text and real tasks to a trained model: the promises that need every step.

Promises 2 (nothing lost, nothing doubled) and 4 (everything explains itself) of DESIGN §4.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from datamix.checks import check_path
from datamix.commands.explain import command as explain
from datamix.commands.report import command as report
from datamix.commands.show import command as show
from datamix.commands.stats import command as stats
from datamix.run import run_job
from datamix.steps import STEPS
from pipelines.curriculum.inspect import read_row
from pipelines.engine import InProcess, open_engine
from schemas.progress import Quiet
from schemas.recipe import Recipe
from schemas.shard import read_index


def shard_of(run: Path, phase: str) -> Path:
    """The first shard file of a phase."""
    stage = next(stage for stage in read_index(run / "shards").stages if stage.phase == phase and stage.files)
    return run / "shards" / stage.files[0].path


def told(command: Any, *arguments: str) -> Any:
    done = CliRunner().invoke(command, [*arguments, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_finished_run_passes_its_check_with_every_step_done(small_run: Path) -> None:
    result = check_path(small_run, Quiet())
    assert result.faults == []
    assert set(result.summary["steps"].values()) == {"done"}
    assert result.summary["documents"]["dropped"]["dedup"]["duplicate:exact"] >= 1


@pytest.mark.parametrize(
    "pattern",
    [
        "documents/*.parquet",
        "verdicts/classify/*.parquet",
        "corpus/kept/*.parquet",
        "mixture/*.parquet",
        "trajectories/kept/*.parquet",
        "shards/audit.parquet",
        "shards/sft-*/*.arrow",
        "train/checkpoints/final/model.safetensors",
    ],
)
def test_one_changed_byte_anywhere_is_found_and_its_file_named(small_run: Path, tmp_path: Path, pattern: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(small_run, run)
    path = sorted(run.glob(pattern))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert path.relative_to(run).as_posix() in {fault.path for fault in check_path(run, Quiet()).faults}


def test_checkpoint_on_its_own_is_checked_too(small_run: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "final"
    shutil.copytree(small_run / "train/checkpoints/final", checkpoint)
    assert check_path(checkpoint, Quiet()).faults == []
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert [fault.path for fault in check_path(checkpoint, Quiet()).faults] == ["model.safetensors"]


def test_stats_reach_the_wanted_shares_or_say_what_limits_them(small_run: Path) -> None:
    figures = told(stats, str(small_run))
    assert figures["documents"]["set_aside"] == 1
    assert set(figures["domains"]) == {"code", "web"}
    for domain in figures["domains"].values():
        assert domain["tokens"] > 0
        assert abs(domain["share"] - domain["target_share"]) <= 0.01 or domain["limit"]
    pretrain, sft = figures["stages"]
    assert pretrain["tokens"] == figures["mixture"]["tokens"]
    assert sft["longest_segment"] <= 16_384
    assert figures["training"]["steps"] > 0
    assert figures["evaluation"]["heldout_total"]["tokens"] > 0


def test_token_of_a_document_leads_to_the_line_of_its_source_file(small_run: Path, small_recipe: Recipe) -> None:
    shard = shard_of(small_run, "pretrain")
    found = told(explain, f"{shard}:0:10")
    name, _, line = found["document"]["origin"].rpartition("#")
    source = Path(str(small_recipe.sources[0].path))
    assert name == source.name
    record = json.loads(source.read_text(encoding="utf-8").splitlines()[int(line) - 1])
    assert found["before"] + found["text"] + found["after"] in record["text"]
    assert (record["id"], record["license"]) == (found["document"]["source_id"], found["document"]["license"])
    assert found["document"]["verdicts"]["dedup"]["verdict"] == "keep"
    assert found["trained"] is True


def test_token_of_a_trajectory_leads_to_its_message_and_reason(small_run: Path) -> None:
    shard = shard_of(small_run, "sft")
    row = read_row(shard, 0)
    trained, context = int(np.flatnonzero(row.mask)[0]), int(np.flatnonzero(~row.mask)[20])
    found = told(explain, f"{shard}:0:{trained}")
    assert (found["trained"], found["reason"], found["trajectory"]["role"]) == (True, "trained", "assistant")
    assert found["trajectory"]["mask_reasons"] == []
    assert found["trajectory"]["family"] == "repair"
    assert told(explain, f"{shard}:0:{context}")["trajectory"]["role"] == "system"


def test_shown_row_holds_every_token_under_its_reason(small_run: Path, tmp_path: Path) -> None:
    shard = shard_of(small_run, "sft")
    row = read_row(shard, 0)
    shown = told(show, str(shard))
    assert (shown["tokens"], shown["trained_tokens"]) == (len(row.ids), int(row.mask.sum()))
    runs = [run for segment in shown["segments"] for run in segment["runs"]]
    assert sum(run["tokens"] for run in runs) == len(row.ids)
    text = CliRunner().invoke(show, [str(shard), "--tokens", "0"]).output
    assert f"{row.mask.sum():,} tokens" in text.splitlines()[1]
    assert "[trained] <think>" in text
    page = CliRunner().invoke(show, [str(shard), "--html", str(tmp_path / "row.html")])
    assert page.exit_code == 0
    html = (tmp_path / "row.html").read_text(encoding="utf-8")
    assert "&lt;tool_call&gt;" in html and "<tool_call>" not in html


def test_trajectory_file_is_shown_too(small_run: Path) -> None:
    path = next(p for p in sorted((small_run / "trajectories/kept").glob("*.parquet")) if p.stat().st_size > 20_000)
    shown = told(show, str(path))
    assert {turn["mark"] for turn in shown["turns"]} >= {"T", "-"}


def test_report_of_a_finished_run_has_all_its_plots(small_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    done = CliRunner().invoke(report, [str(small_run), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.exception
    assert (tmp_path / "r.html").read_text(encoding="utf-8").count('class="plotly-graph-div"') == 7


def test_second_run_keeps_every_step(small_run: Path, small_recipe: Recipe) -> None:
    summary = run_job(small_recipe, small_run, Quiet(), engine=InProcess())
    assert (summary.ran, len(summary.kept)) == ([], len(STEPS))


def test_other_workers_in_another_folder_give_the_same_bytes(
    small_run: Path, small_recipe: Recipe, tmp_path: Path
) -> None:
    run_job(small_recipe, tmp_path / "run", Quiet(), until="shards", engine=open_engine("datatrove", 2))
    for step in STEPS[: [step.name for step in STEPS].index("train")]:
        manifest = f"manifests/{step.name}.json"
        assert (tmp_path / "run" / manifest).read_bytes() == (small_run / manifest).read_bytes(), step.name
