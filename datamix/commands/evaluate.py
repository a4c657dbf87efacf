"""`datamix evaluate`: measure a checkpoint, or a model behind an endpoint on the same tasks; print tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from datamix.checkpoints import find_checkpoint, run_of_checkpoint
from datamix.folder import RECIPE_NAME, describe_run
from datamix.output import emit_json, stdout_console, table
from datamix.progress import open_progress
from schemas.errors import DatamixError, UsageError
from schemas.recipe import EndpointConfig, EvaluateConfig, load_recipe

__all__ = ["command"]

_LOSSES = ("unigram_loss", "pretrain_loss", "loss")
_FIGURES = ("tasks", "successes", "steps_per_task", "tokens_per_task")
_RATES = ("error_rate", "repeated_mistake_rate", "recovery_rate")


@click.command()
@click.argument("checkpoint", required=False, metavar="[CHECKPOINT|RUN]")
@click.option("--run", metavar="RUN", help="Whose held-out text and tasks (default: the run it lies in).")
@click.option("--family", "families", multiple=True, help="Task family, repeatable; 'all' for every one.")
@click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the run's recipe.")
@click.option(
    "--endpoint", metavar="URL", help="Measure a model behind this endpoint, such as http://localhost:8000/v1."
)
@click.option("--model", metavar="NAME", help="The model's name at the endpoint.")
@click.option(
    "--endpoint-set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A field of a recipe's endpoint, such as call_style=hermes or api_key_env=MY_KEY. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    checkpoint: str | None,
    run: str | None,
    families: tuple[str, ...],
    overrides: tuple[str, ...],
    endpoint: str | None,
    model: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure a checkpoint: held-out loss by domain and passes, and as an agent.

    A RUN means its final checkpoint. Loss is in nats a token, beside a unigram model's on the same tokens. Agent tasks
    are held-out ones, run in the sandbox: --set evaluate.tasks=20 --set 'evaluate.difficulty=[1,4]' for more of them.
    Nothing is written.

    With --endpoint another model does the same tasks, and nothing else is measured. RUN is then where tasks draw from;
    without one only families that draw from nothing are measured.
    """
    if endpoint is not None:
        results = _measure_endpoint(endpoint, model, settings, run or checkpoint, families, overrides)
    elif checkpoint is None:
        raise UsageError("nothing to measure: name a CHECKPOINT or a RUN, or an endpoint: --endpoint URL --model NAME")
    elif model is not None or settings:
        raise UsageError("--model and --endpoint-set go with --endpoint URL")
    else:
        results = _measure_checkpoint(checkpoint, run, families, overrides)
    if as_json:
        emit_json(results)
    else:
        _print(results, stdout_console())
    if endpoint is not None:
        _refuse_silence(endpoint, results)


def _refuse_silence(url: str, results: dict[str, Any]) -> None:
    """Raises DatamixError when tasks were tried and nothing answered: none of the figures means anything."""
    usage = results["usage"].values()
    tried = sum(agent["tasks"] for agent in results["agents"].values())
    if tried and not any(of_family["requests"] or of_family["reused"] for of_family in usage):
        problems = ", ".join(sorted({problem for of_family in usage for problem in of_family["problems"]}))
        raise DatamixError(
            f"{url}: no request was answered ({problems or 'nothing was asked'}), so nothing was measured. "
            "Is the server there?"
        )


def _measure_checkpoint(
    checkpoint: str, run: str | None, families: tuple[str, ...], overrides: tuple[str, ...]
) -> dict[str, Any]:
    folder = find_checkpoint(checkpoint)
    owner = Path(run) if run else run_of_checkpoint(folder)
    if owner is None:
        raise UsageError(f"{folder}: lies in no run. Give the run whose held-out text it is measured on: --run RUN")
    describe_run(owner)
    recipe = load_recipe(owner / RECIPE_NAME, overrides)
    from trainer.evaluate import measure

    chosen = _chosen(families) or recipe.evaluate.families
    with open_progress() as progress:
        results = measure(recipe, owner, folder, progress, chosen)
    return {"checkpoint": str(folder), "run": str(owner), **results}


