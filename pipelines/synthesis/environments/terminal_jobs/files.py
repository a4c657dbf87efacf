"""Jobs on files themselves: filing by date or kind, renaming, permissions, comparing lists."""

from __future__ import annotations

import random

from pipelines.synthesis.environments.terminal_jobs.base import File, Job, Step, listing, look, quoted, reading
from pipelines.synthesis.environments.terminal_jobs.words import (
    HOSTS,
    NOUNS,
    PEOPLE,
    PRODUCTS,
    date_text,
    folder_name,
    pick_names,
)

__all__ = ["compare_lists", "file_by_date", "file_by_kind", "permissions", "rename"]

CHECK = ("Does the tree look right?", "I check where everything is now.", "A listing of the result.")


def _note(generator: random.Random, size: int) -> str:
    """A few plain lines of about `size` characters."""
    lines = [f"{generator.choice(PEOPLE)}, {date_text(generator)}"]
    while sum(map(len, lines)) < size:
        place, goods = generator.choice(NOUNS), generator.choice(PRODUCTS)
        lines.append(
            f"{generator.randint(2, 400)} {goods}s for {place}, {generator.choice(HOSTS)} {generator.randint(1, 60)}."
        )
    return "\n".join(lines) + "\n"


def file_by_date(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Scans whose date stands in the name, or in the text, go to YYYY/MM."""
    folder = folder_name(generator, taken, "scans")
    inside = generator.random() < 0.5 or scale > 6_000
    count = max(4, min(60, int(scale / (460 if inside else 110))))
    files: dict[str, File] = {}
    expected: dict[str, File] = {}
    for name in pick_names(generator, count):
        day = date_text(generator, generator.choice((2022, 2023, 2024)))
        number = generator.randint(100, 9_999)
        base = f"{name}-{number}.txt" if inside else f"{name}-{day}.txt"
        body = f"scanned: {day}\n" if inside else ""
        file = File((body + _note(generator, 260 if inside else 40)).encode())
        files[f"{folder}/inbox/{base}"] = file
        expected[f"{folder}/archive/{day[:4]}/{day[5:7]}/{base}"] = file
    where = (
        "in the first line of the file (scanned: YYYY-MM-DD)" if inside else "at the end of the name (-YYYY-MM-DD.txt)"
    )
    request = (
        f"File every text of {folder}/inbox under {folder}/archive/YYYY/MM/ by its date, which stands "
        f"{where}; names stay as they are. Remove the inbox when it is empty."
    )
    take = "d=$(sed -n 's/^scanned: //p' \"$f\")" if inside else 'd=$(basename "$f" .txt); d=${d: -10}'
    move = (
        f'for f in {folder}/inbox/*.txt; do {take}; mkdir -p "{folder}/archive/${{d:0:4}}/${{d:5:2}}" && '
        f'mv "$f" "{folder}/archive/${{d:0:4}}/${{d:5:2}}/"; done && rmdir {folder}/inbox'
    )
    some = sorted(files)
    seen = reading(generator, files, some, scale - 1_500, ("What date does {p} bear?", "I read {p}.")) if inside else []
    why = ("Now one loop does the filing.", "The dates are clear; I move the files.", "A loop over the inbox.")
    wrong = (
        ("bad_option", f"mv --into {folder}/archive {folder}/inbox"),
        ("wrong_path", f"rmdir {folder}/in-box"),
        ("not_empty", f"rmdir {folder}/inbox"),
    )
    steps = [look(generator, folder), *seen, Step(move, why, wrong), listing(folder, CHECK)]
    done = f"{folder}: {count} files filed by month."
    return Job("file_by_date", folder, request, files, expected, steps, done, gone=(f"{folder}/inbox",))


KINDS = {"images": ("png", "jpg"), "texts": ("txt", "md"), "tables": ("csv", "tsv"), "settings": ("ini", "conf")}


def file_by_kind(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Files of nested folders go to one folder a kind."""
    folder = folder_name(generator, taken, "drop")
    count = max(5, min(120, int(scale / 130)))
    files: dict[str, File] = {}
    expected: dict[str, File] = {}
    kinds = generator.sample(sorted(KINDS), generator.randint(2, 4))
    subfolders = generator.sample(NOUNS, max(1, min(8, count // 5)))
    for position, name in enumerate(pick_names(generator, count)):
        kind = kinds[position] if position < len(kinds) else generator.choice(kinds)  # none of them stays empty
        base = f"{name}.{generator.choice(KINDS[kind])}"
        file = File(_note(generator, 30).encode())
        files[f"{folder}/{generator.choice(subfolders)}/{base}"] = file
        expected[f"{folder}/{kind}/{base}"] = file
    subfolders = sorted({path.split("/")[1] for path in files})
    plan = "; ".join(f"{' and '.join('*.' + e for e in KINDS[kind])} to {folder}/{kind}" for kind in kinds)
    request = (
        f"Sort the files in the folders below {folder} by their kind: {plan}. Names stay; the old "
        f"folders ({', '.join(sorted(subfolders))}) are empty afterwards and must go."
    )
    steps = [look(generator, folder)]
    for kind in kinds:
        names = " -o ".join(f"-name '*.{extension}'" for extension in KINDS[kind])
        old = " ".join(f"{folder}/{name}" for name in sorted(subfolders))
        command = f"mkdir -p {folder}/{kind} && find {old} -type f \\( {names} \\) -exec mv -t {folder}/{kind} {{}} +"
        wrong = (
            ("bad_option", f"find {folder} -type f -nam '*.{KINDS[kind][0]}'"),
            (
                "wrong_path",
                f"find {folder}/{sorted(subfolders)[0]}s -type f -name '*.{KINDS[kind][0]}'",
            ),
        )
        steps.append(
            Step(
                command,
                (f"The {kind} first." if kind == kinds[0] else f"Next the {kind}.", f"All {kind} into their folder."),
                wrong,
            )
        )
    old = " ".join(f"{folder}/{name}" for name in sorted(subfolders))
    steps.append(
        Step(
            f"rmdir {old}",
            ("The old folders are empty now; they go.", "Remove what is empty."),
            (("wrong_path", f"rmdir {folder}/leftover"),),
        )
    )
    steps.append(listing(folder, CHECK))
    gone = tuple(f"{folder}/{name}" for name in subfolders)
    return Job(
        "file_by_kind", folder, request, files, expected, steps, f"{folder}: {count} files sorted by kind.", gone=gone
    )


def rename(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Names with blanks and capitals become plain ones."""
    folder = folder_name(generator, taken, "uploads")
    count = max(4, min(80, int(scale / 130)))
    files: dict[str, File] = {}
    expected: dict[str, File] = {}
    for name in pick_names(generator, count):
        first, _, second = name.partition("-")
        number = generator.randint(1, 99)
        untidy = generator.choice(
            (
                f"{first.title()} {second.title()} {number}.TXT",
                f"{first.upper()} {second} {number}.txt",
                f"{first} {second} {number}.Txt",
            )
        )
        file = File(_note(generator, 40).encode())
        files[f"{folder}/{untidy}"] = file
        expected[f"{folder}/{untidy.lower().replace(' ', '_')}"] = file
    request = (
        f"Rename all files in {folder}: lower case throughout, every blank an underscore. The contents "
        "stay as they are."
    )
    command = (
        f"cd {folder} && for f in *; do n=$(printf '%s' \"$f\" | tr 'A-Z ' 'a-z_'); mv -n -- \"$f\" "
        f'"$n"; done; cd .. && ls {folder} | head -n 100'
    )
    some = next(iter(files))
    wrong = (
        ("unquoted_name", f"cat {some}"),
        ("wrong_path", f"cd {folder}/new"),
        ("bad_option", f"mv --lower {folder}"),
    )
    steps = [
        look(generator, folder),
        Step(
            command,
            (
                "A loop with tr does it.",
                "I rename them in one go.",
                "Blanks and capitals out, with quotes around every name.",
            ),
            wrong,
        ),
    ]
    steps.append(
        Step(
            f"find {folder} -name '*[A-Z ]*' | wc -l",
            ("No capital and no blank should be left.", "Is any old name left?"),
            (("bad_option", f"find {folder} -nam '*[A-Z ]*'"),),
        )
    )
    return Job("rename", folder, request, files, expected, steps, f"{folder}: {count} files renamed.")


def permissions(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Scripts must be executable, secrets closed, nothing writable for everybody."""
    folder = folder_name(generator, taken, "deploy")
    count = max(5, min(90, int(scale / 150)))
    files: dict[str, File] = {}
    expected: dict[str, File] = {}
    for name in pick_names(generator, count):
        kind = generator.choice(("script", "script", "key", "page"))
        if kind == "script":
            path, data, right = f"{folder}/bin/{name}.sh", f"#!/bin/sh\necho {name}\n", 0o755
        elif kind == "key":
            path, data, right = f"{folder}/keys/{name}.key", f"key {generator.randint(10**9, 10**10)}\n", 0o600
        else:
            path, data, right = f"{folder}/pages/{name}.html", f"<p>{name}</p>\n", 0o644
        files[path] = File(data.encode(), generator.choice((0o644, 0o666, 0o777, right)))
        expected[path] = File(data.encode(), right)
    request = (
        f"Set the permissions below {folder}: every .sh file 755, every .key file 600, every .html file "
        "644. Change nothing else."
    )
    show = f"find {folder} -type f -printf '%m %p\\n' | sort -k2"
    steps = [
        Step(
            show,
            ("Which permissions are there now?", "First the permissions as they are."),
            (("bad_script", f"find {folder} -type f -perm 99"), ("wrong_path", f"find {folder}-live -type f")),
        ),
    ]
    for suffix, mode in (("sh", "755"), ("key", "600"), ("html", "644")):
        if any(path.endswith(suffix) for path in files):
            command = f"find {folder} -type f -name '*.{suffix}' -exec chmod {mode} {{}} +"
            wrong = (
                ("bad_mode", f"chmod {mode[:-1]}8 {folder}/*"),
                ("wrong_path", f"chmod {mode} {folder}/*.{suffix}"),
            )
            steps.append(Step(command, (f"The .{suffix} files get {mode}.", f"{mode} for every .{suffix}."), wrong))
    steps.append(
        Step(
            show,
            ("Are they right now?", "The list once more, to compare."),
            (("bad_option", f"find {folder} -type f -mod 644"),),
        )
    )
    return Job("permissions", folder, request, files, expected, steps, f"{folder}: permissions set on {count} files.")


def compare_lists(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Which entries of one list are missing in another."""
    folder = folder_name(generator, taken, "lists")
    count = max(8, min(900, int(scale / 42)))
    names = pick_names(generator, count)
    entries = [f"{name}@{generator.choice(HOSTS)}.example" for name in names]
    missing = sorted(generator.sample(entries, max(2, count // generator.randint(4, 9))))
    extra = [f"{name}@extra.example" for name in generator.sample(names, max(1, count // 10))]
    second = [entry for entry in entries if entry not in set(missing)] + extra
    first = list(entries)
    generator.shuffle(first)
    generator.shuffle(second)
    files = {
        f"{folder}/members.txt": File(("\n".join(first) + "\n").encode()),
        f"{folder}/invited.txt": File(("\n".join(second) + "\n").encode()),
    }
    out = f"{folder}/not-invited.txt"
    request = (
        f"Write to {out} all lines of {folder}/members.txt that are not in {folder}/invited.txt, sorted, "
        "one a line. How many are there?"
    )
    expected = {**files, out: File(("\n".join(missing) + "\n").encode())}
    command = f"comm -23 <(sort {folder}/members.txt) <(sort {folder}/invited.txt) > {out} && wc -l < {out}"
    wrong = (
        ("bad_option", f"comm -29 {folder}/members.txt {folder}/invited.txt"),
        ("wrong_path", f"sort {folder}/member.txt"),
        ("bad_regex", f"grep -v '\\(' {folder}/members.txt"),
    )
    steps = [
        look(generator, folder),
        *reading(generator, files, list(files), scale - 1_200, ("I read {p}.", "What does {p} hold?")),
        Step(
            command, ("Both sorted, then comm keeps what only the first has.", "comm -23 on the sorted lists."), wrong
        ),
        Step(
            f"head -n 5 {quoted(out)}",
            ("A look at the result.", "The first of them."),
            (("wrong_path", f"head -n 5 {folder}/missing.txt"),),
        ),
    ]
    return Job(
        "compare_lists",
        folder,
        request,
        files,
        expected,
        steps,
        f"{folder}: the missing ones are in {out}.",
        str(len(missing)),
    )
