"""While an endpoint works: a bar of samples that moves with each, figures now and then, attempts that failed named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pipelines.synthesis.endpoint import status
from pipelines.synthesis.endpoint.client import Asked, EndpointClient
from pipelines.synthesis.endpoint.rollouts import EndpointReport, roll_out_endpoint
from pipelines.synthesis.endpoint.status import LINE_SECONDS, Status, figures_line
from pipelines.synthesis.environments.base import open_environment
from schemas.recipe.endpoint import EndpointConfig


class Heard:
    """A listener that remembers lines and bars."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bars: list[tuple[str, float | None]] = []
        self.moved: list[float] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    @contextmanager
    def task(self, label: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
        self.bars.append((label, total))
        yield self.moved.append


def _config(url: str, **changes: Any) -> EndpointConfig:
    base = {"base_url": url, "model": "m", "first_wait_s": 0.01, "longest_wait_s": 0.02, "timeout_s": 5}
    return EndpointConfig.model_validate({**base, **changes})


def test_the_bar_moves_by_samples_and_the_lines_name_what_failed(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(number: int, body: dict[str, Any]) -> Any:
        return kit.answer(status=503) if number < 2 else kit.completion("Answer 1: 0")

    server = kit.serve(script)
    monkeypatch.setattr(status, "LINE_SECONDS", 0.0)
    heard, report = Heard(), EndpointReport()
    with open_environment("reasoning") as environment:
        tasks = [environment.generate(seed, 1.0) for seed in range(3)]
    settings = _config(server.url, samples=2, concurrency=1, price_in=1.0, price_out=2.0)
    rolled = roll_out_endpoint(
        tasks, open_environment, settings, None, heard, report, label="agent (reasoning)", count=3
    )
    assert len(list(rolled)) == 6
    assert heard.bars == [("agent (reasoning): samples", 6)]
    assert sum(heard.moved) == 6
    told = [line for line in heard.lines if line.startswith("agent (reasoning): ")]
    form = r"agent \(reasoning\): \d of 6 samples, \d solved; [\d,]+ requests, [\d,]+ \+ [\d,]+ tokens, cost 0\.\d{4}"
    assert told and all(re.match(form, line) for line in told)
    assert report.usage.requests == 6
    assert any(line.endswith("; failed attempts: http_503 2") for line in told)
    assert heard.lines[-1].startswith("endpoint: ")  # the summary is last


def test_figures_come_when_their_time_has_come_and_the_bar_at_once(kit: Any) -> None:
    server = kit.serve(lambda number, body: kit.completion("yes"))
    heard, now = Heard(), [0.0]
    with EndpointClient(_config(server.url), None) as client:
        with heard.task("x") as advance:
            told = Status("endpoint", client, heard, advance, None, clock=lambda: now[0])
        told.look(0, 0)
        told.look(2, 1)
        assert (heard.moved, heard.lines) == ([2], [])
        now[0] = LINE_SECONDS
        client.complete({"model": "m", "messages": []}, Asked("t", 0, 0))
        told.look(5, 1)
        assert heard.moved == [2, 3]
        assert heard.lines == ["endpoint: 5 samples, 1 solved; 1 requests, 100 + 10 tokens"]
        told.look(5, 1)
        now[0] = 2 * LINE_SECONDS
        told.look(6, 1, last=True)
        assert (heard.moved, len(heard.lines)) == ([2, 3, 1], 1)


def test_what_came_from_the_journal_is_told_apart(kit: Any, tmp_path: Any) -> None:
    server = kit.serve(lambda number, body: kit.completion("yes"))
    request: dict[str, Any] = {"model": "m", "messages": []}
    for line in (
        "0 of 8 samples, 0 solved; 1 requests, 100 + 10 tokens",
        "0 of 8 samples, 0 solved; 0 requests and 1 from the journal, 0 + 0 tokens",
    ):
        with EndpointClient(_config(server.url), tmp_path / "journal.jsonl") as client:
            client.complete(request, Asked("t", 0, 0))
            assert figures_line(client, 0, 0, 8) == line
