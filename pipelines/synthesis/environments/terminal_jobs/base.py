"""What a job at the shell is: files, a request, the files or the answer that must come out, and a way to get there."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["File", "Job", "RepositoryGoal", "Step", "listing", "look", "quoted", "reading", "slips"]

LINES_A_PAGE = 120
ON_WHY = ("Now {p}.", "Next, {p}.", "{p} is next.", "On to {p}.", "And {p}?")  # for files after the first
LARGEST_CAT = 6_000  # bytes: longer files are read in pages


@dataclass(frozen=True, slots=True)
class File:
    """Content and permission bits."""

    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the expert's way: why (one of several wordings), and commands that would go wrong in its place.

    `wrong` are (kind of mistake, command): each fails with an exit code and changes nothing. `shows` is about how many
    characters the command prints.
    """

    command: str
    why: tuple[str, ...]
    wrong: tuple[tuple[str, str], ...] = ()
    shows: int = 160


@dataclass(frozen=True, slots=True)
class RepositoryGoal:
    """A git repository `folder` made by `stream` (git fast-import), with `branch` checked out.

    Afterwards: the work tree is clean, `head` (a branch) has exactly the files `tree` and `commits` commits more than
    at the start, `parents` parents at its tip, and every ref of `contains` (as it was at the start) among its
    ancestors. `refs` are further names that must exist, with the ref whose start they point at; `gone` are branches
    that must not.
    """

    folder: str
    stream: str
    branch: str
    head: str
    tree: Mapping[str, bytes]
    commits: int
    parents: int = 1
    contains: tuple[str, ...] = ()
    refs: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


@dataclass(slots=True)
class Job:
    """One job in a folder of its own. Paths are relative to the workspace; `expected` is the folder in the end.

    `archives` are tar files that must hold exactly these members, compared by content; `gone` folders that must not be
    there. `answer` is None where there is none to give. `done` is what the final report says of it.
    """

    kind: str
    folder: str
    request: str
    files: dict[str, File]
    expected: dict[str, File]
    steps: list[Step]
    done: str
    answer: str | None = None
    archives: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    repository: RepositoryGoal | None = None


def quoted(text: str) -> str:
    """One word of a shell command."""
    return shlex.quote(text)


def slips(generator: random.Random, command: str, path: str = "") -> tuple[tuple[str, str], ...]:
    """A command as it is mistyped: a path that does not exist, an option that does not exist, a program misspelt.

    For commands whose first program reads: nothing is changed by any of them.
    """
    program, _, rest = command.partition(" ")
    middle = len(program) // 2
    typo = program[:middle] + program[middle + 1 : middle + 2] + program[middle : middle + 1] + program[middle + 2 :]
    found = [("bad_option", f"{program} --{generator.choice(('colour-all', 'al', 'verbos', 'in-order'))} {rest}")]
    if typo != program and len(program) > 2:
        found.append(("misspelt_command", f"{typo} {rest}"))
    if path and path in command:
        head, _, tail = path.rpartition("/")
        wrong = [f"{head}s/{tail}" if head else f"{tail}s", f"{path.rstrip('/')}.old", f"src/{path}"]
        found += [("wrong_path", command.replace(path, generator.choice(wrong)).split(" | ")[0])] * 2
    return tuple((kind, text.split(" | ")[0]) for kind, text in found)


def look(generator: random.Random, folder: str) -> Step:
    """The first look at a job's folder."""
    command = generator.choice((f"find {folder} -type f | sort | head -n 60", f"ls -R {folder} | head -n 80"))
    why = (
        "First I look at what {f} holds.",
        "What is in {f}?",
        "I start with the layout of {f}.",
        "Before changing anything I list {f}.",
    )
    wrong = [
        ("wrong_path", f"ls -R {folder}s"),
        ("wrong_path", f"ls {folder}/data-old"),
        ("bad_option", f"ls --all-of {folder}"),
    ]
    return Step(command, tuple(text.format(f=folder) for text in why), tuple(wrong), 1_000)


def listing(folder: str, why: Sequence[str]) -> Step:
    """A sorted list of the files below a folder."""
    return Step(f"find {folder} -type f | sort", tuple(why), (("wrong_path", f"find {folder}-final -type f"),), 1_500)


def reading(
    generator: random.Random, files: Mapping[str, File], paths: Sequence[str], budget: float, why: Sequence[str]
) -> list[Step]:
    """Steps that read files until about `budget` characters were seen: short ones whole, long ones in pages."""
    steps: list[Step] = []
    left = budget
    for path in paths:
        if left <= 0:
            break
        data = files[path].data
        name = quoted(path)
        reasons = tuple(text.format(p=path) for text in (*why, *(ON_WHY if steps else ())))
        if len(data) <= LARGEST_CAT:
            steps.append(Step(f"cat {name}", reasons, slips(generator, f"cat {name}", path), len(data)))
            left -= len(data)
            continue
        lines = data.count(b"\n")
        width = max(1.0, len(data) / max(1, lines))
        page = max(20, min(LINES_A_PAGE, int(9_000 / width)))
        for first in range(1, lines + 1, page):
            if left <= 0:
                break
            command = f"sed -n '{first},{min(first + page - 1, lines)}p' {name}"
            wrong = [*slips(generator, command, path), ("bad_script", f"sed -n '{first},{first + page - 1}' {name}")]
            steps.append(
                Step(
                    command,
                    reasons if first == 1 else (f"On from line {first}.", "The next part.", f"Lines {first} and on."),
                    tuple(wrong),
                    int(width * page),
                )
            )
            left -= page * width
    return steps
