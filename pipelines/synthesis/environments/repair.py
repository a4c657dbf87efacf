"""Family `repair`: real modules with faults, found by their tests and repaired with an editor.

The workspace holds modules of the pool (`<package>/<name>.py`), each broken by one or two mutations, and unittest files
for part of their recorded behaviour. `verify` runs every recorded call, shown or hidden, on what the modules are
now: the calls that the faults broke must give their recorded outcome again (fail-to-pass), all others still must
(pass-to-pass). Expected outcomes never enter the sandbox for that.

Difficulty 1 is a function of a few lines; from 3.5 on files are whole; 10 is some forty files and faults. Lengths are
reached by real work: every broken file is listed, tested, read and edited.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult
from pipelines.synthesis.environments.functions import PoolModule, open_probe_sandbox, read_pool, split_of
from pipelines.synthesis.environments.originals import imports_original, lines_taken, names_sources, shows
from pipelines.synthesis.environments.repair_tasks import FileSpec, TaskMaker, target_tokens
from pipelines.synthesis.environments.source_text import parse_quietly
from pipelines.synthesis.environments.unittest_files import unittest_file, unittest_label
from pipelines.synthesis.sandbox import RunResult, Sandbox, Workspace, WorkspaceError
from schemas.errors import UsageError
from schemas.trajectory import Outcome

__all__ = ["TOOLS", "RepairEnvironment", "mutated_text", "path_of_tests"]

PACKAGE_HEADS = (
    *("app", "base", "batch", "cloud", "common", "core", "data", "desk", "edge", "field", "flow", "grid", "hub", "lab"),
    *(
        "line",
        "main",
        "mini",
        "net",
        "office",
        "open",
        "plant",
        "prime",
        "quick",
        "shop",
        "site",
        "team",
        "web",
        "work",
    ),
)
PACKAGE_TAILS = (
    *("basics", "bits", "blocks", "box", "bridge", "chest", "drawer", "engine", "extras", "forge", "helpers", "kit"),
    *("library", "modules", "pack", "parts", "pieces", "rack", "services", "shelf", "support", "toolkit", "tools"),
    *("units", "utils", "works"),
)
READ_LINES, READ_CHARACTERS = 400, 20_000  # of one read_file
SEARCH_HITS = 40
FAILURES_EXPLAINED = 12
SYSTEM = (
    "You are a software engineer. You work in /workspace with the tools given; look before you change anything, make "
    "the smallest edit that repairs a fault, and run the tests after each edit. Answer without a tool call when done."
)
INSTRUCTIONS = (
    "The tests of the package `{package}` fail: {faults} in {files} {changed}. Find and repair {them}. Leave the tests "
    "as they are, and finish with a short summary of what was wrong.",
    "After a careless clean-up {faults} of `{package}` no longer {do} what the tests ask for ({files}). Repair the "
    "code so that all tests pass, without touching the tests. Say at the end what you changed.",
    "Please get the test suite of `{package}` to pass again. There {are} {faults} at fault, in {files}; tests under "
    "tests/ show part of the expected behaviour and must not be edited. Summarise the repair when you are done.",
)


def _tool(name: str, description: str, properties: dict[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_PATH = {"type": "string", "description": "path relative to /workspace"}
_LINE = {"type": "integer", "minimum": 1}
TOOLS = [
    _tool("list_files", "List the files below a folder with their sizes in bytes.", {"path": _PATH}),
    _tool(
        "read_file",
        "Read a text file, or some of its lines (first and last included).",
        {"path": _PATH, "first_line": _LINE, "last_line": _LINE},
        ["path"],
    ),
    _tool(
        "search",
        "Find the lines that contain a text, in all files or below a path.",
        {"text": {"type": "string", "minLength": 1}, "path": _PATH},
        ["text"],
    ),
    _tool(
        "edit",
        "Replace a text that occurs exactly once in a file.",
        {"path": _PATH, "old": {"type": "string", "minLength": 1}, "new": {"type": "string"}},
        ["path", "old", "new"],
    ),
    _tool("run_code", "Run a Python program in /workspace.", {"code": {"type": "string"}}, ["code"]),
    _tool("run_tests", "Run all tests, or one test file.", {"path": _PATH}),
]


def path_of_tests(path: str) -> str:
    """The test file of a module: pkg/name.py -> tests/test_name.py."""
    return f"tests/test_{path.split('/')[-1]}"


def mutated_text(source: str, spec: FileSpec) -> str:
    """The module's text with all of its faults."""
    for fault in sorted(spec.faults, key=lambda f: f.start, reverse=True):
        source = source[: fault.start] + fault.text + source[fault.end :]
    return source


