"""A real shell in the sandbox, one process a command, whose output is the same wherever and whenever it runs.

Every command is run by bash in the workspace, started in the folder that the command before it ended in. What would
differ between runs is fixed or taken out of sight:

- locale, time zone, git's authors, dates and configuration are set by the environment;
- after a command everything that it changed gets a time of modification that counts commands;
- the workspace's real path reads /workspace, and that name in a command means it;
- there is no terminal: standard input is empty, pagers print, editors end at once;
- owners, block totals and sizes of folders in long listings, which depend on user and file system, read the same.

Not covered: `date`, `$RANDOM`, process and inode numbers, the order of an unsorted `find` or `ls -U`, and a real path
written into a file. A run that shows them does not replay, and is set aside for it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from filters.trajectory.shell import simple_commands
from pipelines.synthesis.environments.base import ToolResult
from pipelines.synthesis.sandbox import RunResult, Sandbox, Workspace
from pipelines.synthesis.sandbox.trees import walk
from pipelines.synthesis.sandbox.workspace import FIRST_TIME, MOUNT_NAME
from schemas.errors import UsageError

__all__ = ["NEEDED_TOOLS", "NOTHING_SHOWN", "OUTPUT_CHARACTERS", "Shell", "has_git"]

OUTPUT_CHARACTERS = 12_000
NOTHING_SHOWN = "no output"
NEEDED_TOOLS = (
    *("bash", "awk", "basename", "cat", "chmod", "comm", "cut", "find", "grep", "gzip", "head", "ls", "mkdir", "mv"),
    *("rmdir", "sed", "sort", "tail", "tar", "tr", "uniq", "wc", "xargs"),
)
WAITED = (
    "Nothing can be typed here and nothing is waited for: let every command end by itself (no editor, no `tail -f`, no "
    "`watch`, no server) and give input by options, a file or a pipe"
)
NO_EDITOR = "(there is no terminal for an editor: change files with sed, printf or a here-document)"
NO_MESSAGE, GIVE_MESSAGE = "empty commit message", "(there is no editor here: give the message with -m or -F)"
FIRST_GIT_TIME = 1_710_000_000
CHANGED_AFTER = FIRST_TIME + 10_000_000  # what is younger was changed by a command, not by the task's making
_ASKING = frozenset({"grep", "egrep", "fgrep", "diff", "cmp", "comm", "test", "[", "[["})
_END = re.compile(r"\x1e([^\x1e]*)\x1e\Z")
_WORKSPACE = re.compile(r"(?<![\w./-])/workspace(?![\w.-])")
_LONG = re.compile(r"^([bcdlps-](?:[r-][w-][xsStT-]){3}[.+@]?) +(\d+) +(\S+) +(\S+) +(\d+) ", re.M)
_TOTAL = re.compile(r"^total \d+$", re.M)
_GIT_SETTINGS = {
    "gc.auto": "0",
    "core.pager": "cat",
    "core.abbrev": "10",
    "init.defaultBranch": "main",
    "safe.directory": "*",
    "advice.detachedHead": "false",
    "advice.skippedCherryPicks": "false",
    "commit.gpgSign": "false",
    "merge.conflictStyle": "merge",
    "color.ui": "never",
    "log.decorate": "no",
    "maintenance.auto": "false",
}
# Nothing can be typed: pagers print, git takes its own text where there is one (GIT_EDITOR and core.editor are left to
# the command, which may set them), vim leaves once its own commands (-c) are done
_NO_TERMINAL = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "VIMINIT": "autocmd VimEnter * cquit",
}
_EDITORS = frozenset(("vi", "vim", "view", "vimdiff", "nvim", "nano", "pico", "emacs", "joe", "micro", "mcedit"))
_PROLOGUE = r"""
cd -- "$1" 2>/dev/null || cd -- "$2" 2>/dev/null  # closed to its owner: stay where the sandbox started us
trap 'printf "\036%s\036" "$PWD"' EXIT
eval "$3"
"""


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a command gave, before it becomes an observation."""

    text: str
    exit_code: int
    reason: str | None


