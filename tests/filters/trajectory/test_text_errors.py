"""Errors by text alone: what is one, what is not, and the bound on what is read."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.trajectory.judge import judgements
from filters.trajectory.text_errors import HEAD_CHARS, TAIL_CHARS, looks_like_test_report, text_error
from filters.trajectory.view import view_of

ERRORS = [
    ("zsh: no such user or named directory: x", "ls ~x", "text_shell"),
    ('sh: 1: Syntax error: end of file unexpected (expecting "done")', "for x in a; do", "text_shell"),
    ("./deploy.sh: line 7: kubectl: command not found", "./deploy.sh", "text_shell"),
    ("ls: cannot access 'nowhere': No such file or directory", "ls nowhere", "text_errno"),
    ("mkdir: cannot create directory '/x': Permission denied", "mkdir /x", "text_errno"),
    ("head: invalid number of lines: 'ten'", "head -n ten a", "text_usage"),
    (
        "usage: prog [-h] --name NAME\nprog: error: the following arguments are required: --name",
        "python prog",
        "text_usage",
    ),
    ("curl: (6) Could not resolve host: nowhere.invalid", "curl nowhere.invalid", "text_program"),
    ("fatal: not a git repository (or any of the parent directories): .git", "git status", "text_generic"),
    ("error: pathspec 'topic' did not match any file(s) known to git", "git checkout topic", "text_generic"),
    (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'k'",
        "python a.py",
        "text_traceback",
    ),
    ("java.lang.NullPointerException: x\n\tat Main.main(Main.java:3)", "java Main", "text_traceback"),
    ("thread 'main' panicked at src/main.rs:2:5:\nboom", "cargo run", "text_traceback"),
    ("TypeError: undefined is not a function\n    at Object.<anonymous> (/a.js:1:1)", "node a.js", "text_traceback"),
    ("main.c:3:5: error: expected ';' before 'return'", "gcc main.c", "text_compiler"),
    ("error[E0425]: cannot find value `x` in this scope", "cargo build", "text_compiler"),
    ("ERROR 1064 (42000): You have an error in your SQL syntax", "SELEC 1", "text_sql"),
    ('ERROR:  relation "people" does not exist', "SELECT * FROM people", "text_sql"),
    ("Error: in prepare, no such column: agee", "SELECT agee FROM t", "text_sql"),
    ("ORA-00942: table or view does not exist", "SELECT 1 FROM x", "text_sql"),
    ("HTTP/1.1 404 Not Found", "", "text_http"),
    ("429 Too Many Requests", "", "text_http"),
    ('{"error": {"code": 3, "message": "bad"}}', "", "text_json"),
    ('{"success": false, "data": null}', "", "text_json"),
    ('{"status": 503}', "", "text_json"),
    ("Command timed out after 30 seconds", "sleep 99", "text_timeout"),
    ("Segmentation fault (core dumped)", "./a.out", "text_timeout"),
    ("old_string not found in a.py", "", "text_edit"),
    ("Hunk #1 FAILED at 3.", "patch -p1 < a", "text_edit"),
    ("Your last response was not valid JSON", "", "text_format"),
    ("Unknown tool: fly", "", "text_format"),
    ("Error: order not found", "", "text_generic"),
    ("tar: Cowardly refusing to create an empty archive\nTry 'tar --help' for more.", "tar cf x.tar", "text_program"),
    ("unzip:  cannot find or open a.zip", "unzip a.zip", "text_program"),
    ("\ngzip: a: not in gzip format", "gunzip a", "text_program"),
    ("/usr/bin/python3: No module named nosuch", "python3 -m nosuch", "text_program"),
    ("Looking in links: /x\nERROR: No matching distribution found for y", "pip install y", "text_generic"),
    ("--2026-- http://x/\nConnecting to x... failed: Connection refused.", "wget http://x/", "text_errno"),
    ("ls: cannot access 'a': No such file or directory", "{ ls a; }", "text_errno"),
    ("cat: a: No such file or directory", "for f in a; do cat $f; done", "text_errno"),
    ("boom at -e line 1.", "perl -e 'die \"boom\"'", "text_traceback"),
    ("OBSERVATION:\ncat: a: No such file or directory", "cat a", "text_errno"),
]

FINE = [
    ("", "true"),
    ("total 4\n-rw-r--r-- 1 u u 9 Jan 1 error.log", "ls -l"),
    ("src/a.py:12:    raise ValueError('bad argument: x')", "grep -n raise src/a.py"),
    ('{"error": "", "response": "fine"}', ""),
    ('{"error": null, "rows": [1]}', ""),
    ('{"status": 200}', ""),
    ("Your command ran successfully and did not produce any output.", "rm a"),
    ("0 errors, 0 warnings", "eslint ."),
    ("warning: LF will be replaced by CRLF", "git add a"),
    ("     1\timport sys\n     2\traise SyntaxError('syntax error: unexpected token')", "cat -n a.py"),
    ("Error handling in asynchronous programs has a long history that starts with", "cat book.txt"),
    ("tests/a.ts(3,1): error TS2304: Cannot find name 'x'.", "npx tsc | grep a.ts"),
    ("find: 'x': Permission denied\n12", "find / -name y | wc -l"),
    ("bash: line 1: foo: command not found\nbar", "foo || echo bar"),
    ("cat: a: No such file or directory\nok", "cat a; echo ok"),
    ("b\nbash: line 1: cd: a: No such file or directory", "cd a; ls"),
    ("make: Nothing to be done for 'all'.", "make"),
    ("tar: Removing leading `/' from member names", "tar cf a.tar /etc/hostname"),
    ("a\nERROR: a line of a log\nb", "cat service.log"),
    ("[('alice', 3)]", "SELECT name, age FROM t"),
    ("OUTPUT:\n" + "a row of words\n" * 9 + "Error: in a sentence\n" + "another row\n" * 9, "python show.py"),
]


@pytest.mark.parametrize(("text", "command", "kind"), ERRORS, ids=[text[:40] for text, _, _ in ERRORS])
def test_reads_as_an_error(text: str, command: str, kind: str) -> None:
    assert text_error(text, command) == kind


@pytest.mark.parametrize(("text", "command"), FINE, ids=[text[:40] or "empty" for text, _ in FINE])
def test_reads_as_fine(text: str, command: str) -> None:
    assert text_error(text, command) is None


@given(st.sampled_from(sorted(errno.errorcode)), st.from_regex(r"[a-z]{2,8}", fullmatch=True))
def test_every_errno_message_of_a_program_is_an_error(code: int, program: str) -> None:
    assert text_error(f"{program}: some/file: {os.strerror(code)}", f"{program} some/file") is not None


def test_an_error_in_the_middle_of_a_long_observation_is_not_read() -> None:
    filler = "a line of plain words\n" * 400
    assert len(filler) > HEAD_CHARS + TAIL_CHARS
    assert text_error(filler + "cat: x: No such file or directory\n" + filler, "cat x") is None
    assert text_error(filler + "cat: x: No such file or directory\n", "cat x") == "text_errno"


@given(st.text(max_size=300), st.text(max_size=60))
def test_any_text_and_any_command_get_an_answer(text: str, command: str) -> None:
    kind = text_error(text, command)
    assert kind is None or kind.startswith("text_")


@pytest.mark.parametrize(
    "text",
    [
        "=== 2 failed, 5 passed in 1.20s ===",
        "2 failed, 5 passed in 1.20s",
        "Ran 4 tests in 0.010s\n\nFAILED (failures=1, errors=1)",
        "Tests:       1 failed, 3 passed, 4 total",
        "--- FAIL: TestAdd (0.00s)",
        "test result: FAILED. 3 passed; 1 failed; 0 ignored",
        "  3 passing (20ms)\n  1 failing",
        "not ok 3 - adds",
    ],
)
def test_test_reports_are_recognised(text: str) -> None:
    assert looks_like_test_report("building\n" + text)


NEGATIVE = [
    ("cd a && mypy --strict src", "src/a.py:3: error: no", "exit_code=1", "check_failed"),
    ("npm run check", "\n> tsc\n\nsrc/a.ts(3,1): error TS1: no", "exit_code=2", "check_failed"),
    ("sleep 9", "Command aborted", "isError", "user_rejected"),
    ("grep -n foo a.txt", "", "exit_code=1", "empty"),
    ("diff a b", "1c1\n< x\n---\n> y", "exit_code=1", "difference"),
    ("test -f a", "", "exit_code=1", "empty"),
    ("git diff --exit-code", "diff --git a/x b/x\n@@ -1 +1 @@", "exit_code=1", "difference"),
    ("cargo test", "test result: FAILED. 3 passed; 1 failed", "exit_code=101", "tests_failed"),
    ("cd src && grep -c foo a.txt", "0", "exit_code=1", "empty"),
    ("grep -n foo a.txt", "Command exited with code 1", "isError", "empty"),
    (
        "python reproduce_bug.py",
        'Traceback (most recent call last):\n  File "x"\nAssertionError',
        "exit_code=1",
        "reproduction",
    ),
]
MISTAKES = [
    ("mypy --no-such-option", "usage: mypy [-h]\nmypy: error: unrecognized arguments", "exit_code=2"),
    ("gcc a.c", "a.c:3:5: error: expected ';'", "exit_code=1"),
    ("grep -n foo a.txt", "grep: a.txt: No such file or directory", "exit_code=2"),
    ("diff a b", "diff: b: No such file or directory", "exit_code=2"),
    ("pytest nowhere.py", "ERROR: file or directory not found: nowhere.py\n=== no tests ran ===", "exit_code=4"),
    (
        "python reproduce_bug.py",
        'Traceback (most recent call last):\n  File "x"\nModuleNotFoundError: no',
        "exit_code=1",
    ),
    ("python main.py", 'Traceback (most recent call last):\n  File "x"\nAssertionError', "exit_code=1"),
    ("cat a | grep x && false_command", "bash: false_command: command not found", "exit_code=127"),
]


@pytest.mark.parametrize(("command", "text", "signal", "why"), NEGATIVE)
def test_a_negative_result_is_no_mistake(make: SimpleNamespace, command: str, text: str, signal: str, why: str) -> None:
    (judged,) = judgements(view_of(make.build(make.bash(command), make.failed(text, signal))))
    assert (judged.kind, judged.signal) == ("negative", why)


@pytest.mark.parametrize(("command", "text", "signal"), MISTAKES)
def test_the_same_programs_used_wrongly_are_mistakes(
    make: SimpleNamespace, command: str, text: str, signal: str
) -> None:
    (judged,) = judgements(view_of(make.build(make.bash(command), make.failed(text, signal))))
    assert (judged.kind, judged.signal) == ("error", signal)


@pytest.mark.parametrize(
    ("command", "text", "kind"),
    [
        ("pytest tests/test_a.py -k nothing", "collected 0 items\n\n=== no tests ran in 0.01s ===", "error"),
        ("python -m unittest a.py", "\n-----\nRan 0 tests in 0.000s\n\nOK", "error"),
        ("python -m unittest a.py", "\n-----\nRan 0 tests in 0.000s\n\nNO TESTS RAN", "error"),
        ("python -m unittest a.py", "\n-----\nRan 10 tests in 0.000s\n\nOK", "ok"),
        ("cat notes.txt", "=== no tests ran in 0.01s ===", "ok"),
    ],
)
def test_a_run_without_tests_is_told_by_its_text(make: SimpleNamespace, command: str, text: str, kind: str) -> None:
    (judged,) = judgements(view_of(make.build(make.bash(command), make.result(text))))
    assert (judged.kind, judged.signal) == (kind, "no_tests" if kind == "error" else "")


@pytest.mark.parametrize(
    ("signal", "kind"),
    [
        ("exit_code=0", "ok"),
        ("exit_code=3", "error"),
        ("observation_code=4", "ok"),
        ("observation_code=5", "error"),
        ("valid_action=false", "error"),
        ("is_error=false", "ok"),
        ("tests_failed", "negative"),
    ],
)
def test_a_signal_decides_where_no_error_flag_is_given(make: SimpleNamespace, signal: str, kind: str) -> None:
    (judged,) = judgements(view_of(make.build(make.bash("run"), make.result("Error: looks bad", None, signal))))
    assert (judged.kind, judged.signal) == (kind, signal)


def test_a_user_who_declines_is_no_mistake(make: SimpleNamespace) -> None:
    text = "The user doesn't want to proceed with this tool use."
    (judged,) = judgements(view_of(make.build(make.bash("rm -rf x"), make.failed(text, "is_error"))))
    assert (judged.kind, judged.signal) == ("negative", "user_rejected")
