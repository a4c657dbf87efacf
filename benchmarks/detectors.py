"""Error detection against labels that sources carry, by structure and by text alone, and the speed of a policy.

    python benchmarks/detectors.py [PATH…]

Without paths: the sample trajectories beside the repository. For every source: steps whose result the source judged
itself (exit code, is_error, valid_action, …), precision and recall of the detector with those fields and with them
hidden, then MB of message text per CPU second of `apply_policy` and of redaction.

A negative result (grep without a hit, a red test run) is no error for the detector though the source calls it one, so
recall by structure is below 1 where there are such.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from filters.trajectory.detectors import judgements, structured_error, view_of
from filters.trajectory.policies import apply_policy
from filters.trajectory.redact import redact_trajectory
from pipelines.synthesis.ingest import ingest_paths
from schemas.trajectory import Trajectory

SAMPLES = Path(__file__).parents[1] / "../shared/data/trajectories"
Counts = Counter[tuple[bool, bool]]  # (the source says error, the detector says error)


def main(arguments: list[str]) -> None:
    """Print a table of sources and the speeds."""
    runs = [item for item in ingest_paths(arguments or [SAMPLES]) if isinstance(item, Trajectory)]
    structured: dict[str, Counts] = defaultdict(Counter)
    by_text: dict[str, Counts] = defaultdict(Counter)
    silent: Counter[str] = Counter()
    for run in runs:
        score(run, structured[run.source], by_text[run.source], silent)
    print(f"{'source':<16}{'judged':>8}{'errors':>8}{'no text':>9}{'P structure':>13}{'R':>8}{'P text':>9}{'R':>8}")
    for source in sorted(structured):
        one, other = structured[source], by_text[source]
        if one.total():
            errors = one[(True, True)] + one[(True, False)]
            figures = f"{precision(one):>13}{recall(one):>8}{precision(other):>9}{recall(other):>8}"
            print(f"{source:<16}{one.total():>8}{errors:>8}{silent[source]:>9}{figures}")
    characters = sum(len(m.content) + len(m.reasoning or "") for run in runs for m in run.messages)
    characters += sum(len(call.arguments) for run in runs for m in run.messages for call in m.tool_calls)
    for name, work in (("apply_policy", apply_policy), ("redact_trajectory", redact_trajectory)):
        start = time.process_time()
        for run in runs:
            work(run)
        print(f"{name}: {characters / 1e6 / (time.process_time() - start):.1f} MB of text a CPU second")


def score(run: Trajectory, structured: Counts, by_text: Counts, silent: Counter[str]) -> None:
    """Add one run's steps to the counts; `silent` counts errors that leave no text."""
    view = view_of(run)
    hidden = view_of(replace(run, messages=[replace(m, error=None, signal=None) for m in run.messages]))
    alone = {(s.message, s.call): j.kind for s, j in zip(hidden.steps, judgements(hidden), strict=True)}
    for step, judgement in zip(view.steps, judgements(view), strict=True):
        result = view.result_of(step)
        said = structured_error(result) if result is not None else None
        if result is None or said is None:
            continue
        structured[(said, judgement.kind == "error")] += 1
        by_text[(said, alone.get((step.message, step.call)) == "error")] += 1
        silent[run.source] += said and not result.content.strip()


def precision(counts: Counts) -> str:
    """Share of found errors that are errors, "-" when none was found."""
    found = counts[(True, True)] + counts[(False, True)]
    return f"{counts[(True, True)] / found:.3f}" if found else "-"


def recall(counts: Counts) -> str:
    """Share of errors that were found, "-" when there are none."""
    errors = counts[(True, True)] + counts[(True, False)]
    return f"{counts[(True, True)] / errors:.3f}" if errors else "-"


if __name__ == "__main__":
    main(sys.argv[1:])
