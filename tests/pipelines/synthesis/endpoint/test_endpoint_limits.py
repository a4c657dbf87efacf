"""Rate, cost and journal: what is never passed, never paid twice, never lost."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipelines.synthesis.endpoint.journal import Journal
from pipelines.synthesis.endpoint.limits import Budget, RateLimiter, Stopped
from pipelines.synthesis.endpoint.reply import Reply
from pipelines.synthesis.endpoint.rollouts import EndpointReport, roll_out_endpoint
from pipelines.synthesis.environments.base import open_environment
from schemas.errors import InputError, UsageError
from schemas.progress import Quiet
from schemas.recipe.endpoint import EndpointConfig
from schemas.trajectory import Trajectory

REPOSITORY = Path(__file__).parents[4]


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


def test_no_minute_has_more_requests_or_tokens_than_allowed() -> None:
    clock = Clock()
    limiter = RateLimiter(3, 100, clock.wait, lambda: clock.now)
    started: list[tuple[float, int]] = []
    for tokens in [10, 10, 10, 10, 60, 60, 30, 500, 1, 1]:
        ticket = limiter.acquire(tokens)
        limiter.settle(ticket, tokens)
        started.append((clock.now, tokens))
    for when, _ in started:
        inside = [tokens for other, tokens in started if when <= other < when + 60]
        assert len(inside) <= 3
        assert sum(inside) <= 100 or inside == [500]
    assert [when for when, _ in started] == [0, 0, 0, 60, 60, 120, 120, 180, 240, 240]


def test_true_tokens_take_the_place_of_the_estimate_and_a_pause_holds_everybody() -> None:
    clock = Clock()
    limiter = RateLimiter(None, 100, clock.wait, lambda: clock.now)
    limiter.settle(limiter.acquire(90), 5)
    limiter.acquire(90)
    assert clock.now == 0
    limiter.pause(7)
    limiter.acquire(1)
    assert clock.now == 7
    ended = RateLimiter(1, None, lambda seconds: True, lambda: 0.0)
    ended.acquire(1)
    with pytest.raises(Stopped, match="closed"):
        ended.acquire(1)


def test_a_budget_refuses_what_could_pass_the_cap() -> None:
    budget = Budget(1.0, 2.0, 1.0)
    assert budget.cost(1_000_000, 500_000) == 2.0
    first = budget.reserve(0.6, lambda: False)
    budget.settle(first, 0.1)
    second = budget.reserve(0.9, lambda: False)
    budget.settle(second, 0.85)
    with pytest.raises(Stopped, match="cost_cap"):
        budget.reserve(0.1, lambda: False)
    assert budget.spent == pytest.approx(0.95)
    budget.reserve(0.05 - 1e-12, lambda: False)
    with pytest.raises(Stopped, match="closed"):
        budget.reserve(0.01, lambda: True)


def config(url: str, **changes: Any) -> EndpointConfig:
    base = {"base_url": url, "model": "m", "first_wait_s": 0.01, "longest_wait_s": 0.05, "timeout_s": 5}
    return EndpointConfig.model_validate({**base, **changes})


def run(settings: EndpointConfig, count: int, journal: Path) -> tuple[list[Trajectory], EndpointReport]:
    report = EndpointReport()
    with open_environment("reasoning") as environment:
        tasks = [environment.generate(seed, 1.0) for seed in range(count)]
    return list(roll_out_endpoint(tasks, open_environment, settings, journal, Quiet(), report)), report


def test_the_cost_cap_is_never_passed_and_a_higher_one_goes_on(kit: Any, tmp_path: Path) -> None:
    server = kit.serve(lambda number, request: kit.completion("Answer: 0"))
    prices = {"price_in": 10.0, "price_out": 20.0, "max_tokens": 10, "concurrency": 3}
    each = (100 * 10 + 10 * 20) / 1e6
    made, report = run(config(server.url, cost_cap=0.03, **prices), 40, tmp_path / "j.jsonl")
    asked = len(server.seen)
    assert report.stopped == "cost_cap"
    assert 3 <= asked < 40
    assert report.usage.cost == pytest.approx(asked * each)
    assert report.usage.cost <= 0.03
    assert len(made) == asked
    assert "stopped (cost_cap)" in report.lines()[-1]
    made, report = run(config(server.url, cost_cap=0.03, **prices), 40, tmp_path / "j.jsonl")
    assert (len(server.seen), report.stopped, report.usage.reused) == (asked, "cost_cap", asked)
    made, report = run(config(server.url, cost_cap=10, **prices), 40, tmp_path / "j.jsonl")
    assert (len(made), report.stopped, len(server.seen)) == (40, "", 40)
    assert report.usage.cost_of_journal == pytest.approx(40 * each)


def test_a_server_without_usage_is_counted_by_bytes(kit: Any, tmp_path: Path) -> None:
    body = json.dumps({"choices": [{"message": {"content": "Answer: 12345678"}, "finish_reason": "stop"}]}).encode()
    server = kit.serve(lambda number, request: kit.answer(body))
    _, report = run(config(server.url, price_in=1.0, price_out=1.0), 1, tmp_path / "j.jsonl")
    assert (report.usage.estimated, report.usage.completion_tokens) == (1, 4)
    assert report.usage.prompt_tokens > 20


def test_a_torn_line_is_cut_off_and_a_damaged_one_asked_again(kit: Any, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    server = kit.serve(lambda number, request: kit.completion("Answer: 0"))
    run(config(server.url, concurrency=1), 4, path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"key": 3}\n' + lines[2] + lines[3][:-20])
    with Journal(path) as journal:
        assert (len(journal), journal.damaged) == (2, 1)
        with pytest.raises(UsageError, match="another process writes this journal"):
            Journal(path)
    assert path.read_bytes() == lines[0] + b'{"key": 3}\n' + lines[2]
    made, report = run(config(server.url, concurrency=1), 4, path)
    assert (len(made), len(server.seen), report.usage.reused, report.damaged_lines) == (4, 6, 2, 1)


def test_a_full_disk_spoils_no_line_of_the_journal(tmp_path: Path) -> None:
    reply = Reply("good").to_record()
    usage = {"prompt": 1, "completion": 2, "estimated": False}
    with Journal(tmp_path / "j") as journal:
        journal.add({"key": "a", "reply": reply, "usage": usage})
        whole = (tmp_path / "j").stat().st_size
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 20, limit[1]))
        try:
            with pytest.raises(OSError, match="large"):
                journal.add({"key": "b", "reply": reply, "usage": usage})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert (tmp_path / "j").stat().st_size == whole
        journal.add({"key": "c", "reply": reply, "usage": usage})
        assert journal.get("c") == {"key": "c", "reply": reply, "usage": usage}
    with Journal(tmp_path / "j") as journal:
        assert (len(journal), journal.damaged) == (2, 0)
        assert journal.get("b") is None


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("buy milk\nand bread\n")
    with pytest.raises(InputError, match="none of its 2 lines is a line of a journal"):
        Journal(path)
    assert path.read_text() == "buy milk\nand bread\n"


PROGRAM = """
import sys
from pathlib import Path
from pipelines.synthesis.endpoint.rollouts import roll_out_endpoint
from pipelines.synthesis.environments.base import open_environment
from schemas.progress import Quiet
from schemas.recipe.endpoint import EndpointConfig
with open_environment("reasoning") as environment:
    tasks = [environment.generate(seed, 1.0) for seed in range(12)]
