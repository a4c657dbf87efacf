"""Scripted teachers: an expert plan for a family, real mistakes at a set rate, recoveries from what was really seen.

A teacher is an `Agent` (see rollout.py). A family's plan is a generator that yields turns and receives their results;
`ScriptedTeacher` puts mistakes in front of planned calls. It keeps its own log in `Message.label`:

    step              a planned turn
    mistake:KIND      a turn that failed: its result (or, for a wrong fix, the next test run; for a premature answer,
                      the verdict) shows it. A mistake that turned out to work is relabelled `step`.
    recovery          the first good turn after a mistake

`train` stays None: which turns are trained is decided from signals by the masks step, never from these labels.
"""

from __future__ import annotations

import importlib
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.teachers import phrases
from schemas.errors import UsageError
from schemas.trajectory import Message, ToolCall

__all__ = ["MAX_MISTAKE_RATE", "TEACHERS", "Plan", "ScriptedTeacher", "open_teacher"]

TEACHERS = {
    "office": "pipelines.synthesis.teachers.office:OfficeTeacher",
    "reasoning": "pipelines.synthesis.teachers.reasoning:ReasoningTeacher",
    "repair": "pipelines.synthesis.teachers.repair:RepairTeacher",
    "search": "pipelines.synthesis.teachers.search:SearchTeacher",
    "terminal": "pipelines.synthesis.teachers.terminal:TerminalTeacher",
}
Plan = Generator[Message, list[Message], None]
Turn = Generator[Message, list[Message], Message]
MAX_MISTAKE_RATE = 0.6  # beyond, more turns would be mistakes than the plan has calls to put them before
REPEAT_SHARE = 0.12  # of mistakes are made twice in a row
MAX_FAILED_SHARE = 0.08  # of trajectories end unsolved on purpose, at mistake rates of 0.4 and above


