"""The classifier benchmark on a tiny corpus: scores, ratios, and that labelled rows are not trained on."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
TOPICS = {"math": "theorem proof lemma group integer", "web": "town shop street people weather"}


def load() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_classify", FOLDER / "classify.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(count: int, key: str, prefix: str) -> list[dict[str, Any]]:
    rng = random.Random(4)
    return [
        {"id": f"{prefix}{topic}{n}", "text": " ".join(rng.choice(words.split()) for _ in range(40)), key: topic}
        for topic, words in TOPICS.items()
        for n in range(count)
    ]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_clear_and_ambiguous_rows_are_scored_apart() -> None:
    labelled = [{"label": "math", "ambiguous": False}, {"label": "web", "ambiguous": False}]
    labelled.append({"label": "code", "ambiguous": True})
    found = load().accuracy(["math", "math", "code"], labelled)
    assert (found["clear"]["documents"], found["clear"]["accuracy"]) == (2, 0.5)
    assert (found["ambiguous"]["documents"], found["ambiguous"]["accuracy"]) == (1, 1.0)


def test_it_prints_scores_beside_the_baseline_and_the_speed_beside_the_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = [{**row, "source": "s"} for row in rows(40, "domain", "c")]
    labelled = [{**row, "ambiguous": False} for row in rows(5, "label", "c")]
    arguments = ["--corpus", write(tmp_path / "c.jsonl", corpus), "--labelled", write(tmp_path / "l.jsonl", labelled)]
    monkeypatch.setattr(sys, "argv", ["classify.py", "--json", "--rounds", "1", *map(str, arguments)])
    load().main()
    found = json.loads(capsys.readouterr().out)
    assert found["trained_on"] == 70
    assert found["ours"]["clear"]["accuracy"] == 1.0
    assert found["plain_fasttext"]["clear"]["documents"] == 10
    speed = found["speed"]
    rates = speed["documents_per_cpu_second"]
    assert speed["ratio_raw"] == pytest.approx(rates["ours_raw"] / rates["library_raw"])
    assert speed["ratio_pipeline_to_library_raw"] == pytest.approx(rates["pipeline"] / rates["library_raw"])
