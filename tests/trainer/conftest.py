"""Small shards and models for the trainer's tests, built in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from schemas.files import sha256_file
from schemas.progress import Quiet
from schemas.recipe import Recipe
from schemas.shard import ShardFile, ShardIndex, StageIndex, shard_schema, write_index
from trainer.config import LoopedConfig
from trainer.model import LoopedTransformer

VOCAB = 64


def _runs(mask: Sequence[bool]) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    for trained in mask:
        reason = "trained" if trained else "user"
        if runs and runs[-1]["reason"] == reason:
            runs[-1]["tokens"] += 1
        else:
            runs.append({"tokens": 1, "reason": reason})
    return runs


@pytest.fixture
def write_stage() -> Callable[..., StageIndex]:
    """Write one stage: `rows` are lists of segments, each a pair (ids, mask)."""

    def write(
        folder: Path,
        name: str,
        phase: str,
        context: int,
        rows: list[list[tuple[list[int], list[bool]]]],
        per_file: int = 3,
    ) -> StageIndex:
        files = []
        for number, start in enumerate(range(0, len(rows), per_file)):
            part = rows[start : start + per_file]
            columns = [
                {
                    "input_ids": [i for ids, _ in segments for i in ids],
                    "loss_mask": [m for _, mask in segments for m in mask],
                    "segment_lengths": [len(ids) for ids, _ in segments],
                    "segment_ids": [f"{name}-{start + r}.{s}" for s in range(len(segments))],
                    "mask_reasons": _runs([m for _, mask in segments for m in mask]),
                }
                for r, segments in enumerate(part)
            ]
            path = folder / name / f"part-{number:05d}.arrow"
            path.parent.mkdir(parents=True, exist_ok=True)
            origin = {"tokenizer_digest": "tokenizer", "recipe_digest": "recipe"}
            schema = shard_schema(VOCAB, {"stage": name, "context_tokens": str(context), **origin})
            with pa.ipc.new_file(str(path), schema) as writer:
                for column in columns:  # one record batch a row, as a writer of long rows would do
                    writer.write_batch(pa.RecordBatch.from_pylist([column], schema=schema))
            files.append(
                ShardFile(
                    path=path.relative_to(folder).as_posix(),
                    sha256=sha256_file(path),
                    bytes=path.stat().st_size,
                    rows=len(part),
                    tokens=sum(len(c["input_ids"]) for c in columns),
                    trained_tokens=sum(sum(c["loss_mask"]) for c in columns),
                    segments=sum(len(c["segment_lengths"]) for c in columns),
                )
            )
        return StageIndex(name, phase, context, files)

    return write


@pytest.fixture
def random_rows() -> Callable[..., list[list[tuple[list[int], list[bool]]]]]:
    """Rows of segments of the given lengths with random ids; about `share` of the tokens are trained."""

    def make(
        count: int, lengths: Sequence[int], share: float = 1.0, seed: int = 0
    ) -> list[list[tuple[list[int], list[bool]]]]:
        rng = np.random.default_rng(seed)
        return [
            [
                (
                    rng.integers(0, VOCAB, length).tolist(),
                    [i > 0 and bool(t) for i, t in enumerate(rng.random(length) < share)],
                )
                for length in lengths
            ]
            for _ in range(count)
        ]

    return make


@pytest.fixture
def make_shards(write_stage: Any, random_rows: Any) -> Callable[[Path], ShardIndex]:
    """Two pretraining stages and one SFT stage of a few rows under `folder`."""

    def make(folder: Path) -> ShardIndex:
        stages = [
            write_stage(folder, "pretrain-0", "pretrain", 32, random_rows(7, [20, 12])),
            write_stage(folder, "pretrain-1", "pretrain", 48, random_rows(3, [48], seed=1)),
            write_stage(folder, "sft-0", "sft", 96, random_rows(4, [30, 16, 50], share=0.4, seed=2)),
        ]
        index = ShardIndex(VOCAB, "tokenizer", "recipe", stages)
        write_index(folder, index)
        return index

    return make


@pytest.fixture
def make_recipe() -> Callable[..., Recipe]:
    """A recipe for the shards of `make_shards`; keywords change `train` and `model`."""

    def make(model: dict[str, Any] | None = None, **train: Any) -> Recipe:
        return Recipe.model_validate(
            {
                "name": "test",
                "seed": 3,
                "sources": [{"name": "here", "kind": "jsonl", "path": "x.jsonl"}],
                "mixture": {"method": "proportional", "budget_tokens": 1000},
                "tokenizer": {"train": {"vocab_size": 300}},
                "curriculum": {},
                "model": {
                    "hidden_size": 16,
                    "num_hidden_layers": 2,
                    "num_loops": 2,
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                    "intermediate_size": 24,
                    **(model or {}),
                },
                "train": {
                    "tokens_per_step": 64,
                    "group_tokens": 64,
                    "checkpoint_every": 2,
                    "warmup_steps": 2,
                    "precision": "fp32",
                    **train,
                },
            }
        )

    return make


@pytest.fixture
def pretrained(tmp_path: Path, make_shards: Any, make_recipe: Any) -> Path:
    """A run whose pretraining is done: make_shards has steps 0-6, and those after 6 and 7 steps are kept."""
    from trainer.train import train

    make_shards(tmp_path / "run/shards")
    train(make_recipe(), tmp_path / "run", Quiet(), "pretrain")
    return tmp_path / "run"


@pytest.fixture
def make_model() -> Callable[..., LoopedTransformer]:
    """A tiny model with drawn weights; keywords change its config."""

    def make(activation_checkpointing: bool = False, seed: int = 0, **changes: Any) -> LoopedTransformer:
        values: dict[str, Any] = {
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_loops": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "intermediate_size": 24,
            "rope_theta": 10_000.0,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": True,
            "skip_loop_final_norm": False,
            "initializer_range": 0.3,
            **changes,
        }
        model = LoopedTransformer(LoopedConfig(**values), activation_checkpointing)
        model.initialise(seed)
        return model

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def differences() -> Callable[..., list[float]]:
    """Of a function's output and of the gradient of each input from its definition's in float64.

    Each is the largest difference over the largest number of the definition's.
    """

    def measure(
        function: Callable[..., torch.Tensor], definition: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> list[float]:
        exact = [part.detach().double().requires_grad_() for part in inputs]
        out, expected = function(*inputs), definition(*exact)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
        (out * weights).sum().backward()
        (expected * weights).sum().backward()
        pairs = [(out, expected), *((part.grad, own.grad) for part, own in zip(inputs, exact, strict=True))]
        assert all(found is not None and wanted is not None and found.shape == wanted.shape for found, wanted in pairs)
        return [float((found - wanted).detach().abs().max() / wanted.detach().abs().max()) for found, wanted in pairs]

    return measure
