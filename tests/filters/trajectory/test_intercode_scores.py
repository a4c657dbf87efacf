"""Error detection against per-step labels: InterCode's, where the sample data lies beside the repository, and a small
form of our own without it. Through the real reader; in the text-only form the labels are hidden from the detector."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from filters.trajectory.detectors import judgements, repeated_mistakes, structured_error, view_of
from pipelines.synthesis.ingest import ingest_paths
from schemas.trajectory import Message, ToolCall, Trajectory

SAMPLES = Path(__file__).parents[3] / "../shared/data/trajectories/intercode"


def hide(trajectory: Trajectory) -> Trajectory:
    """The same run, its results stripped of what the source's structure said."""
    return replace(trajectory, messages=[replace(m, error=None, signal=None) for m in trajectory.messages])


def count(trajectory: Trajectory, *, hidden: bool) -> Counter[tuple[bool, bool, bool]]:
    """(label says error, detector says error, text is empty) of every step that has a result."""
    labels = view_of(trajectory)
    view = view_of(hide(trajectory)) if hidden else labels
    judged = {(s.message, s.call): j for s, j in zip(view.steps, judgements(view), strict=True)}
    counts: Counter[tuple[bool, bool, bool]] = Counter()
    for step in labels.steps:
        result = labels.result_of(step)
        if result is not None:
            verdict = judged[(step.message, step.call)].kind == "error"
            counts[(structured_error(result) is True, verdict, not result.content.strip())] += 1
    return counts


def precision(counts: Counter[tuple[bool, bool, bool]]) -> float:
    hits = sum(n for (label, verdict, _), n in counts.items() if verdict and label)
    return hits / sum(n for (_, verdict, _), n in counts.items() if verdict)


def recall(counts: Counter[tuple[bool, bool, bool]], *, with_text: bool = False) -> float:
    wanted = {key: n for key, n in counts.items() if key[0] and not (with_text and key[2])}
    return sum(n for (_, verdict, _), n in wanted.items() if verdict) / sum(wanted.values())


def exact_repeats(trajectory: Trajectory) -> set[int]:
    """Messages of steps that fail and whose action is letter by letter one that failed before."""
    view = view_of(trajectory)
    failed: set[str] = set()
    repeats: set[int] = set()
    for step in view.steps:
        result = view.result_of(step)
        assert step.action is not None
        if result is not None and result.error:
            if step.action.arguments in failed:
                repeats.add(step.message)
            failed.add(step.action.arguments)
    return repeats


def found_repeats(trajectory: Trajectory) -> set[int]:
    """Messages that R5 finds."""
    view = view_of(trajectory)
    return {f.message for f in repeated_mistakes(view, judgements(view)) if f.message is not None}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample data is not beside the repository")
def test_scores_on_intercode() -> None:
    every: Counter[tuple[bool, bool, bool]] = Counter()
    shell: Counter[tuple[bool, bool, bool]] = Counter()
    structured: Counter[tuple[bool, bool, bool]] = Counter()
    runs = [item for item in ingest_paths([SAMPLES]) if isinstance(item, Trajectory)]
    assert len(runs) == 913
    repeats = missed = 0
    for run in runs:
        text = count(run, hidden=True)
        every += text
        structured += count(run, hidden=False)
        if "ic_bash" in (run.origin or ""):
            shell += text
        missed += len(exact_repeats(run) - found_repeats(run))
        repeats += len(exact_repeats(run))
    assert sum(n for (label, _, _), n in every.items() if label) == 3438
    assert sum(n for (label, _, empty), n in every.items() if label and empty) == 8
    assert (repeats, missed) == (1336, 0)
    assert precision(structured) >= 0.99
    assert recall(structured) >= 0.97
    assert precision(every) >= 0.95
    assert recall(every) >= 0.92
    assert precision(shell) >= 0.95
    assert recall(shell, with_text=True) >= 0.90


STEPS = [  # (command, observation, the label)
    ("ls /srv", "data\nlogs", False),
    ("cat /srv/dta", "cat: /srv/dta: No such file or directory", True),
    ("cat /srv/data/a | sort -nope", "sort: invalid option -- 'o'\nTry 'sort --help' for more information.", True),
    ("find /srv -name *.log", "find: paths must precede expression: `b.log'", True),
    ("find / -name y 2>/dev/null | wc -l", "3", False),
    ("du -sh /root /srv | sort -h", "du: cannot read directory '/root': Permission denied\n4K\t/srv", False),
    ("grep -c error /srv/logs/a.log", "12", False),
    ("SELECT nme FROM people", "ERROR 1054 (42S22): Unknown column 'nme' in 'field list'", True),
    ("SELECT name FROM people", "[('error',), ('failed',)]", False),
    ("echo 'unterminated", "bash: -c: line 1: unexpected EOF while looking for matching `''", True),
    ("sleep 500", "Execution timed out", True),
    ("mkdir /srv/new", "", False),
]


def test_scores_on_a_small_set_of_our_own() -> None:
    messages = [Message("user", "look around")]
    for number, (command, text, wrong) in enumerate(STEPS):
        arguments = '{"command": ' + json.dumps(command) + "}"
        messages.append(Message("assistant", tool_calls=[ToolCall(str(number), "run", arguments)]))
        messages.append(
            Message("tool", text, tool_call_id=str(number), error=wrong, signal=f"valid_action={not wrong}")
        )
    run = Trajectory("b" * 32, "test", "recorded", messages)
    for hidden in (False, True):
        counts = count(run, hidden=hidden)
        assert (precision(counts), recall(counts)) == (1.0, 1.0)
