"""What runs inside the sandbox for `run_tests`: unittest files, reported without times, addresses or absolute paths.

A plugin of the sandbox, like probing.py. The report is what the agent sees; verdicts do not rest on it.
"""

from __future__ import annotations

import os
import unittest
import warnings
from typing import Any

import probing  # type: ignore[import-not-found,unused-ignore]


class QuietResult(unittest.TestResult):
    """Collects what failed with the failing line and the message, without times or file positions."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.skipped_count = 0
        self.labels: dict[str, str] = {}

    def label(self, test: Any) -> str:
        name = type(test).__name__
        place = self.labels.get(type(test).__module__, type(test).__module__)
        return f"{place}::{name}.{test._testMethodName}"

    def addSuccess(self, test: Any) -> None:  # noqa: N802
        self.passed.append(self.label(test))

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self.failed.append((self.label(test), explain(err)))

    addError = addFailure  # noqa: N815 - unittest's name

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.addFailure(test, err)

    def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self.addSuccess(test)

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
        self.failed.append((self.label(test), f"    {test._testMethodName}\n    passed, though it is to fail"))

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        self.skipped_count += 1

    def seen(self) -> int:
        """Tests that were found so far."""
        return len(self.passed) + len(self.failed) + self.skipped_count


def explain(failure: Any) -> str:
    """The test's own line and the error, as two lines."""
    kind, error, trace = failure
    line = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if os.path.basename(code.co_filename).startswith("test_"):
            import linecache

            line = linecache.getline(code.co_filename, trace.tb_lineno).strip()
        trace = trace.tb_next
    message = str(error).split("\n")[0]
    return f"    {line}\n    {kind.__name__}: {message[:300]}"


def run_tests(payload: dict[str, Any]) -> dict[str, Any]:
    """Run test files of the workspace: {"text": report, "failed": [label, …], "passed": n}.

    A file without a test is named in the report. Failed is what is not as the test wants it, also in a part of a test.

    payload: {"paths": [relative path, …], "details": how many failures to explain}.
    """
    result = QuietResult()
    broken: list[tuple[str, str]] = []
    without: list[str] = []
    for path in payload["paths"]:
        name = path.removesuffix(".py").replace("/", ".")
        result.labels[name] = path
        try:
            module = probing.timed(lambda name=name: probing.importlib_import(name))
        except BaseException as error:
            message = str(error).replace(os.getcwd(), "/workspace").split("\n")[0]
            broken.append((path, f"    cannot be imported\n    {type(error).__name__}: {message[:300]}"))
            continue
        before = result.seen()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for test in flatten(unittest.defaultTestLoader.loadTestsFromModule(module)):
                run_one(test, result)
        if result.seen() == before:
            without.append(f"no test was found in {path}")
    failed = broken + result.failed
    lines = [f"FAILED {label}\n{detail}" for label, detail in failed[: payload["details"]]]
    rest = [label for label, _ in failed[payload["details"] :]]
    if rest:
        lines.append(f"and {len(rest)} more: " + ", ".join(label.split("::")[-1] for label in rest[:20]))
    counts = [(len(failed), "failed"), (len(result.passed), "passed"), (result.skipped_count, "skipped")]
    said = ", ".join(f"{number} {word}" for number, word in counts if number)
    lines += without if failed or result.passed else [*without, "no test was run"]
    lines += [said] if said else []
    return {"text": "\n".join(lines), "failed": [label for label, _ in failed], "passed": len(result.passed)}


def flatten(suite: Any) -> list[Any]:
    """The test cases of a suite, in order."""
    found: list[Any] = []
    for item in suite:
        found.extend(flatten(item) if isinstance(item, unittest.TestSuite) else [item])
    return found


def run_one(test: Any, result: QuietResult) -> None:
    """Run a test case; one that loops for ever or leaves the interpreter is a failure."""
    try:
        test._type_equality_funcs = {}  # "first != second" instead of a long difference of the two
        probing.timed(lambda: test.run(result))
    except BaseException as error:
        message = "stopped after one CPU second" if isinstance(error, probing.OutOfBudget) else type(error).__name__
        result.failed.append((result.label(test), f"    {test._testMethodName}\n    {message}"))
