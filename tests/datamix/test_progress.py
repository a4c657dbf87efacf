"""Progress listeners: sparse lines off a terminal, bars on one, and commands' tables and JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from datamix.output import emit_json, table
from datamix.progress import BarProgress, LineProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_at_most_every_ten_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = LineProgress(stream, seconds=10, clock=clock)
    with progress.task("train", 200) as advance:
        for _ in range(100):
            clock.now += 0.5
            advance(2)
    lines = stream.getvalue().splitlines()
    assert lines == [f"  train: {n} of 200 ({n // 2}%)" for n in (40, 80, 120, 160, 200)]


def test_short_work_writes_no_line_and_news_restart_the_quiet_time() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = LineProgress(stream, seconds=10, clock=clock)
    with progress.task("quick") as advance:
        advance(1)
        clock.now = 9
        progress.say("news")
        clock.now = 18
        advance(1)
        clock.now = 19
        advance(1)
    assert stream.getvalue().splitlines() == ["news", "  quick: 3"]


def test_bars_go_away_and_news_stay() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with BarProgress(console) as progress, progress.task("read [red]x[/red]", 4) as advance:
        advance(4)
        progress.say("3 [bold]lines[/bold]")
    assert "3 [bold]lines[/bold]" in stream.getvalue()
    assert "read [red]x[/red]" in stream.getvalue()


def test_table_prints_data_as_it_is() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80).print(table("[x] t", ["a", "b"], [["[red]r[/red]", 1234567], ["f", 0.5]]))
    assert "[x] t" in stream.getvalue()
    assert "[red]r[/red]" in stream.getvalue()
    assert "1,234,567" in stream.getvalue()


def test_json_refuses_what_is_not_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        emit_json({"loss": float("nan")})
    emit_json({"a": [1, "ü"]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, "ü"]}
