"""Loader: tokens per CPU second of rows in random order from memory-mapped Arrow, and the size of its state.

    python benchmarks/loader.py [--json] [--rows N] [--context N] [--vocabulary N]

Rows of random ids in segments of about 4,000 tokens are written as a run's shards are, then all of them are read
through `ShardLoader` in its own order, a few to a batch: ids as int64, targets as bool, lengths checked. The page
cache is warm (one epoch is read before). CPU seconds of one process, the best of some epochs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.files import sha256_file
from schemas.shard import ShardFile, ShardIndex, StageIndex, shard_schema, write_index
from trainer.loader import ShardLoader

SEGMENT_TOKENS = 4_096
ROWS_PER_FILE = 256
BATCH_TOKENS = 1_048_576  # of a record batch, as the shards step writes them
ROWS_PER_STEP = 8


def write_shards(folder: Path, rows: int, context: int, vocabulary: int) -> None:
    """Write one stage of `rows` full rows under `folder`, with its index."""
    generator = np.random.default_rng(0)
    schema = shard_schema(vocabulary, {"stage": "sft-0", "context_tokens": str(context)})
    lengths = [min(SEGMENT_TOKENS, context - at) for at in range(0, context, SEGMENT_TOKENS)]
    files = []
    for number, first in enumerate(range(0, rows, ROWS_PER_FILE)):
        path = folder / f"sft-0/part-{number:05d}.arrow"
        path.parent.mkdir(parents=True, exist_ok=True)
        here = min(ROWS_PER_FILE, rows - first)
        trained = 0
        with pa.ipc.new_file(str(path), schema) as writer:
            for at in range(0, here, max(1, BATCH_TOKENS // context)):
                count = min(max(1, BATCH_TOKENS // context), here - at)
                mask = generator.random(count * context) < 0.5
                trained += int(mask.sum())
                writer.write_batch(_batch(schema, generator, mask, count, lengths, vocabulary))
        sizes = (path.stat().st_size, here, here * context, trained, here * len(lengths))
        files.append(ShardFile(path.relative_to(folder).as_posix(), sha256_file(path), *sizes))
    write_index(folder, ShardIndex(vocabulary, "0" * 64, "0" * 64, [StageIndex("sft-0", "sft", context, files)]))


def _batch(
    schema: pa.Schema, generator: np.random.Generator, mask: Any, count: int, lengths: list[int], vocabulary: int
) -> pa.RecordBatch:
    tokens, segments = sum(lengths), len(lengths)
    ids = generator.integers(0, vocabulary, count * tokens)
    columns = {
        "input_ids": (tokens, pa.array(ids).cast(schema.field("input_ids").type.value_type)),
        "loss_mask": (tokens, pa.array(mask)),
        "segment_lengths": (segments, pa.array(lengths * count, pa.int32())),
        "segment_ids": (segments, pa.array([f"{n:032x}" for n in range(segments * count)])),
        "mask_reasons": (0, pa.array([], schema.field("mask_reasons").type.value_type)),
    }
    return pa.RecordBatch.from_arrays(
        [
            pa.ListArray.from_arrays(
                pa.array(np.arange(count + 1) * width, pa.int32()), values, type=schema.field(name).type
            )
            for name, (width, values) in columns.items()
        ],
        schema=schema,
    )


def measure(rows: int, context: int, vocabulary: int, epochs: int = 4) -> dict[str, Any]:
    """Write, read `epochs` epochs through the loader, and say how fast the fastest but the first was."""
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), rows, context, vocabulary)
        start = time.process_time()
        loader = ShardLoader(folder, seed=1, epochs=epochs)
        opened = time.process_time() - start
        rates: list[float] = []
        state_bytes = 0
        for _ in range(epochs):
            tokens = seen = 0
            start = time.process_time()
            while seen < rows:
                batch = loader.next_batch(ROWS_PER_STEP)
                if batch is None:
                    raise SystemExit("the loader ended early")
                for number in batch.rows:
                    row = batch.read(number)
                    tokens += len(row.input_ids)
                seen += len(batch.rows)
                state_bytes = max(state_bytes, len(json.dumps(loader.state.to_json())))
            rates.append(tokens / (time.process_time() - start))
            if tokens != rows * context:
                raise SystemExit(f"{tokens} tokens came out of {rows * context}")
    return {
        "rows": rows,
        "context_tokens": context,
        "vocabulary": vocabulary,
        "tokens": rows * context,
        "open_cpu_seconds": opened,
        "tokens_per_cpu_second": max(rates[1:]),
        "first_epoch_tokens_per_cpu_second": rates[0],
        "state_bytes": state_bytes,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--context", type=int, default=16_384)
    parser.add_argument("--vocabulary", type=int, default=32_768)
    options = parser.parse_args()
    found = measure(options.rows, options.context, options.vocabulary)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(
        f"{found['tokens'] / 1e6:,.0f} M tokens in rows of {found['context_tokens']:,}: "
        f"{found['tokens_per_cpu_second'] / 1e6:,.0f} M tokens/CPU s in random order, "
        f"state {found['state_bytes']} bytes"
    )


if __name__ == "__main__":
    main()
