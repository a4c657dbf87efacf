"""One small whole run for the tests that look at runs: real modules and docstrings of the standard library."""

from __future__ import annotations

import ast
import json
import sysconfig
from pathlib import Path

import pytest

from datamix.run import run_job
from pipelines.engine import InProcess
from schemas.progress import Quiet
from schemas.recipe import Recipe, parse_recipe

RECIPE = """
name: small
seed: 5
engine: {partitions: 2}
sources: [{name: library, kind: jsonl, path: INPUT, domain_field: domain, license_field: license}]
classify: {labels: [code, web]}
mixture: {shares: {code: 0.7, web: 0.3}, max_epochs: 2, budget_tokens: 20000}
trajectories: {synthesized: [{family: repair, n: 3, difficulty: [1, 2]}]}
tokenizer: {train: {vocab_size: 700, sample_bytes: 200000}}
curriculum:
  pretrain: [{context_tokens: 256, budget_tokens: 20000}]
  sft: [{context_tokens: 16384, trained_tokens: 4000}]
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 32}
train: {max_segment_tokens: 4096, tokens_per_step: 1024, precision: fp32}
evaluate: {heldout_documents: 1, tasks: 0}
"""
LARGEST_MODULE_BYTES = 12_000


def library_lines() -> list[str]:
    """JSON lines: the small modules of the standard library as code, the docstrings of all as web text."""
    lines = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        described = ast.get_docstring(ast.parse(source)) or ""
        if len(described) > 300:
            lines.append({"id": f"{path.stem}-doc", "text": described, "domain": "web", "license": "PSF-2.0"})
        if len(source) < LARGEST_MODULE_BYTES:
            lines.append({"id": path.stem, "text": source, "domain": "code", "license": "PSF-2.0"})
    return [json.dumps(line) for line in lines]


@pytest.fixture(scope="session")
def small_recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe over those lines, with a record twice and a broken line at the end."""
    lines = library_lines()
    path = tmp_path_factory.mktemp("input") / "library.jsonl"
    path.write_text("\n".join([*lines, lines[0], "{broken"]) + "\n", encoding="utf-8")
    return parse_recipe(RECIPE.replace("INPUT", str(path)))


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, small_recipe: Recipe) -> Path:
    """A finished run; read-only for tests (copy it to damage it)."""
    folder = tmp_path_factory.mktemp("small") / "run"
    run_job(small_recipe, folder, Quiet(), engine=InProcess())
    return folder
