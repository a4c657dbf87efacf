"""The datatrove engine gives what a plain loop gives, and ends with an error when a task or a worker fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.engine import InProcess, open_engine
from pipelines.trove.executor import MAX_RANKS, TroveEngine
from schemas.errors import DatamixError, InputError, UsageError

TASKS_MODULE = """
import os, signal, time
from pathlib import Path
from schemas.errors import InputError, UsageError

def square(n):
    time.sleep(0.02 * (n % 3))
    return {"n": n * n, "pid": os.getpid()}

def sleep(task):
    number, folder = task
    Path(folder, f"pid-{number}").touch()
    time.sleep(40)
    Path(folder, f"slept-{number}").touch()

def environment(n):
    return {"omp": os.environ["OMP_NUM_THREADS"], "numba": os.environ["NUMBA_NUM_THREADS"], "cwd": os.getcwd()}

def fail(task):
    number, folder = task
    Path(folder, f"ran-{number}").touch()
    if number == 1:
        time.sleep(0.5)
        raise InputError("not a number, received 'x'", path="a.jsonl", line=3, field="n", todo="Mend it")
    if number == 2:
        raise UsageError("wrong")
    return {}

def defect(n):
    raise ZeroDivisionError(f"task {n}")

def die(n):
    if n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return {}

def leave(n):
    os._exit(7)
"""

PARENT = """
import sys
import parent_tasks
from pipelines.trove.executor import TroveEngine

if __name__ == "__main__":
    TroveEngine(workers=2).map(parent_tasks.sleep, [(n, sys.argv[1]) for n in range(2)], label="sleep")
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("task_functions")
    (folder / "trove_task_functions.py").write_text(TASKS_MODULE)
    sys.path.insert(0, str(folder))
    import trove_task_functions  # type: ignore[import-not-found]

    yield trove_task_functions
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def engine() -> Any:
    engine = TroveEngine(workers=2)
    yield engine
    engine.close()


def test_results_come_in_task_order_from_two_processes(engine: TroveEngine, functions: Any) -> None:
    results = engine.map(functions.square, list(range(9)), label="squares")
    assert [r["n"] for r in results] == [n * n for n in range(9)]
    assert len({r["pid"] for r in results}) == 2
    assert os.getpid() not in {r["pid"] for r in results}


def test_more_tasks_than_ranks_all_run_once(engine: TroveEngine, functions: Any) -> None:
    count = MAX_RANKS * 2 + 5
    assert [r["n"] for r in engine.map(functions.square, list(range(count)), label="many")] == [
        r["n"] for r in InProcess().map(functions.square, list(range(count)), label="many")
    ]


def test_no_task_gives_no_result(engine: TroveEngine, functions: Any) -> None:
    assert engine.map(functions.square, [], label="none") == []


@pytest.mark.parametrize(("workers", "tasks"), [(1, 4), (2, 1)])
def test_one_worker_or_one_task_stays_in_this_process(functions: Any, workers: int, tasks: int) -> None:
    results = TroveEngine(workers=workers).map(functions.square, list(range(tasks)), label="here")
    assert {r["pid"] for r in results} == {os.getpid()}


def test_processes_are_kept_between_maps_and_replaced_after_close(functions: Any) -> None:
    engine = TroveEngine(workers=2)
    first = {r["pid"] for r in engine.map(functions.square, list(range(6)), label="a")}
    second = {r["pid"] for r in engine.map(functions.square, list(range(6)), label="b")}
    engine.close()
    third = {r["pid"] for r in engine.map(functions.square, list(range(6)), label="c")}
    engine.close()
    assert first == second
    assert not first & third


def test_workers_have_one_thread_and_the_callers_folder(
    engine: TroveEngine, functions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = engine.map(functions.environment, [0, 1], label="environment")
    assert results == [{"omp": "1", "numba": "1", "cwd": str(tmp_path)}] * 2
    assert list(tmp_path.iterdir()) == [], "nothing is logged into the user's folder"


def test_the_first_failing_task_in_order_is_raised_as_it_was(
    engine: TroveEngine, functions: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = [(n, str(tmp_path)) for n in range(40)]
    with pytest.raises(InputError) as caught:
        engine.map(functions.fail, tasks, label="fail")
    assert str(caught.value) == "a.jsonl:3: field 'n': not a number, received 'x'. Mend it"
    assert (caught.value.path, caught.value.line, caught.value.field) == ("a.jsonl", 3, "n")
    assert len(list(tmp_path.glob("ran-*"))) < 10, "no new task starts after a failure"
    assert capfd.readouterr() == ("", ""), "the error is the only news"
    with pytest.raises(UsageError, match=r"^wrong$"):
        engine.map(functions.fail, tasks[2:], label="fail")


def test_a_defect_keeps_its_class_and_the_workers_traceback(engine: TroveEngine, functions: Any) -> None:
    with pytest.raises(ZeroDivisionError, match="task 0") as caught:
        engine.map(functions.defect, [0, 1, 2], label="defect")
    assert "in defect" in "".join(caught.value.__notes__)


@pytest.mark.timeout(60)  # B124: an error within a minute, never a hang
def test_a_killed_worker_ends_the_map_with_the_task_named(functions: Any) -> None:
    engine = TroveEngine(workers=2)
    with pytest.raises(DatamixError, match=r"counting: the worker process of task 3 was ended by SIGKILL") as caught:
        engine.map(functions.die, list(range(8)), label="counting")
    assert "The task was 3." in str(caught.value)
    assert [r["n"] for r in engine.map(functions.square, [4, 5], label="again")] == [16, 25]
    with pytest.raises(DatamixError, match="left with exit code 7"):
        engine.map(functions.leave, [0, 1], label="leave")


@pytest.mark.timeout(60)
def test_workers_end_quietly_when_their_parent_is_killed_in_the_middle_of_a_task(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(PARENT, encoding="utf-8")
    (tmp_path / "parent_tasks.py").write_text(TASKS_MODULE, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE
    )
    while len(list(tmp_path.glob("pid-*"))) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    _, errors = parent.communicate()  # ends when the last process that holds the pipe does: the workers too
    assert errors == b""
    assert not list(tmp_path.glob("slept-*"))


def test_open_engine_knows_datatrove_and_refuses_others() -> None:
    assert open_engine("datatrove", 3).name == "datatrove"
    with pytest.raises(UsageError, match="engine 'spark' is unknown"):
        open_engine("spark", 1)
