"""Runs the read step on sources given in place and gives back what is on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.corpus.read.step import step
from pipelines.engine import Engine, InProcess
from schemas.progress import Quiet
from schemas.recipe import Recipe


@dataclass
class Finished:
    """What a read step left: its run folder, counts, document rows in file order, set-aside rows."""

    run: Path
    counts: dict[str, Any]
    rows: list[dict[str, Any]]
    problems: list[dict[str, Any]]
    said: list[str]

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in sorted(self.rows, key=lambda row: line_of(row["origin"]))]

    def files(self) -> dict[str, bytes]:
        """Every file of the run by its relative name."""
        return {p.relative_to(self.run).as_posix(): p.read_bytes() for p in sorted(self.run.rglob("*")) if p.is_file()}


def line_of(origin: str) -> tuple[str, int]:
    name, _, line = origin.rpartition("#")
    return name, int(line)


class Listener(Quiet):
    """Remembers what the step said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


Read = Callable[..., Finished]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """`read({"path": ...}, partitions=3, ...)`: sources default to kind jsonl and get names s0, s1, …"""

    def run(
        *sources: dict[str, Any],
        partitions: int = 3,
        on_error: str = "skip",
        engine: Engine | None = None,
        folder: str = "run",
    ) -> Finished:
        recipe = Recipe.model_validate(
            {
                "name": "test",
                "seed": 5,
                "on_error": on_error,
                "engine": {"partitions": partitions},
                "sources": [{"name": f"s{n}", "kind": "jsonl", **source} for n, source in enumerate(sources)],
                "mixture": {"method": "proportional", "budget_tokens": 1000},
                "tokenizer": {"train": {"vocab_size": 300}},
                "curriculum": {"pretrain": [{"context_tokens": 64, "budget_tokens": 1000}]},
                "model": {
                    "hidden_size": 8,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 1,
                    "num_key_value_heads": 1,
                    "intermediate_size": 8,
                },
            }
        )
        context = RunContext(tmp_path / folder, recipe, engine or InProcess(), Listener())
        output = step(context)
        assert sorted(output.files) == sorted(p for p in context.run.rglob("*") if p.is_file())
        rows = [row for path in output.files if path.suffix == ".parquet" for row in pq.read_table(path).to_pylist()]
        lines = (context.run / "set_aside" / "read.jsonl").read_bytes().splitlines()
        finished = Finished(
            context.run, output.counts, rows, [json.loads(line) for line in lines], context.progress.lines
        )
        assert output.counts["records_in"] == len(rows) + len(finished.problems)
        assert sum(output.counts["set_aside"].values()) == len(finished.problems)
        assert output.counts["documents"] == len(rows)
        return finished

    return run