class ScriptedTeacher(ABC):
    """Plays one task. `mistake_rate` is the share of all turns with a call that are mistakes (0 to 0.6).

    With rate 0 it makes none and solves the task. Everything follows from (task, mistake_rate, seed). It looks into the
    task's data (which faults there are): that is what makes it an expert.
    """

    def __init__(self, environment: Environment, task: TaskSpec, mistake_rate: float = 0.0, seed: int = 0) -> None:
        if not 0 <= mistake_rate <= MAX_MISTAKE_RATE:
            allowed = f"0 to {MAX_MISTAKE_RATE:g} for the scripted teacher"
            raise UsageError(f"mistake_rate {mistake_rate:g} is out of range: {allowed}")
        self.environment, self.task = environment, task
        # a mistake adds a turn to the plan: this many for every planned turn give the wanted share of all turns
        self._chance = mistake_rate / (1 - mistake_rate)
        self.random = random.Random(f"teacher:{task.id}:{mistake_rate:g}:{seed}")  # noqa: S311 - seeded on purpose
        self.fails = mistake_rate > 0 and self.random.random() < min(MAX_FAILED_SHARE, mistake_rate * 0.2)
        self._plan: Plan | None = None
        self._calls = 0
        self._failed: set[tuple[str, str]] = set()  # (tool, arguments) of mistakes made
        self._answered = 0  # messages that were there at the last turn

    @abstractmethod
    def plan(self) -> Plan:
        """The turns of the task. Ends after the final answer."""

    def act(self, messages: list[Message], tools: str) -> Message:
        """See `rollout.Agent`. Raises StopIteration never: after the plan's end it repeats a closing sentence."""
        results = [message for message in messages[self._answered :] if message.role == "tool"]
        try:
            if self._plan is None:
                self._plan = self.plan()
                turn = next(self._plan)
            else:
                turn = self._plan.send(results)
        except StopIteration:
            turn = Message("assistant", "That is all.", label="step")
        self._answered = len(messages) + 1
        return turn

    def errs(self) -> bool:
        """Whether the next planned call is preceded by a mistake."""
        return self.random.random() < self._chance

    def turn(self, name: str, arguments: str, reasoning: str, label: str) -> Message:
        """A turn with one call as written. Whoever made it may change its label when the results are known."""
        self._calls += 1
        call = ToolCall(f"call_{self._calls}", name, arguments)
        return Message("assistant", reasoning=reasoning, tool_calls=[call], label=label)

    def say(self, name: str, arguments: str, reasoning: str, label: str) -> Turn:
        """One turn with one call as written; gives its result. A mistake that did not fail is relabelled."""
        message = self.turn(name, arguments, reasoning, label)
        results = yield message
        result = results[0]
        if label.startswith("mistake:") and not result.error:
            message.label = "step"
        return result

    def do(
        self,
        name: str,
        arguments: Mapping[str, Any],
        reasoning: str,
        mistakes: Sequence[tuple[str, Mapping[str, Any]]] = (),
    ) -> Turn:
        """A planned call, perhaps after a mistake. `mistakes` are (kind, wrong arguments) that fit this call besides
        those that fit any call."""
        label = "step"
        wanted = self._mistake(name, arguments, mistakes) if self.errs() else None
        if wanted is not None and wanted[1:] not in self._failed:  # the same mistake twice only at once, as a repeat
            kind, wrong_name, wrong = wanted
            self._failed.add((wrong_name, wrong))
            result = yield from self.say(wrong_name, wrong, reasoning, f"mistake:{kind}")
            if result.error and self.random.random() < REPEAT_SHARE:
                again = phrases.again(self.random)
                result = yield from self.say(wrong_name, wrong, again, "mistake:repeated_call")
            if result.error:
                reasoning, label = phrases.recovery(self.random, kind, result.content, name), "recovery"
        text = json.dumps(arguments, ensure_ascii=False)
        return (yield from self.say(name, text, reasoning, label))

    def answer(self, text: str, reasoning: str, label: str = "step") -> Plan:
        """The final turn."""
        yield Message("assistant", text, reasoning=reasoning, label=label)

    def _mistake(
        self, name: str, arguments: Mapping[str, Any], own: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> tuple[str, str, str]:
        """(kind, tool name, argument text) of something that will fail."""
        makers: list[Callable[[], tuple[str, str, str]]] = [
            lambda: ("malformed_arguments", name, _malformed(self.random, arguments)),
            lambda: ("unknown_tool", _other_name(self.random, name), json.dumps(arguments, ensure_ascii=False)),
        ]
        if arguments:
            makers.append(lambda: ("wrong_argument", name, _renamed(self.random, arguments)))
        for kind, wrong in own:
            makers += [lambda kind=kind, wrong=wrong: (kind, name, json.dumps(wrong, ensure_ascii=False))] * 2  # type: ignore[misc]
        return self.random.choice(makers)()


def _malformed(generator: random.Random, arguments: Mapping[str, Any]) -> str:
    """Arguments as a model breaks them: cut off, Python quotes, a comma too many, a bare word."""
    text = json.dumps(arguments, ensure_ascii=False)
    kinds = [text[:-1], text + "}"]
    if arguments:
        key = next(iter(arguments))
        kinds += [text[:-1] + ",}", text.replace(f'"{key}"', f"'{key}'", 1), text.replace(f'"{key}"', key, 1)]
    return generator.choice(kinds)


OTHER_NAMES = {
    "list_files": ("ls", "list_dir", "find_files"),
    "read_file": ("open_file", "cat", "view"),
    "search": ("grep", "find_text", "search_files"),
    "edit": ("str_replace", "replace_in_file", "apply_patch"),
    "run_code": ("python", "execute", "exec_code"),
    "run_tests": ("pytest", "test", "run_unittest"),
    "calculator": ("calc", "compute", "evaluate"),
    "run": ("bash", "shell", "execute_command"),
    "open": ("read", "fetch", "get_page"),
    "find": ("grep", "search_in", "locate"),
    "list_folder": ("ls", "list_dir", "browse_folder"),
    "search_text": ("grep", "find_text", "search_files"),
    "write_file": ("create_file", "save_file", "put_file"),
    "move_file": ("rename_file", "mv", "rename"),
    "make_folder": ("mkdir", "create_folder", "new_folder"),
    "edit_sheet": ("set_cells", "update_cells", "write_sheet"),
    "query_database": ("sql", "select", "run_query"),
    "update_database": ("execute_sql", "run_update", "write_database"),
    "draft_mail": ("send_mail", "reply_mail", "create_draft"),
    "move_event": ("reschedule", "update_event", "edit_calendar"),
}
OTHER_ARGUMENTS = {
    "path": ("file", "filename", "file_path"),
    "old": ("old_str", "find", "search"),
    "new": ("new_str", "replacement", "replace"),
    "text": ("pattern", "query", "regex"),
    "code": ("source", "script", "program"),
    "first_line": ("start", "start_line", "offset"),
    "expression": ("expr", "input", "formula"),
    "command": ("cmd", "script", "bash"),
    "document": ("doc", "id", "document_id"),
    "query": ("q", "text", "search"),
    "pattern": ("regex", "expression", "text"),
    "to": ("target", "destination", "new_path"),
    "content": ("text", "data", "body_text"),
    "sql": ("query", "statement", "command"),
    "cells": ("updates", "values", "changes"),
    "sheet": ("page", "tab", "worksheet"),
    "uid": ("event", "event_id", "id"),
    "start": ("begin", "new_start", "time"),
    "in_reply_to": ("reply_to", "message_id", "references"),
    "body": ("text", "message", "content"),
    "subject": ("title", "topic", "headline"),
}


def _other_name(generator: random.Random, name: str) -> str:
    return generator.choice(OTHER_NAMES.get(name, (f"{name}_tool", f"do_{name}")))


def _renamed(generator: random.Random, arguments: Mapping[str, Any]) -> str:
    key = generator.choice(list(arguments))
    other = generator.choice(OTHER_ARGUMENTS.get(key, (f"{key}_value", f"the_{key}")))
    return json.dumps({other if k == key else k: value for k, value in arguments.items()}, ensure_ascii=False)


def open_teacher(
    family: str, environment: Environment, task: TaskSpec, mistake_rate: float, seed: int
) -> ScriptedTeacher:
    """The scripted teacher of a family. Raises UsageError when there is none."""
    if family not in TEACHERS:
        raise UsageError(f"family {family!r} has no scripted teacher. Families: {', '.join(sorted(TEACHERS))}")
    module_name, class_name = TEACHERS[family].split(":")
    teacher: ScriptedTeacher = getattr(importlib.import_module(module_name), class_name)(
        environment, task, mistake_rate, seed
    )
    return teacher
