"""What the plans of the scripted office teacher share: looking, reading page by page, thinking on, slipping."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.environments.office import world_of
from pipelines.synthesis.teachers import phrases
from pipelines.synthesis.teachers.scripted import Plan, ScriptedTeacher, Turn
from schemas.trajectory import Message

__all__ = ["OfficeHand", "Wrong", "listed", "quote"]

Wrong = list[tuple[str, Mapping[str, Any]]]
_POSITION = re.compile(r"lines \d+ to (\d+) of (\d+)$")


class OfficeHand(ScriptedTeacher):
    """`thoughts` wait for the next turn; `answers` and `summary` for the final one; `folders` are known to be there."""

    def __init__(self, environment: Environment, task: TaskSpec, mistake_rate: float = 0.0, seed: int = 0) -> None:
        super().__init__(environment, task, mistake_rate, seed)
        self.world = world_of(task)
        self.folders = set(self.world.folders)
        self.moved: set[str] = set()  # paths that are free again
        self.thoughts: list[str] = []
        self.answers: dict[int, str] = {}
        self.summary: list[str] = []
        self._schema_read = False

    def pick(self, *options: str, **values: object) -> str:
        """One of the sentences, filled in."""
        return phrases.pick(self.random, *options, **values)

    def think(self, *options: str, **values: object) -> None:
        """A thought about what was just seen; it opens the next turn."""
        self.thoughts.append(self.pick(*options, **values))

    def take_thoughts(self, why: str = "") -> str:
        """The waiting thoughts and a reason, as the reasoning of a turn."""
        text = "\n".join([*self.thoughts, *([why] if why else [])])
        self.thoughts = []
        return text

    def go(self, name: str, arguments: Mapping[str, Any], why: str, wrong: Wrong | None = None) -> Turn:
        """A planned call with the thoughts so far, perhaps after a mistake (see `ScriptedTeacher.do`)."""
        return (yield from self.do(name, arguments, self.take_thoughts(why), wrong or []))

    def slip(
        self, kind: str, name: str, arguments: Mapping[str, Any], why: str, then: str
    ) -> Generator[Message, list[Message], bool]:
        """Perhaps a failing call of another tool than the planned one (`then`), whose thought it leaves waiting."""
        text = json.dumps(arguments, ensure_ascii=False)
        if self.random.random() >= self._chance * 0.4 or (name, text) in self._failed:
            return False
        self._failed.add((name, text))
        result = yield from self.say(name, text, self.take_thoughts(why), f"mistake:{kind}")
        if result.error:
            self.thoughts.append(phrases.recovery(self.random, kind, result.content, then))
        return bool(result.error)

    def look(self, path: str, *why: str) -> Turn:
        """List a folder."""
        reasons = why or ("What is in {p}?", "I list {p}.", "The contents of {p} first.", "Let me see what {p} holds.")
        wrong: Wrong = [("wrong_path", {"path": other}) for other in self._near(path)]
        return (yield from self.go("list_folder", {"path": path}, self.pick(*reasons, p=path), wrong))

    def read(self, path: str, *why: str) -> Plan:
        """Read a file to its end, in as many calls as it takes."""
        name = path.rsplit("/", 1)[-1]
        reasons = why or ("I read {n}.", "Now {n}.", "Next: {n}.", "{n} is next.", "On to {n}.", "What does {n} say?",
                          "Opening {n}.", "Then {n}.")  # fmt: skip
        result = yield from self.go("read_file", {"path": path}, self.pick(*reasons, n=name), self._wrong_reads(path))
        while (found := _POSITION.search(result.content.split("\n")[0])) and int(found[1]) < int(found[2]):
            arguments = {"path": path, "first_line": int(found[1]) + 1}
            beyond = {**arguments, "first_line": int(found[2]) + self.random.randint(2, 60)}
            more = self.pick(
                "There is more of {n}, from line {f}.",
                "On with {n} at line {f}.",
                "The rest of {n}: line {f} on.",
                n=name,
                f=arguments["first_line"],
            )
            result = yield from self.go("read_file", arguments, more, [("bad_range", beyond)])

    def folder(self, path: str, why: str, before: Mapping[str, Any]) -> Plan:
        """Make a folder that is missing; `before` is a move that might be tried too early."""
        if path in self.folders:
            return
        yield from self.slip("missing_folder", "move_file", before, why, "make_folder")
        reason = self.pick("{p} is missing so far, I make it.", "First the folder {p}.", "There is no {p} yet.", p=path)
        yield from self.go("make_folder", {"path": path}, reason, [("target_taken", {"path": before["path"]})])
        parts = path.split("/")
        self.folders.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))

    def schema(self) -> Plan:
        """Look at the database's tables, once."""
        if self._schema_read:
            return
        self._schema_read = True
        arguments = {"sql": "SELECT name, sql FROM sqlite_master WHERE type = 'table'"}
        why = self.pick(
            "Which tables are there?", "The schema of the database first.", "I need the column names of the database."
        )
        wrong: Wrong = [
            ("bad_sql", {"sql": "SHOW TABLES"}),
            ("bad_sql", {"sql": "SELECT table_name FROM information_schema.tables"}),
        ]
        yield from self.go("query_database", arguments, why, wrong)

    def query(self, sql: str, why: str, table: str) -> Turn:
        """Run a SELECT; its own mistakes are a misspelt table, a column that is not there, a word that is no SQL."""
        r = self.random
        wrong: Wrong = [
            ("bad_sql", {"sql": sql.replace(f"FROM {table}", f"FROM {table.rstrip('s')}_list", 1)}),
            (
                "bad_sql",
                {"sql": sql.replace("SELECT ", f"SELECT {r.choice(('uuid', 'full_name', 'value_date'))}, ", 1)},
            ),
            ("bad_sql", {"sql": sql.replace("SELECT", "SELEC", 1)}),
        ]
        return (yield from self.go("query_database", {"sql": sql}, why, wrong))

    def _near(self, path: str) -> list[str]:
        """Folders that are not there but might be."""
        if path == ".":
            return [other for other in ("Shared", "Documents", "home") if other not in self.folders]
        last = path.rsplit("/", 1)[-1]
        return [other for other in (f"Shared/{path}", f"{path}/{last}", f"{path}s") if other not in self.folders]

    def _wrong_reads(self, path: str) -> Wrong:
        """Paths of files that are not there but might be; the folder instead of the file."""
        folder, _, name = path.rpartition("/")
        stem, _, ending = name.rpartition(".")
        other = {"csv": "xlsx", "xlsx": "csv", "md": "txt", "eml": "msg", "ics": "cal", "vcf": "csv"}[ending]
        candidates = [name, f"{folder}/{stem}_1.{ending}", f"{folder}/{stem}.{other}", f"{folder.upper()}/{name}"]
        usable = [one for one in candidates if one not in self.world.files]
        return [("wrong_path", {"path": self.random.choice(usable)}), ("wrong_path", {"path": folder})]


def quote(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def listed(items: Sequence[str], most: int = 400) -> str:
    """Items joined by semicolons, the last with a full stop."""
    return "; ".join(items[:most]) + "."
