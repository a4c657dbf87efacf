"""`datamix synth`: one task family alone, to one trajectory file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from datamix.output import emit_json, stdout_console, table
from datamix.progress import open_progress

__all__ = ["command"]

MAX_SEED = 2**63 - 1  # of a recipe
_STYLES = ("native", "xml", "hermes", "react")
# where an endpoint's field came from, for messages that name what was typed
_OPTIONS = {"base_url": "--endpoint", "model": "--model", "samples": "--samples"}
_FIGURES = ("tasks", "trajectories", "solved", "mistakes", "recoveries", "steps", "tokens")


def _range(_ctx: click.Context, _parameter: click.Parameter, value: str) -> tuple[float, float]:
    """LOW:HIGH, or one number for both; which numbers may be is the recipe's to say."""
    low, _, high = value.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no range such as 1:4, and no number") from None


@click.command()
@click.argument("family")
@click.option("--out", required=True, metavar="FILE", help="Parquet file to write.")
@click.option("--n", type=click.IntRange(min=1), default=20, show_default=True, help="Tasks.")
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=1, show_default=True, help="As a recipe's seed.")
@click.option(
    "--difficulty",
    default="1:4",
    show_default=True,
    callback=_range,
    metavar="LOW:HIGH",
    help="1 easy to 10 hard, evenly spread.",
)
@click.option("--teacher", type=click.Choice(["scripted", "openai"]), default="scripted", show_default=True)
@click.option("--mistake-rate", type=float, default=0.3, show_default=True, help="Of the scripted teacher's turns.")
@click.option("--style", type=click.Choice(_STYLES), default="native", show_default=True, help="Scaffold of the calls.")
@click.option("--run", metavar="RUN", help="Use this run's pool, or build one from its kept corpus.")
@click.option("--corpus", multiple=True, metavar="FILES", help="Build the pool from jsonl or parquet. Repeatable.")
@click.option("--endpoint", "base_url", metavar="URL", help="openai: where, such as http://localhost:8000/v1.")
@click.option("--model", metavar="NAME", help="openai: the model's name there.")
@click.option("--samples", type=click.IntRange(min=1), help="openai: attempts at every task.")
@click.option(
    "--endpoint-set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="openai: a field of the recipe's endpoint, such as temperature=0.7 or api_key_env=KEY. Repeatable.",
)
@click.option("--fail", is_flag=True, help="Stop at the first task that gives no trajectory.")
@click.option("--engine", "engine_name", default="datatrove", metavar="NAME", help="datatrove or beam.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Local processes (default 2).")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def command(
    family: str,
    out: str,
    run: str | None,
    corpus: tuple[str, ...],
    seed: int,
    fail: bool,
    engine_name: str,
    workers: int,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Make and play tasks of one family and write the trajectories.

    FAMILY is one of office, reasoning, repair, search, terminal. Every trajectory is replayed before it is accepted.
    Tasks that gave none are in FILE.set_aside.jsonl. Material that tasks draw from (repair, search) comes from a run,
    from FILES, or from this Python's standard library; what was built is kept beside FILE, where `datamix replay` finds
    it.
    """
    from pipelines.engine import InProcess, open_engine
    from pipelines.synthesis.synth_file import Request, synthesize_file
    from schemas.errors import DatamixError

    config = _config(family, out, **wanted)
    request = Request(config, seed, Path(run) if run else None, corpus, fail)
    engine = InProcess() if workers == 1 and engine_name == "datatrove" else open_engine(engine_name, workers)
    with open_progress() as progress:
        counts = synthesize_file(request, out, engine, progress)
    if as_json:
        emit_json({"family": family, "n": config.n, "seed": seed, "teacher": config.teacher, "out": out, **counts})
    else:
        _print(family, out, counts)
    if config.endpoint and _unanswered(counts):
        problems = ", ".join(counts["endpoint"][0]["problems"]) or "nothing was asked"
        raise DatamixError(
            f"{config.endpoint.base_url}: no request was answered ({problems}), so no trajectory holds a reply. "
            "Is the server there? The same command asks again"
        )


def _unanswered(counts: dict[str, Any]) -> bool:
    """Whether every trajectory of an endpoint ended by an error before anything came back."""
    (usage,), (found,) = counts["usage"], counts["endpoint"]
    return set(found["endings"]) <= {"error"} and not usage["requests"] and not usage["reused"]


def _config(
    family: str,
    out: str,
    n: int,
    difficulty: tuple[float, float],
    teacher: str,
    mistake_rate: float,
    style: str,
    base_url: str | None,
    model: str | None,
    samples: int | None,
    settings: tuple[str, ...],
) -> Any:
    """The recipe's entry that these options mean. Raises UsageError that names the option."""
    import yaml

    from schemas.errors import UsageError
    from schemas.recipe import SynthesizedConfig

    fields: dict[str, Any] = {"family": family, "n": n, "teacher": teacher, "difficulty": difficulty}
    fields["mistake_rate"] = mistake_rate if teacher == "scripted" else 0.0
    if style != "native" and teacher == "scripted":
        fields["call_styles"] = {style: 1.0}
    endpoint: dict[str, Any] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise UsageError(f"--endpoint-set {setting!r}: write it as KEY=VALUE, for example temperature=0.7")
        try:
            endpoint[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            said = " ".join(str(error).split())
            raise UsageError(f"--endpoint-set {key.strip()}: {value!r} is no YAML value ({said}). Quote it") from None
    given = {"base_url": base_url, "model": model, "samples": samples}
    endpoint |= {key: value for key, value in given.items() if value is not None}
    if teacher == "openai":
        fields["endpoint"] = {"journal": f"{out}.journal.jsonl", "call_style": style, **endpoint}
    elif endpoint:
        first = next(iter(endpoint))
        option = _OPTIONS.get(first, f"--endpoint-set {first}")
        raise UsageError(f"{option} is for a teacher behind an endpoint. Add --teacher openai, or leave it out")
    try:
        return SynthesizedConfig.model_validate(fields)
    except ValueError as error:  # pydantic's ValidationError
        raise UsageError(_explained(error)) from None


def _explained(error: ValueError) -> str:
    """Every problem of a pydantic validation error as a line: the option it is about, what is wrong, the value."""
    details = error.errors() if hasattr(error, "errors") else []
    return "\n".join(map(_problem, details)) or str(error)


def _problem(detail: dict[str, Any]) -> str:
    """One entry of `ValidationError.errors()`. A dict as input is the whole recipe entry and would only repeat it."""
    place = [str(part) for part in detail["loc"]]
    field = place[-1] if place else ""
    if detail["type"] == "missing" and field in _OPTIONS:
        return f"--teacher openai needs {_OPTIONS[field]} (the endpoint's field {field!r})"
    said = str(detail["msg"]).removeprefix("Value error, ")
    name = _OPTIONS.get(field, ".".join(place))
    received = "" if isinstance(detail["input"], dict) else f", received {detail['input']!r}"
    return f"{name}: {said}{received}" if name else f"{said}{received}"


def _print(family: str, out: str, counts: dict[str, Any]) -> None:
    row: list[object] = [family, *(counts[name] for name in _FIGURES)]
    row += [counts["tokens_median"], counts["tokens_longest"]]
    columns = ("family", *_FIGURES, "median tokens", "longest")
    stdout_console().print(table(f"{out} (tokens: bytes / 4)", columns, [row]))
    for reason, number in counts["rejected"].items():
        click.echo(f"{number} tasks gave no trajectory ({reason}): {counts['set_aside']}", err=True)
    if counts["pool_files"]:
        click.echo(f"drawn from {counts['pool_files']}", err=True)
