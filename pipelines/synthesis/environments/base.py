"""What an environment is: seeded tasks as data, tools executed for real, a verdict by running something.

A family is one file and one line of `FAMILIES`:

    environment = open_environment("repair", pool_path=run / "trajectories" / "pool.jsonl")
    task = environment.generate(seed=7, difficulty=3)      # data: the same arguments give the same task
    observation = environment.reset(task)                  # the first user turn
    result = environment.invoke(ToolCall("call_1", "list_files", "{}"))
    outcome = environment.verify()
    environment.close()

`invoke` is what a model's call goes through: it refuses what is not JSON, unknown tools and arguments that break the
tool's JSON Schema with an observation (never an exception), then hands over to the family's `call`.

Signals of a tool result (`ToolResult.signal`, stored in `Message.signal`). An error is a call that failed:

    malformed_arguments   error   the arguments are not one JSON object
    unknown_tool          error   no tool of that name
    bad_arguments         error   a required argument is absent, unknown, of a wrong type or out of range
    not_found             error   no such file or folder
    no_match, ambiguous   error   the text to replace occurs nowhere, or more than once
    no_change             error   an edit that would change nothing
    syntax_error          error   an edit that leaves a Python file which does not compile; nothing is written
    tool_error            error   any other refusal of a tool
    exit_code=N, timeout  error   a program that was run failed or was stopped
    no_tests              error   a test run that ran no test
    tests_failed          -       a probe: tests fail, and nothing was edited since these tests were last run,
                                  or an edit made some of them pass
    tests_unfixed         -       tests fail as before, though files were edited since they were last run:
                                  the last edit before this result was the mistake
    tests_passed, empty   -       all tests pass; a search that found nothing
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal

import jsonschema

from schemas.errors import UsageError
from schemas.files import canonical_json
from schemas.trajectory import Outcome, ToolCall

__all__ = [
    "FAMILIES",
    "Environment",
    "TaskSpec",
    "ToolResult",
    "between",
    "environment_class",
    "family_names",
    "open_environment",
]

FAMILIES = {
    "office": "pipelines.synthesis.environments.office:OfficeEnvironment",
    "reasoning": "pipelines.synthesis.environments.reasoning:ReasoningEnvironment",
    "repair": "pipelines.synthesis.environments.repair:RepairEnvironment",
    "search": "pipelines.synthesis.environments.search:SearchEnvironment",
    "terminal": "pipelines.synthesis.environments.terminal:TerminalEnvironment",
}


EXPECTED_TOKENS = (1_500, 2_700, 5_000, 10_000, 20_000, 40_000, 80_000, 110_000, 145_000, 185_000)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task as data: `system` prompt (may be ""), `instruction` (what is asked), and `data` of the family's own.

    `id` is unique for (family, seed, difficulty); `license` covers the material inside.
    """

    id: str
    family: str
    seed: int
    difficulty: float
    system: str
    instruction: str
    data: dict[str, Any] = field(default_factory=dict)
    license: str | None = None

    def to_json(self) -> str:
        """Canonical JSON: equal tasks give equal text."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskSpec:
        """The inverse of `to_json`. Raises ValueError or TypeError for other text."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: the observation text, whether the call failed, and the structured signal (module docstring)."""

    text: str
    error: bool = False
    signal: str | None = None


