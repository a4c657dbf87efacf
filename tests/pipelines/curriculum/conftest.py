"""A small run folder with real text: what the tokenizer and shards steps read, built in place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.context import RunContext
from pipelines.curriculum.tokenizer import train_bpe, write_tokenizer_folder
from pipelines.engine import InProcess
from pipelines.synthesis.tokens import TextTokenizer, load_tokenizer
from schemas.document import DOCUMENT_SCHEMA, document_id, partition_of
from schemas.progress import Quiet
from schemas.recipe import Recipe, parse_recipe
from schemas.trajectory import TRAJECTORY_SCHEMA, Message, Task, ToolCall, Trajectory, trajectory_id

PARTS = 2
TEXT = """the sum of two odd numbers is even because each leaves one when halved def return import while energy mass
light wave particle proof lemma theorem function integral matrix vector graph node edge tree queue stack heap"""
WORDS = TEXT.split()
RECIPE = """
name: small
seed: 5
engine: {partitions: 2}
sources: [{name: s, kind: jsonl, path: none.jsonl}]
mixture: {shares: {math: 0.5, code: 0.5}, budget_tokens: 4000}
tokenizer: {train: {vocab_size: 400, sample_bytes: 40000}}
curriculum:
  rows_per_file: 3
  pretrain: [{context_tokens: 64, budget_tokens: 100000}]
  sft:
    - {context_tokens: 512, trained_tokens: 1500, shares: {reasoning: 0.6, general: 0.2, agentic: 0.2}}
    - {context_tokens: 1024, trained_tokens: 1500, shares: {reasoning: 0.2, general: 0.1, agentic: 0.7}}
model: {hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2, intermediate_size: 64}
"""


def prose(generator: np.random.Generator, words: int) -> str:
    return " ".join(WORDS[i] for i in generator.integers(0, len(WORDS), words))


def make_documents(count: int = 40) -> list[dict[str, Any]]:
    generator = np.random.default_rng(3)
    rows = []
    for number in range(count):
        text = f"{number}: " + prose(generator, int(generator.integers(1, 120)))
        if number == 7:
            text += " <|im_end|> <|endoftext|> 🙂漢字"
        domain = "math" if number % 2 else "code"
        row = dict.fromkeys(DOCUMENT_SCHEMA.names)
        row.update(id=document_id(text, "s"), text=text, source="s", origin=f"none.jsonl#{number}", domain=domain)
        rows.append(row)
    return rows


def make_trajectory(family: str, number: int, words: int, *, train: bool = True) -> Trajectory:
    generator = np.random.default_rng([number, words])
    if family == "reasoning":
        messages = [
            Message("user", prose(generator, 6)),
            Message("assistant", prose(generator, 5), prose(generator, words), train=train),
        ]
        tools = "[]"
    elif family == "chat":
        tools = "[]"
        messages = [Message("user", prose(generator, words)), Message("assistant", prose(generator, 12), train=train)]
    else:
        tools = json.dumps([{"type": "function", "function": {"name": "run"}}])
        messages = [
            Message("user", prose(generator, 6)),
            Message(
                "assistant",
                "",
                "first try",
                [ToolCall("call_0", "run", '{"code": "boom"}')],
                train=False,
                mask_reasons=["R2:exit_code"],
            ),
            Message("tool", f"exit code 1 <|im_end|> {prose(generator, words)}", tool_call_id="call_0", error=True),
            Message("assistant", prose(generator, words // 4), "again", train=train),
        ]
    task = Task(id=f"{family}-{number}", difficulty=1 + number % 10)
    return Trajectory(trajectory_id("test", task.id, messages), "test", family, messages, task=task, tools=tools)


def write_run(
    run: Path,
    documents: list[dict[str, Any]],
    trajectories: list[Trajectory],
    tokenizer: TextTokenizer,
    *,
    epochs: int = 0,
) -> None:
    """Write corpus/kept, mixture and trajectories/kept; `epochs` 0 gives each document 0 to 3 by its place."""
    for part in range(PARTS):
        rows = sorted((d for d in documents if partition_of(d["id"], PARTS) == part), key=lambda d: d["id"])
        kept = run / "corpus" / "kept" / f"part-{part:05d}.parquet"
        kept.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=DOCUMENT_SCHEMA), kept)
        mixture = [
            {
                "id": row["id"],
                "domain": row["domain"],
                "source": row["source"],
                "tokens": len(tokenizer.encode(row["text"])) + 1,
                "split": "heldout" if place % 5 == 4 else "train",
                "epochs": 0 if place % 5 == 4 else (epochs or place % 4),
            }
            for place, row in enumerate(rows)
        ]
        strings = [(name, pa.string()) for name in ("id", "domain", "source", "split")]
        schema = pa.schema([*strings, ("tokens", pa.int64()), ("epochs", pa.int32())])
        (run / "mixture").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(mixture, schema=schema), run / "mixture" / kept.name)
        folder = run / "trajectories" / "kept"
        folder.mkdir(parents=True, exist_ok=True)
        mine = [t.to_row() for t in trajectories if partition_of(t.id, PARTS) == part]
        pq.write_table(pa.Table.from_pylist(mine, schema=TRAJECTORY_SCHEMA), folder / kept.name)


@pytest.fixture(scope="session")
def bpe_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer folder of ours, 400 tokens."""
    folder = tmp_path_factory.mktemp("bpe") / "tokenizer"
    text = train_bpe((d["text"] for d in make_documents()), 400)
    write_tokenizer_folder(folder, text)
    return folder


