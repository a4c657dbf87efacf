"""The repair family's material: real modules that run alone, with the recorded behaviour of their functions.

A module enters the pool when its licence is permissive, it runs in the sandbox, and at least one of its functions gave
repeatable, varied, mostly ordinary results on made inputs. The pool is a JSON lines file: one module a line, by id.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from pipelines.synthesis.environments.modules import Lines, candidate_functions, cut_slice, find_slices, make_standalone
from pipelines.synthesis.sandbox import Sandbox, Workspace
from schemas.errors import InputError
from schemas.files import atomic_path, canonical_json

__all__ = [
    "INSIDE",
    "Call",
    "PoolModule",
    "Source",
    "is_outcome",
    "is_permissive",
    "open_probe_sandbox",
    "probe_source",
    "read_pool",
    "split_of",
    "standard_library",
    "write_pool",
]

INSIDE = Path(__file__).parent.parent / "inside"
PERMISSIVE = re.compile(
    r"\b(mit|bsd|0bsd|apache|psf|python|isc|unlicense|cc0|zlib|hpnd|mit-0|bsl|boost|public domain|blueoak)\b", re.I
)
RESTRICTED = re.compile(r"gpl|proprietary|non-?commercial|\bnc\b|\bnd\b|unknown|share-?alike", re.I)
DOCTEST = re.compile(r"^\s*>>> (.*)$", re.M)
HELDOUT_PERCENT = 15  # of modules, kept for evaluation tasks
PROBE_SEED = 20_240_601


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file of a corpus: text, where it is from and its licence."""

    text: str
    origin: str
    license: str | None


_OUTCOMES: dict[str, tuple[type, ...]] = {
    "value": (str,),
    "repr": (str,),
    "list": (str,),
    "effect": (int, str),
    "raises": (str,),
    "unsupported": (),
}


def is_outcome(value: Any) -> bool:
    """Whether a value has the shape of an outcome (see inside/probing.py): what a probe gives may be forged."""
    if not isinstance(value, list) or not value or not isinstance(value[0], str) or value[0] not in _OUTCOMES:
        return False
    kinds = _OUTCOMES[value[0]]
    return len(value) == len(kinds) + 1 and all(type(v) is kind for v, kind in zip(value[1:], kinds, strict=True))


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments (Python literals) and the recorded outcome (see inside/probing.py). Raises ValueError for others."""

    arguments: list[str]
    outcome: list[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, list) or not all(isinstance(text, str) for text in self.arguments):
            raise ValueError(f"arguments must be a list of texts, received {str(self.arguments)[:80]}")
        if not is_outcome(self.outcome):
            raise ValueError(f"no outcome of a call: {str(self.outcome)[:80]}")
        if self.outcome[0] == "effect" and not 0 <= self.outcome[1] < len(self.arguments):
            raise ValueError(f"the outcome is about argument {self.outcome[1]} of {len(self.arguments)}")
        if self.outcome[0] == "raises" and not self.outcome[1].isidentifier():
            raise ValueError(f"no name of an exception: {self.outcome[1][:80]!r}")


@dataclass(frozen=True, slots=True)
class PoolModule:
    """One module of the pool. `functions` maps names to recorded calls; `name` is a Python identifier.

    `slices` maps names to the lines that the function needs (modules.find_slices).
    """

    id: str
    name: str
    origin: str
    license: str
    source: str
    functions: dict[str, list[Call]]
    slices: dict[str, list[Lines]]

    def slice_of(self, function: str) -> str:
        """The text that runs this function alone."""
        return cut_slice(self.source, self.slices[function])

    def to_json(self) -> str:
        """One line of the pool file."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> PoolModule:
        """The inverse of `to_json`. Raises ValueError, KeyError or TypeError for other lines."""
        raw = json.loads(line)
        functions = {name: [Call(**call) for call in calls] for name, calls in raw.pop("functions").items()}
        slices = {name: [(a, b, bool(c)) for a, b, c in parts] for name, parts in raw.pop("slices").items()}
        return cls(functions=functions, slices=slices, **raw)


def is_permissive(license_name: str | None) -> bool:
    """Whether a licence name (SPDX, classifier or free text) is one that lets code be copied into training data."""
    return bool(license_name and PERMISSIVE.search(license_name) and not RESTRICTED.search(license_name))


def split_of(module: PoolModule) -> str:
    """ "heldout" for about 15 % of the modules, else "train"; depends on the module's text alone."""
    return "heldout" if int(module.id[-8:], 16) % 100 < HELDOUT_PERCENT else "train"


def open_probe_sandbox() -> Sandbox:
    """A sandbox with the functions of inside/ loaded."""
    return Sandbox(plugins=[INSIDE / "probing.py", INSIDE / "testing.py"])


