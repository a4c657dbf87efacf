"""The domain classifier: accuracy on documents labelled by reading, and speed beside the bare fasttext library.

    python benchmarks/classify.py [--json] [--labelled FILE] [--corpus FILE] [--rounds N] [--no-baseline]

FILEs are jsonl (plain, gzip, zstandard) with id, text and `label` (and `ambiguous`), or id, text, source and `domain`.
By default the sample data that lies beside this repository. Ours is trained by `datamix classify train` on the corpus
without the labelled ids; of the labelled rows only their text is used. The baseline is plain fastText as its authors
would use it: the whole lower-cased text with punctuation as tokens, dim 64, word bigrams, subwords 2-5, 5 epochs,
rate 0.5, trained on the domains that the sources claim. Rows marked ambiguous are scored apart.

Speed is in documents per CPU second, the fastest of N rounds:
    library_prepared  fasttext's `predict` on feature lines that are ready (ours make them from the text)
    ours_prepared     our `predict_lines` on the same lines
    library_raw       fasttext's `predict` on the raw texts, white space collapsed so that it takes them
    ours_raw          our `predict` on the raw texts: features and prediction
    pipeline          a task of the step: read Parquet, features, prediction, write the verdicts
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from filters.text.classify import DomainModel, scores
from pipelines.corpus.classify import PredictTask, predict_task
from pipelines.corpus.plain import plain_records
from pipelines.corpus.read.records import Record
from pipelines.corpus.standalone import Inputs, train_classifier
from pipelines.corpus.standalone_files import write_neutral
from pipelines.corpus.tables import documents_part, write_part
from pipelines.engine import InProcess
from schemas.document import DOCUMENT_SCHEMA, document_id
from schemas.progress import Quiet

DATA = Path(__file__).parents[1] / "../shared/data"
LABELS = ["math", "code", "science", "web"]
_MARKS = re.compile(r"([^\w\s])")
_GAPS = re.compile(r"[\s\0]+")
Rows = list[dict[str, Any]]


def rows_of(path: Path) -> Rows:
    """The records of a file, in order. Raises InputError for a bad one."""
    rows: Rows = []
    for record in plain_records(path):
        if not isinstance(record, Record):
            raise record.error()
        rows.append(dict(record.fields))
    return rows


def accuracy(predicted: list[str], labelled: Rows) -> dict[str, Any]:
    """Scores on the clear rows and on the others."""
    found: dict[str, Any] = {}
    for name, ambiguous in (("clear", False), ("ambiguous", True)):
        pairs = [(r["label"], p) for r, p in zip(labelled, predicted, strict=True) if r["ambiguous"] == ambiguous]
        found[name] = scores([truth for truth, _ in pairs], [label for _, label in pairs], LABELS)
    return found


def train_ours(training: Rows, folder: Path) -> Path:
    """`datamix classify train` on the rows."""
    with open(folder / "training.jsonl", "wb") as sink:
        sink.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in training)
    model = folder / "ours" / "model.bin"
    inputs = Inputs([str(folder / "training.jsonl")], domain="domain")
    train_classifier(inputs, model, InProcess(), Quiet(), labels=LABELS)
    return model


def baseline(training: Rows, labelled: Rows, folder: Path) -> list[str]:
    """Labels of the labelled rows by plain fastText; see the module's text."""
    import fasttext

    def line(text: str) -> str:
        return _GAPS.sub(" ", _MARKS.sub(r" \1 ", text.lower())).replace("__label__", "label ")

    with open(folder / "plain.txt", "w", encoding="utf-8", errors="replace") as sink:
        sink.writelines(f"__label__{row['domain']} {line(row['text'])}\n" for row in training)
    model = fasttext.train_supervised(
        str(folder / "plain.txt"), dim=64, wordNgrams=2, minn=2, maxn=5, epoch=5, lr=0.5, thread=1, seed=0, verbose=0
    )
    return [names[0].removeprefix("__label__") for names in model.predict([line(r["text"]) for r in labelled])[0]]


def best_rate(documents: int, call: Callable[[], object], rounds: int) -> float:
    """Documents per CPU second of the fastest round."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return documents / min(seconds)


def speed(model_path: Path, rows: Rows, folder: Path, rounds: int) -> dict[str, Any]:
    """Rates of the library and of ours on the same documents, and their ratios."""
    import fasttext

    texts = pa.array([row["text"] for row in rows], pa.large_string())
    ours, library = DomainModel.load(model_path), fasttext.load_model(str(model_path))
    prepared = ours.lines(texts)
    raw = [_GAPS.sub(" ", row["text"]) for row in rows]
    run = folder / "run"
    documents = [
        {"id": document_id(r["text"], "s"), "text": r["text"], "source": "s", "origin": f"s#{n}"}
        for n, r in enumerate(rows)
    ]
    write_part(documents_part(run, 0), DOCUMENT_SCHEMA, [pa.RecordBatch.from_pylist(documents, DOCUMENT_SCHEMA)])
    for step in ("quality", "dedup"):
        write_neutral(run, step, 1)
    calls: dict[str, Callable[[], object]] = {
        "library_prepared": lambda: library.predict(prepared),
        "ours_prepared": lambda: ours.predict_lines(prepared),
        "library_raw": lambda: library.predict(raw),
        "ours_raw": lambda: ours.predict(texts),
        "pipeline": lambda: predict_task(PredictTask(str(run), 0, str(model_path))),
    }
    rates = {name: best_rate(len(rows), call, rounds) for name, call in calls.items()}
    return {
        "documents_per_cpu_second": rates,
        "megabytes": sum(len(row["text"].encode("utf-8", "replace")) for row in rows) / 1e6,
        "ratio_prepared": rates["ours_prepared"] / rates["library_prepared"],
        "ratio_raw": rates["ours_raw"] / rates["library_raw"],
        "ratio_pipeline_to_library_raw": rates["pipeline"] / rates["library_raw"],
        "ratio_pipeline_to_library_prepared": rates["pipeline"] / rates["library_prepared"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--labelled", type=Path, default=DATA / "classify" / "labelled.jsonl.zst")
    parser.add_argument("--corpus", type=Path, default=DATA / "corpus" / "sample.jsonl.zst")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-baseline", dest="baseline", action="store_false")
    options = parser.parse_args()
    labelled, corpus = rows_of(options.labelled), rows_of(options.corpus)
    known = {row["id"] for row in labelled}
    training = [row for row in corpus if row["id"] not in known]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = train_ours(training, folder)
        texts = pa.array([row["text"] for row in labelled], pa.large_string())
        ours = [label for label, _ in DomainModel.load(model, LABELS).predict(texts)]
        found: dict[str, Any] = {"trained_on": len(training), "ours": accuracy(ours, labelled)}
        if options.baseline:
            found["plain_fasttext"] = accuracy(baseline(training, labelled, folder), labelled)
        found["speed"] = speed(model, corpus, folder, options.rounds)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name in ("ours", "plain_fasttext"):
        for rows, one in found.get(name, {}).items():
            print(
                f"{name:15} {rows:9} {one['documents']:4} rows  accuracy {one['accuracy']:.3f}  "
                f"macro-F1 {one['macro_f1']:.3f}"
            )
    for name, rate in found["speed"]["documents_per_cpu_second"].items():
        print(f"{name:17} {rate:9,.0f} documents/CPU s")
    print("  ".join(f"{k} {v:.2f}" for k, v in found["speed"].items() if k.startswith("ratio")))


if __name__ == "__main__":
    main()
