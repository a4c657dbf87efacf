"""What a second pass is worth in language modelling: k layers × 1, k × 2 and 2k × 1 at equal width, data and steps.

    python benchmarks/language.py [--json] [--seeds 0 1 2] [--layers 1] [--embeddings 1.0] [--run RUN]

The text is the source of the standard library (every 16th file is held out) under a byte-level BPE of 2,048 words that
is trained on the rest, or the pretraining rows and the held-out documents of a run. φ says how many layers' worth of
parameters a second pass is: the looped model is as good as 2^φ · k layers, φ = 0 nothing, φ = 1 as good as 2k layers.
With the loss taken as linear in the logarithm of the layers between k and 2k,

    φ = (loss of k × 1 − loss of k × 2) / (loss of k × 1 − loss of 2k × 1).

The literature has .46 (arXiv 2604.21106, over 116 runs far larger than these). What decides at this size is how the
embeddings are drawn. The final norm hands a second pass vectors of deviation 1; with embeddings of deviation .05 the
first pass reads what is twenty times smaller, the same weights meet two scales, and a second pass makes the loss worse.
With deviation 1 (the default here; the output matrix is then its own) both passes read the same scale. `--embeddings
0.05` shows the other case. Nothing makes the looped model win: when it does not lie between the two, the line says so.
A seed takes about two CPU minutes. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pipelines.synthesis.tokens import load_tokenizer
from schemas.shard import read_index
from trainer.config import LoopedConfig
from trainer.heldout import model_loss, read_heldout
from trainer.loss import weighted_cross_entropy
from trainer.model import LoopedTransformer
from trainer.optimizer import learning_rate_at, make_optimizer
from trainer.precision import computes_bf16
from trainer.shards import StageReader

WIDTH, CONTEXT, ROWS, STEPS = 128, 256, 8, 400
VOCAB, HELDOUT_TOKENS = 2048, 32_768
INITIALIZER_RANGE = 0.05
LEARNING_RATE = 3e-3  # of .001, .003 and .01 the one with the least loss in all three arms (seed 0)

Pieces = list[np.ndarray[Any, np.dtype[np.int64]]]


def library_text() -> tuple[list[str], list[str]]:
    """Source files of the standard library for training and held out, each in an order that is fixed."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        path for path in root.rglob("*.py") if "site-packages" not in path.parts and "test" not in path.parts
    )
    files = [files[i] for i in np.random.default_rng(0).permutation(len(files))]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    return [text for i, text in enumerate(texts) if i % 16], texts[::16]


def library_data() -> tuple[int, Pieces, Pieces]:
    """(vocabulary, training pieces, held-out pieces) of CONTEXT tokens each."""
    train, heldout = library_text()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(train[:300], trainer)
    needed = STEPS * ROWS * CONTEXT
    return tokenizer.get_vocab_size(), _pieces(tokenizer, train, needed), _pieces(tokenizer, heldout, HELDOUT_TOKENS)


