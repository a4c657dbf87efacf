"""Making repair tasks: which modules, which faults, which tests are shown. Every fault is proved by running it."""

from __future__ import annotations

import ast
import bisect
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pipelines.synthesis.environments.base import between
from pipelines.synthesis.environments.functions import Call, PoolModule, is_outcome
from pipelines.synthesis.environments.mutations import Mutation, apply_mutation, find_mutations
from pipelines.synthesis.environments.source_text import SourceText, parse_module
from pipelines.synthesis.environments.unittest_files import fails_visibly, is_testable
from pipelines.synthesis.sandbox import Sandbox, Workspace

__all__ = ["CHARACTERS_PER_TOKEN", "Fault", "FileSpec", "TaskMaker", "target_tokens"]

CHARACTERS_PER_TOKEN = 3.3
# tokens of a whole trajectory that a difficulty aims at, interpolated between whole numbers
TARGET_TOKENS = (1_500, 2_700, 5_000, 10_000, 20_000, 40_000, 80_000, 110_000, 145_000, 195_000)
FIXED_TOKENS = 1_250  # prompts, tools, first and last turns
CHARACTERS_PER_FAULT = 3_200  # a failing test, its report, the edit and the turns around it
WHOLE_FILES_FROM = 3.5  # below, a file holds one function and what it needs; from here on, real whole files
VISIBLE_CALLS = 6
DEFINITION = "def "


@dataclass(frozen=True, slots=True)
class Fault:
    """Characters start to end of the original text become `text`. `decoy` is a repair that was proved wrong.

    `fails` lists [function, call index] of the recorded calls whose outcome the fault changes, `shown` those of them
    that have a test in the workspace.
    """

    function: str
    kind: str
    start: int
    end: int
    text: str
    decoy: tuple[int, int, str] | None
    fails: list[tuple[str, int]]
    shown: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A module of the task: pool id, the function it was sliced to (None: the whole file), faults, tests shown."""

    path: str
    module: str
    only: str | None
    faults: list[Fault]
    visible: dict[str, list[int]] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Plain data for TaskSpec.data: what JSON gives back as it was."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return data

    @classmethod
    def from_data(cls, raw: dict[str, Any]) -> FileSpec:
        """The inverse of `to_data`."""
        faults = []
        for item in raw["faults"]:
            values = dict(item)
            values["decoy"] = tuple(values["decoy"]) if values["decoy"] else None
            values["fails"] = [(name, index) for name, index in values["fails"]]
            values["shown"] = [(name, index) for name, index in values["shown"]]
            faults.append(Fault(**values))
        return cls(raw["path"], raw["module"], raw["only"], faults, raw["visible"])


def target_tokens(difficulty: float) -> float:
    """Tokens that a trajectory of this difficulty (1 … 10) aims at."""
    return between(TARGET_TOKENS, difficulty)


class TaskMaker:
    """Draws tasks from a pool. Same pool, seed and difficulty: same task."""

    def __init__(self, modules: Sequence[PoolModule], sandbox: Sandbox, workspace: Workspace) -> None:
        self._modules = list(modules)
        self._sandbox, self._workspace = sandbox, workspace
        self._slices: list[tuple[int, int, str]] | None = None  # (characters, module index, function)
        self.bad_probes = 0  # functions not used because code under the probe wrote a result of another shape

    def files(self, difficulty: float, generator: random.Random, package: str) -> list[FileSpec]:
        """The broken files of a task. At least one, unless the pool has nothing that breaks."""
        budget = (target_tokens(difficulty) - FIXED_TOKENS) * CHARACTERS_PER_TOKEN
        if difficulty < WHOLE_FILES_FROM:
            return self._small(budget, 1 + (difficulty >= 2.5), generator, package)
        return self._large(budget, difficulty, generator, package)

    def _small(self, budget: float, wanted: int, generator: random.Random, package: str) -> list[FileSpec]:
        """One or two files of a single function each, about as long as the budget allows."""
        room = max(500.0, (budget - wanted * CHARACTERS_PER_FAULT * 0.6) / wanted)
        slices = self._sliced()
        top = bisect.bisect_right(slices, (int(room), len(self._modules), ""))
        low = bisect.bisect_left(slices, (int(room * 0.45), 0, ""))
        candidates = slices[low:top] if top - low >= 20 else slices[max(0, top - 20) : max(top, 20)]
        generator.shuffle(candidates)
        files: list[FileSpec] = []
        for _, index, function in candidates[:60]:
            module = self._modules[index]
            if any(spec.module == module.id for spec in files):
                continue
            spec = self._break(module, function, 1, generator, self._path(package, module, files))
            if spec:
                files.append(spec)
            if len(files) == wanted:
                break
        return files

    def _large(self, budget: float, difficulty: float, generator: random.Random, package: str) -> list[FileSpec]:
        """Whole files until the budget is used up; big files may hold two faults."""
        order = list(self._modules)
        generator.shuffle(order)
        files: list[FileSpec] = []
        left = budget
        for module in order:
            cost = len(module.source) * 1.02 + CHARACTERS_PER_FAULT
            if cost > max(left * 1.1, 0) or (cost > budget * 0.7 and left < budget):
                continue
            faults = 2 if len(module.functions) > 2 and difficulty >= 5 and generator.random() < 0.25 else 1
            spec = self._break(module, None, faults, generator, self._path(package, module, files))
            if spec is None:
                continue
            files.append(spec)
            left -= cost + CHARACTERS_PER_FAULT * (len(spec.faults) - 1)
            if left < budget * 0.04:
                break
        return files or self._small(budget, 1, generator, package)

    def _sliced(self) -> list[tuple[int, int, str]]:
        """Every function of the pool with the length of its slice, shortest first."""
        if self._slices is None:
            modules = enumerate(self._modules)
            self._slices = sorted((len(m.slice_of(name)), index, name) for index, m in modules for name in m.slices)
        return self._slices

    @staticmethod
    def _path(package: str, module: PoolModule, taken: Sequence[FileSpec]) -> str:
        """A file name that no other module of the task has."""
        stems = {spec.path for spec in taken}
        path, number = f"{package}/{module.name}.py", 2
        while path in stems:
            path, number = f"{package}/{module.name}_{number}.py", number + 1
        return path

    def _break(
        self, module: PoolModule, only: str | None, wanted: int, generator: random.Random, path: str
    ) -> FileSpec | None:
        """Up to `wanted` faults in different functions of a module, proved independent; None when there are none."""
        source = module.slice_of(only) if only else module.source
        tree = parse_module(source)
        if tree is None:
            return None
        nodes = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        calls = {name: recorded for name, recorded in module.functions.items() if only in (None, name)}
        prober = _Prober(source, module, nodes, calls, self._sandbox, self._workspace)
        names = sorted(calls)
        generator.shuffle(names)
        faults: list[Fault] = []
        visible = {name: _choose_visible(recorded, generator) for name, recorded in sorted(calls.items())}
        for name in names[:4]:
            try:
                fault = prober.fault(name, visible, generator)
                faults = (prober.independent([*faults, fault], visible) or faults) if fault else faults
            except _BadProbeError:
                self.bad_probes += 1
            if len(faults) == wanted:
                break
        return FileSpec(path, module.id, only, faults, visible) if faults else None


def _choose_visible(calls: Sequence[Call], generator: random.Random) -> list[int]:
    """Which recorded calls get a test in the workspace: up to six, about two thirds; the others stay hidden."""
    usable = [index for index in range(len(calls)) if is_testable(calls, index)]
    count = min(VISIBLE_CALLS, max(1, (2 * len(usable) + 2) // 3))
    return sorted(generator.sample(usable, count)) if usable else []


class _BadProbeError(Exception):
    """A probe's result has another shape than what was asked for: the code under it can write there too."""


