"""Disk and time of a run, from the bytes of its text and the tokens of its stages.

The rates are ours, measured once: CPU seconds of one core for each step on 55 MB of mixed text (code, formal and
informal mathematics, science, reference prose) with recipes/jsonl.yaml and a vocabulary of 4,096. They say which step
will take long, to a factor of two or so on another machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.recipe import Recipe

__all__ = ["costs_of"]

BYTES_PER_CPU_SECOND = {
    "read": 18.7e6,
    "quality": 5.6e6,
    "dedup": 47e6,
    "classify": 23e6,
    "decontaminate": 14e6,  # where there are benchmarks
    "corpus": 40e6,
    "reweight": 1.35e6,  # counts the tokens of the kept text
    "shards": 1.35e6,  # encodes what the mixture uses
}
COPIED_TOKENS_PER_CPU_SECOND = 2.4e6  # of the shards step: every use of a document is written
TRAINING_CPU_SECONDS = 15.0  # the classifier and the tokenizer, on bounded samples
DISK_PER_TEXT_BYTE = 0.7  # documents/ and corpus/, Parquet with zstd, verdicts included
FLOPS_PER_SECOND = 4e14  # 40 % of the dense bf16 peak of an H100 or H200 (989 TFLOP/s)


def costs_of(
    recipe: Recipe, sources: Sequence[Mapping[str, Any]], stages: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """CPU seconds by step, disk by folder and accelerator hours; null where no source's text is known.

    `sources` have `text_bytes` (0 where nothing was read), `stages` have `phase`, `bytes`, `trained_tokens` and
    `training_flops`. SFT stages count with their trained tokens alone: a lower bound.
    """
    text = sum(source["text_bytes"] for source in sources)
    known = bool(text) and all(source["text_bytes"] for source in sources)
    shards = sum(stage["bytes"] for stage in stages)
    flops = sum(stage["training_flops"] for stage in stages)
    tokens = sum(stage["trained_tokens"] for stage in stages)
    seconds = {step: round(text / rate, 1) for step, rate in BYTES_PER_CPU_SECOND.items()} if known else None
    if seconds is not None:
        seconds["decontaminate"] *= bool(recipe.decontaminate.benchmarks)
        seconds["shards"] = round(seconds["shards"] + tokens / COPIED_TOKENS_PER_CPU_SECOND, 1)
        seconds["training the classifier and the tokenizer"] = TRAINING_CPU_SECONDS
    return {
        "text_bytes": text if known else None,
        "cpu_seconds": seconds,
        "hours_with_workers": round(sum(seconds.values()) / recipe.engine.workers / 3600, 3) if seconds else None,
        "workers": recipe.engine.workers,
        "disk_bytes": {
            "documents and corpus": round(text * DISK_PER_TEXT_BYTE) if known else None,
            "shards": shards,
            "work while shards are written": shards,
        },
        "training_flops": flops,
        "accelerator_hours": round(flops / FLOPS_PER_SECOND / 3600, 3),
        "accelerator_flops_per_second": FLOPS_PER_SECOND,
    }
