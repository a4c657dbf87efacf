"""Decisions that must see the whole corpus, over record batches of anybody's pipeline, for any engine.

An engine gives every batch a place where it can be read again, hands the summaries of all batches (ids, signatures,
counts; no text) to `decide`, reads each batch again and calls `attach`. Decisions are those of the recipe's steps: the
same functions of filters.text, over rows in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filters.text.dedup.bands import choose_bands
from filters.text.dedup.decide import DUPLICATE_EXACT, DUPLICATE_NEAR, GIANT_CLUSTER, Decision, Members, decide
from filters.text.dedup.sketch import Sketches, normalise, shingle_sets, sketch
from filters.text.dedup.tables import profile_of_domain
from filters.text.dedup.verify import ShingleSets, jaccard_pairs
from filters.text.mixing import MixtureWish, mix
from pipelines.corpus.batches import alive, attached, column_or_null, part_of, text_of
from schemas.document import KEEP

__all__ = ["DedupWhole", "MixtureWhole", "Place", "Whole"]

Place = str
"""Where an engine keeps a batch until it is read again."""
Reader = Callable[[Place], Sequence[pa.RecordBatch]]
Summaries = Sequence[tuple[Place, pa.RecordBatch]]
NO_DOMAIN = "unknown"


class Whole(Protocol):
    """A decision that must see the whole corpus. Implementations are picklable."""

    def summarise(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A row for every row of `batch`, without its text. `batch` holds only rows that are still there."""

    def decide(self, summaries: Summaries, read: Reader) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """For each summary the columns of its rows, in their order. `read` gives the batches at a place again."""

    def attach(self, batch: pa.RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with the decided columns set in its rows that are still there."""


@dataclass(frozen=True)
class DedupWhole:
    """Exact and near duplicates: columns `verdict`, `cluster`, `similarity`, `duplicate_of`.

    Rows are compared in the order of (partition of the id, id, origin), as a recipe with so many `partitions` does.
    Memory of `decide`: about 2 KB a document, and the shingle hashes of the candidates (8 bytes a word).
    """

    threshold: float = 0.8
    shingle_words: int = 5
    permutations: int = 128
    partitions: int = 1
    text: str = "text"
    id: str = "id"
    fixed: bool = False
    largest_cluster: int = GIANT_CLUSTER

    def summarise(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Id, origin, quality and sketch of every row; `fixed` rows are of a reference set."""
        found = sketch(
            normalise(text_of(batch, self.text)),
            self._profiles(batch),
            shingle_words=self.shingle_words,
            permutations=self.permutations,
        )
        return pa.record_batch(
            {
                "id": column_or_null(batch, self.id, pa.string()).fill_null(""),
                "origin": column_or_null(batch, "origin", pa.string()).fill_null(""),
                "quality": column_or_null(batch, "quality", pa.float32()).fill_null(0.0),
                "exact": _binary(found.exact),
                "signature": _binary(found.signatures.view(np.uint8)),
                "shingles": pa.array(found.shingles, pa.int64()),
                "bytes": pa.array(found.sizes, pa.int64()),
                "fixed": pa.array(np.full(batch.num_rows, self.fixed)),
            }
        )

    def _profiles(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
        domains = column_or_null(batch, "source_domain", pa.string()).to_pylist()
        return np.array([profile_of_domain(domain) for domain in domains], np.uint8)

    def decide(self, summaries: Summaries, read: Reader) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """See `filters.text.dedup.decide`; the texts of candidates are read again."""
        if not summaries:
            return
        whole = pa.Table.from_batches([table for _, table in summaries]).combine_chunks()
        order = self._order(whole)
        ordered = whole.take(pa.array(order)).combine_chunks()
        sizes = [table.num_rows for _, table in summaries]
        place_of = np.repeat(np.arange(len(summaries)), sizes)[order]
        row_of = np.concatenate([np.arange(size) for size in sizes])[order]
        places = [place for place, _ in summaries]
        sets: dict[int, npt.NDArray[np.uint64]] = {}

        def similarities(pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            wanted = np.array([n for n in np.unique(pairs).tolist() if n not in sets], np.int64)
            for number in np.unique(place_of[wanted]).tolist():
                rows = wanted[place_of[wanted] == number]
                sets.update(zip(rows.tolist(), self._shingles(read(places[number]), row_of[rows]), strict=True))
            members = np.unique(pairs)
            joined = ShingleSets.of([sets[n] for n in members.tolist()])
            at = np.searchsorted(members, pairs)
            return jaccard_pairs(joined, at[:, 0], joined, at[:, 1])

        fixed = np.asarray(ordered.column("fixed").to_numpy(), bool)
        ids = ordered.column("id").to_pylist()
        members = Members(
            np.array([b"" if f else i.encode() for f, i in zip(fixed.tolist(), ids, strict=True)], np.bytes_),
            np.asarray(ordered.column("quality").to_numpy(), np.float32),
            fixed if fixed.any() else None,
        )
        bands = choose_bands(self.threshold, self.permutations)
        decision = decide(
            _sketches(ordered, self.permutations), members, bands, similarities, largest_cluster=self.largest_cluster
        )
        columns = _dedup_columns(decision, ids)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        first = 0
        for place, table in summaries:
            rows = pa.array(back[first : first + table.num_rows])
            first += table.num_rows
            if not table.num_rows or not table.column("fixed")[0].as_py():
                yield place, columns.take(rows)

    def _order(self, whole: pa.Table) -> npt.NDArray[np.int64]:
        """Row numbers in the order in which a recipe's step would meet them."""
        keys = {"id": whole.column("id"), "origin": whole.column("origin"), "fixed": whole.column("fixed")}
        parts = [part_of(i, self.partitions) for i in whole.column("id").to_pylist()]
        table = pa.table({"part": pa.array(parts, pa.int64()), **keys})
        sort_keys = [(name, "ascending") for name in ("fixed", "part", "id", "origin")]
        return np.asarray(pc.sort_indices(table, sort_keys=sort_keys).to_numpy(), np.int64)

    def _shingles(self, batches: Sequence[pa.RecordBatch], rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.uint64]]:
        """Shingle sets of some rows (numbers among the rows that were there when the batch was summarised)."""
        found: list[npt.NDArray[np.uint64]] = []
        for batch in batches:
            chosen = batch.filter(pa.array(alive(batch))).take(pa.array(rows))
            texts = normalise(text_of(chosen, self.text))
            found += shingle_sets(texts, self._profiles(chosen), shingle_words=self.shingle_words)
        return found

    def attach(self, batch: pa.RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
        """The four columns."""
        named = dict(zip(columns.schema.names, columns.columns, strict=True))
        return attached(batch, named, alive(batch))


def _dedup_columns(decision: Decision, ids: Sequence[str]) -> pa.RecordBatch:
    """The columns of every row, in the order of the decision."""
    removed = decision.removed
    names = np.array(ids, object)[decision.keeper] if len(ids) else np.empty(0, object)
    verdict = np.where(removed, np.where(decision.exact, DUPLICATE_EXACT, DUPLICATE_NEAR), KEEP)
    return pa.record_batch(
        {
            "verdict": pa.array(verdict.tolist(), pa.string()),
            "cluster": pa.array(names, pa.string(), mask=~decision.clustered),
            "similarity": pa.array(decision.similarity, pa.float32(), mask=~removed),
            "duplicate_of": pa.array(names, pa.string(), mask=~removed),
        }
    )


def _binary(values: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes, shape (n, width), as a fixed-size binary column."""
    data = np.ascontiguousarray(values)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(data.shape[1]), len(data), [None, pa.py_buffer(data)])


def _sketches(table: pa.Table, permutations: int) -> Sketches:
    def raw(name: str, width: int) -> npt.NDArray[np.uint8]:
        values = table.column(name).to_pylist()
        return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), width)

    return Sketches(
        exact=raw("exact", 16),
        signatures=raw("signature", 4 * permutations).view(np.uint32).reshape(table.num_rows, permutations),
        shingles=np.asarray(table.column("shingles").to_numpy(), np.int64),
        sizes=np.asarray(table.column("bytes").to_numpy(), np.int64),
    )


@dataclass(frozen=True)
class MixtureWhole:
    """Which rows are trained on and how often: columns `tokens`, `split`, `epochs`, as the step reweight decides.

    `count` gives the tokens of texts (end-of-text included); None takes the column `tokens`.
    """

    wish: MixtureWish
    count: Callable[[list[str]], list[int]] | None = None
    text: str = "text"
    id: str = "id"

    def summarise(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Id, domain, source and tokens of every row."""
        if self.count is None:
            tokens = column_or_null(batch, "tokens", pa.int64()).fill_null(0)
        else:
            tokens = pa.array(self.count(text_of(batch, self.text).fill_null("").to_pylist()), pa.int64())
        return pa.record_batch(
            {
                "id": column_or_null(batch, self.id, pa.string()).fill_null(""),
                "origin": column_or_null(batch, "origin", pa.string()).fill_null(""),
                "domain": column_or_null(batch, "domain", pa.string()).fill_null(NO_DOMAIN),
                "source": column_or_null(batch, "source", pa.string()).fill_null(NO_DOMAIN),
                "quality": column_or_null(batch, "quality", pa.float32()),
                "tokens": tokens,
            }
        )

    def decide(self, summaries: Summaries, read: Reader) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """See `filters.text.mixing.mix`. Memory: some 200 bytes a document."""
        if not summaries:
            return
        whole = pa.Table.from_batches([table for _, table in summaries]).combine_chunks()
        sort_keys = [("id", "ascending"), ("origin", "ascending")]
        order = np.asarray(pc.sort_indices(whole, sort_keys=sort_keys).to_numpy(), np.int64)
        ordered = whole.take(pa.array(order))
        mixture = mix(
            ordered.column("id").to_pylist(),
            np.array(ordered.column("domain").to_pylist(), object),
            np.array(ordered.column("source").to_pylist(), object),
            np.asarray(ordered.column("tokens").to_numpy(), np.int64),
            self.wish,
            np.asarray(ordered.column("quality").to_numpy(), np.float64),  # NaN where unknown
        )
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        first = 0
        for place, table in summaries:
            rows = back[first : first + table.num_rows]
            first += table.num_rows
            yield (
                place,
                pa.record_batch(
                    {
                        "tokens": table.column("tokens"),
                        "split": pa.array(mixture.splits[rows].tolist(), pa.string()),
                        "epochs": pa.array(mixture.epochs[rows], pa.int32()),
                    }
                ),
            )

    def attach(self, batch: pa.RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
        """The three columns."""
        named: dict[str, Any] = dict(zip(columns.schema.names, columns.columns, strict=True))
        return attached(batch, named, alive(batch))