class _Prober:
    """Runs variants of one module and reads off what each breaks.

    Proposals are tried in the function's slice, which loads faster; what is taken is proved in the whole module.
    """

    def __init__(
        self,
        source: str,
        module: PoolModule,
        nodes: dict[str, ast.FunctionDef],
        calls: dict[str, list[Call]],
        sandbox: Sandbox,
        workspace: Workspace,
    ) -> None:
        self._source, self._module, self._nodes, self._calls = source, module, nodes, calls
        self._sandbox, self._workspace = sandbox, workspace
        self._rivals: dict[str, list[Mutation]] = {}  # function -> what might be taken for its fault's repair

    def fault(self, name: str, visible: dict[str, list[int]], generator: random.Random) -> Fault | None:
        """A mutation that changes a tested outcome, without yet saying all that it breaks. Tries eight."""
        if name not in self._nodes:
            return None
        proposals = find_mutations(self._source, self._nodes[name])
        candidates = _kinds_in_turn(proposals, generator)[:8]
        for first in range(0, len(candidates), 4):
            batch = candidates[first : first + 4]
            variants = [{name: self._definition(name, apply_mutation(self._source, m))} for m in batch]
            payload: dict[str, Any] = {
                "source": self._module.slice_of(name),
                "variants": [{}, *variants],
                "calls": self._arguments([name]),
            }
            results = self._sandbox.call("probing:probe_variants", payload, self._workspace).result
            if results is None:
                return None
            results = self._checked(results, len(payload["variants"]), [name])
            if self._failing(results[0]):
                return None  # the slice alone does not behave as the module did
            for mutation, result in zip(batch, results[1:], strict=True):
                if _settles(result) and self._shown(self._failing(result), result, visible):
                    self._rivals[name] = self._decoys(mutation, proposals, generator)
                    return Fault(name, mutation.kind, mutation.start, mutation.end, mutation.text, None, [], [])
        return None

    def independent(self, faults: list[Fault], visible: dict[str, list[int]]) -> list[Fault] | None:
        """The faults with all that they break and a decoy for the last, or None when one hides behind the others.

        Here the whole broken module is loaded, as it will be in the workspace.
        """
        together = self._source
        for fault in sorted(faults, key=lambda f: f.start, reverse=True):
            together = _applied(together, fault)
        texts = [_applied(self._source, fault) for fault in faults] + ([together] if len(faults) > 1 else [])
        name = faults[-1].function
        rivals = self._rivals[name]
        variants = [{name: self._definition(name, apply_mutation(self._source, rival))} for rival in rivals]
        payload = {
            "modules": {"sources": texts, "calls": self._arguments(sorted(self._calls))},
            "variants": {"source": self._module.slice_of(name), "variants": variants, "calls": self._arguments([name])},
        }
        result = self._sandbox.call("probing:probe_fault", payload, self._workspace).result
        if result is None:
            return None
        parts = result if isinstance(result, dict) else {}
        modules = self._checked(parts.get("modules"), len(texts), sorted(self._calls))
        outcomes = self._checked(parts.get("variants"), len(variants), [name])
        if not all(map(_settles, modules)):
            return None
        broken = [self._failing(module) for module in modules]
        shown = [self._shown(f, m, visible) for f, m in zip(broken, modules, strict=True)]
        for number in range(len(faults)):
            others = {item for other in range(len(faults)) if other != number for item in shown[other]}
            if not set(shown[number]) - others:
                return None
        if set(shown[-1]) != {item for part in shown[: len(faults)] for item in part}:
            return None
        decoy = None
        for rival, outcome in zip(rivals, outcomes, strict=True):
            if decoy is None and _settles(outcome) and self._is_wrong(outcome, name, shown[len(faults) - 1], visible):
                decoy = (rival.start, rival.end, rival.text)
        decoys = [fault.decoy for fault in faults[:-1]] + [decoy]
        return [replace(fault, decoy=decoys[n], fails=broken[n], shown=shown[n]) for n, fault in enumerate(faults)]

    def _checked(self, results: Any, count: int, names: Sequence[str]) -> list[dict[str, list[list[Any]]] | None]:
        """`count` results, each an outcome for every recorded call of `names`, or None. Raises _BadProbeError."""
        lengths = {name: len(self._calls[name]) for name in names}
        if not isinstance(results, list) or len(results) != count:
            raise _BadProbeError
        for result in results:
            if result is None:
                continue
            if not isinstance(result, dict) or result.keys() != lengths.keys():
                raise _BadProbeError
            for name, outcomes in result.items():
                right = isinstance(outcomes, list) and len(outcomes) == lengths[name]
                if not right or not all(map(is_outcome, outcomes)):
                    raise _BadProbeError
        return results

    def _arguments(self, names: Sequence[str]) -> dict[str, list[list[str]]]:
        return {name: [call.arguments for call in self._calls[name]] for name in names}

    def _definition(self, name: str, text: str) -> str:
        """The function's definition in a text that differs from the source inside this function only."""
        span = SourceText(self._source).span(self._nodes[name])
        return text[span.start : span.end + len(text) - len(self._source)]

    def _failing(self, result: Any) -> list[tuple[str, int]]:
        """[function, call index] whose outcome is not the recorded one."""
        found = []
        for name in sorted(result or {}):
            for index, outcome in enumerate(result[name]):
                if outcome != self._calls[name][index].outcome:
                    found.append((name, index))
        return found

    def _shown(
        self, failing: list[tuple[str, int]], result: Any, visible: dict[str, list[int]]
    ) -> list[tuple[str, int]]:
        """Those of the failing calls that have a test in the workspace which notices."""
        return [
            (name, index)
            for name, index in failing
            if index in visible[name] and fails_visibly(self._calls[name][index].outcome, result[name][index])
        ]

    def _decoys(self, fault: Mutation, proposals: list[Mutation], generator: random.Random) -> list[Mutation]:
        """Up to three other mutations at the fault's place: what somebody might take for the fix."""
        near = [m for m in proposals if m != fault and m.start < fault.end and fault.start < m.end]
        near += [m for m in proposals if m != fault and m not in near and m.line == fault.line]
        picked = near[:8]
        generator.shuffle(picked)
        return picked[:3]

    def _is_wrong(self, result: Any, name: str, broken: list[tuple[str, int]], visible: dict[str, list[int]]) -> bool:
        """Whether all tests of the function that the fault broke still fail with this in its place."""
        return {item for item in broken if item[0] == name} <= set(self._shown(self._failing(result), result, visible))


def _settles(result: Any) -> bool:
    """Whether every call ended within its budget with an outcome that can be described."""
    return result is not None and all(outcome[0] != "unsupported" for calls in result.values() for outcome in calls)


def _applied(source: str, fault: Fault) -> str:
    return source[: fault.start] + fault.text + source[fault.end :]


def _kinds_in_turn(mutations: Sequence[Mutation], generator: random.Random) -> list[Mutation]:
    """Shuffled so that rare kinds come as early as common ones."""
    by_kind: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        by_kind.setdefault(mutation.kind, []).append(mutation)
    kinds = sorted(by_kind)
    generator.shuffle(kinds)
    for kind in kinds:
        generator.shuffle(by_kind[kind])
    longest = max(map(len, by_kind.values()), default=0)
    return [by_kind[kind][i] for i in range(longest) for kind in kinds if i < len(by_kind[kind])]
