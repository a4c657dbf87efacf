"""Tokenizing: tokens per CPU second of `encode_batch`, beside the tokenizers library's own batch calls.

    python benchmarks/tokenizing.py [--json] [--megabytes N]

The text is the standard library's own source code; the tokenizer is trained on a part of it. One thread for both. The
difference is what keeping data text plain costs (control tokens spelled in a text stay text).
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.curriculum.tokenizer import train_bpe, write_tokenizer_folder
from pipelines.synthesis.tokens import load_tokenizer


def source_texts(megabytes: float) -> list[str]:
    """Python files of the standard library, sorted, up to a size."""
    texts, left = [], int(megabytes * 1e6)
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        texts.append(text[:left])
        left -= len(text)
        if left <= 0:
            break
    return texts


def best_rate(call: Callable[[], int], rounds: int = 3) -> float:
    """Tokens per CPU second of the fastest of some rounds."""
    rates = []
    for _ in range(rounds):
        start = time.process_time()
        tokens = call()
        rates.append(tokens / (time.process_time() - start))
    return max(rates)


def measure(megabytes: float) -> dict[str, Any]:
    """Train, then time ours and the library's."""
    from tokenizers import Tokenizer

    texts = source_texts(megabytes)
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer_folder(Path(folder), train_bpe(texts[: len(texts) // 4], 8192))
        ours = load_tokenizer(folder)
        library = Tokenizer.from_file(f"{folder}/tokenizer.json")
    our_rate = best_rate(lambda: sum(len(ids) for ids in ours.encode_batch(texts)))
    theirs = {
        name: best_rate(lambda call=call: sum(len(encoding.ids) for encoding in call(texts, add_special_tokens=False)))
        for name, call in (("offsets", library.encode_batch), ("fast", library.encode_batch_fast))
    }
    return {
        "megabytes": sum(len(text.encode()) for text in texts) / 1e6,
        "tokens_per_cpu_second": our_rate,
        "library_tokens_per_cpu_second": theirs["offsets"],
        "library_fast_tokens_per_cpu_second": theirs["fast"],
        "ratio": our_rate / theirs["offsets"],
        "ratio_to_fast": our_rate / theirs["fast"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--megabytes", type=float, default=3.0)
    options = parser.parse_args()
    found = measure(options.megabytes)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(
        f"{found['megabytes']:.1f} MB: {found['tokens_per_cpu_second']:,.0f} tokens/CPU s, library "
        f"{found['library_tokens_per_cpu_second']:,.0f} (ratio {found['ratio']:.2f}), its encode_batch_fast "
        f"{found['library_fast_tokens_per_cpu_second']:,.0f} (ratio {found['ratio_to_fast']:.2f})"
    )


if __name__ == "__main__":
    main()
