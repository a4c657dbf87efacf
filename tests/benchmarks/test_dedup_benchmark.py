"""The arithmetic of the dedup benchmark, and that its own passes run; figures are for `python benchmarks/dedup.py`."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def corpus(path: Path) -> Path:
    texts = [" ".join(f"w{1000 * n + k}" for k in range(80)) for n in range(6)]
    texts += [texts[0] + " tail", texts[1]]
    pq.write_table(pa.table({"id": [f"d{n}" for n in range(8)], "text": texts}), path)
    return path


def test_precision_and_recall_count_all_but_one_of_every_component(tmp_path: Path) -> None:
    pairs = [("a", "b", 0.9), ("b", "c", 0.85), ("d", "e", 0.8), ("e", "f", 0.79)]
    rows = [{"a": a, "b": b, "jaccard": j} for a, b, j in pairs]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "neardup_pairs.parquet")
    removal = load("dedup").removal
    assert removal(tmp_path, {"a", "c", "d"}) == {"precision": 1.0, "recall": 1.0}
    assert removal(tmp_path, {"a", "b", "c", "f"}) == {"precision": 0.5, "recall": pytest.approx(2 / 3)}
    assert removal(tmp_path, set()) == {"precision": 0.0, "recall": 0.0}


def test_signatures_that_agree_enough_leave_the_first_of_them() -> None:
    signatures = np.random.default_rng(1).integers(0, 2**32, (5, 128), dtype=np.uint32)
    signatures[3] = signatures[1]
    signatures[3, 100:110] += 1
    signatures[4] = signatures[1]
    signatures[4, 40:] += 1
    assert load("dedup_passes").removed_by_signatures(list("abcde"), signatures) == ["d"]


@pytest.mark.parametrize("name", ["verdicts", "text"])
def test_our_passes_name_what_they_remove(name: str, tmp_path: Path) -> None:
    found = load("dedup_passes").PASSES[name]([str(corpus(tmp_path / "a.parquet"))])
    assert len(found) == 2 and set(found) < {"d0", "d6", "d1", "d7"}


@pytest.mark.parametrize("name", ["daft", "rensa"])
def test_the_peers_remove_the_same_from_easy_texts(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    found = load("dedup_passes").PASSES[name]([str(corpus(tmp_path / "a.parquet"))])
    assert sorted(found) == ["d6", "d7"]


def test_a_pass_runs_in_a_process_of_its_own_and_says_what_it_cost(tmp_path: Path) -> None:
    found = load("dedup").run_pass("verdicts", [str(corpus(tmp_path / "a.parquet"))], tmp_path / "removed.json")
    assert found["removed"] == len(json.loads((tmp_path / "removed.json").read_text(encoding="utf-8"))) == 2
    assert found["cpu_seconds"] > 0 and found["startup_seconds"] > 0 and found["peak_mb"] >= found["start_mb"] > 1


def test_a_corpus_is_assembled_from_installed_packages_up_to_a_size(tmp_path: Path) -> None:
    benchmark = load("dedup")
    benchmark.assemble(0.4, tmp_path / "a.parquet")
    documents, megabytes = benchmark.size_of([str(tmp_path / "a.parquet")])
    assert documents > 3 and 0.39 < megabytes <= 0.41
    assert "dedup_passes" not in sys.modules
