"""A model behind an endpoint as teacher of `datamix synth` and of a recipe: counted, replayed, resumed, set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from datamix.commands.replay import command as replay
from datamix.commands.synth import command as synth
from pipelines.context import RunContext
from pipelines.engine import InProcess
from pipelines.synthesis.ingest.store import read_trajectories
from pipelines.synthesis.step import step
from pipelines.synthesis.styles import style_of
from schemas.errors import DatamixError
from schemas.progress import Quiet
from schemas.recipe import Recipe

QUICK = ["--endpoint-set", "retries=0", "--endpoint-set", "first_wait_s=0.01", "--endpoint-set", "give_up_after=2"]


def make(url: str, out: Path, *options: object) -> dict[str, Any]:
    arguments = ["reasoning", "--n", 4, "--teacher", "openai", "--endpoint", url, "--model", "m", "--out", out]
    arguments += [*QUICK, "--endpoint-set", "concurrency=1", "--json", *options]
    result = CliRunner().invoke(synth, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return dict(json.loads(result.stdout))


def test_samples_are_counted_replayed_and_never_asked_for_twice(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(lambda number, body: kit.completion(f"I guess.\nAnswer: {number}"))
    out = tmp_path / "M.parquet"
    counts = make(server.url, out, "--samples", 2)
    assert (counts["tasks"], counts["trajectories"], counts["steps"]) == (4, 8, 8)
    assert counts["solved"] == sum(t.outcome.success is True for t in read_trajectories(out))
    assert sum(counts["endpoint"][0]["pass_rates"].values()) == 4
    assert counts["usage"][0]["requests"] == len(server.seen) == 8
    first = out.read_bytes()
    again = make(server.url, out, "--samples", 2)
    assert (len(server.seen), again["usage"][0]["requests"], again["usage"][0]["reused"]) == (8, 0, 8)
    assert out.read_bytes() == first
    assert CliRunner().invoke(replay, [str(out)]).exit_code == 0


def test_equal_samples_of_a_task_are_kept_once(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(lambda number, body: kit.completion("Answer: 1"))
    counts = make(server.url, tmp_path / "M.parquet", "--samples", 3)
    assert (counts["tasks"], counts["trajectories"]) == (4, 4)
    assert counts["rejected"] == {"same_as_another_sample": 8}


def test_an_endpoint_that_goes_down_leaves_a_row_for_each_task_and_the_journal_goes_on(
    kit: Any, tmp_path: Path
) -> None:
    server = kit.serve(lambda n, body: kit.completion("Answer: 1") if n < 2 else kit.answer(b"{}", 503))
    out = tmp_path / "M.parquet"
    counts = make(server.url, out)
    rows = [json.loads(line) for line in (tmp_path / "M.parquet.set_aside.jsonl").read_text().splitlines()]
    assert counts["tasks"] == 4 == counts["trajectories"] + len(rows)
    assert {row["problem"] for row in rows} == {"endpoint_down"}
    server.script = lambda n, body: kit.completion("Answer: 2")
    asked = len(server.seen)
    finished = make(server.url, out)
    assert (finished["trajectories"], finished["rejected"], finished["set_aside"]) == (4, {}, None)
    assert len(server.seen) - asked == 4 - 2
    with pytest.raises(DatamixError, match=r"reasoning task with seed .*endpoint_down"):
        server.script = lambda n, body: kit.answer(b"{}", 503)
        arguments = ["reasoning", "--n", "3", "--seed", "9", "--teacher", "openai", "--endpoint", server.url, *QUICK]
        arguments += ["--model", "m", "--out", str(tmp_path / "N.parquet"), "--fail"]
        raise CliRunner().invoke(synth, arguments).exception or AssertionError


def test_an_endpoint_that_never_answers_is_named_and_the_command_fails(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(lambda number, body: kit.answer(b"{}", 503))
    arguments = ["reasoning", "--n", "1", "--teacher", "openai", "--endpoint", server.url, "--model", "m", *QUICK]
    result = CliRunner().invoke(synth, [*arguments, "--out", str(tmp_path / "M.parquet"), "--json"])
    assert isinstance(result.exception, DatamixError)
    assert f"{server.url}: no request was answered (http_503)" in str(result.exception)
    assert json.loads(result.stdout)["endpoint"][0]["endings"] == {"error": 1}


def test_a_text_style_is_asked_for_and_marked(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(lambda number, body: kit.completion("Thought: easy\nFinal Answer: Answer: 3"))
    out = tmp_path / "M.parquet"
    make(server.url, out, "--style", "react", "--n", 12)
    assert {(t.tools != "[]", style_of(t)) for t in read_trajectories(out)} == {(True, "react"), (False, "native")}
    assert all("tools" not in body for body in server.seen)


def test_a_recipe_with_both_teachers_fills_one_run(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(lambda number, body: kit.completion("Answer: 1"))
    endpoint = {"base_url": server.url, "model": "m", "concurrency": 2}
    recipe = Recipe.model_validate(
        {
            "name": "both",
            "seed": 3,
            "sources": [{"name": "python", "kind": "python-environment"}],
            "mixture": {"method": "proportional", "budget_tokens": 1},
            "tokenizer": {"train": {}},
            "curriculum": {},
            "model": {
                "hidden_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "num_key_value_heads": 1,
                "intermediate_size": 8,
            },
            "evaluate": {"tasks": 0},
            "trajectories": {
                "synthesized": [
                    {"family": "reasoning", "n": 3, "teacher": "openai", "endpoint": endpoint, "difficulty": [1, 2]},
                    {"family": "reasoning", "n": 5, "difficulty": [1, 2], "call_styles": {"xml": 0.5, "react": 0.5}},
                ]
            },
        }
    )
    context = RunContext(tmp_path, recipe, InProcess(), Quiet())
    output = step(context)
    assert (output.counts["tasks"], output.counts["by_family"]["reasoning"]["trajectories"]) == (8, 8)
    assert [path.name for path in output.files] == [
        "reasoning-0-00000.parquet",
        "reasoning-1-00000.parquet",
        "set_aside.jsonl",
    ]
    assert (tmp_path / "journals" / "reasoning-0.jsonl").exists()
    scripted = list(read_trajectories(output.files[1]))
    assert {style_of(t) for t in scripted if t.tools != "[]"} <= {"xml", "react"}
    before = output.files[0].read_bytes()
    step(context)
    assert (len(server.seen), output.files[0].read_bytes()) == (3, before)