class Shell:
    """The shell of one workspace. `start` begins a task: home folder, count of commands from zero."""

    def __init__(self, sandbox: Sandbox, workspace: Workspace) -> None:
        self._sandbox, self._workspace = sandbox, workspace
        self._folder, self._count = "", 0

    def start(self) -> None:
        """Go back to the workspace's top folder and forget what was run."""
        self._folder, self._count = str(self._workspace.root), 0

    def run(self, command: str) -> ToolResult:
        """Run a command as an agent wrote it and give the observation. Failures are results.

        Exit code 0, and exit code 1 of a last command that asks (grep, diff, comm, test), are no error.
        """
        self._count += 1
        if "\0" in command:
            return ToolResult("Error: a command cannot hold a NUL character", True, "tool_error")
        ran = self._bash(_WORKSPACE.sub(lambda _: str(self._workspace.root), command))
        self._settle()
        text = _stable(ran.text)
        if len(text) > OUTPUT_CHARACTERS:
            half = OUTPUT_CHARACTERS // 2
            text = f"{text[:half]}\n[… {len(text) - 2 * half} characters cut …]\n{text[-half:]}"
        if ran.reason:
            words = {"wall": "it took too long", "cpu": "it took too much processor time", "disk": "it wrote too much"}
            words |= {"output": "it printed too much", "lost": "it killed its interpreter"}
            said = words.get(ran.reason, "no process could be started")
            advice = f". {WAITED}" if ran.reason == "wall" else ""
            return ToolResult(f"{text}\nstopped: {said}{advice}".lstrip("\n"), True, "timeout")
        if ran.exit_code == 0:
            return ToolResult(text or NOTHING_SHOWN)
        text = f"{text}\nexit code {ran.exit_code}".lstrip("\n")
        commands = simple_commands(command)
        asked = ran.exit_code == 1 and bool(commands) and commands[-1][0] in _ASKING
        if asked:
            return ToolResult(text, False, None if ran.text else "empty")
        if any(words[0] in _EDITORS for words in commands):
            text = f"{text}\n{NO_EDITOR}"
        elif NO_MESSAGE in ran.text:
            text = f"{text}\n{GIVE_MESSAGE}"
        return ToolResult(text, True, f"exit_code={ran.exit_code}")

    def script(self, text: str, stdin: str = "") -> RunResult:
        """Run a script of our own (setting up, verifying) in the workspace's top folder with the same environment."""
        argv = ["bash", "--norc", "--noprofile", "-c", text]
        return self._sandbox.run_command(
            ["env", *self._environment(), *argv], self._workspace, stdin, output_bytes=1 << 20
        )

    def _bash(self, command: str) -> _Ran:
        root = str(self._workspace.root)
        argv = ["bash", "--norc", "--noprofile", "-c", _PROLOGUE, "bash", self._folder or root, root, command]
        run = self._sandbox.run_command(
            ["env", *self._environment(), *argv], self._workspace, output_bytes=4 * OUTPUT_CHARACTERS
        )
        text = run.output
        end = _END.search(text)
        if end is not None:
            text = text[: end.start()]
            folder = end[1].replace(MOUNT_NAME, root, 1) if end[1].startswith(MOUNT_NAME) else end[1]
            self._folder = folder if Path(folder).is_relative_to(root) else root
        return _Ran(text.rstrip("\n"), run.exit_code, run.reason)

    def _environment(self) -> list[str]:
        """NAME=value words for env(1)."""
        date = f"{FIRST_GIT_TIME + 60 * self._count} +0000"
        values = {
            "HOME": str(self._workspace.root),
            "LC_ALL": "C",
            "TZ": "UTC",
            **_NO_TERMINAL,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_AUTHOR_NAME": "Agent",
            "GIT_AUTHOR_EMAIL": "agent@example.org",
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_NAME": "Agent",
            "GIT_COMMITTER_EMAIL": "agent@example.org",
            "GIT_COMMITTER_DATE": date,
            "GIT_CEILING_DIRECTORIES": str(self._workspace.root.parent),
            "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
            "TAR_OPTIONS": "--owner=agent:1000 --group=agent:1000",
        }
        for number, (name, value) in enumerate(_GIT_SETTINGS.items()):
            values[f"GIT_CONFIG_KEY_{number}"], values[f"GIT_CONFIG_VALUE_{number}"] = name, value
        return [f"{name}={value}" for name, value in values.items()]

    def _settle(self) -> None:
        """Give everything that the command changed a time that only counts commands (not inside .git)."""
        stamp = CHANGED_AFTER - 10_000 + self._count
        for parent, folders, names in walk(self._workspace.root):
            folders[:] = [name for name in folders if name != ".git"]
            for name in (*names, *folders, "."):
                path = f"{parent}/{name}"  # text: a thousand files are looked at after every command
                try:
                    if os.lstat(path).st_mtime > CHANGED_AFTER:
                        os.utime(path, (stamp, stamp), follow_symlinks=False)
                except OSError:
                    continue  # closed to us by its permissions: its time then shows in no listing either


def _stable(text: str) -> str:
    """Long listings without what depends on user and file system."""
    text = _TOTAL.sub("total 0", text)

    def line(match: re.Match[str]) -> str:
        size = "4096" if match[1].startswith("d") else match[5]
        return f"{match[1]} {match[2]} agent agent {size:>8} "

    return _LONG.sub(line, text)


def probe_tools(shell: Shell, names: tuple[str, ...]) -> list[str]:
    """Which of these programs the sandbox has on its PATH."""
    run = shell.script(f"for p in {' '.join(names)}; do command -v $p > /dev/null && echo $p; done; true")
    return run.output.split()


def has_git(shell: Shell) -> bool:
    """Whether git jobs can be given here. Raises UsageError when a program that every task needs is missing."""
    found = set(probe_tools(shell, (*NEEDED_TOOLS, "git")))
    missing = [name for name in NEEDED_TOOLS if name not in found]
    if missing:
        raise UsageError(
            f"the family terminal needs {', '.join(missing)} in the sandbox (on /usr/local/bin:/usr/bin:/bin). "
            "Install GNU coreutils, findutils, grep, sed, awk, tar and bash"
        )
    return "git" in found