def _measure_endpoint(
    url: str,
    model: str | None,
    settings: tuple[str, ...],
    run: str | None,
    families: tuple[str, ...],
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    from pipelines.synthesis.environments.base import environment_class, family_names
    from trainer.endpoint import measure_endpoint

    if model is None:
        raise UsageError("--endpoint needs --model NAME: the model that the endpoint is to use")
    config = _settings(url, model, settings)
    if run is not None:
        owner = Path(run) if (Path(run) / RECIPE_NAME).exists() else run_of_checkpoint(Path(run)) or Path(run)
        describe_run(owner)
        wanted, folder = load_recipe(owner / RECIPE_NAME, overrides).evaluate, owner / "trajectories"
        chosen = _chosen(families) or wanted.families or [wanted.family]
    else:
        wanted, folder = _evaluation(overrides), None
        alone = [name for name in family_names() if environment_class(name).pool is None]
        chosen = [name for name in _chosen(families) or alone if "all" not in families or name in alone]
    with open_progress() as progress:
        results = measure_endpoint(config, wanted, chosen, folder, progress)
    return {"endpoint": config.base_url, "model": model, "run": run, **results}


def _settings(url: str, model: str, settings: tuple[str, ...]) -> EndpointConfig:
    """The endpoint that these options mean. Raises UsageError that names the option."""
    import yaml
    from pydantic import ValidationError

    fields: dict[str, Any] = {"base_url": url, "model": model, "temperature": 0.6, "top_p": 0.95}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise UsageError(f"--endpoint-set {setting!r}: write it as KEY=VALUE, for example temperature=0.7")
        fields[key.strip()] = yaml.safe_load(value)
    try:
        return EndpointConfig.model_validate(fields)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, d['loc'])) or 'endpoint'}: {d['msg']}" for d in error.errors()]
        raise UsageError("\n".join(lines)) from None


def _evaluation(overrides: tuple[str, ...]) -> EvaluateConfig:
    """`evaluate` of no recipe: its defaults, changed by the overrides. Raises UsageError for another field."""
    import yaml
    from pydantic import ValidationError

    fields: dict[str, Any] = {}
    for override in overrides:
        key, sign, value = override.partition("=")
        if not sign or not key.startswith("evaluate."):
            raise UsageError(f"--set {override!r}: without a run only evaluate.FIELD=VALUE can be set")
        fields[key.removeprefix("evaluate.")] = yaml.safe_load(value)
    try:
        return EvaluateConfig.model_validate(fields)
    except ValidationError as error:
        lines = [f"evaluate.{'.'.join(map(str, d['loc']))}: {d['msg']}" for d in error.errors()]
        raise UsageError("\n".join(lines)) from None


def _chosen(families: tuple[str, ...]) -> list[str]:
    """The families that the options name, each once. Raises UsageError for an unknown one."""
    from pipelines.synthesis.environments.base import family_names

    chosen = [name for family in families for name in (family_names() if family == "all" else [family])]
    unknown = [name for name in chosen if name not in family_names()]
    if unknown:
        raise UsageError(f"--family {unknown[0]!r}: families are {', '.join(family_names())}, all")
    return list(dict.fromkeys(chosen))


def _print(results: dict[str, Any], console: Console) -> None:
    """Three tables: loss by domain, loss by passes, agent tasks by family and difficulty; of an endpoint the last."""
    if "heldout" in results:
        _print_losses(results, console)
    lines: list[tuple[object, ...]] = []
    for agent in results.get("agents", {"": results["agent"]}).values():
        lines.append(_agent_line(agent["family"], "all", agent))
        lines += [_agent_line("", level, figures) for level, figures in agent["by_difficulty"].items()]
        if agent["problem"]:
            console.print(f"agent ({agent['family']}): {agent['problem']}", markup=False)
    columns = ["family", "difficulty", "tasks", "solved", "steps", "tokens", "errors", "repeated", "recovered"]
    console.print(table("Held-out agent tasks (steps and tokens a task)", columns, lines, text_columns=2))


def _print_losses(results: dict[str, Any], console: Console) -> None:
    domains = [*results["heldout"].items(), ("all", results["heldout_total"])]
    rows = [
        (name, domain["documents"], domain["tokens"], *(_rounded(domain[key]) for key in _LOSSES))
        for name, domain in domains
    ]
    columns = ["domain", "documents", "tokens", "unigram", "after pretraining", "this checkpoint"]
    console.print(table("Held-out loss, nats a token", columns, rows))
    loops = results["loops"]
    title = f"Held-out loss by passes at test time (trained with {loops['trained_loops']}; {loops['tokens']:,} tokens)"
    if loops["loss"]:
        console.print(table(title, list(loops["loss"]), [[_rounded(loss) for loss in loops["loss"].values()]]))


def _agent_line(family: str, level: str, figures: dict[str, Any]) -> tuple[object, ...]:
    rates = ("" if figures[name] is None else f"{figures[name]:.1%}" for name in _RATES)
    return (family, level, *(figures[name] for name in _FIGURES), *rates)


def _rounded(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.3f}"