class RepairEnvironment(Environment):
    """See the module. `split`: the part of the pool, "train", "heldout" or "all". Raises InputError for a bad pool."""

    family = "repair"
    tools = TOOLS
    pool = "code"
    runs_programs = True

    def __init__(
        self, pool_path: str | Path | None = None, split: str = "train", sandbox: Sandbox | None = None
    ) -> None:
        if pool_path is None:
            raise UsageError("the family repair needs pool_path: the file trajectories/pool.jsonl of a run")
        if split not in ("train", "heldout", "all"):
            raise UsageError(f"split {split!r} is unknown. Use train, heldout or all")
        modules = read_pool(pool_path)
        self._by_id = {module.id: module for module in modules}
        self._drawn = [module for module in modules if split in ("all", split_of(module))]
        self._given_sandbox, self._sandbox = sandbox, sandbox
        self._workspace: Workspace | None = None
        self._maker: TaskMaker | None = None
        self._files: list[FileSpec] = []
        self._failed: dict[str, set[str]] = {}  # test file -> what failed when it was last run
        self._edited: set[str] = set()  # test files whose module was edited since then
        self._tests: dict[str, str] = {}  # what the test files say
        self._taken: dict[str, frozenset[str]] = {}  # module -> lines that its faults took away
        self._looked: set[str] = set()  # modules whose original a program looked at

    @property
    def left_out(self) -> dict[str, int]:
        """See `Environment.left_out`: bad_probes are functions whose probe gave a result of another shape."""
        found = self._maker.bad_probes if self._maker else 0
        return {"bad_probes": found} if found else {}

    def generate(self, seed: int, difficulty: float) -> TaskSpec:
        """See `Environment.generate`. Raises UsageError when no module of the pool's split can be broken."""
        if not 1 <= difficulty <= 10:
            raise UsageError(f"difficulty {difficulty:g} is out of range: 1 to 10")
        generator = random.Random(f"repair:{seed}:{difficulty:g}")  # noqa: S311 - seeded on purpose
        if self._maker is None:
            self._maker = TaskMaker(self._drawn, self._box(), self._box().workspace())
        package = f"{generator.choice(PACKAGE_HEADS)}_{generator.choice(PACKAGE_TAILS)}"
        files = self._maker.files(difficulty, generator, package)
        if not files:
            raise UsageError(
                f"no task of difficulty {difficulty:g}: the repair pool has {len(self._drawn)} modules to use"
            )
        faults, count = sum(len(spec.faults) for spec in files), len(files)
        instruction = generator.choice(INSTRUCTIONS).format(
            package=package,
            faults="one function" if faults == 1 else f"{faults} functions",
            files="one file" if count == 1 else f"{count} files",
            them="it" if faults == 1 else "them",
            do="does" if faults == 1 else "do",
            are="is" if faults == 1 else "are",
            changed="was broken by a bad merge" if faults == 1 else "were broken by a bad merge",
        )
        licenses = sorted({self._by_id[spec.module].license for spec in files})
        return TaskSpec(
            id=f"repair-{seed}-{difficulty:g}",
            family=self.family,
            seed=seed,
            difficulty=difficulty,
            system=SYSTEM,
            instruction=instruction,
            data={"package": package, "files": [spec.to_data() for spec in files]},
            license=" AND ".join(licenses),
        )

    def reset(self, task: TaskSpec) -> str:
        """See `Environment.reset`. Raises UsageError when the task names a module that this pool does not have."""
        self._files = [FileSpec.from_data(raw) for raw in task.data["files"]]
        self._failed, self._edited, self._tests = {}, set(), {}
        self._taken, self._looked = {}, set()
        if self._workspace is None:
            self._workspace = self._box().workspace()
        self._workspace.clear()
        for spec in self._files:
            module, source = self.module_of(spec), self.source_of(spec)
            broken = mutated_text(source, spec)
            self._taken[spec.path] = lines_taken(source, broken)
            self._workspace.write(spec.path, broken)
            functions = {name: (module.functions[name], shown) for name, shown in spec.visible.items() if shown}
            dotted = spec.path.removesuffix(".py").replace("/", ".")
            tests = path_of_tests(spec.path)
            self._tests[tests] = unittest_file(tests, dotted, functions)
            self._workspace.write(tests, self._tests[tests])
        return task.instruction

    def folder(self) -> Path:
        """Where the task's files lie, for measurements. Raises UsageError before the first reset."""
        if self._workspace is None:
            raise UsageError("call reset(task) first")
        return self._workspace.root

    def module_of(self, spec: FileSpec) -> PoolModule:
        """The pool's module behind a file of a task."""
        if spec.module not in self._by_id:
            raise UsageError(
                f"module {spec.module} of the task is not in this pool. Use the pool that the task was made from"
            )
        return self._by_id[spec.module]

    def source_of(self, spec: FileSpec) -> str:
        """The text of a task's file without faults."""
        module = self.module_of(spec)
        return module.slice_of(spec.only) if spec.only else module.source

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """See `Environment.call`."""
        if self._workspace is None:
            raise UsageError("call reset(task) first")
        try:
            result: ToolResult = getattr(self, f"_{name}")(self._workspace, **arguments)
        except WorkspaceError as error:
            return ToolResult(f"Error: {error}", True, error.kind)
        except OSError as error:  # what code of the agent did to the folder
            return ToolResult(f"Error: {error.strerror}", True, "tool_error")
        return result

    def _list_files(self, workspace: Workspace, path: str = ".") -> ToolResult:
        files = workspace.files(path)
        text = "\n".join(f"{name} ({size})" for name, size in files)
        return ToolResult(text or "no files", signal=None if files else "empty")

    def _read_file(
        self, workspace: Workspace, path: str, first_line: int = 1, last_line: int | None = None
    ) -> ToolResult:
        lines = workspace.read(path).split("\n")
        if lines and not lines[-1]:
            lines.pop()
        if last_line is not None and last_line < first_line:
            return ToolResult(f"Error: last_line {last_line} is before first_line {first_line}", True, "bad_arguments")
        if first_line > max(1, len(lines)):
            return ToolResult(
                f"Error: {path} has {len(lines)} lines, first_line is {first_line}", True, "bad_arguments"
            )
        wanted = lines[first_line - 1 : min(last_line or len(lines), first_line - 1 + READ_LINES)]
        shown: list[str] = []
        size = 0
        for line in wanted:
            size += len(line) + 1
            if size > READ_CHARACTERS and shown:
                break
            shown.append(line[:READ_CHARACTERS])
        end = first_line - 1 + len(shown)
        head = f"{path}, lines {first_line} to {end} of {len(lines)}"
        return ToolResult("\n".join([head, *shown]))

    def _search(self, workspace: Workspace, text: str, path: str = ".") -> ToolResult:
        single = bool(re.search(r"\.\w+$", path))
        names = [path] if single else [name for name, _ in workspace.files(path)]
        hits = []
        for name in names:
            for number, line in enumerate(workspace.read(name).split("\n"), 1):
                if text in line:
                    hits.append(f"{name}:{number}: {line.strip()[:160]}")
        if not hits:
            return ToolResult("no line contains this text", signal="empty")
        rest = [f"and {len(hits) - SEARCH_HITS} more lines"] if len(hits) > SEARCH_HITS else []
        return ToolResult("\n".join(hits[:SEARCH_HITS] + rest))

    def _edit(self, workspace: Workspace, path: str, old: str, new: str) -> ToolResult:
        path = workspace.name_of(path)
        if path.startswith("tests/"):
            return ToolResult("Error: files under tests/ must not be changed", True, "tool_error")
        text = workspace.read(path)
        count = text.count(old)
        if count == 0:
            return ToolResult(f"Error: the old text does not occur in {path}; nothing was changed", True, "no_match")
        if count > 1:
            message = f"Error: the old text occurs {count} times in {path}; give more of its surroundings"
            return ToolResult(message, True, "ambiguous")
        if old == new:
            return ToolResult("Error: old and new text are equal; nothing was changed", True, "no_change")
        changed = text.replace(old, new)
        if path.endswith(".py") and parse_quietly(changed) is None:
            return ToolResult(f"Error: {path} would not be valid Python; nothing was changed", True, "syntax_error")
        workspace.write(path, changed)
        self._edited.add(path_of_tests(path))
        line = text[: text.index(old)].count("\n") + 1
        return ToolResult(f"{path} changed at line {line}")

    def _run_code(self, workspace: Workspace, code: str) -> ToolResult:
        before = self._texts() if names_sources(code) else None
        run = self._box().run_python(code, workspace, bytecode=True)
        if before is not None:
            after = self._texts()
            self._looked |= {
                path for path, lines in self._taken.items() if shows(lines, code, before, after, run.output)
            }
        if run.reason:
            return ToolResult(f"{run.output}\nstopped: {_reason(run)}".lstrip(), True, "timeout")
        if run.exit_code:
            return ToolResult(f"{run.output}\nexit code {run.exit_code}".lstrip(), True, f"exit_code={run.exit_code}")
        return ToolResult(_stable(run.output) or "no output")

    def _run_tests(self, workspace: Workspace, path: str | None = None) -> ToolResult:
        paths = [path_of_tests(spec.path) for spec in self._files]
        if path is not None:
            path = workspace.name_of(path)
            if path not in ("tests", "."):
                workspace.read(path)  # the error for what is not there
                paths = [path]
        payload = {"paths": paths, "details": FAILURES_EXPLAINED}
        run = self._box().call("testing:run_tests", payload, workspace, bytecode=True)
        report = _report_of(run.result)
        if report is None:
            text = f"{_stable(run.output)}\nthe tests were stopped: {_reason(run)}".lstrip()
            return ToolResult(text, True, "timeout" if run.reason else f"exit_code={run.exit_code}")
        said, failed, passed = report
        if not failed and not passed:
            return ToolResult(
                f"Error: {_stable(said)}. Tests are in {', '.join(sorted(self._tests))}"[:2_000], True, "no_tests"
            )
        signal = self._judge(paths, failed)
        return ToolResult(_stable(said), False, signal)

    def _judge(self, paths: Sequence[str], failed: Sequence[str]) -> str:
        """The signal of a test run (see base.py); remembers it for the next one."""
        unfixed = False
        for path in paths:
            now = {label for label in failed if label.split("::")[0] == path}
            before = self._failed.get(path)
            if path in self._edited and before is not None and now:
                unfixed |= not (before - now) or bool(now - before)
            self._failed[path] = now
            self._edited.discard(path)
        if not failed:
            return "tests_passed"
        return "tests_unfixed" if unfixed else "tests_failed"

    def verify(self) -> Outcome:
        """Run all recorded calls of files that had faults or were changed; success when every outcome is as recorded.

        `reward` is the share of fail-to-pass calls that pass, 0 when another call broke. `verified_by` ends in
        "read_original: MODULE, …" when the run looked at the unbroken text (originals.py); that is no failure.
        """
        if self._workspace is None:
            raise UsageError("call reset(task) first")
        payload: dict[str, dict[str, list[list[str]]]] = {}
        for spec in self._files:
            dotted = spec.path.removesuffix(".py").replace("/", ".")
            recorded = self.module_of(spec).functions
            payload[dotted] = {name: [call.arguments for call in recorded[name]] for name in spec.visible}
        self._workspace.drop_bytecode()
        run = self._box().call("probing:run_calls", payload, self._workspace, cpu_seconds=20, wall_seconds=90.0)
        fixed = broken = wanted = kept = 0
        for spec in self._files:
            functions = _within(run.result, spec.path.removesuffix(".py").replace("/", "."))
            must_change = {item for fault in spec.faults for item in fault.fails}
            for name in spec.visible:
                listed = _within(functions, name)
                got = listed if isinstance(listed, list) else []
                for index, call in enumerate(self.module_of(spec).functions[name]):
                    good = index < len(got) and got[index] == call.outcome
                    if (name, index) in must_change:
                        wanted, fixed = wanted + 1, fixed + good
                    else:
                        kept, broken = kept + 1, broken + (not good)
        text = f"hidden tests: {fixed} of {wanted} fail-to-pass, {kept - broken} of {kept} pass-to-pass"
        originals = self._originals()
        if originals:
            text += f"; read_original: {', '.join(originals)}"
        if self._tests_changed():
            return Outcome(False, 0.0, f"{text}; the tests were changed")
        success = fixed == wanted and broken == 0
        return Outcome(success, fixed / wanted if wanted and not broken else 0.0, text)

    def _texts(self) -> dict[str, str]:
        """The modules of the task as they are now; "" for one that cannot be read."""
        texts = dict.fromkeys(self._taken, "")
        for path in texts:
            with contextlib.suppress(WorkspaceError, OSError):
                texts[path] = self._workspace.read(path) if self._workspace else ""
        return texts

    def _originals(self) -> list[str]:
        """The modules whose unbroken text the run looked at or imports, sorted."""
        texts = self._texts()
        found = set(self._looked)
        for spec in self._files:
            if imports_original(texts[spec.path], self.source_of(spec), self.module_of(spec).origin):
                found.add(spec.path)
        return sorted(found)

    def _tests_changed(self) -> bool:
        """Whether a test file is not what it was at the start."""
        if self._workspace is None:
            return False
        try:
            return any(self._workspace.read(path) != text for path, text in self._tests.items())
        except (WorkspaceError, OSError):
            return True

    def shown_labels(self, spec: FileSpec) -> list[list[str]]:
        """For every fault of a file, the labels of the tests that it makes fail."""
        return [[unittest_label(path_of_tests(spec.path), name, index) for name, index in f.shown] for f in spec.faults]

    @classmethod
    def expected_tokens(cls, difficulty: float) -> float:
        """See `Environment.expected_tokens`."""
        return target_tokens(difficulty)

    def close(self) -> None:
        """See `Environment.close`. A sandbox that was handed in stays open."""
        if self._given_sandbox is None and self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
        self._workspace, self._maker = None, None

    def _box(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = open_probe_sandbox()
        return self._sandbox


def _report_of(result: Any) -> tuple[str, list[str], int] | None:
    """(text, labels of failed tests, number of passed ones) of a test run, None for anything else: the code under test
    can write there too."""
    text, failed, passed = (_within(result, key) for key in ("text", "failed", "passed"))
    if not isinstance(text, str) or not isinstance(failed, list) or not isinstance(passed, int):
        return None
    return text, [str(label) for label in failed], passed


def _within(value: Any, key: str) -> Any:
    """The item of a mapping, None where there is none or no mapping."""
    return value.get(key) if isinstance(value, dict) else None


def _stable(text: str) -> str:
    """Without memory addresses, which differ from run to run."""
    return re.sub(r"\b0x[0-9a-f]{6,}\b", "0x…", text).rstrip()


def _reason(run: RunResult) -> str:
    """Why a run was stopped, in words that are the same on every machine."""
    words = {"wall": "it took too long", "cpu": "it took too much processor time", "output": "it printed too much"}
    words |= {"disk": "it wrote too much", "lost": "it killed its interpreter", "server": "no process could be started"}
    return words.get(run.reason or "", f"exit code {run.exit_code}")