class Environment(ABC):
    """One family. An instance holds at most one task at a time; it is not shared between threads.

    Subclasses set `family` and `tools` (OpenAI function schemas) and implement the abstract methods. Everything is a
    function of (seed, difficulty): observations name no absolute path, no time and no memory address. `pool` says what
    a family draws its tasks from (see pools.py): nothing, code (modules of a corpus) or documents (an index over one).
    `runs_programs` says whether its tools run programs in the sandbox.
    """

    family: str
    tools: Sequence[Mapping[str, Any]]
    pool: ClassVar[Literal["code", "documents"] | None] = None
    runs_programs: ClassVar[bool] = False

    @property
    def left_out(self) -> Mapping[str, int]:
        """What `generate` could not use so far, by reason; {} for families that use all that they draw from."""
        return {}

    @abstractmethod
    def generate(self, seed: int, difficulty: float) -> TaskSpec:
        """The task of this seed and difficulty (1 easy … 10 hard)."""

    @abstractmethod
    def reset(self, task: TaskSpec) -> str:
        """Set the task up from its data and give the first user turn. Drops what an earlier task left."""

    @abstractmethod
    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Run one tool; `arguments` already satisfy the tool's schema. Failures are results, not exceptions."""

    @abstractmethod
    def verify(self) -> Outcome:
        """Whether the task's goal holds now, proved by running or recomputing something."""

    @classmethod
    def expected_tokens(cls, difficulty: float) -> float:
        """Tokens, in order of magnitude, of a trajectory of this difficulty: work is shared out by them."""
        return between(EXPECTED_TOKENS, difficulty)

    def answer(self, text: str) -> None:  # noqa: B027 - families without an answer ignore it
        """Take the final answer (the first assistant turn without a call) before `verify`."""

    def close(self) -> None:  # noqa: B027 - families without resources have nothing to free
        """Free processes and folders; the instance may be reset again afterwards."""

    def invoke(self, call: ToolCall) -> ToolResult:
        """Run a call as a model wrote it. Never raises for what the model wrote."""
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in self.tools}
        if call.name not in schemas:
            known = ", ".join(schemas)
            return ToolResult(f"Error: there is no tool {call.name!r}. Tools: {known}", True, "unknown_tool")
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError) as error:
            return ToolResult(f"Error: the arguments are not valid JSON: {error}", True, "malformed_arguments")
        if not isinstance(arguments, dict):
            kind = type(arguments).__name__
            return ToolResult(
                f"Error: the arguments must be one JSON object, received {kind}", True, "malformed_arguments"
            )
        if "\\u" in call.arguments and not _is_text(arguments):
            said = "the arguments hold half a character (a lone surrogate), which is no text"
            return ToolResult(f"Error: {said}", True, "malformed_arguments")
        problem = schema_problem(schemas[call.name], arguments)
        if problem:
            return ToolResult(f"Error: {call.name}: {problem}", True, "bad_arguments")
        return self.call(call.name, arguments)

    def tools_json(self) -> str:
        """The tools as the JSON text that a trajectory stores."""
        return json.dumps(list(self.tools), ensure_ascii=False)

    def __enter__(self) -> Environment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def between(targets: Sequence[float], difficulty: float) -> float:
    """The target of a difficulty (1 … 10) out of one for each whole difficulty, geometrically between two of them."""
    low = min(int(difficulty), len(targets) - 1)
    first, second = targets[low - 1], targets[low]
    return float(first * (second / first) ** (difficulty - low))


def _is_text(arguments: Mapping[str, Any]) -> bool:
    """Whether files and the network can hold it."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def schema_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """The first breach of a tool's JSON Schema in words, or None. Unknown and missing arguments come first."""
    known = schema.get("properties", {})
    unknown = [name for name in arguments if name not in known]
    if unknown:
        return f"unknown argument {unknown[0]!r}. Arguments: {', '.join(known) or 'none'}"
    missing = [name for name in schema.get("required", []) if name not in arguments]
    if missing:
        return f"the argument {missing[0]!r} is required"
    errors = sorted(
        jsonschema.Draft202012Validator(schema).iter_errors(arguments), key=lambda e: list(map(str, e.path))
    )
    if not errors:
        return None
    place = ".".join(map(str, errors[0].path)) or "arguments"
    return f"{place}: {errors[0].message}"


def family_names() -> list[str]:
    """The registered families, sorted."""
    return sorted(FAMILIES)


def environment_class(family: str) -> type[Environment]:
    """The class of a family, imported here. Raises UsageError for an unknown family."""
    if family not in FAMILIES:
        raise UsageError(f"task family {family!r} is unknown. Families: {', '.join(family_names())}")
    module_name, class_name = FAMILIES[family].split(":")
    found: type[Environment] = getattr(importlib.import_module(module_name), class_name)
    return found


def open_environment(family: str, pool_path: str | Path | None = None, **options: Any) -> Environment:
    """The environment of a family. `pool_path` is what its tasks draw from (`pools.pool_place`), if anything.

    `options` go to the family's class: all take `split`, "train" or "heldout". Raises UsageError for an unknown family.
    """
    build: Any = environment_class(family)
    environment: Environment = build(pool_path=pool_path, **options)
    return environment
