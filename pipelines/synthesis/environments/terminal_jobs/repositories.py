"""Jobs in git repositories: asking the history, reverting, merging with conflicts."""

from __future__ import annotations

import random

from pipelines.synthesis.environments.terminal_jobs.base import Job, RepositoryGoal, Step
from pipelines.synthesis.environments.terminal_jobs.history import (
    History,
    as_bytes,
    as_files,
    changed_line,
    grown,
    log_step,
    settings_text,
    show_steps,
    sizes,
    status_step,
)
from pipelines.synthesis.environments.terminal_jobs.words import NOUNS, folder_name

__all__ = ["ask_history", "merge_conflict", "revert_commit"]


def ask_history(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Who changed a line, in which commit, how many commits somebody made."""
    folder = folder_name(generator, taken, "repo")
    commits, lines = sizes(scale)
    history = grown(generator, commits, lines)
    number = generator.randrange(1, len(history.subjects))
    subject, author = history.subjects[number], history.authors[number]
    key = subject.split()[1]
    kind = generator.choice(("author", "count", "subject"))
    if kind == "author":
        request = f"In the git repository {folder}: who is the author of the commit with the subject “{subject}”?"
        answer, command = author, f"git -C {folder} log --format=%an --grep='{subject}'"
    elif kind == "count":
        request = f"How many commits on main of the git repository {folder} are by {author}?"
        answer, command = (
            str(history.authors.count(author)),
            f"git -C {folder} log --format=%an main | grep -cx '{author}'",
        )
    else:
        last = max(n for n, text in enumerate(history.subjects) if n and text.split()[1] == key)
        request = (
            f"What is the subject of the last commit in the git repository {folder} that changed a line of "
            f"the setting {key}?"
        )
        answer, command = history.subjects[last], f"git -C {folder} log -1 --format=%s -G'^{key} = '"
    wrong = (
        ("bad_revision", f"git -C {folder} log --format=%an trunk"),
        ("bad_option", f"git -C {folder} log --authors"),
        ("wrong_path", f"git -C {folder}-old log"),
    )
    steps = [log_step(folder), *show_steps(generator, folder, commits, scale - 2_200)]
    steps.append(Step(command, ("The log answers it.", "Now the question itself.", "git log with a filter."), wrong))
    tree = history.files("main")
    goal = RepositoryGoal(folder, history.stream(), "main", "main", as_bytes(tree), 0, contains=("main",))
    return Job(
        "ask_history",
        folder,
        request,
        {},
        as_files(folder, tree),
        steps,
        f"{folder}: read off the history.",
        answer,
        repository=goal,
    )


def revert_commit(generator: random.Random, taken: set[str], scale: float) -> Job:
    """A commit in the middle of the history is taken back by a new one."""
    folder = folder_name(generator, taken, "source")
    commits, lines = sizes(scale)
    history = grown(generator, max(2, commits - 2), lines)
    before = history.files("main")
    path = generator.choice(sorted(before))
    spoiled = before[path] + f"debug = {generator.randint(1, 9)}\ntrace = all\n"
    subject = f"Enable tracing in {path.split('/')[1]} {generator.randint(2, 999)}"
    history.commit("main", subject, {path: spoiled})
    for _ in range(2):
        other = generator.choice(sorted(p for p in before if p != path))
        text, key = changed_line(generator, history.files("main")[other])
        history.commit("main", f"Set {key} after review {generator.randint(2, 999)}", {other: text})
    final = {**history.files("main"), path: before[path]}
    request = (
        f"In the git repository {folder} the commit “{subject}” on main has to be taken back with a new "
        "commit (git revert); the history before stays as it is and later commits keep their effect."
    )
    find = f"git -C {folder} log --format=%h --grep='{subject}'"
    wrong = (
        ("bad_revision", f"git -C {folder} revert --no-edit tracing"),
        ("bad_revision", f"git -C {folder} revert --no-edit HEAD~400"),
        ("wrong_path", f"git -C {folder}/main revert --no-edit HEAD"),
    )
    steps = [
        log_step(folder),
        *show_steps(generator, folder, commits, scale - 3_000),
        Step(
            f"git -C {folder} show $({find})",
            ("What did that commit do?", "I look at the commit before I take it back."),
            wrong[:1],
        ),
        Step(f"git -C {folder} revert --no-edit $({find})", ("Now the revert.", "A new commit that undoes it."), wrong),
        status_step(folder),
    ]
    goal = RepositoryGoal(folder, history.stream(), "main", "main", as_bytes(final), 1, contains=("main",))
    return Job(
        "revert_commit",
        folder,
        request,
        {},
        as_files(folder, final),
        steps,
        f"{folder}: the commit was reverted.",
        repository=goal,
    )


def _conflict(
    generator: random.Random, history: History, branch: str, side: str, count: int
) -> tuple[list[str], dict[str, str]]:
    """Lets main and a new branch change one line in each of `count` files: (these files, all files once merged)."""
    base = history.files("main")
    fought = generator.sample(sorted(base), count)
    theirs, ours, keys = {}, {}, []
    for path in fought:
        theirs[path], key = changed_line(generator, base[path])
        value = str(generator.randint(1_000, 9_999))
        ours[path] = "\n".join(
            f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in base[path].split("\n")
        )
        keys.append(key)
    added = f"docs/{generator.choice(NOUNS)}.cfg"
    history.commit(
        branch,
        f"Work on {branch.split('/')[1]} {generator.randint(2, 999)}",
        {**theirs, added: settings_text(generator, added, 3)},
        start="main",
    )
    history.commit("main", f"Set {keys[0]} on main {generator.randint(2, 999)}", ours)
    final = {**history.files("main"), added: history.files(branch)[added]}
    final |= theirs if side == "branch" else {}
    return fought, final


def merge_conflict(generator: random.Random, taken: set[str], scale: float) -> Job:
    """A branch is merged; the lines that both sides changed are decided by a rule."""
    folder = folder_name(generator, taken, "merge")
    commits, lines = sizes(scale)
    history = grown(generator, max(2, commits - 3), lines)
    branch = f"feature/{generator.choice(NOUNS)}"
    side = generator.choice(("branch", "main"))
    fought, final = _conflict(generator, history, branch, side, 1 if scale < 5_000 else generator.randint(1, 3))
    request = (
        f"In the git repository {folder}, merge the branch {branch} into main with a merge commit. Where "
        f"both changed the same line, the value of {branch if side == 'branch' else 'main'} counts."
    )
    flag = "--theirs" if side == "branch" else "--ours"
    names = " ".join(fought)
    wrong = (
        ("bad_revision", f"git -C {folder} merge {branch}s"),
        ("bad_revision", f"git -C {folder} merge origin/{branch}"),
        ("bad_option", f"git -C {folder} merge --fast {branch}"),
    )
    steps = [
        log_step(folder),
        Step(
            f"git -C {folder} branch -a && git -C {folder} log --oneline main..{branch}",
            ("Which branches are there, and what is new on the other?", "What would the merge bring?"),
            (("bad_revision", f"git -C {folder} log --oneline master..{branch}"),),
        ),
        *show_steps(generator, folder, commits, scale - 3_800),
        Step(
            f"git -C {folder} merge --no-edit {branch} || git -C {folder} status --short",
            ("I start the merge; conflicts are to be expected.", "Now the merge."),
            wrong,
        ),
    ]
    steps += [
        Step(
            f"cat {folder}/{path}",
            (f"The conflict in {path}.", f"How does {path} look between the marks?"),
            (("wrong_path", f"cat {path}.orig"),),
        )
        for path in fought
    ]
    steps += [
        Step(
            (
                f"git -C {folder} checkout {flag} -- {names} && git -C {folder} add {names} && git -C {folder} "
                "commit --no-edit -q"
            ),
            (
                f"The rule says {side}: {flag}.",
                f"I take the {'branch' if side == 'branch' else 'main'}'s lines and conclude the merge.",
            ),
            (
                ("wrong_path", f"git -C {folder} checkout {flag} -- {fought[0]}.cfg"),
                ("nothing_resolved", f"git -C {folder} commit --no-edit -q"),
            ),
        ),
        status_step(folder),
    ]
    goal = RepositoryGoal(folder, history.stream(), "main", "main", as_bytes(final), 2, 2, ("main", branch))
    return Job(
        "merge_conflict",
        folder,
        request,
        {},
        as_files(folder, final),
        steps,
        f"{folder}: {branch} is merged.",
        repository=goal,
    )
