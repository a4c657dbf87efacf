"""The examples in docs/ run as they are printed."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.corpus.standalone import Inputs, train_classifier
from pipelines.engine import InProcess
from schemas.progress import Quiet

DOCS = Path(__file__).parents[2] / "docs"
SENTENCES = {
    "web": "The {} went to the {} and found that the people of the town had seen the {} before.",
    "math": "Let {} be a group and {} its subgroup, then the order of that divides {} by the theorem.",
}


def example_of(page: str) -> str:
    """The one Python block of a page."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return str(code)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/rows.jsonl: 24 texts, six of them copies with a word more; m.bin: a model of the two domains."""
    folder = tmp_path_factory.mktemp("docs")
    rng = random.Random(5)
    words = [f"{a}{b}" for a in ("har", "sil", "mon", "cor") for b in ("vest", "ver", "key", "ble", "lem", "tor")]
    rows = []
    for number in range(24):
        domain = ("web", "math")[number % 2]
        text = " ".join(SENTENCES[domain].format(*rng.sample(words, 3)) for _ in range(12))
        if number >= 18:
            domain, text = rows[number - 18]["domain"], rows[number - 18]["text"] + " more"
        rows.append({"id": f"d{number}", "text": text, "domain": domain})
    (folder / "data").mkdir()
    path = folder / "data/rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train_classifier(Inputs([str(path)]), folder / "m.bin", InProcess(), Quiet())
    return folder


def run_example(page: str, folder: Path, *arguments: object) -> None:
    script = folder / "example.py"
    script.write_text(example_of(page), encoding="utf-8")
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_beam_example_is_short_and_removes_the_copies(inputs: Path, tmp_path: Path) -> None:
    assert len(re.findall(r"^\s*\| ", example_of("beam.md"), flags=re.MULTILINE)) == 8
    run_example("beam.md", tmp_path, inputs / "data/rows.jsonl", inputs / "m.bin", tmp_path / "out")
    rows = [json.loads(line) for path in tmp_path.glob("out-*") for line in path.read_text().splitlines()]
    assert sorted(int(row["id"][1:]) for row in rows) == list(range(6, 24)), "the longer text of a pair stays"
    assert all(row["domain"] in ("web", "math") and row["verdict"] == "keep" for row in rows)


def test_datatrove_example_removes_the_same_copies(inputs: Path, tmp_path: Path) -> None:
    run_example("datatrove.md", tmp_path, inputs / "data", inputs / "m.bin", tmp_path / "out")
    lines = [line for path in (tmp_path / "out/kept").iterdir() for line in path.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    assert sorted(int(row["id"][1:]) for row in rows) == list(range(6, 24))
    assert all(row["metadata"]["domain"] in ("web", "math") for row in rows)
