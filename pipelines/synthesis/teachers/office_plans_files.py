"""Plans of the office teacher for papers and lists: file, rename, merge."""

from __future__ import annotations

from pipelines.synthesis.environments.offices.contacts import HEADER, Merge
from pipelines.synthesis.environments.offices.documents import csv_text
from pipelines.synthesis.environments.offices.filing import Filing, Paper
from pipelines.synthesis.environments.offices.world import Goal
from pipelines.synthesis.teachers.office_hand import OfficeHand, Wrong
from pipelines.synthesis.teachers.scripted import Plan

__all__ = ["plan_filing", "plan_merging"]


def plan_filing(t: OfficeHand, goal: Goal) -> Plan:
    """Read each paper in the order of the listing, decide, make what is missing, move."""
    plan: Filing = goal.plan
    area = plan.inbox.rsplit("/", 1)[0]
    if goal.kind == "file":
        yield from t.look(
            area, "Which folders does {p} have already?", "First the folders of {p}.", "How is {p} laid out?"
        )
    yield from t.look(plan.inbox)
    moved = 0
    for paper in sorted(plan.papers, key=lambda one: one.path):
        yield from t.read(paper.path)
        name = paper.path.rsplit("/", 1)[-1]
        if paper.to is None:
            t.think(
                "{n} is marked DRAFT: it stays where it is.",
                "A draft ({n}), so I leave it alone.",
                "{n} says DRAFT; nothing to do with it.",
                n=name,
            )
            continue
        yield from _move(t, goal.kind, paper)
        moved += 1
    drafts = len(plan.papers) - moved
    left = f", {drafts} draft{'s' if drafts > 1 else ''} left in place" if drafts else ""
    done = "filed" if goal.kind == "file" else "renamed"
    t.summary.append(f"{plan.inbox}: {moved} paper{'s' if moved != 1 else ''} {done}{left}.")


def _move(t: OfficeHand, kind: str, paper: Paper) -> Plan:
    to = str(paper.to)
    name, (folder, _, new) = paper.path.rsplit("/", 1)[-1], to.rpartition("/")
    arguments = {"path": paper.path, "to": to}
    if kind == "file":
        why = t.pick(
            "{n}: {w}. It belongs in {f}.",
            "Here {w}, so {n} goes to {f}.",
            "{w}, which means {f}.",
            "For {n} I find that {w}: {f}.",
            "{n} can be filed: {w}, hence {f}.",
            n=name, w=paper.why, f=folder,
        )  # fmt: skip
        why = why if why.startswith(name) else why[0].upper() + why[1:]
        if folder not in t.folders:
            t.thoughts.append(why)
            why = t.pick("Now the file itself.", "And now {n} into it.", "{n} can go in.", n=name)
        yield from t.folder(folder, "", arguments)
    else:
        why = t.pick(
            "{n} is {w}: the name becomes {new}.",
            "{w}, so {n} should be called {new}.",
            "What I see in {n} is {w}. By the pattern that gives {new}.",
            "{n}: {w}, hence {new}.",
            n=name, w=paper.why, new=new,
        )  # fmt: skip
    others = [path for path in t.world.files if path.rsplit("/", 1)[0] == paper.path.rsplit("/", 1)[0]]
    taken = t.random.choice(others)
    wrong: Wrong = [
        ("wrong_path", {"path": f"{folder}/{name}" if kind == "file" else name, "to": to}),
        ("wrong_folder", {"path": paper.path, "to": f"{folder} new/{new}"}),
    ]
    if taken != paper.path and taken not in t.moved:
        wrong.append(("target_taken", {"path": paper.path, "to": taken}))
    if kind == "file":
        wrong.append(("folder_for_file", {"path": paper.path, "to": folder}))
    yield from t.go("move_file", arguments, why, wrong)
    t.moved.add(paper.path)


def plan_merging(t: OfficeHand, goal: Goal) -> Plan:
    """Read all lists, compare entries of one address, write the merged list."""
    plan: Merge = goal.plan
    yield from t.look(next(iter(plan.lists)).rsplit("/", 1)[0])
    for path in sorted(plan.lists):
        yield from t.read(path)
        count = len(plan.lists[path])
        t.think(
            "{n} has {c} entries.",
            "{c} people in {n}.",
            "That is {c} more entries, from {n}.",
            n=path.rsplit("/", 1)[-1], c=count,
        )  # fmt: skip
    seen: dict[str, list[str]] = {}
    for path in sorted(plan.lists):
        for entry in plan.lists[path]:
            seen.setdefault(entry.key, []).append(f"{entry.updated.isoformat()} in {path.rsplit('/', 1)[-1]}")
    kept = {entry.key: entry for entry in plan.kept}
    doubles = [
        f"{key}: {', '.join(places)}; kept: {kept[key].updated.isoformat()}, {kept[key].name}, {kept[key].phone}"
        for key, places in sorted(seen.items())
        if len(places) > 1
    ]
    t.think(
        "{d} people are there more than once. The latest entry counts:\n{l}",
        "Doubles by address ({d}), each with the entry to keep:\n{l}",
        d=len(doubles), l="\n".join(f"- {line}" for line in doubles),
    )  # fmt: skip
    total = sum(map(len, plan.lists.values()))
    why = t.pick(
        "{a} entries become {b} people. I write {p}.",
        "That leaves {b} of {a} entries, which I sort and write to {p}.",
        a=total, b=len(plan.rows), p=plan.target,
    )  # fmt: skip
    content = csv_text([HEADER, *plan.rows])
    existing = [path for path in plan.lists if path.endswith(".csv")]
    folder, _, name = plan.target.rpartition("/")
    wrong: Wrong = [
        ("wrong_folder", {"path": f"{folder}/output/{name}", "content": content}),
        ("wrong_format", {"path": plan.target.removesuffix("csv") + "xlsx", "content": content}),
    ]
    if existing:
        wrong.append(("target_taken", {"path": t.random.choice(existing), "content": content}))
    yield from t.go("write_file", {"path": plan.target, "content": content}, why, wrong)
    if t.random.random() < 0.3 and len(plan.rows) < 100:
        yield from t.read(plan.target, "A look at what was written.", "I check {n} once.")
        t.think("{c} rows and the header, as it should be.", "The list is complete: {c} people.", c=len(plan.rows))
    t.summary.append(f"{plan.target}: {len(plan.rows)} people from {total} entries in {len(plan.lists)} lists.")
