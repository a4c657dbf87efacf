"""Shards of stages with mixtures of their own: what the mixture gave each, and one that says nothing of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.curriculum.inspect import check_shards, read_row
from pipelines.curriculum.shards import shards
from schemas.errors import CheckError
from schemas.recipe import Recipe, parse_recipe
from schemas.shard import read_index

MakeRun = Callable[..., RunContext]
STAGES = """
  pretrain:
    - {name: first, context_tokens: 64, budget_tokens: 3000}
    - {context_tokens: 32, budget_tokens: 1000, mixture: {shares: {math: 1.0, code: 0.0}}}
"""


@pytest.fixture
def staged_recipe(recipe_text: str) -> Recipe:
    plain = "  pretrain: [{context_tokens: 64, budget_tokens: 100000}]\n"
    assert plain in recipe_text
    return parse_recipe(recipe_text.replace(plain, STAGES.lstrip("\n")))


def give_uses(run: Path) -> dict[str, list[int]]:
    """Add `stage_epochs` to the mixture of a run: the first stage takes every use but the last."""
    uses: dict[str, list[int]] = {}
    for path in sorted((run / "mixture").glob("part-*.parquet")):
        table = pq.read_table(path)
        split = [[max(0, n - 1), min(1, n)] for n in table.column("epochs").to_pylist()]
        uses |= dict(zip(table.column("id").to_pylist(), split, strict=True))
        pq.write_table(table.append_column("stage_epochs", pa.array(split, pa.list_(pa.int32()))), path)
    return uses


def test_every_stage_holds_the_uses_that_the_mixture_gave_it(make_run: MakeRun, staged_recipe: Recipe) -> None:
    context = make_run(recipe=staged_recipe)
    uses = give_uses(context.run)
    counts = shards(context).counts["documents"]
    stages = read_index(context.run / "shards").stages[:2]
    assert [(stage.name, stage.context_tokens) for stage in stages] == [("pretrain-0-first", 64), ("pretrain-1-32", 32)]
    for place, stage in enumerate(stages):
        found: Counter[str] = Counter()
        for file in stage.files:
            for row in range(file.rows):
                for segment in read_row(context.run / "shards" / file.path, row).segments:
                    name, epoch = segment.segment_id.split(".")[0].split("@")
                    found[name] += segment.segment_id.endswith(".0")
                    assert int(epoch) >= uses[name][0] * place
        assert dict(found) == {name: pair[place] for name, pair in uses.items() if pair[place]}
    assert counts["copies_in"] == counts["copies_in_shards"] == sum(map(sum, uses.values()))
    assert counts["tokens_in"] == counts["tokens_in_shards"]
    assert check_shards(context.run / "shards") == []


def test_a_mixture_without_stages_is_refused(make_run: MakeRun, staged_recipe: Recipe) -> None:
    with pytest.raises(CheckError, match="does not say the uses in 2 stages"):
        shards(make_run(recipe=staged_recipe))


def test_no_documents_are_no_rows(make_run: MakeRun, staged_recipe: Recipe) -> None:
    context = make_run(recipe=staged_recipe, documents=[])
    give_uses(context.run)
    counts: dict[str, Any] = shards(context).counts["documents"]
    assert counts["copies_in_shards"] == 0
    assert [stage.rows for stage in read_index(context.run / "shards").stages[:2]] == [0, 0]
