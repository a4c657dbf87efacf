"""Jobs with the branches of git repositories: picking one commit for a release, tidying and tagging."""

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
from pipelines.synthesis.environments.terminal_jobs.words import HOSTS, NOUNS, PRODUCTS, folder_name, pick_names

__all__ = ["cherry_pick", "tidy_branches"]


def cherry_pick(generator: random.Random, taken: set[str], scale: float) -> Job:
    """One commit of main is wanted on a release branch."""
    folder = folder_name(generator, taken, "release")
    commits, lines = sizes(scale)
    history = grown(generator, max(2, commits - 3), lines)
    branch = f"release/{generator.randint(1, 9)}.{generator.randint(0, 9)}"
    base = history.files("main")
    history.commit(branch, f"Prepare {branch}", {"VERSION": branch.split("/")[1] + "\n"}, start="main")
    fixed = f"fixes/{generator.choice(PRODUCTS)}.cfg"
    subject = f"Fix {fixed.split('/')[1]} for {generator.choice(HOSTS)} {generator.randint(2, 999)}"
    for number in range(3):
        if number == 1:
            history.commit("main", subject, {fixed: settings_text(generator, fixed, 4)})
            continue
        path = sorted(base)[number]
        text, key = changed_line(generator, history.files("main")[path])
        history.commit("main", f"Set {key} {generator.randint(2, 999)}", {path: text})
    final = {**history.files(branch), fixed: history.files("main")[fixed]}
    request = (
        f"In the git repository {folder}, put the commit “{subject}” of main on the branch {branch} as "
        f"well (git cherry-pick), and nothing else of main. Leave {branch} checked out."
    )
    find = f"git -C {folder} log main --format=%h --grep='{subject}'"
    wrong = (
        ("bad_revision", f"git -C {folder} cherry-pick fix"),
        ("bad_revision", f"git -C {folder} cherry-pick main~400"),
    )
    steps = [
        log_step(folder),
        *show_steps(generator, folder, commits, scale - 3_000),
        Step(
            f"git -C {folder} checkout -q {branch} && git -C {folder} log --oneline | head -n 3",
            (f"To {branch} first.", "I switch to the release branch."),
            (
                ("bad_revision", f"git -C {folder} checkout -q {branch}.x"),
                ("bad_revision", f"git -C {folder} checkout releases"),
            ),
        ),
        Step(
            f"git -C {folder} cherry-pick $({find})",
            ("Now that one commit.", "The commit is found by its subject and picked."),
            wrong,
        ),
        status_step(folder),
    ]
    goal = RepositoryGoal(
        folder, history.stream(), "main", branch, as_bytes(final), 1, contains=(branch,), refs={"main": "main"}
    )
    return Job(
        "cherry_pick",
        folder,
        request,
        {},
        as_files(folder, final),
        steps,
        f"{folder}: the fix is on {branch}.",
        repository=goal,
    )


def _topics(generator: random.Random, history: History) -> tuple[dict[str, str], dict[str, str]]:
    """Adds topic branches: (those that are merged into main, those that are not), each name with itself."""
    old: dict[str, str] = {}
    keep: dict[str, str] = {}
    for name in pick_names(generator, generator.randint(3, 6)):
        branch = f"topic/{name}"
        if len(old) < 1 or generator.random() < 0.5:
            mark = history.branches["main"][0] - generator.randint(0, min(2, history.marks - 1))
            history.lines += [f"reset refs/heads/{branch}", f"from :{max(1, mark)}", ""]
            old[branch] = branch
        else:
            keep[branch] = branch
    for branch in keep:
        history.commit(branch, f"Try {branch.split('/')[1]}", {"try.cfg": f"{branch}\n"}, start="main")
    return old, keep


def tidy_branches(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Merged branches go, the others stay; a tag marks a commit."""
    folder = folder_name(generator, taken, "branches")
    commits, lines = sizes(scale)
    history = grown(generator, commits, lines)
    old, keep = _topics(generator, history)
    tag = f"v{generator.randint(1, 9)}.{generator.randint(0, 20)}"
    request = (
        f"In the git repository {folder}: delete every topic branch that is merged into main, keep the "
        f"others, and set a (lightweight) tag {tag} on the tip of main. How many branches were deleted?"
    )
    delete = (
        f"git -C {folder} branch --merged main --list 'topic/*' --format='%(refname:short)' | xargs -n 1 "
        f"git -C {folder} branch -d"
    )
    wrong = (
        ("bad_revision", f"git -C {folder} branch -d topic/{generator.choice(NOUNS)}"),
        ("bad_revision", f"git -C {folder} tag {tag} master"),
        ("bad_option", f"git -C {folder} branch --all-merged"),
    )
    steps = [
        log_step(folder),
        *show_steps(generator, folder, commits, scale - 3_000),
        Step(
            f"git -C {folder} branch --merged main && echo not merged: && git -C {folder} branch --no-merged main",
            ("Which branches are merged, which not?", "First the two groups."),
            wrong[2:],
        ),
        Step(
            delete, ("The merged topic branches go.", "branch -d refuses what is not merged, so it is safe."), wrong[:1]
        ),
        Step(
            f"git -C {folder} tag {tag} main && git -C {folder} branch --list && git -C {folder} tag",
            ("Now the tag, and a look at what is left.", f"{tag} on main."),
            wrong[1:2],
        ),
    ]
    tree = history.files("main")
    goal = RepositoryGoal(
        folder,
        history.stream(),
        "main",
        "main",
        as_bytes(tree),
        0,
        1,
        ("main",),
        {f"refs/tags/{tag}": "main", **keep},
        tuple(sorted(old)),
    )
    return Job(
        "tidy_branches",
        folder,
        request,
        {},
        as_files(folder, tree),
        steps,
        f"{folder}: {len(old)} branches deleted, {tag} set.",
        str(len(old)),
        repository=goal,
    )