@pytest.fixture(scope="session")
def bpe(bpe_folder: Path) -> TextTokenizer:
    return load_tokenizer(bpe_folder)


@pytest.fixture(scope="session")
def small_recipe() -> Recipe:
    return parse_recipe(RECIPE)


@pytest.fixture(scope="session")
def small_trajectories() -> list[Trajectory]:
    """Short and long ones of three kinds, one with nothing to train, one longer than every stage."""
    made = [make_trajectory("reasoning", i, 10 + 7 * i) for i in range(24)]
    made += [make_trajectory("chat", i, 5 + 3 * i) for i in range(10)]
    made += [make_trajectory("repair", i, 20 + 12 * i) for i in range(16)]
    made += [make_trajectory("repair", 100 + i, 450 + 40 * i) for i in range(4)]
    made.append(make_trajectory("reasoning", 200, 20, train=False))
    made.append(make_trajectory("repair", 300, 2000))
    return made


MakeRun = Callable[..., RunContext]


@pytest.fixture
def make_run(
    tmp_path: Path, bpe: TextTokenizer, bpe_folder: Path, small_recipe: Recipe, small_trajectories: Any
) -> MakeRun:
    """`make_run(name, documents=…, trajectories=…, recipe=…, engine=…)` writes a run that is ready for its shards."""

    def make(
        name: str = "run",
        *,
        documents: list[dict[str, Any]] | None = None,
        trajectories: list[Trajectory] | None = None,
        recipe: Recipe | None = None,
        engine: Any = None,
        epochs: int = 0,
    ) -> RunContext:
        run = tmp_path / name
        shutil.copytree(bpe_folder, run / "tokenizer")
        rows = make_documents() if documents is None else documents
        write_run(run, rows, small_trajectories if trajectories is None else trajectories, bpe, epochs=epochs)
        return RunContext(run, recipe or small_recipe, engine or InProcess(), Quiet())

    return make


@pytest.fixture(scope="session")
def new_trajectory() -> Callable[..., Trajectory]:
    return make_trajectory


@pytest.fixture(scope="session")
def new_documents() -> Callable[..., list[dict[str, Any]]]:
    return make_documents


@pytest.fixture(scope="session")
def recipe_text() -> str:
    return RECIPE
