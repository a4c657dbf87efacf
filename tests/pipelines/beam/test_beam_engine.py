"""The Beam engine gives what a plain loop gives, and ends with the task's own error when a task or a worker fails."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipelines.beam.engine import BeamEngine, pipeline_options
from pipelines.engine import open_engine
from pipelines.workers import describe_failure, failure_of
from schemas.errors import DatamixError, InputError, UsageError
from schemas.progress import Quiet

TASKS_MODULE = """
import os, signal, time
from pathlib import Path
from schemas.errors import InputError, UsageError

def square(n):
    return {"n": n * n, "pid": os.getpid(), "omp": os.environ["OMP_NUM_THREADS"], "cwd": os.getcwd()}

def fail(task):
    number, folder = task
    Path(folder, f"ran-{number}").touch()
    if number in (5, 3):
        raise InputError("not a number, received 'x'", path="a.jsonl", line=number, field="n", todo="Mend it")
    if number == 4:
        raise UsageError("wrong")
    return {}

def defect(n):
    raise ZeroDivisionError(f"task {n}")

def die(n):
    if n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return {}
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("task_functions")
    (folder / "beam_task_functions.py").write_text(TASKS_MODULE)
    sys.path.insert(0, str(folder))
    import beam_task_functions  # type: ignore[import-not-found]

    yield beam_task_functions
    sys.path.remove(str(folder))


@pytest.fixture(scope="module", params=[1, 2], ids=["in this process", "two processes"])
def engine(request: pytest.FixtureRequest) -> Iterator[BeamEngine]:
    engine = BeamEngine(workers=request.param)
    yield engine
    engine.close()


class Counted(Quiet):
    """Counts what a map says it has done."""

    def __init__(self) -> None:
        self.done = 0.0

    @contextmanager
    def task(self, label: str, total: float | None = None) -> Iterator[Any]:
        def advance(amount: float) -> None:
            self.done += amount

        yield advance


def test_results_come_in_task_order_on_as_many_processes_as_asked(engine: BeamEngine, functions: Any) -> None:
    listener = Counted()
    results = engine.map(functions.square, list(range(9)), label="squares", progress=listener)
    assert [r["n"] for r in results] == [n * n for n in range(9)]
    assert {r["omp"] for r in results} == {"1"}
    assert listener.done == 9
    pids = {r["pid"] for r in results}
    assert pids == {os.getpid()} if engine.workers == 1 else len(pids) == 2 and os.getpid() not in pids


def test_processes_are_kept_and_work_in_the_callers_folder(
    functions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = BeamEngine(workers=2)
    first = {r["pid"] for r in engine.map(functions.square, list(range(6)), label="a")}
    monkeypatch.chdir(tmp_path)
    second = engine.map(functions.square, list(range(6)), label="b")
    engine.close()
    assert {r["pid"] for r in second} == first
    assert {r["cwd"] for r in second} == {str(tmp_path)}
    assert list(tmp_path.iterdir()) == []


def test_no_task_gives_no_result(engine: BeamEngine, functions: Any) -> None:
    assert engine.map(functions.square, [], label="none") == []


def test_the_first_failing_task_in_order_is_raised_as_it_was(
    engine: BeamEngine, functions: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as caught:
        engine.map(functions.fail, [(n, str(tmp_path)) for n in range(30)], label="fail")
    assert str(caught.value) == "a.jsonl:3: field 'n': not a number, received 'x'. Mend it"
    assert (caught.value.path, caught.value.line, caught.value.field) == ("a.jsonl", 3, "n")
    assert {f"ran-{n}" for n in range(4)} <= {p.name for p in tmp_path.iterdir()}, "earlier tasks are all run"
    assert capfd.readouterr() == ("", ""), "the error is the only news"
    with pytest.raises(UsageError, match=r"^wrong$"):
        engine.map(functions.fail, [(4, str(tmp_path)), (5, str(tmp_path))], label="fail")


def test_a_defect_keeps_its_class_and_its_traceback(engine: BeamEngine, functions: Any) -> None:
    with pytest.raises(ZeroDivisionError, match="task 0") as caught:
        engine.map(functions.defect, [0, 1, 2], label="defect")
    assert "in defect" in "".join(caught.value.__notes__)


@pytest.mark.timeout(60)  # an error within a minute, never a hang
def test_a_killed_worker_ends_the_map_with_the_task_named(functions: Any) -> None:
    engine = BeamEngine(workers=2)
    with pytest.raises(DatamixError, match=r"counting: the worker process of task 3 was ended by SIGKILL") as caught:
        engine.map(functions.die, list(range(8)), label="counting")
    assert "The task was 3." in str(caught.value)
    assert [r["n"] for r in engine.map(functions.square, [4, 5], label="again")] == [16, 25]
    engine.close()


def test_a_job_service_takes_the_tasks_and_gives_their_errors_back(
    functions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    flags = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")
    engine = open_engine("beam", 1, (*flags, f"--temp_location={tmp_path / 'shared'}"))
    assert [r["n"] for r in engine.map(functions.square, list(range(4)), label="squares")] == [0, 1, 4, 9]
    with pytest.raises(InputError, match=r"a\.jsonl:3"):
        engine.map(functions.fail, [(n, str(tmp_path)) for n in range(6)], label="fail")
    assert list((tmp_path / "shared").iterdir()) == [], "results are removed with their map"


def test_failures_travel_as_json_and_come_back_as_they_were() -> None:
    error = InputError("bad", path="p", line=4, field="f", todo="Mend it")
    back = failure_of(json.loads(json.dumps(describe_failure(error))))
    assert type(back) is InputError
    assert (str(back), vars(back)) == (str(error), vars(error))
    odd = failure_of(describe_failure(UnicodeDecodeError("utf-8", b"x", 0, 1, "why")))
    assert type(odd) is RuntimeError and "why" in str(odd)


def test_the_local_runner_is_named_and_given_flags_win() -> None:
    plain = pipeline_options((), 3).get_all_options(drop_default=True)
    assert (plain["runner"], plain["direct_num_workers"]) == ("FnApiRunner", 3)
    own = pipeline_options(("--direct_num_workers=5", "--direct_running_mode=multi_threading"), 3)
    assert own.get_all_options(drop_default=True)["direct_num_workers"] == 5
    threaded = BeamEngine(2, ("--direct_running_mode=multi_threading", "--direct_num_workers=2"))
    assert threaded.local


def test_wrong_flags_are_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="Beam refuses one of the options --direct_num_workers=many"):
        open_engine("beam", 1, ("--direct_num_workers=many",))
    with pytest.raises(UsageError, match="needs --temp_location"):
        open_engine("beam", 1, ("--runner=PortableRunner",)).map(len, [[1]], label="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"options --runner=FnApiRunner are not understood. Use --executor ray"):
        open_engine("datatrove", 1, ("--runner=FnApiRunner",))
    with pytest.raises(UsageError, match="engine 'spark' is unknown"):
        open_engine("spark", 1)
