"""The legend over a shown shard row."""

from __future__ import annotations

import io

from rich.console import Console

from datamix.views.shard import print_row
from pipelines.curriculum.inspect import Span

LONG = "R3:malformed_arguments,R5:same_call_failed_before"


def test_the_legends_counts_stand_in_one_column_whatever_the_reasons_are() -> None:
    spans = [Span("s", 0, 3, "trained", "abc"), Span("s", 3, 12, LONG, "d")]
    console = Console(file=io.StringIO(), width=200)
    print_row("row 0", spans, console, limit=0)
    assert isinstance(console.file, io.StringIO)
    legend = console.file.getvalue().splitlines()[1:3]
    assert [line.index(" tokens ") for line in legend] == [2 + len(LONG) + 10] * 2
    assert legend[1].split()[:3] == [LONG, "12", "tokens"]