def _pieces(tokenizer: Tokenizer, texts: list[str], tokens: int) -> Pieces:
    ids: list[int] = []
    for text in texts:
        ids += [*tokenizer.encode(text).ids, 0]
        if len(ids) >= tokens:
            break
    whole = np.array(ids[: min(len(ids), tokens) // CONTEXT * CONTEXT], dtype=np.int64)
    return list(whole.reshape(-1, CONTEXT))


def run_data(run: Path) -> tuple[int, Pieces, Pieces]:
    """The same from the pretraining rows of a run (cut to CONTEXT) and its held-out documents."""
    index = read_index(run / "shards")
    rows = []
    for stage in index.stages:
        if stage.phase == "pretrain":
            reader = StageReader(run / "shards", stage, index.vocab_size)
            rows += [reader[number].input_ids for number in range(len(reader))]
    stream = np.concatenate(rows)
    pieces = list(stream[: len(stream) // CONTEXT * CONTEXT].reshape(-1, CONTEXT))
    pieces = [pieces[i] for i in np.random.default_rng(0).permutation(len(pieces))]
    held = read_heldout(run, load_tokenizer(run / "tokenizer"), CONTEXT, HELDOUT_TOKENS // 4)
    return index.vocab_size, pieces, [piece for domain in held.values() for piece in domain.pieces]


def make_model(layers: int, loops: int, seed: int, vocab: int, embeddings: float) -> LoopedTransformer:
    """A model whose input embeddings have deviation `embeddings`, all other matrices INITIALIZER_RANGE."""
    config = LoopedConfig(
        vocab_size=vocab,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_loops=loops,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        intermediate_size=3 * WIDTH,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        skip_loop_final_norm=False,
        initializer_range=INITIALIZER_RANGE,
        embedding_initializer_range=embeddings,
    )
    model = LoopedTransformer(config)
    model.initialise(seed)
    return model


def train(model: LoopedTransformer, seed: int, pieces: Pieces) -> float:
    """STEPS steps of ROWS pieces, in the same order for every arm of a seed; CPU seconds."""
    optimizer = make_optimizer(model, weight_decay=0.1)
    order = np.random.default_rng(seed).permutation(len(pieces))
    lengths = [CONTEXT] * ROWS
    predicted = torch.arange(ROWS * CONTEXT).view(ROWS, CONTEXT)[:, 1:].flatten()
    weights = torch.full(predicted.shape, 1 / len(predicted))
    began = time.process_time()
    for step in range(STEPS):
        rate = learning_rate_at(step, STEPS, peak=LEARNING_RATE, warmup_steps=20, decay_share=0.2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        chosen = [pieces[order[(step * ROWS + row) % len(order)]] for row in range(ROWS)]
        ids = torch.from_numpy(np.concatenate(chosen))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=computes_bf16(torch.device("cpu"))):
            hidden = model.hidden(ids, lengths)
            loss = weighted_cross_entropy(hidden[predicted - 1], model.output_weight, ids[predicted], weights)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return time.process_time() - began


def measure(seeds: list[int], layers: int, embeddings: float, run: Path | None) -> dict[str, Any]:
    """Held-out losses of the three arms for every seed, the two gaps and φ."""
    vocab, pieces, heldout = run_data(run) if run else library_data()
    arms = {f"{layers}x1": (layers, 1), f"{layers}x2": (layers, 2), f"{2 * layers}x1": (2 * layers, 1)}
    found = []
    for seed in seeds:
        row: dict[str, Any] = {"seed": seed, "loss": {}, "cpu_seconds": 0.0}
        for name, shape in arms.items():
            model = make_model(*shape, seed, vocab, embeddings)
            row["cpu_seconds"] += train(model, seed, pieces)
            row["loss"][name] = model_loss(model, heldout, bf16=False)
        found.append({**row, **_gaps(list(row["loss"].values()))})
    mean = {name: float(np.mean([row["loss"][name] for row in found])) for name in arms}
    return {
        "text": str(run) if run else "standard library",
        "embeddings": embeddings,
        "tokens": STEPS * ROWS * CONTEXT,
        "distinct_tokens": min(len(pieces), STEPS * ROWS) * CONTEXT,
        "heldout_tokens": sum(len(piece) - 1 for piece in heldout),
        "seeds": found,
        "loss": mean,
        **_gaps(list(mean.values())),
    }


def _gaps(losses: list[float]) -> dict[str, Any]:
    plain, looped, deep = losses
    return {
        "gain_of_second_pass": plain - looped,
        "short_of_twice_the_layers": looped - deep,
        "between": deep <= looped <= plain,
        "phi": (plain - looped) / (plain - deep) if plain > deep else None,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--layers", type=int, default=1, help="k")
    parser.add_argument("--embeddings", type=float, default=1.0, help="Deviation of the input embeddings.")
    parser.add_argument("--run", type=Path, help="A run whose pretraining rows and held-out documents are used.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options.seeds, options.layers, options.embeddings, options.run)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['text']}: {found['tokens']:,} tokens a model, held-out loss in nats a token")
    for row in [*found["seeds"], {"seed": "mean", **found}]:
        losses = "  ".join(f"{name} {loss:.4f}" for name, loss in row["loss"].items())
        phi = "undefined" if row["phi"] is None else f"{row['phi']:.2f}"
        seconds = f"  {row['cpu_seconds']:.0f} CPU s" if "cpu_seconds" in row else ""
        print(
            f"seed {row['seed']}: {losses}  second pass {row['gain_of_second_pass']:+.4f}, short of twice the layers "
            f"{row['short_of_twice_the_layers']:+.4f}, φ {phi}{'' if row['between'] else ', NOT between'}{seconds}"
        )


if __name__ == "__main__":
    main()
