"""The datatrove engine on Ray: results and errors of tasks as on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.engine import open_engine
from schemas.errors import InputError

TASKS_MODULE = """
from schemas.errors import InputError

def square(n):
    return {"n": n * n}

def fail(n):
    if n in (3, 5):
        raise InputError("bad", path="a.jsonl", line=n)
    return {}
"""


def test_results_and_the_first_error_come_back_from_a_ray_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'datamix[ray]'")
    (tmp_path / "ray_task_functions.py").write_text(TASKS_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[3]}")
    import ray_task_functions  # type: ignore[import-not-found]

    options = ("--executor", "ray", "--work-folder", str(tmp_path / "work"), "--mem-per-cpu-gb", "0.5")
    engine: Any = open_engine("datatrove", 2, options)
    try:
        assert engine.map(ray_task_functions.square, list(range(11)), label="squares") == [
            {"n": n * n} for n in range(11)
        ]
        with pytest.raises(InputError, match=r"^a\.jsonl:3: bad$"):
            engine.map(ray_task_functions.fail, list(range(11)), label="fail")
        assert list((tmp_path / "work").iterdir()) == []
    finally:
        engine.close()
        sys.modules.pop("ray_task_functions", None)
