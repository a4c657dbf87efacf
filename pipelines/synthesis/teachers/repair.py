"""The scripted teacher of the family `repair`: run the tests, read what fails, edit, test again, file by file."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, cast

from pipelines.synthesis.environments.base import Environment, TaskSpec
from pipelines.synthesis.environments.repair import RepairEnvironment, path_of_tests
from pipelines.synthesis.environments.repair_tasks import Fault, FileSpec
from pipelines.synthesis.environments.source_text import changed_lines
from pipelines.synthesis.teachers import phrases
from pipelines.synthesis.teachers.scripted import Plan, ScriptedTeacher, Turn
from schemas.trajectory import Message

__all__ = ["RepairTeacher", "block_edit"]

Change = tuple[int, int, str]
Wrong = list[tuple[str, Mapping[str, Any]]]
_POSITION = re.compile(r"lines (\d+) to (\d+) of (\d+)$")
SMALL_FILE_LINES = 80


class RepairTeacher(ScriptedTeacher):
    """Knows the faults from the task's data, but speaks only of what tools have shown it."""

    def __init__(self, environment: Environment, task: TaskSpec, mistake_rate: float = 0.0, seed: int = 0) -> None:
        super().__init__(environment, task, mistake_rate, seed)
        self._repair = cast(RepairEnvironment, environment)
        self._files = sorted((FileSpec.from_data(raw) for raw in task.data["files"]), key=lambda spec: spec.path)
        self._reports: dict[str, str] = {}  # failing test -> how it was explained
        self._summary: list[str] = []

    def plan(self) -> Plan:
        """See `ScriptedTeacher.plan`."""
        r = self.random
        package = self.task.data["package"]
        if r.random() < 0.85 or len(self._files) > 1:
            why = phrases.pick(
                r,
                "First I look at what is in the workspace.",
                "I start with the layout of `{p}`.",
                "Let me see which files there are before touching anything.",
                p=package,
            )
            yield from self.do("list_files", {}, why)
        why = phrases.pick(
            r,
            "Now the tests, to see what fails.",
            "I run the whole suite for a first picture.",
            "The failing tests will tell where to look.",
        )
        self._note((yield from self.do("run_tests", {}, why)))
        stop = len(self._files) * (0.6 + 0.4 * r.random()) if self.fails else None
        for number, spec in enumerate(self._files):
            if stop is not None and number >= int(stop):
                yield from self._stop_early(spec)
                return
            yield from self._file(spec)
        why = phrases.pick(
            r,
            "All files are done; the whole suite once more.",
            "A last full run to make sure that nothing else broke.",
            "Now everything together.",
        )
        result = yield from self.do("run_tests", {}, why)
        why = phrases.pick(
            r, "The suite says {said}. I can report.", "{said}: the work is done.", said=phrases.quoted(result.content)
        )
        opening = phrases.pick(r, "Done; all tests pass.", "The suite passes again.", "Repaired; every test is green.")
        yield from self.answer("\n".join([opening, *self._summary]), why)

    def _file(self, spec: FileSpec) -> Plan:
        """Understand and repair one module."""
        r = self.random
        tests = path_of_tests(spec.path)
        known = [label for label in self._reports if label.startswith(tests + "::")]
        if not known or (len(self._files) > 1 and r.random() < 0.25):
            why = phrases.pick(
                r,
                "Next is {p}; its own tests in detail.",
                "Only the tests of {p} now.",
                "What exactly fails for {p}?",
                "On to {p}; I run its tests alone.",
                "{p} comes next. Its tests:",
                p=spec.path,
            )
            self._note((yield from self.do("run_tests", {"path": tests}, why, self._wrong_paths({"path": tests}))))
        # a failing test shows the value that it wants, but only its file says which exception
        unseen = any(fault.kind == "wrong_exception" for fault in spec.faults)
        if r.random() < 0.5 or unseen:
            why = phrases.pick(
                r, "I read the tests of {p} to know what is expected.", "What do the tests of {p} ask for?", p=spec.path
            )
            arguments = {"path": tests}
            yield from self.do("read_file", arguments, why, self._wrong_paths(arguments))
        yield from self._read(spec)
        remaining = list(spec.faults)
        for fault in spec.faults:
            yield from self._repair_fault(spec, fault, remaining)
            remaining.remove(fault)

    def _read(self, spec: FileSpec) -> Plan:
        """Find the function and read the file from the first line to the last, in pieces if it is long."""
        r = self.random
        names = sorted({fault.function for fault in spec.faults})
        total = self._repair.source_of(spec).count("\n")
        if total > SMALL_FILE_LINES and r.random() < 0.6:
            why = phrases.pick(
                r,
                "Where is `{n}` defined and used?",
                "The failing tests call `{n}`; I look for it.",
                "I locate `{n}` first.",
                n=names[0],
            )
            arguments = {"text": f"{names[0]}(", "path": spec.path}
            yield from self.do("search", arguments, why, self._wrong_paths(arguments))
        step = r.choice((150, 200, 250, 300, 400))
        first = 1
        while True:
            arguments_: dict[str, Any] = {"path": spec.path}
            if total > step or first > 1:
                arguments_ |= {"first_line": first, "last_line": first + step - 1}
            wrong = self._wrong_paths(arguments_)
            if first > 1:
                beyond = total + self.random.randint(5, 90)
                wrong.append(("bad_range", {**arguments_, "first_line": beyond, "last_line": beyond + step - 1}))
            result = yield from self.do("read_file", arguments_, self._reading(spec, first, names), wrong)
            found = _POSITION.search(result.content.split("\n")[0])
            if not found or int(found[2]) >= int(found[3]):
                return
            first = int(found[2]) + 1

    def _reading(self, spec: FileSpec, first: int, names: Sequence[str]) -> str:
        """Why the next lines of a file are read."""
        if first > 1:
            return phrases.pick(
                self.random,
                "On with {p} from line {f}.",
                "The rest of {p} matters too: line {f} on.",
                "Next part of {p}.",
                "I read on at line {f}.",
                "There is more of {p}, from line {f}.",
                p=spec.path,
                f=first,
            )
        failing = [label for label in self._reports if label.startswith(path_of_tests(spec.path) + "::")]
        if failing and self.random.random() < 0.7:
            test, said = failing[0].split(".")[-1], self._reports[failing[0]]
            return phrases.pick(
                self.random,
                "{t} fails: {s}. I read {p}.",
                "{s} in {t}, so the code in {p} has to be looked at.",
                t=test,
                s=said,
                p=spec.path,
            )
        return phrases.pick(
            self.random, "Now the code of {p}, with `{n}` in mind.", "I read {p}.", p=spec.path, n=names[0]
        )

    def _repair_fault(self, spec: FileSpec, fault: Fault, remaining: Sequence[Fault]) -> Plan:
        """Reproduce perhaps, edit (perhaps wrongly first), test."""
        r = self.random
        source = self._repair.source_of(spec)
        others = [(f.start, f.end, f.text) for f in remaining if f is not fault]
        broken = _changed(source, [*others, (fault.start, fault.end, fault.text)])
        mended = _changed(source, others)
        if r.random() < 0.2:
            yield from self._reproduce(spec, fault)
        old, new = block_edit(broken, mended)
        why = phrases.fault(r, fault.kind, _first_difference(old, new), _first_difference(new, old))
        wrong_fix = False
        if fault.decoy is not None and r.random() < self._chance * 0.5:
            tried = _changed(source, [*others, fault.decoy])
            wrong_fix = yield from self._wrong_fix(spec, fault, broken, tried)
            if wrong_fix:
                old, new = block_edit(tried, mended)
        before = phrases.pick(r, "In `{n}`: ", "`{n}`: ", "The fault is in `{n}`. ", n=fault.function)
        edit = {"path": spec.path, "old": old, "new": new}
        result = yield from self._edit(spec, edit, before + why, recovers=wrong_fix, current=broken)
        self._summary.append(
            f"- {spec.path}, {fault.function}: {phrases.fault(r, fault.kind, *_lines(broken, mended))}"
        )
        if not result.error:
            yield from self._test(spec)

    def _edit(self, spec: FileSpec, edit: dict[str, Any], why: str, recovers: bool, current: str) -> Turn:
        """The right edit; its own way to go wrong is an old text that is not in the file (or is there twice)."""
        if recovers:
            return (yield from self.say("edit", _json(edit), why, "recovery"))
        wrong = self._wrong_paths(edit)
        for text in _misquoted(edit["old"]):
            if (places := current.count(text)) != 1:
                wrong.append(("ambiguous_edit" if places else "failed_edit", {**edit, "old": text}))
        return (yield from self.do("edit", edit, why, wrong))

    def _test(self, spec: FileSpec) -> Turn:
        arguments = {"path": path_of_tests(spec.path)}
        why = phrases.pick(
            self.random,
            "Did that help? The tests of {p}.",
            "I check {p} at once.",
            "Now the tests of {p} again.",
            "The edit is in; do the tests of {p} agree?",
            "Its tests next.",
            "With that changed, {p} is tested again.",
            p=spec.path,
        )
        result = yield from self.do("run_tests", arguments, why, self._wrong_paths(arguments))
        self._note(result)
        return result

    def _wrong_fix(
        self, spec: FileSpec, fault: Fault, broken: str, tried: str
    ) -> Generator[Message, list[Message], bool]:
        """Edit the wrong way and see the tests fail as before; False when it was no mistake after all."""
        old, new = block_edit(broken, tried)
        why = phrases.pick(
            self.random,
            "I suspect {o} in `{n}`; I try {w}.",
            "`{n}` looks wrong at {o}. My guess is {w}.",
            "Maybe it is as simple as {w}.",
            n=fault.function,
            o=phrases.quoted(_first_difference(old, new)),
            w=phrases.quoted(_first_difference(new, old)),
        )
        message = self.turn("edit", _json({"path": spec.path, "old": old, "new": new}), why, "mistake:wrong_fix")
        results = yield message
        if results[0].error:
            message.label = "mistake:failed_edit"
            return False
        result = yield from self._test(spec)
        if result.signal != "tests_unfixed":
            message.label = "step"
        return True

    def _reproduce(self, spec: FileSpec, fault: Fault) -> Plan:
        """Run one failing call by hand; the mistake that goes with it is a snippet without its import."""
        name, index = fault.shown[0]
        arguments = self._repair.module_of(spec).functions[name][index].arguments
        dotted = spec.path.removesuffix(".py").replace("/", ".")
        lines = [f"from {dotted} import {name}", "try:", f"    print(repr({name}({', '.join(arguments)})))"]
        lines += ["except Exception as error:", "    print(type(error).__name__, error)"]
        why = phrases.pick(
            self.random, "I run `{n}` by hand on a failing input.", "What does `{n}` give for that input?", n=name
        )
        bad = f"print(repr({name}({', '.join(arguments)})))"
        yield from self.do("run_code", {"code": "\n".join(lines)}, why, [("bad_code", {"code": bad})])

    def _stop_early(self, spec: FileSpec) -> Plan:
        """Answer with faults left: sure of oneself, or giving up. The verdict shows that it was wrong."""
        if self.random.random() < 0.6:
            text = phrases.pick(
                self.random,
                "Everything should work now; the remaining failures look unrelated.",
                "I have repaired what was broken.",
                "Done. The code is correct as it stands.",
            )
            yield from self.answer(text, "I think that this is enough.", "mistake:premature_answer")
        else:
            text = f"I could not find out what is wrong in {spec.path}. I stop here."
            yield from self.answer(text, "I do not see how to go on.", "mistake:gave_up")

    def _wrong_paths(self, arguments: Mapping[str, Any]) -> Wrong:
        """The call with paths that do not exist but might."""
        path = str(arguments["path"])
        folder, _, name = path.rpartition("/")
        candidates = [f"src/{path}", name, f"{folder}s/{name}", f"{folder}/{name.replace('test_', 'tests_')}"]
        taken = {spec.path for spec in self._files} | {path_of_tests(spec.path) for spec in self._files}
        usable = [candidate for candidate in candidates if candidate not in taken]
        return [("wrong_path", {**arguments, "path": self.random.choice(usable)})]

    def _note(self, result: Message) -> None:
        """Remember how failing tests were explained."""
        lines = result.content.split("\n")
        if result.error:
            return
        for number, line in enumerate(lines[:-2]):
            if line.startswith("FAILED ") and "::" in line:
                self._reports[line.removeprefix("FAILED ")] = phrases.quoted(lines[number + 2])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _changed(source: str, changes: Iterable[Change]) -> str:
    """The source with changes that do not overlap."""
    for start, end, text in sorted(changes, reverse=True):
        source = source[:start] + text + source[end:]
    return source


