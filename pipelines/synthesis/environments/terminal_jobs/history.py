"""What the git jobs share: histories as git fast-import reads them, and the steps that look at one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pipelines.synthesis.environments.terminal_jobs.base import File, Step
from pipelines.synthesis.environments.terminal_jobs.words import HOSTS, NOUNS, PEOPLE, pick_names

__all__ = ["History", "as_bytes", "as_files", "changed_line", "grown", "log_step", "settings_text", "show_steps"]
__all__ += ["sizes", "status_step"]

FIRST_COMMIT = 1_690_000_000
VERBS = ("Add", "Raise", "Lower", "Set", "Adjust", "Tune")


@dataclass(slots=True)
class History:
    """A git fast-import stream as it is written; branches hold (mark, files)."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    marks: int = 0
    branches: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    authors: list[str] = field(default_factory=list)  # of main's commits, oldest first
    subjects: list[str] = field(default_factory=list)

    def commit(self, branch: str, subject: str, changes: dict[str, str], start: str | None = None) -> None:
        """One commit on a branch; `start` names the branch that a new one leaves from."""
        origin = self.branches.get(branch) or (self.branches[start] if start else None)
        self.marks += 1
        author = self.random.choice(PEOPLE)
        if branch == "main":
            self.authors.append(author)
            self.subjects.append(subject)
        stamp = f"{author} <{author.split()[0].lower()}@example.org> {FIRST_COMMIT + 3_607 * self.marks} +0000"
        self.lines += [f"commit refs/heads/{branch}", f"mark :{self.marks}", f"author {stamp}", f"committer {stamp}"]
        self.lines += [f"data {len(subject.encode()) + 1}", subject, ""]
        if origin is not None:
            self.lines.append(f"from :{origin[0]}")
        for path, text in changes.items():
            self.lines += [f"M 100644 inline {path}", f"data {len(text.encode())}", text]
        self.lines.append("")
        self.branches[branch] = (self.marks, {**(origin[1] if origin else {}), **changes})

    def files(self, branch: str) -> dict[str, str]:
        """The files at a branch's tip."""
        return self.branches[branch][1]

    def stream(self) -> str:
        """Everything as git fast-import reads it."""
        return "\n".join([*self.lines, "done", ""])


def settings_text(generator: random.Random, name: str, lines: int) -> str:
    keys = pick_names(generator, lines)
    return f"# {name}\n" + "".join(f"{key} = {generator.randint(1, 99)}\n" for key in keys)


def changed_line(generator: random.Random, text: str, value: str | None = None) -> tuple[str, str]:
    """(text with another number in one line, the key of that line)."""
    lines = text.split("\n")
    number = generator.randrange(1, len(lines) - 1)
    key, _, old = lines[number].partition(" = ")
    new = value or str(generator.choice([n for n in range(100, 999) if str(n) != old]))
    lines[number] = f"{key} = {new}"
    return "\n".join(lines), key


def grown(generator: random.Random, commits: int, lines: int) -> History:
    """A main branch: a first commit with a few files, then one changed line a commit, each line at most once."""
    history = History(generator)
    names = [
        f"{kind}/{name}.cfg"
        for kind, name in zip(("app", "app", "jobs", "net", "net"), pick_names(generator, 5), strict=True)
    ]
    history.commit("main", "First version", {path: settings_text(generator, path, lines) for path in names})
    touched: set[tuple[str, str]] = set()
    while len(history.subjects) < commits:
        path = generator.choice(names)
        text, key = changed_line(generator, history.files("main")[path])
        if (path, key) in touched and len(touched) < len(names) * lines * 0.8:
            continue
        touched.add((path, key))
        subject = f"{generator.choice(VERBS)} {key} for {generator.choice(HOSTS)} {generator.randint(2, 999)}"
        history.commit("main", subject, {path: text})
    return history


def as_bytes(files: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def as_files(folder: str, files: dict[str, str]) -> dict[str, File]:
    return {f"{folder}/{path}": File(text.encode()) for path, text in files.items()}


def log_step(folder: str) -> Step:
    wrong = (
        ("wrong_path", f"git -C {folder}-work log --oneline"),
        ("bad_option", f"git -C {folder} log --one-line"),
        ("not_a_repository", "git log --oneline"),
    )
    why = ("First the history.", "What happened in this repository?", "The log, one line a commit.")
    return Step(f"git -C {folder} log --oneline | head -n 60", why, wrong)


def show_steps(generator: random.Random, folder: str, commits: int, budget: float) -> list[Step]:
    """`git show` of the newest commits, as far as the budget goes (about 640 characters each)."""
    steps = []
    for back in range(min(commits - 1, int(budget / 640))):
        revision = "HEAD" if back == 0 else f"HEAD~{back}"
        wrong = (
            ("bad_revision", f"git -C {folder} show {revision}~{commits + 5}"),
            ("bad_revision", f"git -C {folder} show release/{generator.choice(NOUNS)}"),
            ("bad_option", f"git -C {folder} show --patchwork {revision}"),
        )
        why = (f"What did {revision} change?", f"I look at {revision}.", "The next commit back.")
        steps.append(Step(f"git -C {folder} show {revision}", why, wrong, 430))
    return steps


def sizes(scale: float) -> tuple[int, int]:
    """(commits, lines a file) for about `scale` characters."""
    return max(4, min(60, int(scale / 700))), 8 if scale < 4_000 else 14


def status_step(folder: str) -> Step:
    wrong = (("bad_option", f"git -C {folder} status --shorter"), ("wrong_path", f"git -C {folder}.git status"))
    return Step(
        f"git -C {folder} status --short --branch && git -C {folder} log --oneline | head -n 4",
        ("Is everything committed?", "The state afterwards.", "A last look."),
        wrong,
    )
