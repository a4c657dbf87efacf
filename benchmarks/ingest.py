"""Speed of reading recorded runs: MB of raw (decompressed) text per CPU second, one process.

    python benchmarks/ingest.py [FILE…]

Without files: the OpenHands, tau-bench and Claude Code samples beside the repository, else a file made here.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pipelines.synthesis.ingest import SetAside, read_file
from pipelines.synthesis.ingest.files import open_stream

SAMPLES = Path(__file__).parents[1] / "../shared/data/trajectories"
NAMES = ("openhands/*.json*", "tau-bench/gpt-4o*", "claude-code/*.jsonl*")
SECONDS = 1.0


def main(arguments: list[str]) -> None:
    """Print one line a file."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(argument) for argument in arguments]
        paths = paths or [path for name in NAMES for path in sorted(SAMPLES.glob(name))] or [_made(Path(folder))]
        for path in paths:
            measure(path)


def measure(path: Path) -> None:
    """Read a file again and again for about a second of CPU time."""
    with open_stream(str(path)) as stream:
        size = len(stream.read())
    found = list(read_file(str(path)))
    rounds, start = 0, time.process_time()
    while time.process_time() - start < SECONDS:
        list(read_file(str(path)))
        rounds += 1
    speed = size * rounds / (time.process_time() - start) / 1e6
    runs = sum(not isinstance(item, SetAside) for item in found)
    print(f"{path.name:44} {size / 1e6:7.2f} MB {runs:5} runs {speed:7.1f} MB/s")


def _made(folder: Path) -> Path:
    """Chat rows of the shape of tau-bench runs."""
    call = {"id": "c", "type": "function", "function": {"name": "get_user", "arguments": '{"user_id":"mia_li"}'}}
    turns = [{"role": "system", "content": "policy " * 900}]
    for number in range(12):
        turns += [
            {"role": "user", "content": "I need to change my flight. " * 4},
            {"role": "assistant", "content": None, "tool_calls": [{**call, "id": f"c{number}"}]},
            {"role": "tool", "tool_call_id": f"c{number}", "name": "get_user", "content": "{}" * 250},
        ]
    rows = [{"task_id": number, "reward": 1.0, "info": {}, "traj": turns, "trial": 0} for number in range(100)]
    path = folder / "made.json"
    path.write_text(json.dumps(rows))
    return path


if __name__ == "__main__":
    main(sys.argv[1:])
