"""Promise 9: no global random state and no dependence on `hash()` (DESIGN §4).

That outputs do not depend on a process's hash seed, directory order or time is shown by the byte-equal runs of
tests/datamix/test_whole_run.py, whose processes all have their own hash seed; here the source itself is read.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("datamix", "filters", "pipelines", "schemas", "trainer")
SEEDED = {"Random", "SystemRandom", "Generator", "default_rng", "PCG64", "Philox", "SeedSequence", "SFC64"}


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _uses_hidden_state(tree: ast.AST) -> Iterator[str]:
    """Calls whose result depends on state that no recipe names (a torch.Generator takes its seed by a method)."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _dotted(node.func)
        head, _, last = name.rpartition(".")
        global_state = head in ("random", "np.random", "numpy.random") and last not in SEEDED
        if global_state or name in ("hash", "torch.manual_seed", "torch.seed"):
            yield f"line {node.lineno}: {name}()"
        elif last in SEEDED and head != "torch" and not node.args and not node.keywords:
            yield f"line {node.lineno}: {name}() without a seed"


FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def test_the_source_files_are_found() -> None:
    assert len(FILES) > 100


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("hash('a')", 1),
        ("import random; random.shuffle(x)", 1),
        ("import numpy as np; np.random.rand(3)", 1),
        ("random.Random()", 1),
        ("random.Random(seed).shuffle(x)", 0),
        ("np.random.default_rng(7).random()", 0),
        ("def f(self): return self.hash(1)", 0),
    ],
)
def test_the_check_itself_tells_hidden_state_from_seeded(source: str, found: int) -> None:
    assert len(list(_uses_hidden_state(ast.parse(source)))) == found


def test_no_source_file_uses_hidden_random_state() -> None:
    problems = [
        f"{path.relative_to(ROOT)}: {use}"
        for path in FILES
        if "inside" not in path.parts  # code that runs in the sandbox on untrusted programs
        for use in _uses_hidden_state(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert problems == []
