"""The command's manners: help without imports, errors as one message with the right exit code, any code page."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import click
import pytest

from datamix import __version__
from datamix.cli import COMMANDS, main

RECIPE = """
name: tiny
seed: 1
sources: [{name: mine, kind: jsonl, path: missing.jsonl}]
mixture: {method: proportional, budget_tokens: 1000}
tokenizer: {train: {vocab_size: 300}}
curriculum: {pretrain: [{context_tokens: 64, budget_tokens: 1000}]}
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 16}
"""


def call(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `datamix ARGUMENTS` in this process."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def python(code: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, **environment}, timeout=60, check=False
    )


def test_help_imports_nothing_heavy_and_lists_every_command() -> None:
    code = (
        "import sys\n"
        "from datamix.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as ended: code = ended.code\n"
        "heavy = {'torch', 'apache_beam', 'datatrove', 'ray', 'pyarrow', 'polars', 'numpy'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)\n"
    )
    done = python(code)
    assert done.stderr.decode().strip() == "0 []"
    lines = done.stdout.decode()
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in lines
        assert line[:40] in lines


def test_importing_the_package_imports_none_of_the_heavy_libraries() -> None:
    done = python("import datamix, sys; print({'torch', 'apache_beam', 'datatrove', 'ray'} & set(sys.modules))")
    assert done.stdout.decode().strip() == "set()"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_table_of_commands_agrees_with_the_modules(name: str) -> None:
    module, line = COMMANDS[name]
    command = importlib.import_module(module).command
    assert isinstance(command, click.Command)
    assert (command.help or "").split("\n")[0] == line
    assert len(line) <= 80


def test_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version", capsys=capsys) == (0, f"datamix {__version__}\n", "")
    assert metadata.version("datamix") == __version__


def test_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call("stat", capsys=capsys)
    assert (code, out) == (2, "")
    assert "No such command 'stat'. Did you mean 'stats'?" in err


def test_no_command_prints_help_on_stderr_and_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys=capsys)
    assert (code, out) == (2, "")
    assert "Commands:" in err


def test_missing_recipe_names_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = call("run", str(tmp_path / "none.yaml"), "--out", str(tmp_path / "run"), capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(f"datamix: {tmp_path}/none.yaml: no such recipe")
    assert not (tmp_path / "run").exists()


def test_recipe_typo_is_answered_with_the_nearest_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(RECIPE.replace("budget_tokens: 1000}\ntok", "budget_token: 1000}\ntok"), encoding="utf-8")
    code, _, err = call("run", str(recipe), "--out", str(tmp_path / "run"), capsys=capsys)
    assert code == 2
    assert "mixture.budget_token: unknown key; did you mean 'budget_tokens'?" in err
    assert not (tmp_path / "run").exists()


def test_missing_input_is_said_before_the_run_folder_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    code, _, err = call("run", "r.yaml", "--out", "run", capsys=capsys)
    assert code == 2
    assert "'missing.jsonl': no such file or folder" in err
    assert not (tmp_path / "run").exists()


def test_unknown_step_lists_the_steps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    code, _, err = call("run", str(tmp_path / "r.yaml"), "--out", str(tmp_path / "o"), "--until", "x", capsys=capsys)
    assert code == 2
    assert "--until 'x': no such step. Steps in order: read, quality, dedup" in err


@pytest.mark.parametrize("name", ["stats", "check", "report"])
def test_commands_on_a_run_refuse_a_folder_that_is_none(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = call(name, str(tmp_path / "absent"), capsys=capsys)
    assert (code, out) == (1, "")
    assert err.startswith(f"datamix: {tmp_path}/absent")
    assert "Traceback" not in err


def test_unexpected_error_is_short_and_debug_shows_the_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("schemas.recipe.load_recipe", broken)
    arguments = ["run", "x.yaml", "--out", str(tmp_path / "run")]
    code, _, err = call(*arguments, capsys=capsys)
    assert code == 1
    assert err.startswith("datamix: unexpected ZeroDivisionError: by zero\n")
    assert "--debug" in err and "Traceback" not in err
    code, _, err = call(*arguments, "--debug", capsys=capsys)
    assert code == 1
    assert "Traceback" in err


def test_interrupt_ends_with_130_and_a_clean_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("schemas.recipe.load_recipe", stopped)
    code, out, err = call("run", "x.yaml", "--out", str(tmp_path / "run"), capsys=capsys)
    assert (code, out) == (130, "")
    assert err.strip() == "datamix: interrupted"


def test_a_warning_of_ours_is_one_line_and_one_of_a_library_keeps_its_place() -> None:
    from datamix import cli

    own = cli.__file__.replace("cli.py", "x.py")
    assert cli._plain_warning("look out", UserWarning, own, 3) == "datamix: warning: look out\n"
    assert cli._plain_warning("old", FutureWarning, "/lib/x.py", 3) == "/lib/x.py:3: FutureWarning: old\n"


def test_a_name_that_is_no_text_is_a_usage_error_not_a_defect(tmp_path: Path) -> None:
    out = os.fsencode(tmp_path) + b"/b\xff.parquet"
    start = [sys.executable, "-c", "from datamix.cli import main; main()"]
    command = [*start, "synth", "reasoning", "--n", "1", "--workers", "1", "--out", out]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2
    assert "is not UTF-8" in ended.stderr and "defect" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_request_to_end_is_an_interrupt() -> None:
    code = (
        "import os, signal, time, click, datamix.cli as c\n"
        "@c.cli.command('wait')\n"
        "def wait():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('cleaned up')\n"
        "c.cli.get_command = lambda ctx, name: wait\n"
        "c.COMMANDS['wait'] = ('__main__', 'x')\n"
        "c.main(['wait'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (130, "cleaned up\n", "datamix: interrupted")


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "cp1252"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_foreign_characters_reach_a_pipe_in_any_code_page(environment: dict[str, str]) -> None:
    code = (
        "import click, datamix.cli as c, datamix.output as o\n"
        "@c.cli.command('speak')\n"
        "def speak():\n"
        "    o.emit_json({'sign': '\\u2713 \\u6f22'})\n"
        "    o.stdout_console().print(o.table('\\u6f22', ['\\u2713'], [['\\u6f22'], [1234]]))\n"
        "c.COMMANDS['speak'] = ('__main__', 'x')\n"
        "c.cli.get_command = lambda ctx, name: speak\n"
        "c.main(['speak'])\n"
    )
    done = python(code, **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"1,234" in done.stdout


def test_reader_that_goes_away_leaves_no_trace() -> None:
    code = (
        "import click, datamix.cli as c\n"
        "speak = click.Command('speak', callback=lambda: [click.echo('x' * 1000) for _ in range(1000)])\n"
        "c.COMMANDS['speak'] = ('__main__', 'x')\n"
        "c.cli.get_command = lambda ctx, name: speak\n"
        "c.main(['speak'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
