"""Family `office`: papers, mail, calendars, sheets and a small database, put in order as a person asks for it.

A task is one to six goals of nine kinds (offices/plan.py): file, rename, merge contact lists, reconcile invoices with
what is booked, answer from many notes, draft replies, solve schedule clashes, fill a sheet, carry out change requests.
The world is made from (seed, difficulty); the task carries its digest. The office is a temporary folder and sqlite in
memory; nothing in it is ever run. `verify` compares the final state with what each sub-goal wants and with what the
office was before: a cell, row, event, file or folder that changed and belongs to no sub-goal counts against the run.

Difficulty 1 is one or two papers; 10 is some hundred documents and up to six goals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.utils import getaddresses
from pathlib import Path
from typing import Any

from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult
from pipelines.synthesis.environments.offices.checks import Verdict, final_state, judge
from pipelines.synthesis.environments.offices.database import OfficeDatabase
from pipelines.synthesis.environments.offices.documents import UnreadableDocumentError, make_mail, read_mail, shown_text
from pipelines.synthesis.environments.offices.edits import EditRefusedError, move_event, set_cells
from pipelines.synthesis.environments.offices.folder import OfficeFolder
from pipelines.synthesis.environments.offices.plan import build_world
from pipelines.synthesis.environments.offices.tools import TOOLS, tools_for
from pipelines.synthesis.environments.offices.world import DRAFTS, World
from pipelines.synthesis.sandbox import WorkspaceError
from schemas.errors import UsageError
from schemas.trajectory import Outcome

__all__ = ["OfficeEnvironment", "world_of"]

READ_LINES, READ_CHARACTERS, LINE_CHARACTERS = 150, 16_000, 2_000
SEARCH_HITS, HIT_CHARACTERS = 60, 200
WRITABLE = ("csv", "md", "txt", "vcf")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


def world_of(task: TaskSpec) -> World:
    """The world of a task, made again. Raises UsageError when this version of the program makes another one."""
    world = build_world(task.seed, task.difficulty)
    if world.digest() != task.data["digest"]:
        raise UsageError(f"task {task.id} was made by another version: its office cannot be made again")
    return world


class OfficeEnvironment(Environment):
    """See the module. It draws from no pool; `split` is accepted because tasks differ by seed alone."""

    family = "office"
    tools: Sequence[Mapping[str, Any]] = TOOLS

    def __init__(self, pool_path: str | Path | None = None, split: str = "train") -> None:
        self._folder: OfficeFolder | None = None
        self._database = OfficeDatabase({})
        self._world: World | None = None
        self._answer = ""
        self._received: set[str] | None = None

    def generate(self, seed: int, difficulty: float) -> TaskSpec:
        """See `Environment.generate`."""
        if not 1 <= difficulty <= 10:
            raise UsageError(f"difficulty {difficulty:g} is out of range: 1 to 10")
        world = build_world(seed, difficulty)
        data = {
            "kinds": [goal.kind for goal in world.goals],
            "digest": world.digest(),
            "tools": [tool["function"]["name"] for tool in tools_for(_tools_of(world))],
            "files": len(world.files),
            "subgoals": sum(len(goal.wants) for goal in world.goals),
        }
        identity = f"office-{seed}-{difficulty:g}"
        return TaskSpec(identity, self.family, seed, difficulty, world.system, world.instruction, data, "CC0-1.0")

    def reset(self, task: TaskSpec) -> str:
        """See `Environment.reset`. Raises UsageError for a task of another version of the program."""
        world = world_of(task)
        if self._folder is None:
            self._folder = OfficeFolder()
        self._folder.fill(world.files, world.folders)
        self._database.close()
        self._database = OfficeDatabase(world.tables)
        self.tools = tools_for(_tools_of(world))
        self._world, self._answer, self._received = world, "", None
        return task.instruction

    def close(self) -> None:
        """See `Environment.close`."""
        if self._folder is not None:
            self._folder.close()
        self._folder, self._world = None, None
        self._database.close()

    def answer(self, text: str) -> None:
        """See `Environment.answer`."""
        self._answer = text

    def verdict(self) -> Verdict:
        """What `verify` found, in detail. Raises UsageError before the first reset."""
        if self._world is None or self._folder is None:
            raise UsageError("call reset(task) first")
        files, folders = self._folder.tree()
        return judge(self._world, final_state(self._world, files, folders, self._database.rows(), self._answer))

    def verify(self) -> Outcome:
        """Judge the final state; `reward` is the mean share of the goals' sub-goals, less one for each other change."""
        verdict = self.verdict()
        return Outcome(verdict.success, verdict.reward, verdict.told())

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """See `Environment.call`."""
        if self._folder is None:
            raise UsageError("call reset(task) first")
        try:
            result: ToolResult = getattr(self, f"_{name}")(self._folder, **arguments)
        except (WorkspaceError, EditRefusedError) as error:
            return ToolResult(f"Error: {error}", True, error.kind)
        except UnreadableDocumentError as error:
            return ToolResult(f"Error: {error}", True, "tool_error")
        except UnicodeEncodeError:
            return ToolResult("Error: the arguments hold characters that no file can hold", True, "tool_error")
        return result

    def _list_folder(self, folder: OfficeFolder, path: str = ".") -> ToolResult:
        names = folder.entries(path)
        return ToolResult("\n".join(names) or "the folder is empty", signal=None if names else "empty")

    def _read_file(self, folder: OfficeFolder, path: str, first_line: int = 1) -> ToolResult:
        name = folder.path_of(path)
        lines = shown_text(name, folder.bytes_of(path)).split("\n")
        if first_line > len(lines):
            text = f"Error: {name} has {len(lines)} lines, first_line is {first_line}"
            return ToolResult(text, True, "bad_arguments")
        shown: list[str] = []
        room = READ_CHARACTERS
        for line in lines[first_line - 1 : first_line - 1 + READ_LINES]:
            room -= len(line[:LINE_CHARACTERS]) + 1
            if room < 0 and shown:
                break
            shown.append(line[:LINE_CHARACTERS])
        head = f"{name}, lines {first_line} to {first_line + len(shown) - 1} of {len(lines)}"
        return ToolResult("\n".join([head, *shown]))

    def _search_text(self, folder: OfficeFolder, text: str, path: str = ".") -> ToolResult:
        found: list[str] = []
        names = folder.paths(path)
        for name in names:
            try:
                lines = shown_text(name, folder.bytes_of(name)).split("\n")
            except UnreadableDocumentError:
                continue  # it has no text that could match
            found += [f"{name}:{n}: {line.strip()[:HIT_CHARACTERS]}" for n, line in enumerate(lines, 1) if text in line]
        if not found:
            return ToolResult("no line contains this text", signal="empty")
        rest = [f"and {len(found) - SEARCH_HITS} more lines"] if len(found) > SEARCH_HITS else []
        return ToolResult("\n".join(found[:SEARCH_HITS] + rest))

    def _write_file(self, folder: OfficeFolder, path: str, content: str, overwrite: bool = False) -> ToolResult:
        name = folder.path_of(path)
        if name.rpartition(".")[2].lower() not in WRITABLE:
            text = f"Error: write_file writes {', '.join(WRITABLE)}; {name} is none of these"
            return ToolResult(text, True, "tool_error")
        data = content.encode()
        if folder.holds(name):
            if folder.bytes_of(path) == data:
                return ToolResult(f"Error: {name} has this content already", True, "no_change")
            if not overwrite:
                text = f"Error: {name} exists already; nothing was written (overwrite is not set)"
                return ToolResult(text, True, "tool_error")
        folder.put(path, data)
        return ToolResult(f"{name} written, {content.count(chr(10)) + (not content.endswith(chr(10)))} lines")

    def _move_file(self, folder: OfficeFolder, path: str, to: str) -> ToolResult:
        source, target = folder.move(path, to)
        return ToolResult(f"{source} is now {target}")

    def _make_folder(self, folder: OfficeFolder, path: str) -> ToolResult:
        return ToolResult(f"folder {folder.make_folder(path)} made")

    def _delete_file(self, folder: OfficeFolder, path: str) -> ToolResult:
        return ToolResult(f"{folder.delete(path)} deleted")

    def _edit_sheet(self, folder: OfficeFolder, path: str, sheet: str, cells: list[dict[str, Any]]) -> ToolResult:
        data, told = set_cells(folder.path_of(path), folder.bytes_of(path), sheet, cells)
        folder.put(path, data)
        return ToolResult(told)

    def _move_event(self, folder: OfficeFolder, path: str, uid: str, start: str) -> ToolResult:
        data, told = move_event(folder.path_of(path), folder.bytes_of(path), uid, start)
        folder.put(path, data)
        return ToolResult(told)

    def _query_database(self, folder: OfficeFolder, sql: str) -> ToolResult:
        return self._database.query(sql)

    def _update_database(self, folder: OfficeFolder, sql: str) -> ToolResult:
        return self._database.update(sql)

    def _draft_mail(
        self, folder: OfficeFolder, to: str, subject: str, body: str, in_reply_to: str | None = None
    ) -> ToolResult:
        found = getaddresses([to])
        if len(found) != 1:
            return ToolResult(f"Error: a draft has one recipient, received {len(found)}", True, "tool_error")
        name, address = found[0]
        if not _ADDRESS.fullmatch(address):
            return ToolResult(f"Error: {to!r} is not a mail address", True, "tool_error")
        headers = {"To": f"{name} <{address}>" if name else address, "Subject": subject}
        if in_reply_to is not None:
            if in_reply_to not in self._message_ids():
                return ToolResult(f"Error: no mail has the Message-ID {in_reply_to}", True, "not_found")
            headers["In-Reply-To"] = in_reply_to
        if f"{DRAFTS}/" not in folder.entries():
            folder.make_folder(DRAFTS)
        number = 1 + max([int(one.split("-")[-1][:-4]) for one in folder.paths(DRAFTS) if _is_draft(one)], default=0)
        path = f"{DRAFTS}/draft-{number}.eml"
        try:
            folder.put(path, make_mail(headers, body))
        except ValueError as error:
            return ToolResult(f"Error: {error}", True, "tool_error")
        return ToolResult(f"{path} saved")

    def _message_ids(self) -> set[str]:
        """The Message-IDs of the mails that the office received."""
        if self._received is None:
            files = self._world.files if self._world else {}
            mails = (read_mail(data)[0] for path, data in files.items() if path.endswith(".eml"))
            self._received = {headers["message-id"] for headers in mails if "message-id" in headers}
        return self._received


def _tools_of(world: World) -> frozenset[str]:
    return frozenset[str]().union(*(goal.tools for goal in world.goals))


def _is_draft(path: str) -> bool:
    stem = path.removeprefix(f"{DRAFTS}/draft-").removesuffix(".eml")
    return path == f"{DRAFTS}/draft-{stem}.eml" and stem.isascii() and stem.isdigit() and len(stem) < 9
