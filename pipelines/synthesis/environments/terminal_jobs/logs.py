"""Jobs on log files: counting, distinct values, sums, the worst component, filtering into a report."""

from __future__ import annotations

import random
from collections import Counter

from pipelines.synthesis.environments.terminal_jobs.base import File, Job, Step, look, reading, slips
from pipelines.synthesis.environments.terminal_jobs.words import COMPONENTS, HOSTS, date_text, folder_name

__all__ = ["log_answer", "log_report"]

LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR")
EVENTS = (
    "request {n} served in {ms} ms",
    "customer {c} opened a session",
    "retrying job {n} after {ms} ms",
    "queue holds {n} items",
    "customer {c} was refused",
    "connection to {h} closed after {ms} ms",
    "batch {n} written to {h}",
    "customer {c} changed the address",
)
READ_WHY = ("I read {p} to know the format.", "How do the lines of {p} look?", "A look into {p}.")
Row = tuple[str, str, str, str]  # time, level, component, message


def _logs(generator: random.Random, folder: str, scale: float) -> tuple[dict[str, File], list[Row], list[str]]:
    """Log files of about `scale` characters in all, their rows, and the components in them."""
    components = generator.sample(COMPONENTS, generator.randint(3, 6))
    count = max(1, min(12, int(scale / 3_000) + generator.randint(0, 1)))
    files: dict[str, File] = {}
    rows: list[Row] = []
    days = sorted({date_text(generator, 2024) for _ in range(count)})
    for day in days:
        lines: list[str] = []
        second = generator.randint(0, 4_000)
        for _ in range(max(12, int(scale / 78 / len(days)))):
            second += generator.randint(1, 23)
            time = f"{day}T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
            level, component = generator.choice(LEVELS), generator.choice(components)
            message = generator.choice(EVENTS).format(
                n=generator.randint(10, 9_999),
                ms=generator.randint(2, 999),
                c=f"C{generator.randint(100, 160)}",
                h=generator.choice(HOSTS),
            )
            rows.append((time, level, component, message))
            lines.append(f"{time} {level} {component}: {message}\n")
        files[f"{folder}/logs/app-{day}.log"] = File("".join(lines).encode())
    return files, rows, components


def _question(
    generator: random.Random, folder: str, rows: list[Row], components: list[str]
) -> tuple[str, str, str, str, str]:
    """(request, answer, the pipeline that gives it, component, level) of one question about the rows."""
    component, level = generator.choice(components), generator.choice(("ERROR", "WARN", "DEBUG"))
    mine = [row for row in rows if row[1] == level and row[2] == component]
    kind = generator.choice(("count", "customers", "worst", "milliseconds", "hour"))
    every = f"cat {folder}/logs/*.log"
    if kind == "count":
        request = (
            f"How many {level} lines of the component {component} are there in the files of {folder}/logs together?"
        )
        answer, command = str(len(mine)), f"{every} | grep -c ' {level} {component}: '"
        if not mine:
            answer, request = (
                str(sum(row[1] == level for row in rows)),
                f"How many {level} lines are there in the files of {folder}/logs together?",
            )
            command = f"{every} | grep -c ' {level} [a-z]*: '"
    elif kind == "customers":
        seen = {row[3].split()[1] for row in rows if row[3].startswith("customer ")}
        request = f"How many different customers (C and a number) occur in the logs below {folder}/logs?"
        answer, command = str(len(seen)), f"{every} | grep -o 'customer C[0-9]*' | sort -u | wc -l"
    elif kind == "worst":
        counts = Counter(row[2] for row in rows if row[1] == level).most_common()
        ties = len(counts) > 1 and counts[0][1] == counts[1][1]
        best = min(name for name, number in counts if number == counts[0][1]) if counts else "none"
        request = f"Which component has the most {level} lines in {folder}/logs" + (
            " (of several, the first in the alphabet)?" if ties else "?"
        )
        answer = best
        command = (
            f'{every} | awk \'$2 == "{level}" {{sub(":", "", $3); print $3}}\' | sort | uniq -c | sort -k1,1nr -k2,2'
        )
        if not counts:
            answer, command = component, f"{every} | awk '{{print $3}}' | sort | uniq -c | sort -k1,1nr -k2,2"
            counts_all = Counter(row[2] for row in rows)
            answer = min(counts_all, key=lambda name: (-counts_all[name], name))
            request = f"Which component writes the most lines in {folder}/logs (of several, the first in the alphabet)?"
    elif kind == "milliseconds":
        served = [int(row[3].split()[4]) for row in rows if row[2] == component and row[3].startswith("request ")]
        request = f"What do the durations (in ms) of all requests served by {component} in {folder}/logs add up to?"
        answer = str(sum(served))
        command = f'{every} | awk \'$3 == "{component}:" && $4 == "request" {{sum += $8}} END {{print sum + 0}}\''
    else:
        hours = Counter(row[0][:13] for row in rows)
        best = min(hours, key=lambda hour: (-hours[hour], hour))
        request = (
            f"In which hour (written like 2024-03-01T07) do the logs below {folder}/logs have the most "
            "lines? Take the earlier one of two with as many."
        )
        answer, command = best, f"{every} | cut -c1-13 | sort | uniq -c | sort -k1,1nr -k2,2 | head -n 3"
    return request, answer, command, component, level


