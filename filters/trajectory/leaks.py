"""Leakage (R17): benchmark tasks, by instance id, source or prompt, and runs that looked up the solution.

Prompts are also held against the benchmark files that a recipe names: `prompt_text` is what to search (with
filters.text.decontaminate, many records at once), `prompt_finding` what a hit means.

`BENCHMARKS` is the contamination list: data, to be extended. Ids are matched as whole tokens in the task id, the
origin and the trajectory's source; marks are matched in the first user or system turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from filters.trajectory.calls import command_text
from filters.trajectory.findings import Finding
from filters.trajectory.view import COMPACTION_NAMES, View, is_observation
from schemas.trajectory import Trajectory

__all__ = ["BENCHMARKS", "Benchmark", "benchmark_of", "leaks", "prompt_finding", "prompt_text"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`ids`: how instance ids look; `names`: words in source, family or origin; `marks`: phrases of its prompts."""

    name: str
    ids: str = ""
    names: str = ""
    marks: str = ""


BENCHMARKS = (
    Benchmark(
        "swe-bench",
        ids=r"[A-Za-z][\w.-]*__[A-Za-z][\w.-]*-\d+",
        names=r"swe-?bench(?!-extra|-train)|multi[-_]swe[-_]bench|swe-?lancer",
        marks=r"<uploaded_files>\s*/testbed",
    ),
    Benchmark("tau-bench", names=r"tau-?2?-?bench", marks=r"As (?:an airline|a retail) agent, you can help users"),
    Benchmark("nl2bash", ids=r"nl2bash[\w-]*", names=r"nl2bash|intercode.*bash|ic_bash"),
    Benchmark("spider", names=r"\bspider\b|dev_spider|ic_sql"),
    Benchmark("gaia", names=r"\bgaia\b", marks=r"FINAL ANSWER: \[YOUR FINAL ANSWER\]"),
    Benchmark("assistantbench", names=r"assistant-?bench"),
    Benchmark("humaneval", ids=r"HumanEval/\d+|humanevalfix-[\w-]+", names=r"human-?eval(?:fix|pack)?"),
    Benchmark("mbpp", ids=r"Mbpp/\d+", names=r"\bmbpp\b"),
    Benchmark("toolbench-eval", ids=r"G[123]_(?:instruction|category|tool)(?:_\w+)?", names=r"tooleval|G[123]_answer"),
    Benchmark("terminal-bench", names=r"terminal-?bench"),
    Benchmark("webarena", names=r"(?:visual)?web-?arena", ids=r"webarena\.\d+"),
    Benchmark("osworld", names=r"\bos-?world\b"),
    Benchmark("alfworld", names=r"\balf-?world\b"),
    Benchmark("webshop", names=r"\bweb-?shop\b"),
    Benchmark(
        "bfcl", names=r"\bbfcl\b|gorilla-?(?:bfcl|leaderboard)", ids=r"(?:simple|multiple|parallel|multi_turn_\w+)_\d+"
    ),
    Benchmark("browsecomp", names=r"browse-?comp"),
    Benchmark("livecodebench", names=r"live-?code-?bench"),
    Benchmark("aime", names=r"\baime[-_ ]?20\d\d\b"),
    Benchmark("gpqa", names=r"\bgpqa\b"),
)
_COMPILED = [
    (
        benchmark.name,
        re.compile(rf"(?<![\w.-])(?:{benchmark.ids})(?![\w-])") if benchmark.ids else None,
        re.compile(benchmark.names, re.I) if benchmark.names else None,
        re.compile(benchmark.marks, re.I) if benchmark.marks else None,
    )
    for benchmark in BENCHMARKS
]
_LOOKS_AHEAD = re.compile(
    r"\bgit\s+(?:log|show|diff|checkout|cherry-pick|reflog|rev-list)\b[^\n;|&]*(?:--all|--remotes|\borigin/"
    r"|\bupstream/|FETCH_HEAD|ORIG_HEAD)"
    r"|\bgit\s+(?:fetch|pull)\b|\bgit\s+reflog\b"
    r"|\b(?:curl|wget)\b[^\n;|&]*(?:/pull/\d+|/commit/[0-9a-f]{7,40}|\.patch\b|\.diff\b)"
    r"|\b(?:cat|less|head|view|open)\b[^\n;|&]*\b(?:test_?patch|gold_?patch|solution|golden)\b[\w.-]*\.(?:patch"
    r"|diff|py|json)",
    re.I,
)
_PROMPT_CHARS = 8000


def benchmark_of(view: View) -> tuple[str, str] | None:
    """(benchmark, what matched) for a trajectory of an evaluation task, None for others.

    Synthesized families are never one: their ids are ours.
    """
    trajectory = view.trajectory
    if trajectory.source == "synthesized":
        return None
    where = [trajectory.task.id or "", trajectory.source, trajectory.family, trajectory.origin or ""]
    names = " ".join(where)
    prompt = next((m.content[:_PROMPT_CHARS] for m in trajectory.messages if m.role in ("system", "user")), "")
    for name, ids, words, marks in _COMPILED:
        for pattern, text in ((ids, names), (words, names), (marks, prompt)):
            matched = pattern.search(text) if pattern else None
            if matched:
                return name, matched[0][:120]
    return None


def leaks(view: View) -> list[Finding]:
    """R17: the benchmark a run belongs to (no message index) and commands that fetch the solution (their turn)."""
    found: list[Finding] = []
    benchmark = benchmark_of(view)
    if benchmark:
        found.append(Finding("R17", None, None, f"benchmark={benchmark[0]}", benchmark[1]))
    for step in view.steps:
        call = step.action
        matched = _LOOKS_AHEAD.search(command_text(call)[:4000]) if call else None
        if matched:
            found.append(Finding("R17", step.message, step.call, "solution_lookup", matched[0][:120]))
    return found


def prompt_text(trajectory: Trajectory) -> str:
    """What people asked: the instruction and the user's turns, joined by blank lines, without observations."""
    asked = [
        message.content
        for message in trajectory.messages
        if message.role == "user" and not is_observation(message) and message.name not in COMPACTION_NAMES
    ]
    return "\n\n".join(dict.fromkeys([trajectory.task.instruction, *asked]))


def prompt_finding(benchmark: str, item: str, matched: str) -> Finding:
    """R17: what was asked holds `item` of a benchmark file; `matched` is the span of the prompt."""
    return Finding("R17", None, None, f"prompt={benchmark.rpartition('/')[2]}", f"{item}: {matched}")
