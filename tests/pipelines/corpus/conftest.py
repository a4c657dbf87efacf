"""A run folder that is already read and judged for quality: what the steps after that start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.context import RunContext
from pipelines.corpus.tables import VERDICT_SCHEMAS, documents_part, verdict_part, write_part
from pipelines.engine import Engine, InProcess
from schemas.document import DOCUMENT_SCHEMA, KEEP, document_id, partition_of
from schemas.progress import Quiet
from schemas.recipe import Recipe

MakeRun = Callable[..., RunContext]


class Listener(Quiet):
    """Remembers what a step said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def recipe_of(**parts: Any) -> Recipe:
    """A small valid recipe; `parts` replace its top-level parts."""
    base: dict[str, Any] = {
        "name": "test",
        "seed": 5,
        "engine": {"partitions": 3, "workers": 1},
        "sources": [{"name": "given", "kind": "jsonl", "path": "given.jsonl"}],
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
    return Recipe.model_validate({**base, **parts})


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """`make_run(documents, **recipe parts)`: writes documents/ and verdicts/quality/ and gives the context.

    A document is a dict with `text` and any other column of DOCUMENT_SCHEMA; `quality_verdict` is what the quality
    step said (KEEP when absent). The id comes from the text and the source unless given.
    """

    def make(
        documents: Sequence[dict[str, Any]],
        *,
        folder: str = "run",
        engine: Engine | None = None,
        partitions: int = 3,
        **parts: Any,
    ) -> RunContext:
        run = tmp_path / folder
        recipe = recipe_of(**{"engine": {"partitions": partitions, "workers": 1}, **parts})
        count = recipe.engine.partitions
        shares: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        for number, document in enumerate(documents):
            row = {"source": "given", "origin": f"given.jsonl#{number:05d}", "quality": 1.0, **document}
            row.setdefault("id", document_id(row["text"], row["source"]))
            shares[partition_of(row["id"], count)].append(row)
        for part, rows in enumerate(shares):
            rows.sort(key=lambda row: (row["id"], row["origin"]))
            quality = [
                {"id": r["id"], "verdict": r.pop("quality_verdict", KEEP), "quality": r.pop("quality")} for r in rows
            ]
            write_part(
                documents_part(run, part),
                DOCUMENT_SCHEMA,
                [pa.RecordBatch.from_pylist(rows, DOCUMENT_SCHEMA)],
            )
            write_part(
                verdict_part(run, "quality", part),
                VERDICT_SCHEMAS["quality"],
                [pa.RecordBatch.from_pylist(quality, VERDICT_SCHEMAS["quality"])],
            )
        return RunContext(run, recipe, engine or InProcess(), Listener())

    return make
