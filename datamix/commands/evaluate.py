"""`datamix evaluate`: measure a checkpoint, print tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from datamix.checkpoints import find_checkpoint, run_of_checkpoint
from datamix.folder import RECIPE_NAME, describe_run
from datamix.output import emit_json, stdout_console, table
from datamix.progress import open_progress
from schemas.errors import UsageError
from schemas.recipe import load_recipe

__all__ = ["command"]

_LOSSES = ("unigram_loss", "pretrain_loss", "loss")
_FIGURES = ("tasks", "successes", "steps_per_task", "tokens_per_task")
_RATES = ("error_rate", "repeated_mistake_rate", "recovery_rate")


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT|RUN")
@click.option("--run", metavar="RUN", help="Whose held-out text and tasks (default: the run it lies in).")
@click.option("--family", "families", multiple=True, help="Task family, repeatable; 'all' for every one.")
@click.option("--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change a field of the run's recipe.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    checkpoint: str, run: str | None, families: tuple[str, ...], overrides: tuple[str, ...], as_json: bool
) -> None:
    """Measure a checkpoint: held-out loss by domain and passes, and as an agent.

    A RUN means its final checkpoint. Loss is in nats a token, beside a unigram model's on the same tokens. Agent tasks
    are held-out ones, run in the sandbox: --set evaluate.tasks=20 --set 'evaluate.difficulty=[1,4]' for more of them.
    Nothing is written.
    """
    folder = find_checkpoint(checkpoint)
    owner = Path(run) if run else run_of_checkpoint(folder)
    if owner is None:
        raise UsageError(f"{folder}: lies in no run. Give the run whose held-out text it is measured on: --run RUN")
    describe_run(owner)
    recipe = load_recipe(owner / RECIPE_NAME, overrides)
    from pipelines.synthesis.environments.base import family_names
    from trainer.evaluate import measure

    chosen = [name for family in families for name in (family_names() if family == "all" else [family])]
    unknown = [name for name in chosen if name not in family_names()]
    if unknown:
        raise UsageError(f"--family {unknown[0]!r}: families are {', '.join(family_names())}, all")
    with open_progress() as progress:
        results = measure(recipe, owner, folder, progress, list(dict.fromkeys(chosen)))
    if as_json:
        emit_json({"checkpoint": str(folder), "run": str(owner), **results})
    else:
        _print(results, stdout_console())


def _print(results: dict[str, Any], console: Console) -> None:
    """Three tables: loss by domain, loss by passes, agent tasks by family and difficulty."""
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
    lines: list[tuple[object, ...]] = []
    for agent in results.get("agents", {"": results["agent"]}).values():
        lines.append(_agent_line(agent["family"], "all", agent))
        lines += [_agent_line("", level, figures) for level, figures in agent["by_difficulty"].items()]
        if agent["problem"]:
            console.print(f"agent ({agent['family']}): {agent['problem']}", markup=False)
    columns = ["family", "difficulty", "tasks", "solved", "steps", "tokens", "errors", "repeated", "recovered"]
    console.print(table("Held-out agent tasks (steps and tokens a task)", columns, lines, text_columns=2))


def _agent_line(family: str, level: str, figures: dict[str, Any]) -> tuple[object, ...]:
    rates = ("" if figures[name] is None else f"{figures[name]:.1%}" for name in _RATES)
    return (family, level, *(figures[name] for name in _FIGURES), *rates)


def _rounded(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.3f}"
