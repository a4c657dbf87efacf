"""Jobs on text in many files: settings, names to replace, tables to add up."""

from __future__ import annotations

import random
import re

from pipelines.synthesis.environments.terminal_jobs.base import File, Job, Step, look, reading
from pipelines.synthesis.environments.terminal_jobs.words import (
    HOSTS,
    NOUNS,
    PEOPLE,
    PRODUCTS,
    REGIONS,
    date_text,
    folder_name,
    pick_names,
)

__all__ = ["replace_names", "settings", "table_answer", "table_report"]

PLACES = ("production", "staging", "testing")
KEYS = ("timeout", "retries", "pool_size", "cache_mb", "workers", "batch", "backlog", "keepalive")


def _conf(generator: random.Random, name: str, key: str, place: str, guarded: bool) -> str:
    """A settings file with a value for `key` among others, and a comment that speaks of it."""
    first = "# do not edit: managed elsewhere" if guarded else f"# {generator.choice(PEOPLE)}, {date_text(generator)}"
    body = [f"{k} = {generator.randint(1, 99)}" for k in generator.sample([k for k in KEYS if k != key], 4)]
    body.insert(generator.randrange(len(body)), f"{key} = {generator.randint(1, 99)}")
    remark = f"# {key} of {name} was {generator.randint(1, 99)} until {date_text(generator)}"
    body.insert(generator.randrange(len(body)), remark)
    paths = [f"path.{generator.choice(NOUNS)} = /srv/{name}/{generator.choice(NOUNS)}" for _ in range(8)]
    head = [first, f"environment = {place}", f"host = {generator.choice(HOSTS)}.example"]
    return "\n".join([*head, *body, *paths]) + "\n"


def settings(generator: random.Random, taken: set[str], scale: float) -> Job:
    """One setting gets a new value in every file of some kind; protected files stay."""
    folder = folder_name(generator, taken, "config")
    count = max(3, min(60, int(scale / 620)))
    key, new = generator.choice(KEYS), str(generator.randint(100, 900))
    environment = generator.choice(PLACES)
    files: dict[str, File] = {}
    expected: dict[str, File] = {}
    changed = 0
    for number, name in enumerate(pick_names(generator, count)):
        path = f"{folder}/{generator.choice(('etc', 'services', 'jobs'))}/{name}.conf"
        mine = number == 0 or generator.random() < 0.5
        guarded = number > 0 and generator.random() < 0.2
        place = environment if mine else generator.choice([e for e in PLACES if e != environment])
        text = _conf(generator, name, key, place, guarded)
        files[path] = File(text.encode())
        if mine and not guarded:
            text, changed = re.sub(rf"^{key} = .*$", f"{key} = {new}", text, flags=re.M), changed + 1
        expected[path] = File(text.encode())
    request = (
        f"Set `{key}` to {new} in all .conf files below {folder} whose environment is {environment}, "
        "except in files whose first line says that they are managed elsewhere. How many files does "
        "that change?"
    )
    pick = f"grep -rlx 'environment = {environment}' {folder} --include='*.conf' | sort"
    change = (
        f"for f in $({pick}); do head -n 1 \"$f\" | grep -q 'managed elsewhere' || sed -i 's/^{key} = "
        f'.*/{key} = {new}/\' "$f"; done'
    )
    wrong = (
        ("bad_script", f"sed -i 's/^{key} = .*/{key} = {new}' {next(iter(files))}"),
        ("bad_regex", f"grep -rl 'environment = \\({environment}' {folder}"),
        ("wrong_path", f"sed -i 's/^{key} = .*/{key} = {new}/' {folder}/{key}.conf"),
    )
    steps = [
        look(generator, folder),
        *reading(
            generator,
            files,
            sorted(files),
            scale - 1_500,
            ("I read {p} before I touch anything.", "What does {p} say?", "Is {p} one of them?"),
        ),
        Step(
            pick,
            ("Which files are of that environment?", "The candidates."),
            (wrong[1], ("wrong_path", f"grep -rl environment {folder}/conf.d")),
        ),
        Step(
            change,
            ("Now the change, leaving the managed ones alone.", "sed in place, file by file."),
            wrong[:1] + wrong[2:],
        ),
        Step(
            f"grep -rlx '{key} = {new}' {folder} | sort",
            ("Which files have the new value now?", "A check of what was changed."),
            (("bad_option", f"grep -rlx --in-files '{key}' {folder}"),),
        ),
    ]
    return Job(
        "settings", folder, request, files, expected, steps, f"{folder}: {key} set in {changed} files.", str(changed)
    )