def block_edit(current: str, wanted: str) -> tuple[str, str]:
    """(old, new) whole lines that turn one text into the other; as many lines around as make `old` occur once."""
    first, end_old, end_new = changed_lines(current, wanted)
    before, after = current.splitlines(keepends=True), wanted.splitlines(keepends=True)
    top = bottom = 0
    while True:
        old = "".join(before[first - top : end_old + bottom]).removesuffix("\n")
        new = "".join(after[first - top : end_new + bottom]).removesuffix("\n")
        if old.strip() and current.count(old) == 1:
            return old, new
        grown = False
        if first - top > 0 and top <= bottom:
            top, grown = top + 1, True
        elif end_old + bottom < len(before):
            bottom, grown = bottom + 1, True
        elif first - top > 0:
            top, grown = top + 1, True
        if not grown:
            return old, new


def _first_difference(text: str, other: str) -> str:
    """The first line of a block that the other block does not have (for a sentence)."""
    lines = set(other.split("\n"))
    for line in text.split("\n"):
        if line not in lines and line.strip():
            return line.strip()
    return text.strip().split("\n")[0]


def _lines(broken: str, mended: str) -> tuple[str, str]:
    """(wrong line, right line) of two texts."""
    old, new = block_edit(broken, mended)
    return _first_difference(old, new), _first_difference(new, old)


def _misquoted(old: str) -> list[str]:
    """The old text as it is remembered wrongly: other indentation, a blank too many, only its first word."""
    lines = old.split("\n")
    shifted = "\n".join(("  " + line if line.strip() else line) for line in lines)
    last = lines[-1]
    wordy = old[: -len(last)] + last.replace(" ", "  ", 1) if last.strip() else old
    spaced = old.replace(" = ", "=", 1) if " = " in old else old.replace(", ", ",", 1)
    return [text for text in (shifted, wordy, spaced, lines[0].strip().split(" ")[0]) if text and text != old]
