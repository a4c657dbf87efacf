"""Packing: fill, time and what is lost, on corpus-like and trajectory-like lengths; beside TRL where it is installed.

    python benchmarks/packing.py [--json] [--samples N] [--trl-samples N]

Lengths are lognormal, clipped to 200…250,000 tokens: corpus-like with median 3,000 and sigma 1.3, trajectory-like with
median 24,000 and sigma 0.8. Lengths above the capacity are left out
of both packers' input here and counted as `over_long`; TRL's own handling of them (its default cuts) is in `trl`.
Times are CPU seconds of one process, after a first call that compiles.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.curriculum.pack import pack

SHAPES = {"corpus": (3_000, 1.3), "trajectory": (24_000, 0.8)}
CAPACITIES = (65_536, 262_144)


def lengths_of(shape: str, samples: int) -> npt.NDArray[np.int64]:
    """Lengths in tokens, the same for every call."""
    median, sigma = SHAPES[shape]
    drawn = np.random.default_rng(0).lognormal(np.log(median), sigma, samples)
    return np.clip(drawn, 200, 250_000).astype(np.int64)


def measure(shape: str, capacity: int, samples: int) -> dict[str, Any]:
    """Pack once and check that every sample is in exactly one row."""
    everything = lengths_of(shape, samples)
    lengths = everything[everything <= capacity]
    start = time.process_time()
    packing = pack(lengths, capacity)
    seconds = time.process_time() - start
    if not np.array_equal(np.sort(packing.samples), np.arange(len(lengths))):
        raise SystemExit("a sample was lost or doubled")
    return {
        "shape": shape,
        "capacity": capacity,
        "samples": len(lengths),
        "over_long": len(everything) - len(lengths),
        "rows": packing.rows,
        "least_rows": -(-int(lengths.sum()) // capacity),
        "fill": packing.fill,
        "cpu_seconds": seconds,
        "truncated": 0,
        "split": 0,
        "dropped": 0,
    }


def measure_trl(shape: str, capacity: int, samples: int, everything: int) -> dict[str, Any] | None:
    """TRL's default packing of the first `samples` lengths: tokens that it cuts, and its fill.

    `tokens_lost_of_all` is what lies above the capacity of all `everything` lengths, by arithmetic.
    """
    try:
        import datasets
        from trl import pack_dataset
    except ImportError:
        return None
    datasets.disable_progress_bars()
    every, lengths = lengths_of(shape, everything), lengths_of(shape, samples)
    data = datasets.Dataset.from_dict({"input_ids": [np.zeros(n, dtype=np.int32) for n in lengths]})
    start = time.process_time()
    packed = pack_dataset(data, seq_length=capacity, strategy="bfd")
    seconds = time.process_time() - start
    kept = sum(sum(row) for row in packed["seq_lengths"])
    return {
        "shape": shape,
        "capacity": capacity,
        "samples": samples,
        "fill": kept / (len(packed) * capacity),
        "tokens_lost": 1 - kept / int(lengths.sum()),
        "tokens_lost_of_all": 1 - int(np.minimum(every, capacity).sum()) / int(every.sum()),
        "samples_cut": int((lengths > capacity).sum()),
        "cpu_seconds": seconds,
    }


def main() -> None:
    """Measure all shapes and capacities and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--trl-samples", type=int, default=3_000)
    options = parser.parse_args()
    pack([1], 1)
    ours = [measure(shape, capacity, options.samples) for shape in SHAPES for capacity in CAPACITIES]
    theirs = [
        measure_trl(shape, capacity, options.trl_samples, options.samples)
        for shape in SHAPES
        for capacity in CAPACITIES
    ]
    found = {"datamix": ours, "trl": [row for row in theirs if row is not None]}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for row in ours:
        print(
            f"datamix {row['shape']:10} {row['capacity']:7} {row['samples']:9,} samples  fill {row['fill']:.4%}  "
            f"rows {row['rows']:,} (at least {row['least_rows']:,})  {row['cpu_seconds']:.2f} s"
        )
    for row in found["trl"]:
        print(
            f"trl     {row['shape']:10} {row['capacity']:7} {row['samples']:9,} samples  fill {row['fill']:.4%}  "
            f"tokens cut away {row['tokens_lost']:.2%} ({row['tokens_lost_of_all']:.2%} of all)  "
            f"{row['cpu_seconds']:.2f} s"
        )
    if not found["trl"]:
        print("trl is not installed: install the hf extra to see it beside")


if __name__ == "__main__":
    main()