def replace_names(generator: random.Random, taken: set[str], scale: float) -> Job:
    """A name is replaced as a whole word in all documents; longer names that contain it stay."""
    folder = folder_name(generator, taken, "handbook")
    count = max(2, min(40, int(scale / 1_100)))
    old, new = generator.sample(NOUNS, 2)
    files: dict[str, File] = {}
    expected: dict[str, File] = {}
    hits = 0
    for name in pick_names(generator, count):
        lines = [f"# {name}"]
        for _ in range(max(4, min(40, int(scale / count / 62)))):
            word = generator.choice(
                (old, old + "s", "the " + generator.choice(NOUNS), old + "_id", generator.choice(PRODUCTS))
            )
            lines.append(
                f"{generator.choice(PEOPLE).split()[0]} checks {word} with {generator.choice(HOSTS)} at "
                f"{generator.randint(1, 23)}:{generator.randint(10, 59)}."
            )
        text = "\n".join(lines) + "\n"
        path = f"{folder}/{generator.choice(('guide', 'notes'))}/{name}.md"
        files[path] = File(text.encode())
        parts = text.split(f" {old} ")
        hits += len(parts) - 1
        expected[path] = File(f" {new} ".join(parts).encode())
    # titles such as "# old-x" hold the word beside a hyphen: they stay, which the request says
    request = (
        f"In all .md files below {folder}, replace the word `{old}` by `{new}` where it stands between "
        f"blanks; {old}s, {old}_id and names with a hyphen stay as they are. How many places does that "
        "change?"
    )
    show = f"grep -rn ' {old} ' {folder} | sort | head -n 20"
    change = f"find {folder} -name '*.md' -exec sed -i 's/ {old} / {new} /g' {{}} +"
    counting = f"cat $(find {folder} -name '*.md' | sort) | grep -o ' {old} ' | wc -l"
    wrong = (
        ("bad_script", f"sed -i 's/ {old} / {new} g' {next(iter(files))}"),
        ("wrong_path", f"sed -i 's/ {old} / {new} /g' {folder}/{old}.md"),
    )
    steps = [
        look(generator, folder),
        *reading(
            generator,
            files,
            sorted(files),
            scale - 2_800,
            ("I read {p} to see how the word is used.", "The text of {p}."),
        ),
        Step(
            show,
            ("Where does the word stand?", "First the places."),
            (("bad_regex", f"grep -rn ' \\({old} ' {folder}"),),
        ),
        Step(
            counting,
            ("How many are they?", "I count them before I change them."),
            (("bad_option", f"grep -o --all ' {old} ' {next(iter(files))}"),),
        ),
        Step(change, ("Now sed over all of them.", "The replacement itself."), wrong),
        Step(
            f"{show.replace(old, new, 1)}",
            ("A look at the new text.", "Did it come out as meant?"),
            (("bad_regex", f"grep -rn ' [{new} ' {folder}"),),
        ),
    ]
    return Job("replace_names", folder, request, files, expected, steps, f"{folder}: {hits} places changed.", str(hits))


def _table(
    generator: random.Random, folder: str, scale: float
) -> tuple[dict[str, File], list[tuple[str, str, str, int, int]]]:
    """Order tables by month: date, region, product, pieces, price in cents."""
    count = max(1, min(12, int(scale / 4_000)))
    files: dict[str, File] = {}
    rows: list[tuple[str, str, str, int, int]] = []
    months = generator.sample(range(1, 13), count)
    for month in sorted(months):
        lines = ["date,region,product,pieces,price"]
        for _ in range(max(10, int(scale / 34 / count))):
            row = (
                f"2024-{month:02d}-{generator.randint(1, 28):02d}",
                generator.choice(REGIONS),
                generator.choice(PRODUCTS),
                generator.randint(1, 40),
                generator.randint(99, 9_999),
            )
            rows.append(row)
            lines.append(f"{row[0]},{row[1]},{row[2]},{row[3]},{row[4] // 100}.{row[4] % 100:02d}")
        files[f"{folder}/orders-2024-{month:02d}.csv"] = File(("\n".join(lines) + "\n").encode())
    return files, rows


