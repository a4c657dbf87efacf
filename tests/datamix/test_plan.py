"""The plan: arithmetic on the recipe that can be checked against published figures."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_stages_and_shares_of_the_full_size_plan() -> None:
    plan = plan_recipe(load_recipe(FOLDER / "nanbeige.yaml"))
    assert [s["context_tokens"] for s in plan["stages"]] == [8192, 65_536, 65_536, 131_072, 262_144]
    assert plan["stages"][0]["rows"] == 24_000_000_000_000 // 8192
    assert plan["mixture"]["domains"]["code"] == {"target_share": 0.35, "target_tokens": 9_800_000_000_000}
    assert plan["sources"][0] == {
        "name": "math", "kind": "jsonl", "path": "data/math/*.jsonl.zst", "files": 0, "bytes": 0
    }  # fmt: skip


def test_plan_prints_a_table_and_json_that_agree() -> None:
    shown = CliRunner().invoke(command, ["demo"])
    assert shown.exit_code == 0, shown.output
    assert "262,144" in shown.output
    plan = json.loads(CliRunner().invoke(command, ["demo", "--json"]).stdout)
    assert f"{plan['model']['parameters']:,} parameters" in shown.output
    assert plan["stages"][0]["trained_tokens"] == plan["mixture"]["budget_tokens"]
