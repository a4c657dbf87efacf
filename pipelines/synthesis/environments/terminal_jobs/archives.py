"""Jobs on archives: packing some files of a tree, taking one apart."""

from __future__ import annotations

import gzip
import io
import random
import tarfile

from pipelines.synthesis.environments.terminal_jobs.base import File, Job, Step, look, reading
from pipelines.synthesis.environments.terminal_jobs.words import (
    HOSTS,
    NOUNS,
    PEOPLE,
    date_text,
    folder_name,
    pick_names,
)

__all__ = ["pack", "tar_bytes", "unpack"]


def tar_bytes(members: dict[str, bytes]) -> bytes:
    """A tar.gz with these files; the same members give the same bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(members):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(members[name]), 0o644, 1_700_000_000
            archive.addfile(entry, io.BytesIO(members[name]))
    return gzip.compress(raw.getvalue(), 6, mtime=0)


def _report(generator: random.Random, size: int) -> bytes:
    lines = [f"report of {date_text(generator, 2024)} by {generator.choice(PEOPLE)}"]
    while sum(map(len, lines)) < size:
        lines.append(
            f"{generator.choice(HOSTS)} {generator.choice(NOUNS)} {generator.randint(1, 9_999)} "
            f"{generator.choice(('open', 'closed', 'waiting'))}"
        )
    return ("\n".join(lines) + "\n").encode()


def pack(generator: random.Random, taken: set[str], scale: float) -> Job:
    """Those files of a tree that are marked go into a tar.gz with their paths."""
    folder = folder_name(generator, taken, "project")
    count = max(4, min(60, int(scale / 420)))
    status = generator.choice(("approved", "final", "released"))
    by_name = scale < 2_500
    files: dict[str, File] = {}
    members: dict[str, bytes] = {}
    for number, name in enumerate(pick_names(generator, count)):
        data = _report(generator, 60 if by_name else 260)
        inside = f"{generator.choice(('north', 'south', 'east'))}/{name}.{generator.choice(('txt', 'rst'))}"
        marked = number == 0 or generator.random() < 0.4
        if by_name:
            inside = f"{inside.rpartition('.')[0]}.{'txt' if marked else 'rst'}"
        elif marked:
            data += f"status: {status}\n".encode()
        files[f"{folder}/{inside}"] = File(data)
        if marked:
            members[inside] = data
    out = f"{folder}.tar.gz"
    what = "all .txt files" if by_name else f"all files that have a line `status: {status}`"
    request = (
        f"Pack {what} below {folder} into {out} (gzip; names inside relative to {folder}, such as "
        f"{next(iter(members))}, without ./ in front). How many files are in it?"
    )
    find = "find . -name '*.txt' -type f" if by_name else f"grep -rlx 'status: {status}' ."
    command = f"(cd {folder} && {find} | sed 's|^\\./||' | sort | tar -czf ../{out} -T -) && tar -tzf {out} | wc -l"
    wrong = (
        ("wrong_path", f"tar -czf /dev/null -C {folder} missing"),
        ("bad_option", f"tar --pack -cf /dev/null {folder}"),
        ("wrong_path", f"tar -tzf {folder}.tgz"),
    )
    steps = [
        look(generator, folder),
        *reading(generator, files, sorted(files), scale - 1_300, ("I read {p}.", "Does {p} belong in?")),
        Step(
            command,
            (
                "Names relative to the folder: tar gets the list from standard input.",
                "Now the archive, then a count of what is in it.",
            ),
            wrong,
        ),
        Step(
            f"tar -tzf {out} | sort",
            ("What is in the archive?", "I check the names inside."),
            (("wrong_path", f"tar -tzf {folder}/{out}"),),
        ),
    ]
    return Job(
        "pack",
        folder,
        request,
        files,
        dict(files),
        steps,
        f"{folder}: {len(members)} files packed into {out}.",
        str(len(members)),
        {out: members},
    )


def unpack(generator: random.Random, taken: set[str], scale: float) -> Job:
    """An archive is taken apart; one thing in it is asked for, and perhaps only part of it is wanted."""
    folder = folder_name(generator, taken, "backup")
    count = max(3, min(60, int(scale / 480)))
    members: dict[str, bytes] = {}
    names = pick_names(generator, count)
    code = f"{generator.choice(NOUNS)}-{generator.randint(1000, 9999)}"
    holder = generator.choice(names)
    for name in names:
        data = _report(generator, 300)
        if name == holder:
            data += f"access code: {code}\n".encode()
        members[f"{generator.choice(('daily', 'weekly'))}/{name}.txt"] = data
    files = {f"{folder}/store.tar.gz": File(tar_bytes(members))}
    expected = dict(files)
    some = generator.random() < 0.4 and len({path.split("/")[0] for path in members}) > 1
    part = next(path for path in members if holder in path).split("/")[0]
    for path, data in members.items():
        if not some or path.startswith(f"{part}/"):
            expected[f"{folder}/restored/{path}"] = File(data)
    what = f"the folder {part} of {folder}/store.tar.gz (and nothing else of it)" if some else f"{folder}/store.tar.gz"
    request = (
        f"Extract {what} into the new folder {folder}/restored. What is the access code that one of the "
        "files in it states?"
    )
    command = f"mkdir {folder}/restored && tar -xzf {folder}/store.tar.gz -C {folder}/restored" + (
        f" {part}" if some else ""
    )
    wrong = (
        ("wrong_path", f"tar -xzf {folder}/store.tgz -C {folder}"),
        ("missing_folder", f"tar -xzf {folder}/store.tar.gz -C {folder}/restored"),
        ("bad_option", f"tar --unpack {folder}/store.tar.gz"),
    )
    restored = {path: file for path, file in expected.items() if "/restored/" in path}
    steps = [
        Step(
            f"ls {folder} && tar -tzf {folder}/store.tar.gz | sort",
            ("What is in the archive?", "I list it before I extract it."),
            (("wrong_path", f"tar -tzf {folder}.tar.gz"), ("bad_option", f"tar -tzq {folder}/store.tar.gz")),
        ),
        Step(command, ("Now into the new folder.", "Extract it there."), wrong),
        *reading(generator, restored, sorted(restored), scale - 1_600, ("I read {p}.", "What does {p} say?")),
        Step(
            f"grep -r 'access code' {folder}/restored",
            ("Where is the code?", "Now the line with the code."),
            (
                ("bad_regex", f"grep -r 'access code\\(' {folder}/restored"),
                ("wrong_path", f"grep -r 'access code' {folder}/restore"),
            ),
        ),
    ]
    return Job("unpack", folder, request, files, expected, steps, f"{folder}: {len(restored)} files restored.", code)
