"""`datamix evaluate --endpoint`: the held-out tasks by another model, in the shape of a checkpoint's results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from datamix.commands.evaluate import command as evaluate
from pipelines.synthesis.environments.base import environment_class, family_names
from pipelines.synthesis.environments.functions import Source, open_probe_sandbox, probe_source, write_pool
from pipelines.synthesis.requests import check_requests
from schemas.errors import DatamixError, RecipeError, UsageError
from schemas.progress import Quiet
from schemas.recipe import EndpointConfig, EvaluateConfig, parse_recipe
from trainer.agent_tasks import agent_results, heldout_tasks, open_heldout
from trainer.endpoint import measure_endpoint

FEW = ("--set", "evaluate.tasks=4", "--set", "evaluate.difficulty=[1,2]", "--set", "evaluate.max_new_tokens=16")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(evaluate, list(arguments), catch_exceptions=False)


def answers() -> dict[str, str]:
    """Instruction to right answers, as they are to be written, of the four held-out tasks."""
    config = EvaluateConfig(tasks=4, family="reasoning", difficulty=(1, 2))
    with open_heldout("reasoning", None) as environment:
        return {
            task.instruction: "\n".join(f"Answer {n}: {right}" for n, right in enumerate(task.data["answers"], 1))
            for task in heldout_tasks(environment, config)
        }


def test_figures_come_by_family_and_difficulty_and_every_model_gets_the_same_tasks(kit: Any) -> None:
    known = answers()
    wrong = sorted(known)[0]

    def script(number: int, body: dict[str, Any]) -> Any:
        asked = next(message["content"] for message in body["messages"] if message["role"] == "user")
        assert (body["max_tokens"], body["temperature"], body["model"]) == (16, 0.6, "big")
        return kit.completion("Answer: nothing" if asked == wrong else known[asked])

    server = kit.serve(script)
    found = invoke("--endpoint", server.url, "--model", "big", "--family", "reasoning", *FEW, "--json")
    results = json.loads(found.stdout)
    agent = results["agent"]
    assert set(agent) == {"family", *agent_results([]), "problem"}
    assert (agent["family"], agent["tasks"], agent["successes"], agent["problem"]) == ("reasoning", 4, 3, None)
    assert (agent["steps_per_task"], agent["tokens_per_task"], agent["error_rate"]) == (1.0, 10.0, 0.25)
    assert sum(level["tasks"] for level in agent["by_difficulty"].values()) == 4
    assert set(agent["by_difficulty"]) == {"1", "2"}
    assert [task["task"][:20] for task in agent["by_task"]] == [f"reasoning-100000000{n}" for n in range(4)]
    assert results["agents"] == {"reasoning": agent}
    assert results["usage"]["reasoning"]["requests"] == len(server.seen) == 4
    shown = invoke("--endpoint", server.url, "--model", "big", "--family", "reasoning", *FEW).stdout
    row = next(line for line in shown.splitlines() if "reasoning" in line and "all" in line)
    assert [word for word in row.split() if word.isdigit()][:2] == ["4", "3"]
    assert "Held-out loss" not in shown


def test_without_a_run_all_means_the_families_that_draw_from_nothing(kit: Any) -> None:
    server = kit.serve(lambda number, body: kit.completion("I do not know."))
    few = ("--set", "evaluate.tasks=1", "--set", "evaluate.difficulty=[1,1]")
    results = json.loads(invoke("--endpoint", server.url, "--model", "m", "--family", "all", *few, "--json").stdout)
    alone = [name for name in family_names() if environment_class(name).pool is None]
    assert list(results["agents"]) == alone
    assert len(alone) >= 2
    assert all(agent["problem"] is None and agent["tasks"] == 1 for agent in results["agents"].values())
    repair = json.loads(invoke("--endpoint", server.url, "--model", "m", "--family", "repair", *few, "--json").stdout)
    assert repair["agent"]["tasks"] == 0
    assert "pool" in repair["agent"]["problem"]


RECIPE = """
name: t
seed: 1
sources: [{name: a, kind: python-environment}]
mixture: {method: proportional, budget_tokens: 10}
tokenizer: {train: {}}
curriculum: {}
model: {hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1, intermediate_size: 8}
evaluate: {families: [repair, reasoning], tasks: 2, difficulty: [1, 1], max_steps: 2}
"""
MODULE = '''
def rotate(text: str, places: int) -> str:
    """Move the first letters of a text to its end.

    >>> rotate("hello", 2)
    'llohe'
    """
    if not text:
        return text
    places = places % len(text)
    return text[places:] + text[:places]
'''


def test_a_run_gives_the_families_and_what_they_draw_from(kit: Any, tmp_path: Path) -> None:
    with open_probe_sandbox() as sandbox:
        module = probe_source(Source(MODULE, "rotate.py", "MIT"), sandbox, sandbox.workspace())
    assert not isinstance(module, str)
    (tmp_path / "trajectories").mkdir()
    write_pool(tmp_path / "trajectories/pool.jsonl", [replace(module, id="0" * 32)])  # an id of the held-out part
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "run.json").write_text(json.dumps({"recipe": "t", "digest": "d"}))
    call = kit.native_call("list_files", "{}")
    server = kit.serve(lambda number, body: kit.completion(None, "tool_calls", tool_calls=[call]))
    results = json.loads(invoke(str(tmp_path), "--endpoint", server.url, "--model", "m", "--json").stdout)
    assert list(results["agents"]) == ["repair", "reasoning"]
    assert results["agent"] == results["agents"]["repair"]
    assert (results["agent"]["tasks"], results["agent"]["steps"], results["agent"]["problem"]) == (2, 4, None)
    assert [task["task"] for task in results["agent"]["by_task"]] == ["repair-1000000000-1", "repair-1000000001-1"]
    assert results["agents"]["reasoning"]["error_rate"] == 1.0  # no such tool there
    assert results["run"] == str(tmp_path)


def test_an_endpoint_that_goes_down_is_said_beside_what_was_done(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(lambda n, body: kit.completion("x") if n < 2 else kit.answer(b"{}", 500))
    settings = EndpointConfig(
        base_url=server.url, model="m", concurrency=1, retries=0, give_up_after=2, journal=str(tmp_path / "j.jsonl")
    )
    config = EvaluateConfig(tasks=9, difficulty=(1, 1))
    agent = measure_endpoint(settings, config, ["reasoning"], None, Quiet())["agent"]
    assert agent["problem"] == "stopped (endpoint_down) after 3 of 9 tasks"
    assert (agent["tasks"], agent["tokens"]) == (3, 20)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to measure"),
        (["--endpoint", "http://h/v1"], "needs --model NAME"),
        (["--model", "m", "run"], "go with --endpoint"),
        (["--endpoint", "h", "--model", "m"], "base_url: .*is no address"),
        (["--endpoint", "http://h/v1", "--model", "m", "--endpoint-set", "x"], "KEY=VALUE"),
        (["--endpoint", "http://h/v1", "--model", "m", "--endpoint-set", "temprature=1"], "temprature"),
        (["--endpoint", "http://h/v1", "--model", "m", "--set", "seed=1"], "only evaluate.FIELD=VALUE"),
        (["--endpoint", "http://h/v1", "--model", "m", "--set", "evaluate.tasks=-1"], "evaluate.tasks"),
        (["--endpoint", "http://h/v1", "--model", "m", "--family", "cooking"], "families are .*office.*all"),
    ],
)
def test_wrong_usage_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        invoke(*arguments)


def test_a_wrong_address_is_an_error_not_a_score(kit: Any) -> None:
    server = kit.serve(lambda number, body: kit.answer(b"{}", 404))
    with pytest.raises(DatamixError, match="answered 404"):
        invoke("--endpoint", server.url, "--model", "m", "--family", "reasoning", *FEW)


def test_families_of_a_recipe_are_checked_and_measured_once_each() -> None:
    recipe = parse_recipe(RECIPE, overrides=["evaluate.families=[search, repair, search]"])
    assert recipe.evaluate.measured == ["search", "repair"]
    check_requests(recipe)
    with pytest.raises(RecipeError, match=r"evaluate\.families: 'serch' is unknown\. Did you mean 'search'\?"):
        check_requests(parse_recipe(RECIPE, overrides=["evaluate.families=[repair, serch]"]))
    none = parse_recipe(RECIPE, overrides=["evaluate.tasks=0"])
    assert none.evaluate.measured == []
    plain = EvaluateConfig()
    assert plain.measured == ["repair"]
    assert "families" not in plain.model_dump()  # recipes written before keep their digest