settings = EndpointConfig(base_url=sys.argv[1], model="m", concurrency=2, samples=2, seed=1)
for trajectory in roll_out_endpoint(tasks, open_environment, settings, Path(sys.argv[2]), Quiet()):
    print(trajectory.id, flush=True)
"""


def test_killed_half_way_no_finished_request_is_made_again(kit: Any, tmp_path: Path) -> None:
    def script(number: int, request: dict[str, Any]) -> Any:
        time.sleep(0.02)
        said = re.sub(r"\D", "", request["messages"][-1]["content"])[:6]
        return kit.completion(f"Answer: {said}{request['seed']}")

    server = kit.serve(script)
    path = tmp_path / "j.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    program = [sys.executable, "-c", PROGRAM, server.url, str(path)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, env=environment)
    limit = time.monotonic() + 60
    while len(server.seen) < 12 and time.monotonic() < limit:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = len(server.seen)
    assert 12 <= before < 24
    finished = len(path.read_bytes().splitlines())
    resumed = subprocess.run(program, stdout=subprocess.PIPE, env=environment, check=True, text=True)
    again = server.seen[before:]
    assert len(again) == 24 - finished
    assert finished >= before - 2  # those under way at the kill, at most the concurrency
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == len({line["key"] for line in lines}) == 24
    settings = config(server.url, concurrency=2, samples=2, seed=1, timeout_s=120)
    whole, _ = run(settings, 12, tmp_path / "k.jsonl")
    assert resumed.stdout.split() == [trajectory.id for trajectory in whole]
    assert len(whole) == 24


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base_url": "ftp://x"}, "is no address such as"),
        ({"base_url": "https://me:secret@host/v1"}, "a key belongs in the environment variable"),
        ({"base_url": "https://host/v1?key=1"}, "a key belongs in the environment variable"),
        ({"cost_cap": 1.0}, "cost_cap needs price_in and price_out"),
        ({"body": {"messages": []}}, "'messages' is not to be set here"),
        ({"api_key_env": "sk-123"}, "api_key_env"),
        ({"call_style": "xlm"}, "call_style"),
        ({"api_key": "sk"}, "api_key"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        EndpointConfig.model_validate({"base_url": "http://h/v1", "model": "m", **changes})
