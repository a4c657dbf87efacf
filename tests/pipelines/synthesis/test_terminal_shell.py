"""The terminal's shell: real programs, a folder that stays, failures as signals, the same output at every run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipelines.synthesis.environments.terminal_shell import OUTPUT_CHARACTERS, Shell, has_git
from pipelines.synthesis.sandbox import Limits, Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Limits(cpu_seconds=2, wall_seconds=3.0, open_files=256, processes=64)) as opened:
        yield opened


@pytest.fixture
def shell(sandbox: Sandbox) -> Shell:
    workspace = sandbox.workspace()
    workspace.write("logs/a.log", "one ERROR\ntwo\n")
    workspace.write("logs/deep/b.log", "three\n")
    opened = Shell(sandbox, workspace)
    opened.start()
    return opened


def test_the_folder_is_kept_between_calls_and_variables_are_not(shell: Shell) -> None:
    assert shell.run("cd logs/deep; x=5").text == "no output"
    assert shell.run("pwd; cat b.log; echo [$x]").text == "/workspace/logs/deep\nthree\n[]"
    assert shell.run("cd .. && ls").text == "a.log\ndeep"
    assert shell.run("cd /workspace && pwd").text == "/workspace"
    assert shell.run("cat /workspace/logs/a.log | head -n 1").text == "one ERROR"


def test_leaving_the_workspace_does_not_stick(shell: Shell) -> None:
    assert shell.run("cd /usr && pwd").text == "/usr"
    assert shell.run("pwd").text == "/workspace"
    assert shell.run("mkdir gone && cd gone && rmdir ../gone").error is False
    assert shell.run("pwd").text == "/workspace"


@pytest.mark.parametrize(
    ("command", "signal"),
    [
        ("cat nothing.txt", "exit_code=1"),
        ("ls nothing", "exit_code=2"),
        ("gerp x logs/a.log", "exit_code=127"),
        ("grep -c '\\(' logs/a.log", "exit_code=2"),
        ("echo 'open", "exit_code=2"),
        ("exit 7", "exit_code=7"),
        ("kill -9 $$", "exit_code=137"),
        ("while :; do :; done", "timeout"),
        ("sleep 60", "timeout"),
        ("yes", "timeout"),
        ("a\0b", "tool_error"),
    ],
)
def test_failures_are_errors_with_their_exit_code(shell: Shell, command: str, signal: str) -> None:
    result = shell.run(command)
    assert (result.error, result.signal) == (True, signal)
    assert shell.run("echo alive").text == "alive"


def test_programs_that_ask_may_say_no(shell: Shell) -> None:
    nothing = shell.run("grep -r absent logs")
    assert (nothing.error, nothing.signal, nothing.text) == (False, "empty", "exit code 1")
    assert shell.run("diff logs/a.log logs/deep/b.log").error is False
    assert shell.run("test -e nothing").signal == "empty"
    assert shell.run("grep absent logs/a.log | sort").signal is None


@pytest.fixture
def patient(sandbox: Sandbox) -> Iterator[Shell]:
    """A shell whose commands may take as long as a loaded machine needs."""
    with Sandbox(Limits(cpu_seconds=5, wall_seconds=60.0, open_files=256, processes=64)) as opened:
        workspace = opened.workspace()
        workspace.write("a.txt", "one\n")
        shell = Shell(opened, workspace)
        shell.start()
        yield shell


def test_an_editor_ends_by_itself_and_says_what_to_do(patient: Shell) -> None:
    for editor in ("vi", "nano"):  # installed or not
        result = patient.run(f"{editor} a.txt")
        assert result.error and str(result.signal).startswith("exit_code="), result
        assert result.text.endswith("change files with sed, printf or a here-document)")
    assert patient.run("less a.txt").text in ("one", "bash: line 4: less: command not found\nexit code 127")
    assert patient.run("python3 -c 'input()' 2>&1 | tail -n 1").text in (
        "EOFError: EOF when reading a line",
        "bash: line 4: python3: command not found",
    )
    assert patient.run("read x; cat; echo got [$x]").text == "got []"


def test_an_editor_that_is_given_its_commands_works(patient: Shell) -> None:
    if patient.run("command -v ex").error:
        pytest.skip("vim is not installed")
    patient.run("ex -s -c %s/one/two/ -c wq a.txt")
    assert patient.run("cat a.txt").text == "two"


def test_git_asks_no_editor_unless_the_command_names_one(patient: Shell) -> None:
    if not has_git(patient):
        pytest.skip("git is not installed")
    patient.run("git init -q r && cd r && echo 1 > f && git add f && git commit -qm first && echo 2 > f && git add f")
    refused = patient.run("git commit")
    assert (refused.signal, refused.text.split("\n")[-1]) == (
        "exit_code=1",
        "(there is no editor here: give the message with -m or -F)",
    )
    own = ("GIT_EDITOR='sed -i 1s/^/second/' git commit -q", "git -c core.editor='sed -i 1s/^/my/' commit -q --amend")
    for command in (*own, "EDITOR='sed -i 1s/^/in/' git commit -q --amend", "git commit -q --amend"):
        assert not patient.run(command).error
    assert patient.run("git log --format=%s").text == "inmysecond\nfirst"
    assert not patient.run("git rebase -i HEAD~1").error  # the list as git wrote it
    assert patient.run("git log --format=%s").text == "inmysecond\nfirst"


@pytest.mark.parametrize("command", ["tail -f logs/a.log", "mkfifo p; cat p"])
def test_what_waits_is_stopped_and_told_why(shell: Shell, command: str) -> None:
    result = shell.run(command)
    assert result.signal == "timeout"
    assert "let every command end by itself" in result.text
    assert "let every command" not in shell.run("yes").text  # it printed too much: that says enough


def test_output_is_capped_with_its_middle_cut(shell: Shell) -> None:
    text = shell.run("seq 1 9000").text
    assert len(text) < OUTPUT_CHARACTERS + 60
    assert text.startswith("1\n2\n")
    assert text.endswith("8999\n9000")
    assert "characters cut" in text


def test_a_closed_pipe_ends_a_program_quietly(shell: Shell) -> None:
    assert shell.run("seq 1 200000 | sort | head -n 1").text == "1"


def test_there_is_no_network(shell: Shell) -> None:
    assert shell.run("exec 3<>/dev/tcp/1.1.1.1/80").error is True


def test_listings_show_no_owner_no_clock_and_no_real_path(sandbox: Sandbox) -> None:
    shown = []
    for _ in range(2):
        workspace = sandbox.workspace()
        workspace.write("logs/a.log", "one\n")
        shell = Shell(sandbox, workspace)
        shell.start()
        shell.run("mkdir out && cp logs/a.log out/ && tar -cf all.tar logs")
        shown.append(
            [shell.run("ls -lR").text, shell.run("stat -c '%n %Y' out/a.log; tar -tvf all.tar; echo $HOME").text]
        )
    assert shown[0] == shown[1]
    assert "agent agent" in shown[0][0]
    assert "datamix-sandbox" not in "".join(shown[0])


def test_git_gives_the_same_commits_at_every_run(sandbox: Sandbox) -> None:
    seen = []
    for _ in range(2):
        workspace = sandbox.workspace()
        workspace.write("repo/a.txt", "one\n")
        shell = Shell(sandbox, workspace)
        shell.start()
        if not has_git(shell):
            pytest.skip("git is not installed")
        shell.run("cd repo && git init -q && git add a.txt && git commit -qm first")
        seen.append(shell.run("git log --format='%H %an %ad'").text)
    assert seen[0] == seen[1]
    assert " Agent " in seen[0]
