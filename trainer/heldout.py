"""Loss on held-out documents by domain, beside that of a unigram model on the very same tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import torch

from pipelines.synthesis.tokens import TextTokenizer
from schemas.errors import CheckError
from schemas.shard import ShardIndex
from trainer.loss import weighted_cross_entropy
from trainer.model import LoopedTransformer
from trainer.shards import StageReader

__all__ = ["MAX_TOKENS_A_DOMAIN", "HeldoutDomain", "model_loss", "read_heldout", "unigram_log_p"]

MAX_TOKENS_A_DOMAIN = 60_000
_BATCH_TOKENS = 8192

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class HeldoutDomain:
    """Held-out text of one domain as pieces of at most a context; `predicted` tokens are all but each piece's first."""

    documents: int = 0
    pieces: list[Ints] = field(default_factory=list)

    @property
    def predicted(self) -> int:
        return sum(len(piece) - 1 for piece in self.pieces)


def read_heldout(
    run: Path, tokenizer: TextTokenizer, context_tokens: int, max_tokens: int = MAX_TOKENS_A_DOMAIN
) -> dict[str, HeldoutDomain]:
    """Held-out documents of a run by domain, at most `max_tokens` predicted tokens each, in file order.

    A document is its ids and the end-of-text token, cut every `context_tokens` as in pretraining; the piece that
    would pass the limit is cut short. Raises CheckError when mixture/ and corpus/kept/ are not aligned.
    """
    domains: dict[str, HeldoutDomain] = {}
    for domain, text in _documents(run):
        held = domains.setdefault(domain, HeldoutDomain())
        if held.predicted >= max_tokens:
            continue
        ids = np.append(tokenizer.encode(text).astype(np.int64), tokenizer.end_of_text_id)
        held.documents += 1
        for start in range(0, len(ids), context_tokens):
            piece = ids[start : min(start + context_tokens, start + 1 + max_tokens - held.predicted)]
            if len(piece) > 1:
                held.pieces.append(piece)
    return dict(sorted(domains.items()))


def _documents(run: Path) -> Iterator[tuple[str, str]]:
    """(domain, text) of each held-out document; reads the text of row groups that hold one, no others."""
    for path in sorted((run / "mixture").glob("part-*.parquet")):
        listed = pq.read_table(path, columns=["id", "domain", "split"])
        text = run / "corpus" / "kept" / path.name
        if not text.is_file():
            raise CheckError(
                f"{text}: missing, and {path} names documents in it. Restore it or run the corpus step again"
            )
        kept = pq.ParquetFile(text)
        if kept.metadata.num_rows != listed.num_rows:
            raise CheckError(
                f"{path}: {listed.num_rows} rows, corpus/kept/{path.name} has {kept.metadata.num_rows}: "
                "they must be row-aligned. Run the reweight step again"
            )
        splits, first = listed["split"].to_numpy(), 0
        for group in range(kept.num_row_groups):
            rows = kept.metadata.row_group(group).num_rows
            wanted = np.flatnonzero(splits[first : first + rows] == "heldout")
            if len(wanted):
                table = kept.read_row_group(group, columns=["id", "text"]).take(wanted)
                names = listed.take(first + wanted)
                if table["id"].to_pylist() != names["id"].to_pylist():
                    raise CheckError(f"{path}: ids differ from corpus/kept/{path.name}. Run the reweight step again")
                yield from zip(
                    (d or "unknown" for d in names["domain"].to_pylist()), table["text"].to_pylist(), strict=True
                )
            first += rows


def unigram_log_p(shards: Path, index: ShardIndex) -> npt.NDArray[np.float64]:
    """log p of each token under a unigram model: counts in all pretraining rows plus one, over the vocabulary."""
    counts = np.ones(index.vocab_size, dtype=np.int64)
    for stage in index.stages:
        if stage.phase == "pretrain":
            reader = StageReader(shards, stage, index.vocab_size)
            for number in range(len(reader)):
                counts += np.bincount(reader[number].input_ids, minlength=index.vocab_size)
    log_p: npt.NDArray[np.float64] = np.log(counts) - np.log(counts.sum())
    return log_p


def model_loss(model: LoopedTransformer, pieces: list[Ints], bf16: bool, num_loops: int | None = None) -> float:
    """Mean −log p (nats) over the predicted tokens of `pieces`; every piece is a segment of its own.

    `num_loops` runs another number of passes than the model was trained with. Raises ValueError without a token.
    """
    device = model.output_weight.device
    total, predicted = 0.0, 0
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        for batch in _batches(pieces):
            ids = torch.from_numpy(np.concatenate(batch)).to(device)
            lengths = [len(piece) for piece in batch]
            targets = torch.ones(len(ids), dtype=torch.bool)
            targets[np.cumsum(lengths) - lengths] = False
            places = targets.nonzero()[:, 0].to(device)
            hidden = model.hidden(ids, lengths, num_loops=num_loops)[places - 1]
            weights = torch.ones(len(places), device=device)
            total += float(weighted_cross_entropy(hidden, model.output_weight, ids[places], weights))
            predicted += len(places)
    if not predicted:
        raise ValueError("no token to predict")
    return total / predicted


def unigram_loss(log_p: npt.NDArray[np.float64], pieces: list[Ints]) -> float:
    """Mean −log p (nats) of the same tokens under the unigram model."""
    return float(-log_p[np.concatenate([piece[1:] for piece in pieces])].mean())


def _batches(pieces: list[Ints]) -> Iterator[list[Ints]]:
    batch: list[Any] = []
    size = 0
    for piece in pieces:
        if batch and size + len(piece) > _BATCH_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += len(piece)
    if batch:
        yield batch