def table_answer(generator: random.Random, taken: set[str], scale: float) -> Job:
    """A sum over the rows of one kind."""
    folder = folder_name(generator, taken, "orders")
    files, rows = _table(generator, folder, scale)
    region, product = generator.choice(rows)[1], generator.choice(rows)[2]
    kind = generator.choice(("pieces", "revenue", "largest"))
    where = f"{folder}/orders-*.csv"
    if kind == "pieces":
        request = f"How many pieces of {product} do the csv files in {folder} have in all?"
        answer = str(sum(row[3] for row in rows if row[2] == product))
        command = f"awk -F, '$3 == \"{product}\" {{n += $4}} END {{print n + 0}}' {where}"
    elif kind == "revenue":
        request = (
            f"What is the revenue (pieces times price, added up) of the region {region} over all csv files "
            f"in {folder}, with two decimals?"
        )
        cents = sum(row[3] * row[4] for row in rows if row[1] == region)
        answer = f"{cents // 100}.{cents % 100:02d}"
        command = f'awk -F, \'$2 == "{region}" {{s += $4 * $5}} END {{printf "%.2f\\n", s}}\' {where}'
    else:
        totals: dict[str, int] = {}
        for row in rows:
            totals[row[1]] = totals.get(row[1], 0) + row[3]
        answer = min(totals, key=lambda name: (-totals[name], name))
        request = (
            f"Which region ordered the most pieces in all, by the csv files in {folder} (of several, the "
            "first in the alphabet)?"
        )
        command = f"awk -F, 'FNR > 1 {{n[$2] += $4}} END {{for (r in n) print n[r], r}}' {where} | sort -k1,1nr -k2,2"
    wrong = (
        ("bad_script", f"awk -F, '$3 == \"{product}\" {{n += $4 END {{print n}}' {where}"),
        ("wrong_path", f"awk -F, '{{n += $4}} END {{print n}}' {folder}/orders.csv"),
        ("bad_option", f"cut --columns 4 {next(iter(files))}"),
    )
    why = ("awk adds it up.", "Now the sum over all files.", "The columns are clear: one awk.")
    pages = reading(
        generator,
        files,
        list(files),
        scale - 1_000,
        ("I read {p}: columns and oddities.", "The rows of {p}.", "Is {p} in order?"),
    )
    first = next(iter(files))
    head = Step(
        f"head -n 4 {first}",
        ("Which columns are there?", "The header first."),
        (("wrong_path", f"head -n 4 {folder}/2024.csv"),),
    )
    steps = [look(generator, folder), *(pages or [head]), Step(command, why, wrong)]
    return Job(
        "table_answer", folder, request, files, dict(files), steps, f"{folder}: {len(files)} tables added up.", answer
    )


def table_report(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Sums by group into a new table."""
    folder = folder_name(generator, taken, "sales")
    files, rows = _table(generator, folder, scale)
    column, by = generator.choice(((2, "region"), (3, "product")))
    totals: dict[str, int] = {}
    for row in rows:
        name = row[1] if by == "region" else row[2]
        totals[name] = totals.get(name, 0) + row[3]
    out = f"{folder}/pieces-by-{by}.csv"
    content = f"{by},pieces\n" + "".join(f"{name},{totals[name]}\n" for name in sorted(totals))
    request = (
        f"Write {out}: a header `{by},pieces`, then for every {by} the pieces of all csv files "
        f"orders-*.csv in {folder} together, sorted by {by}."
    )
    command = (
        f"{{ echo '{by},pieces'; awk -F, 'FNR > 1 {{n[${column}] += $4}} END {{for (k in n) print k "
        f'"," n[k]}}\' {folder}/orders-*.csv | sort; }} > {out}'
    )
    wrong = (
        ("bad_script", f"awk -F, 'FNR > 1 {{n[${column}] += $4}} END {{for (k in n print k}}' {folder}/orders-*.csv"),
        ("wrong_path", f"awk -F, '{{print $2}}' {folder}/order.csv"),
    )
    steps = [
        look(generator, folder),
        *reading(
            generator,
            files,
            list(files),
            scale - 1_300,
            ("I read {p}.", "The rows of {p}.", "Now {p}.", "What does {p} hold?"),
        ),
        Step(command, ("Header, then the sums, sorted.", "awk sums by group; sort orders them."), wrong),
        Step(f"cat {out}", ("Is the table right?", "The result:"), (("wrong_path", f"cat {folder}/pieces.csv"),)),
    ]
    return Job(
        "table_report",
        folder,
        request,
        files,
        {**files, out: File(content.encode())},
        steps,
        f"{folder}: the sums are in {out}.",
    )