def log_answer(generator: random.Random, taken: set[str], scale: float) -> Job:
    """A number or a name read off the logs."""
    folder = folder_name(generator, taken, "service")
    files, rows, components = _logs(generator, folder, scale)
    request, answer, command, component, level = _question(generator, folder, rows, components)
    why = ("Now the number itself.", "One pipeline gives it.", "With the format known, I compute it.")
    wrong = [
        ("bad_regex", f"grep -c ' \\({level} {component}' {folder}/logs/*.log"),
        ("bad_script", f"awk '$2 == \"{level}\" {{count++ END {{print count}}' {next(iter(files))}"),
        ("wrong_path", f"cat {folder}/log/*.log"),
    ]
    first = next(iter(files))
    head = Step(
        f"head -n 5 {first}",
        ("The first lines show the format.", "How is a line built?"),
        slips(generator, f"head -n 5 {first}", first),
    )
    steps = [look(generator, folder), *(reading(generator, files, list(files), scale - 1_000, READ_WHY) or [head])]
    steps.append(Step(command, why, tuple(wrong)))
    done = f"{folder}: counted in {len(files)} log file{'s' if len(files) > 1 else ''}."
    return Job("log_answer", folder, request, files, dict(files), steps, done, answer)


def log_report(generator: random.Random, taken: set[str], scale: float) -> Job:
    """The lines of some kind, from all files, sorted, in one report."""
    folder = folder_name(generator, taken, "logs")
    files, rows, components = _logs(generator, folder, scale)
    component = generator.choice(components)
    level = generator.choice(("ERROR", "WARN"))
    report = f"{folder}/report/{level.lower()}-{generator.choice(('lines', 'summary', 'extract'))}.txt"
    if generator.random() < 0.5:
        wanted = [f"{t} {lv} {c}: {m}\n" for t, lv, c, m in rows if lv == level and c == component]
        request = (
            f"Write every {level} line of the component {component} from all files in {folder}/logs to "
            f"{report}, sorted by time (oldest first). Make the folder if it is not there."
        )
        select = f"cat {folder}/logs/*.log | grep ' {level} {component}: ' | sort > {report}"
        content = "".join(sorted(wanted))
    else:
        counts = Counter(c for _, lv, c, _ in rows if lv == level)
        request = (
            f"Write to {report} how many {level} lines each component has in {folder}/logs: one line "
            "`component count` each, sorted by component, components without such a line left out. Make the "
            "folder if it is not there."
        )
        select = (
            f'cat {folder}/logs/*.log | awk \'$2 == "{level}" {{sub(":", "", $3); n[$3]++}} END {{for (c in '
            f"n) print c, n[c]}}' | sort > {report}"
        )
        content = "".join(f"{name} {counts[name]}\n" for name in sorted(counts))
    expected = {**files, report: File(content.encode())}
    wrong = [
        ("bad_regex", f"grep -h '{level} \\({component}' {folder}/logs/*.log"),
        ("missing_folder", f"cat {folder}/logs/*.log > {report}"),
        ("bad_option", f"sort --by-time {folder}/logs/*.log"),
    ]
    steps = [
        look(generator, folder),
        *reading(generator, files, list(files), scale - 1_400, READ_WHY),
        Step(f"mkdir -p {folder}/report", ("The report needs its folder.", "First the folder."), (wrong[1],)),
        Step(select, ("Now the selection, sorted, into the file.", "Filter, sort, write."), (wrong[0], wrong[2])),
        Step(
            f"wc -l {report} && head -n 4 {report}",
            ("A look at the result.", "Is the report as asked?"),
            (("wrong_path", f"head -n 4 {report}.bak"),),
        ),
    ]
    return Job("log_report", folder, request, files, expected, steps, f"{folder}: the report is in {report}.")
