"""The `datamix` command: a table of subcommands, each imported only when it runs.

Guarantees: `datamix --help` imports no subcommand (hence no torch, Beam, datatrove or Ray); a deliberate error is one
message on stderr with exit code 1 (the work failed) or 2 (wrong usage); output never stops on a character that the
terminal's code page lacks. A new command is one module in datamix/commands with a `command` attribute and one row here.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from schemas.errors import DatamixError

__all__ = ["COMMANDS", "cli", "main"]

# name: (module, help line). The help line is the first line of the command's docstring (a test keeps them equal).
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("datamix.commands.run", "Run a recipe: raw text and tasks to shards and a trained model."),
    "demo": ("datamix.commands.demo", "Run the whole job on real text found on this machine, in minutes."),
    "plan": ("datamix.commands.plan", "Say what a recipe will come to before anything is run."),
    "stats": ("datamix.commands.stats", "Print tokens, documents, shares, drops and stages of a run."),
    "show": ("datamix.commands.show", "Print a shard row or a trajectory with what is trained in colour."),
    "explain": ("datamix.commands.explain", "Say where one token of a shard came from."),
    "check": ("datamix.commands.check", "Verify a run, shard or trajectory file; exit 1 if anything is off."),
    "report": ("datamix.commands.report", "Write one self-contained HTML page about a run."),
    "dedup": ("datamix.commands.dedup", "Remove exact and near duplicates from jsonl or parquet files."),
    "quality": ("datamix.commands.quality", "Judge texts of jsonl or parquet files by published quality rules."),
    "classify": (
        "datamix.commands.classify",
        "Give texts of jsonl or parquet files a domain, or train the model for it.",
    ),
    "decontaminate": (
        "datamix.commands.decontaminate",
        "Drop texts of jsonl or parquet files that hold benchmark items.",
    ),
    "synth": ("datamix.commands.synth", "Make and play tasks of one family and write the trajectories."),
    "replay": ("datamix.commands.replay", "Run the calls of synthesized trajectories again and compare every result."),
    "ingest": ("datamix.commands.ingest", "Read recorded agent runs of many formats into canonical trajectories."),
    "masks": ("datamix.commands.masks", "Say where two mask policies differ and how much each leaves to train."),
    "convert": ("datamix.commands.convert", "Write trajectories with their masks for a training framework."),
    "export-shards": (
        "datamix.commands.export_shards",
        "Write packed shards for another trainer: same rows, masks and boundaries.",
    ),
    "train": ("datamix.commands.train", "Train the looped model of a recipe from the shards of a run."),
    "evaluate": (
        "datamix.commands.evaluate",
        "Measure a checkpoint: held-out loss by domain and passes, and as an agent.",
    ),
    "export": ("datamix.commands.export", "Write a checkpoint for Hugging Face or llama.cpp."),
    "chat": ("datamix.commands.chat", "Talk with a trained model in the terminal."),
}

_PACKAGES = ("datamix", "pipelines", "trainer")
INTERRUPTED = 130  # 128 + SIGINT, what shells expect


class _LazyGroup(click.Group):
    """A group that knows its commands' names and help lines, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None for a name that is not in the table."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name][0]}.command is {type(command).__name__}, not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown name is answered with the nearest known one on every click version."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            hint = f"Did you mean '{near[0]}'?" if near else f"Commands: {', '.join(COMMANDS)}."
            ctx.fail(f"No such command '{name}'. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from datamix import __version__

        click.echo(f"datamix {__version__}")
        ctx.exit(0)


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Exit codes: 0 done, 1 the work failed or a check found faults, 2 wrong usage.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.option("--debug", is_flag=True, help="Show the trace of an error (also DATAMIX_DEBUG=1).")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """From a raw corpus and agent trajectories to curriculum shards, and a looped transformer trained from them."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave the process with its exit code. `argv` is without the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = os.environ.get("DATAMIX_DEBUG", "") not in ("", "0")
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in own:  # accepted before and after the subcommand
        arguments.remove("--debug")
        debug = True
    _make_streams_tolerant()
    warnings.formatwarning = _plain_warning
    _end_well_when_asked()
    sys.exit(_exit_code(arguments, debug=debug))


def _exit_code(arguments: list[str], *, debug: bool) -> int:
    """Run the command; every way it can end becomes an exit code and at most one message."""
    try:
        code = cli.main(args=arguments, prog_name="datamix", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("datamix: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return 1
    except DatamixError as error:
        _trace(debug)
        click.echo(f"datamix: {error}", err=True)
        return error.exit_code
    except OSError as error:
        _trace(debug)
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"datamix: {place}{error.strerror or error}", err=True)
        return 1
    except Exception as error:
        _trace(debug)
        foreign = [argument for argument in arguments if not _is_text(argument)]
        if isinstance(error, UnicodeEncodeError) and foreign:
            click.echo(f"datamix: {foreign[0]!r}: this name is not UTF-8, which is needed here. Rename it", err=True)
            return 2
        hint = "" if debug else " Run again with --debug to see the trace."
        click.echo(f"datamix: unexpected {type(error).__name__}: {error}\nThis is a defect of datamix.{hint}", err=True)
        return 1


def _end_well_when_asked() -> None:
    """SIGTERM (`timeout`, a scheduler, a container's stop) ends a command as Ctrl-C does: workers and folders go.

    Left to the system it would end this process alone: workers would go on, temporary folders stay. Commands that mean
    something else by it (train: save first) set their own way while they run.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def _plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours as one line; one of a library with its place in the code, as Python does."""
    home = Path(__file__).parents[1]
    ours = any(Path(filename).is_relative_to(home / package) for package in _PACKAGES)
    place = "datamix: warning" if ours else f"{filename}:{lineno}: {category.__name__}"
    return f"{place}: {message}\n"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _is_text(argument: str) -> bool:
    """Whether an argument is text: bytes that the file system's encoding does not know come as half characters."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _trace(debug: bool) -> None:
    if debug:
        traceback.print_exc()


def _make_streams_tolerant() -> None:
    """A character that the output's code page lacks is escaped instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    """The reader went away (`datamix stats … | head`): send the rest nowhere, so that exit stays quiet."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
