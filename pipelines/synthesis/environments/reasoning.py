"""Family `reasoning`: mathematics, science and logic problems with exact answers, with and without a tool.

A task is one or two problems (difficulty below 3) or a sheet, of any topic in problems/: a few problems at 3 to 5,
hundreds at 10, where every third is about the answers to earlier ones (sheets.py). Half of the tasks have no tool, a
quarter a calculator (exact fractions, evaluated here), a quarter Python (run in the sandbox); above 7.5 all have one.
`verify` compares the `Answer:` lines of the final turn with the exact answers: numbers by value, words without case.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pipelines.synthesis.environments.answers import answers_of
from pipelines.synthesis.environments.base import Environment, TaskSpec, ToolResult
from pipelines.synthesis.environments.problems import Problem, calculate, number, same_answer
from pipelines.synthesis.environments.sheets import draw_mode, draw_sheet, problems_from, target_tokens
from pipelines.synthesis.sandbox import Sandbox, Workspace
from schemas.errors import UsageError
from schemas.trajectory import Outcome

__all__ = ["ReasoningEnvironment", "problems_of"]

SYSTEMS = {
    "none": "You solve problems of mathematics, science and logic step by step and give exact answers.",
    "calculator": "You solve problems step by step and give exact answers. The calculator works with exact fractions.",
    "python": "You solve problems step by step and give exact answers. You can run Python programs to compute.",
}
_EXPRESSION = {"type": "string", "description": "numbers, + - * / // % ** and brackets", "minLength": 1}


def _tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "calculator": [_tool("calculator", "The exact value of an arithmetic expression.", {"expression": _EXPRESSION})],
    "python": [_tool("run_code", "Run a Python program and give back what it prints.", {"code": {"type": "string"}})],
}


def problems_of(task: TaskSpec) -> list[Problem]:
    """The problems of a task with their derivations, made again from their keys."""
    return problems_from(task.data["problems"])


class ReasoningEnvironment(Environment):
    """See the module. It draws from no pool; `split` is accepted because tasks differ by seed alone."""

    family = "reasoning"
    runs_programs = True

    def __init__(
        self, pool_path: str | Path | None = None, split: str = "train", sandbox: Sandbox | None = None
    ) -> None:
        self.tools = TOOLS["none"]
        self._given_sandbox, self._sandbox = sandbox, sandbox
        self._workspace: Workspace | None = None
        self._wanted: list[str] = []
        self._answer = ""

    def generate(self, seed: int, difficulty: float) -> TaskSpec:
        """See `Environment.generate`."""
        if not 1 <= difficulty <= 10:
            raise UsageError(f"difficulty {difficulty:g} is out of range: 1 to 10")
        generator = random.Random(f"reasoning:{seed}:{difficulty:g}")  # noqa: S311 - seeded on purpose
        mode = draw_mode(generator, difficulty)
        raw, problems = draw_sheet(generator, seed, difficulty, mode)
        if len(problems) == 1:
            ending = generator.choice(("End with a line `Answer: …`.", "Give the result in a last line `Answer: …`."))
            instruction = f"{problems[0].statement}\n{ending}"
        else:
            listed = "\n".join(f"{place}. {problem.statement}" for place, problem in enumerate(problems, 1))
            opening = generator.choice(("Solve these problems.", "Work through this sheet."))
            instruction = f"{opening}\n{listed}\nEnd with a line `Answer k: …` for each problem k."
        data = {"mode": mode, "problems": raw, "answers": [problem.answer for problem in problems]}
        return TaskSpec(
            f"reasoning-{seed}-{difficulty:g}",
            self.family,
            seed,
            difficulty,
            SYSTEMS[mode],
            instruction,
            data,
            "CC0-1.0",
        )

    def reset(self, task: TaskSpec) -> str:
        """See `Environment.reset`."""
        self.tools = TOOLS[task.data["mode"]]
        self._wanted, self._answer = list(task.data["answers"]), ""
        if self._workspace is not None:
            self._workspace.clear()
        return task.instruction

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """See `Environment.call`."""
        if name == "calculator":
            try:
                return ToolResult(number(calculate(arguments["expression"])))
            except ValueError as error:
                return ToolResult(f"Error: {error}", True, "tool_error")
        if self._sandbox is None:
            self._sandbox = Sandbox()
        if self._workspace is None:
            self._workspace = self._sandbox.workspace()
        run = self._sandbox.run_python(arguments["code"], self._workspace)
        if run.reason:
            return ToolResult(f"{run.output}\nstopped: too slow or too much output".lstrip(), True, "timeout")
        if run.exit_code:
            return ToolResult(f"{run.output}\nexit code {run.exit_code}".lstrip(), True, f"exit_code={run.exit_code}")
        return ToolResult(run.output.rstrip() or "no output")

    def answer(self, text: str) -> None:
        """See `Environment.answer`."""
        self._answer = text

    def verify(self) -> Outcome:
        """Compare the last `Answer:` lines with the exact answers; `reward` is the share of right ones."""
        given = answers_of(self._answer)
        right = sum(same_answer(given.get(place, ""), wanted) for place, wanted in enumerate(self._wanted, 1))
        total = len(self._wanted)
        return Outcome(right == total, right / max(1, total), f"exact answers: {right} of {total}")

    @classmethod
    def expected_tokens(cls, difficulty: float) -> float:
        """See `Environment.expected_tokens`."""
        return target_tokens(difficulty)

    def close(self) -> None:
        """See `Environment.close`. A sandbox that was handed in stays open."""
        if self._given_sandbox is None and self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
        self._workspace = None
