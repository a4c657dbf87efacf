"""The domain classifier: a fastText model over feature lines, trained so that equal input gives equal bytes.

A model is a `.bin` file with a `card.json` beside it that says which labels it has, how it was trained, how well it
does on held-out documents, and how texts must be prepared for it. A `.bin` without a card is somebody else's: it gets
the plain text with white space collapsed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from filters.text.features import DEFAULT_BYTES, feature_lines
from filters.text.reference import reads_as_code
from schemas.errors import CheckError, InputError, RecipeError
from schemas.files import atomic_path, read_json, sha256_file, write_json

__all__ = [
    "CARD_NAME",
    "CODE_LABEL",
    "DomainModel",
    "Example",
    "TrainSettings",
    "choose_examples",
    "is_heldout",
    "scores",
    "train_model",
    "training_label",
]

CARD_NAME = "card.json"
CODE_LABEL = "code"
FEATURES = "shapes-1"  # rises when a text would get another feature line: older models keep theirs
PLAIN = "plain"
HELDOUT_SHARE = 10  # one document in ten, by hash of its id, is not trained on
PASSES = 60_000  # documents times epochs
LEAST_EPOCHS, MOST_EPOCHS = 5, 40
_PREFIX = "__label__"
_GAPS = re.compile(r"[\s\0]+")


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How the model is trained. The defaults train 12,000 documents in about 7 s of CPU.

    `bytes_read` of each text and `documents_per_label` bound the cost. Chosen on the development set: a rate of 0.2
    gives the same accuracy within .004 for every seed, 0.5 wanders from .912 to .948; subwords cost three times as
    much and gained nothing. `epochs` null means: so many that PASSES lines are read in all, because few documents
    need more of them (demo corpus of 2,800 documents: held-out accuracy .862 with 8 epochs, .934 with 20).
    """

    seed: int = 0
    dimensions: int = 32
    epochs: int | None = None
    learning_rate: float = 0.2
    word_ngrams: int = 2
    least_count: int = 2
    buckets: int = 200_000
    bytes_read: int = DEFAULT_BYTES
    documents_per_label: int = 3000


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled document. `given` is the label that its source claims, `label` the one that is trained on."""

    id: str
    source: str
    label: str
    given: str
    line: str


def training_label(text: str, given: str, labels: Sequence[str]) -> str:
    """The label to train on: `given`, or CODE_LABEL when there is such a label and the text reads as code."""
    return CODE_LABEL if CODE_LABEL in labels and given != CODE_LABEL and reads_as_code(text) else given


def is_heldout(record_id: str) -> bool:
    """Whether a document is kept for measuring: depends on its id alone."""
    return xxhash.xxh3_64_intdigest(b"heldout:" + record_id.encode("utf-8", "surrogatepass")) % HELDOUT_SHARE == 0


def choose_examples(keys: Sequence[tuple[str, str, str]], limit: int, seed: int) -> list[int]:
    """Indexes of at most `limit` of (id, label, source) for each label, shuffled by a hash of the id.

    Every source gives equally many to a label as far as it can, so that a label is not what its largest source says.
    The choice from a union is the choice from the choices of its parts, so parts can be cut before they are joined.
    """
    digest = xxhash.xxh3_64_intdigest
    hashed = sorted((digest(key[0].encode("utf-8", "surrogatepass"), seed), key[0], n) for n, key in enumerate(keys))
    ranks: Counter[tuple[str, str]] = Counter()
    ranked: list[tuple[int, int, str, int]] = []
    for value, name, index in hashed:
        group = keys[index][1:]
        ranked.append((ranks[group], value, name, index))
        ranks[group] += 1
    taken: Counter[str] = Counter()
    chosen: list[tuple[int, str, int]] = []
    for _, value, name, index in sorted(ranked):
        label = keys[index][1]
        if taken[label] < limit:
            taken[label] += 1
            chosen.append((value, name, index))
    return [index for _, _, index in sorted(chosen)]


def train_model(
    examples: Iterable[Example], labels: Sequence[str], settings: TrainSettings, path: Path, workspace: Path
) -> dict[str, Any]:
    """Train on `examples` (in their order), write `path` and its card; returns the card.

    One thread and a seed: equal examples give an equal file. Held-out examples (`is_heldout`) are not trained on; when
    that would leave a label without any, its documents are trained on and not measured. Labels without documents are
    listed in the card as missing. Raises InputError when there is nothing to train on, or when training diverges.
    """
    known = [example for example in examples if example.label in labels]
    trainable = Counter(example.label for example in known if not is_heldout(example.id))
    heldout = [e for e in known if is_heldout(e.id) and trainable[e.label]]
    training = [e for e in known if not is_heldout(e.id) or not trainable[e.label]]
    if not any(example.line.strip() for example in training):
        raise InputError(
            f"no document with text has one of the labels {', '.join(labels)}",
            field="classify",
            todo="Give the sources a 'domain' or 'domain_field', or give classify.model the path of a .bin",
        )
    if settings.epochs is None:
        chosen = min(MOST_EPOCHS, max(LEAST_EPOCHS, PASSES // len(training)))
        settings = replace(settings, epochs=chosen)
    workspace.mkdir(parents=True, exist_ok=True)
    corpus = workspace / "train.txt"
    with atomic_path(corpus) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as sink:
        sink.writelines(f"{_PREFIX}{example.label} {example.line}\n" for example in training)
    try:
        _fit(corpus, settings, path)
    finally:
        corpus.unlink(missing_ok=True)
    model = DomainModel(path, FEATURES, settings.bytes_read)
    predicted = [label for label, _ in model.predict_lines([example.line for example in heldout])]
    counts = Counter(example.label for example in known)
    card = {
        "labels": list(labels),
        "missing": [label for label in labels if not counts[label]],
        "counts": {label: counts[label] for label in labels},
        "trained": {label: sum(e.label == label for e in training) for label in labels},
        "relabelled": dict(sorted(Counter(f"{e.given} to {e.label}" for e in known if e.given != e.label).items())),
        "heldout": scores([example.label for example in heldout], predicted, labels),
        "digest": sha256_file(path),
        "features": FEATURES,
        "settings": asdict(settings),
    }
    write_json(path.parent / CARD_NAME, card)
    return card


def _fit(corpus: Path, settings: TrainSettings, path: Path) -> None:
    """Run fastText and save the model. Raises InputError instead of its bare errors."""
    import fasttext

    try:
        model = fasttext.train_supervised(
            str(corpus),
            lr=settings.learning_rate,
            dim=settings.dimensions,
            epoch=settings.epochs,
            wordNgrams=settings.word_ngrams,
            minCount=settings.least_count,
            bucket=settings.buckets,
            minn=0,
            maxn=0,
            loss="softmax",
            thread=1,
            seed=settings.seed % 2**31,
            verbose=0,
            label=_PREFIX,
        )
    except RuntimeError as error:
        raise _diverged(settings, str(error)) from None
    except ValueError as error:  # an empty vocabulary: every word is rarer than least_count
        raise InputError(f"training is not possible ({error})", field="classify", todo="Give more documents") from None
    if not np.isfinite(model.get_output_matrix()).all():
        raise _diverged(settings, "weights that are not finite")
    with atomic_path(path) as temporary:
        model.save_model(str(temporary))


def _diverged(settings: TrainSettings, received: str) -> InputError:
    return InputError(
        f"training diverged ({received}) at learning rate {settings.learning_rate:g}",
        field="learning_rate",
        todo="Use a learning rate between 0.05 and 1",
    )


def scores(truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """Documents, accuracy, F1 by label and its mean over the labels that occur; null without documents."""
    by_label: dict[str, float] = {}
    for label in labels:
        hits = sum(t == label == p for t, p in zip(truth, predicted, strict=True))
        claimed, real = sum(p == label for p in predicted), sum(t == label for t in truth)
        if claimed + real:
            by_label[label] = 2 * hits / (claimed + real)
    right = sum(t == p for t, p in zip(truth, predicted, strict=True))
    return {
        "documents": len(truth),
        "accuracy": right / len(truth) if truth else None,
        "macro_f1": sum(by_label.values()) / len(by_label) if by_label else None,
        "f1": by_label,
    }


class DomainModel:
    """A loaded model. `labels` are sorted. Models cannot be pickled: give tasks the path."""

    def __init__(self, path: Path, features: str, bytes_read: int) -> None:
        import fasttext

        try:
            self._model = fasttext.load_model(str(path))
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"not a fastText model ({error})", path=str(path), todo="Give the path of a .bin that fastText saved"
            ) from None
        self.path = path
        self.labels = sorted(label.removeprefix(_PREFIX) for label in self._model.get_labels())
        self._short = {label: label.removeprefix(_PREFIX) for label in self._model.get_labels()}
        self._features = features
        self._bytes_read = bytes_read

    @classmethod
    def load(cls, path: str | Path, labels: Sequence[str] | None = None) -> DomainModel:
        """Load a `.bin`, with its card when there is one.

        Raises InputError when it is no model, CheckError when the card describes another file, RecipeError when
        `labels` are given and are not the labels of the model.
        """
        place = Path(path)
        card = _card_of(place)
        if card is None:
            model = cls(place, PLAIN, DEFAULT_BYTES)
            known = model.labels
        elif card.get("features") != FEATURES:
            raise CheckError(
                f"{place.parent / CARD_NAME}: features {card.get('features')!r} are unknown here, {FEATURES!r} are "
                "known. Train the model again"
            )
        else:
            model = cls(place, FEATURES, int(card["settings"]["bytes_read"]))
            known = sorted(card["labels"])
        if labels is not None and set(labels) != set(known):
            raise RecipeError(
                f"classify.model {place}: the model has the labels {', '.join(known)}; classify.labels are "
                f"{', '.join(sorted(labels))}. Set classify.labels to those of the model, or train one"
            )
        return model

    def predict(self, texts: pa.Array) -> list[tuple[str, float]]:
        """(label, score) of every text, in order; texts may be empty, hold NUL or newlines, or be huge."""
        return self.predict_lines(self.lines(texts))

    def predict_lines(self, lines: Sequence[str]) -> list[tuple[str, float]]:
        """(label, score) of prepared lines. A line without known words gets what the model says about nothing."""
        if not lines:
            return []
        found, chances = self._model.predict(list(lines), k=1)
        nothing = (self.labels[0], 0.0)
        short = self._short
        return [
            (short[names[0]], min(1.0, float(values[0]))) if names else nothing
            for names, values in zip(found, chances, strict=True)
        ]

    def lines(self, texts: pa.Array) -> list[str]:
        """The texts as the model reads them, one line each."""
        if self._features == FEATURES:
            return feature_lines(texts, self._bytes_read)
        return [
            _GAPS.sub(" ", (text or "")[: self._bytes_read]).replace(_PREFIX, "label ") for text in texts.to_pylist()
        ]


def _card_of(path: Path) -> dict[str, Any] | None:
    """The card beside a model, when there is one and it is about this file."""
    place = path.parent / CARD_NAME
    if not place.is_file() or not path.is_file():
        return None
    card = read_json(place)
    if not isinstance(card, dict) or card.get("digest") != sha256_file(path):
        raise CheckError(f"{place}: describes another file than {path.name}. Put the model's own card beside it")
    return card
