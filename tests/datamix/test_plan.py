"""The plan: arithmetic on the recipe that can be checked against published figures, and tables that agree with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from datamix.commands.plan import command
from datamix.plan import model_size, plan_recipe
from schemas.recipe import load_recipe

FOLDER = Path(__file__).parents[2] / "recipes"


def test_size_of_the_public_checkpoint() -> None:
    size = model_size(load_recipe(FOLDER / "nanbeige.yaml").model, 166_144)
    assert size["parameters"] == 4_169_800_704  # 8.34 GB in bf16, the published file's size
    assert size["parameters_without_embeddings"] == 3_149_011_968
    assert size["cache_bytes_per_token"] == 180_224
    assert round(size["forward_flops_per_token"] / 1e9, 1) == 13.6


def test_stages_of_the_full_size_plan() -> None:
    plan = plan_recipe(load_recipe(FOLDER / "nanbeige.yaml"))
    assert [s["context_tokens"] for s in plan["stages"]] == [8192, 8192, 8192, 65_536, 65_536, 131_072, 262_144]
    assert plan["stages"][1]["name"] == "pretrain 1 diverse"
    assert sum(s["trained_tokens"] for s in plan["stages"] if s["phase"] == "pretrain") == 28_000_000_000_000
    source = plan["sources"][0]
    assert (source["name"], source["files"], source["bytes"], source["supply"]) == ("math", 0, 0, "expected")


def test_full_size_shares_epochs_and_shortfalls_by_domain_and_source() -> None:
    shown = CliRunner().invoke(command, [str(FOLDER / "nanbeige.yaml"), "--json"])
    assert shown.exit_code == 0, shown.output
    plan = json.loads(shown.stdout)
    mixture = plan["mixture"]
    assert sum(entry["share"] for entry in mixture["domains"].values()) == pytest.approx(1)
    assert sum(entry["share"] for entry in mixture["sources"].values()) == pytest.approx(1)
    assert mixture["domains"]["code"]["target_tokens"] == mixture["domains"]["code"]["tokens"]
    for entry in [*mixture["domains"].values(), *mixture["sources"].values()]:
        assert 0 < entry["epochs"] <= 4
        assert entry["epochs"] == pytest.approx(entry["tokens"] / entry["supply_tokens"], rel=1e-4)
        assert entry["shortfall_tokens"] in (0, None)
    stages = mixture["stages"]
    assert [stage["name"].split("-", 2)[2] for stage in stages] == ["warm-up", "diverse", "high-quality", "decay"]
    assert [stage.get("min_quality", 0) for stage in stages] == [0, 0, 0.6, 0.75]
    assert stages[3]["within"]["math"]["synthetic-qa"]["target_share"] == 0.6
    assert any("source web: files 0" in warning for warning in plan["warnings"])
    assert any("min_quality cannot be judged" in warning for warning in plan["warnings"])


def test_a_source_that_lacks_tokens_is_named_by_the_full_size_plan() -> None:
    cut = ["--set", "sources.2.expected_tokens=1000000000000", "--json"]
    plan = json.loads(CliRunner().invoke(command, [str(FOLDER / "nanbeige.yaml"), *cut]).stdout)
    stages = [stage["sources"]["code"] for stage in plan["mixture"]["stages"]]
    assert [stage["limited_by"] for stage in stages] == ["supply", "supply", "supply", None], "reserved for the decay"
    assert stages[3]["shortfall_tokens"] == 0 < stages[1]["shortfall_tokens"]
    assert plan["mixture"]["sources"]["code"]["epochs"] == pytest.approx(4, abs=1e-6)
    assert any("pretrain-1-diverse: source code:" in warning and "lacking" in warning for warning in plan["warnings"])


def test_plan_prints_a_table_and_json_that_agree() -> None:
    shown = CliRunner().invoke(command, ["demo", "--sample", "0"])
    assert shown.exit_code == 0, shown.output
    assert "262,144" in shown.output
    plan = json.loads(CliRunner().invoke(command, ["demo", "--sample", "0", "--json"]).stdout)
    assert f"{plan['model']['parameters']:,} parameters" in shown.output
    assert plan["stages"][0]["trained_tokens"] == plan["mixture"]["budget_tokens"]
    assert plan["mixture"]["domains"]["math"]["epochs"] is None
    assert "unknown" in shown.output


def test_costs_follow_the_stages() -> None:
    plan = plan_recipe(load_recipe(FOLDER / "nanbeige.yaml"))
    assert plan["costs"]["disk_bytes"]["shards"] == plan["shard_bytes"]
    assert plan["costs"]["training_flops"] == sum(stage["training_flops"] for stage in plan["stages"])
    assert plan["costs"]["cpu_seconds"] is None  # no text is here