def probe_source(source: Source, sandbox: Sandbox, workspace: Workspace) -> PoolModule | str:
    """Try a file: the pool's module, or in a word why it gives none.

    Words: license, not_alone (nothing runs without other packages), no_candidates, broken (fails in the sandbox), dull.
    Cost: about 10 to 60 CPU milliseconds.
    """
    if not is_permissive(source.license):
        return "license"
    module = make_standalone(source.text)
    if module is None:
        return "not_alone"
    candidates = candidate_functions(module.source)
    if not candidates:
        return "no_candidates"
    payload = {"source": module.source, "functions": [describe(node) for node in candidates], "seed": PROBE_SEED}
    result = sandbox.call("probing:probe_module", payload, workspace, cpu_seconds=10, wall_seconds=60.0)
    if result.result is None:
        return "broken"
    if not result.result:
        return "dull"
    functions = _recorded(result.result, {node.name for node in candidates})
    if functions is None:
        return "broken"
    key = xxhash.xxh3_128_hexdigest(module.source.encode("utf-8", "surrogatepass"))
    slices = find_slices(module.source, functions)
    return PoolModule(
        key, module_name(source.origin), source.origin, source.license or "", module.source, functions, slices
    )


def _recorded(value: Any, names: set[str]) -> dict[str, list[Call]] | None:
    """The calls that a probe recorded, None for anything else: the module under it can write a result of its own."""
    try:
        functions = {str(name): [Call(**call) for call in calls] for name, calls in value.items()}
    except (AttributeError, TypeError, ValueError):
        return None
    return functions if functions.keys() <= names else None


def describe(node: ast.FunctionDef) -> dict[str, Any]:
    """What is known of a function's parameters without running it."""
    parameters = [*node.args.posonlyargs, *node.args.args]
    required = len(parameters) - len(node.args.defaults)
    hints = [[p.arg, ast.unparse(p.annotation) if p.annotation else ""] for p in parameters[:required]]
    optional = []
    for parameter, default in zip(parameters[required:], node.args.defaults, strict=True):
        guess = type(default.value).__name__ if isinstance(default, ast.Constant) and default.value is not None else ""
        optional.append([parameter.arg, ast.unparse(parameter.annotation) if parameter.annotation else guess])
    if not hints:
        hints, optional = optional[:1], optional[1:]
    room = max(0, 5 - len(hints))
    return {"name": node.name, "hints": hints, "optional": optional[:room], "examples": docstring_calls(node)}


def docstring_calls(node: ast.FunctionDef) -> list[list[str]]:
    """Argument texts of the function's own doctest examples, where they are literals."""
    calls = []
    for line in DOCTEST.findall(ast.get_docstring(node) or ""):
        try:
            tree = ast.parse(line.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            continue
        for call in ast.walk(tree):
            named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == node.name
            if named and isinstance(call, ast.Call) and not call.keywords and call.args:
                try:
                    calls.append([repr(ast.literal_eval(argument)) for argument in call.args])
                except (ValueError, TypeError, SyntaxError):
                    continue
    return calls[:8]


def module_name(origin: str) -> str:
    """A Python identifier from an origin such as 'json/decoder.py#0': decoder."""
    path = re.sub(r"#[^#/]*$", "", origin)
    parts = [part for part in re.split(r"[/\\:]", path) if part]
    stem = parts[-1].removesuffix(".py") if parts else ""
    if stem == "__init__" and len(parts) > 1:
        stem = parts[-2]
    name = re.sub(r"\W+", "_", stem.split(".")[-1], flags=re.ASCII).strip("_").lower()
    return name if re.fullmatch(r"[a-z][a-z0-9_]{1,40}", name) else "module"


def standard_library() -> Iterator[Source]:
    """The pure Python files of the running interpreter's standard library, in path order (licence PSF-2.0)."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "encodings", "__pycache__"}
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in skipped and not name.startswith("config-"))
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(parent, name)
                text = path.read_text(encoding="utf-8", errors="replace")
                yield Source(text, path.relative_to(root).as_posix(), "PSF-2.0")


def write_pool(path: Path, modules: Iterable[PoolModule]) -> int:
    """Write the pool sorted by id, each id once, atomically; returns the number of modules."""
    unique = {module.id: module for module in sorted(modules, key=lambda m: (m.id, m.origin), reverse=True)}
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as handle:
        for key in sorted(unique):
            handle.write(unique[key].to_json() + "\n")
    return len(unique)


def read_pool(path: str | Path) -> list[PoolModule]:
    """Read a pool file. Raises InputError naming the file and line."""
    modules = []
    try:
        with open(path, encoding="utf-8") as handle:
            for number, line in enumerate(handle, 1):
                try:
                    modules.append(PoolModule.from_json(line))
                except (ValueError, KeyError, TypeError) as error:
                    problem = f"not a module of a repair pool ({error})"
                    raise InputError(problem, path=str(path), line=number, todo="Build the pool again") from error
    except FileNotFoundError as error:
        raise InputError("no such file", path=str(path), todo="Run the synthesize step first") from error
    return modules
