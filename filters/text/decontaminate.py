"""Decontamination: which documents hold items of a benchmark, by runs of words.

A benchmark item is cut into units: each of its text fields. A unit is the set of its runs of `width` words (words as
in `filters.text.dedup.tables`, so line breaks, case and punctuation play no role); a unit shorter than that is one run
of all its words. A document holds a unit when it has at least COVERAGE of the unit's runs that count.

Runs that do not count: those of the usual licence notices, and those that many items of one benchmark share, for they
are its template. That and the coverage are why a shared header, an instruction or a formula alone flags nothing.
Published practice differs: GPT-3 (arXiv:2005.14165, appendix C) drops on a single run of 13 words, PaLM
(arXiv:2204.02311, section 8) on 70 % of the runs of 8. One run flags quotations; 70 % misses edited copies.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filters.text.boilerplate import LICENCE_NOTICES
from filters.text.dedup.sketch import Normalised, gram_hashes, normalise
from schemas.document import normalise_text
from schemas.files import atomic_path

__all__ = ["CONTAMINATED", "COVERAGE", "LEAST_WORDS", "Benchmarks", "Match", "Unit", "build_benchmarks", "item_units"]

CONTAMINATED = "contaminated"
COVERAGE = 0.5  # share of a unit's runs that a document must have
LEAST_WORDS = 8  # shorter texts ("What is the capital of France?") occur by themselves and are left out
TEMPLATE_ITEMS = 3  # a run in at least so many items of a benchmark, and in TEMPLATE_SHARE of them, is its template
TEMPLATE_SHARE = 0.01
MATCHED_CHARACTERS = 300  # of the matched span that are recorded
_FILTER_BITS = 22
_WORD = re.compile(r"\w+")

Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Unit:
    """One text of a benchmark. `item` names its record ("file#line"), `field` where in it the text stands."""

    benchmark: str
    item: str
    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """What a document holds: the unit that is covered best, and the longest matched span of the document.

    `benchmark` is the benchmark of the unit, `item` its record and field.
    """

    benchmark: str
    item: str
    matched: str
    coverage: float


def item_units(record: Mapping[str, Any], benchmark: str, item: str) -> tuple[list[Unit], bool]:
    """The units of one record: its strings of LEAST_WORDS words and more, at any depth.

    When all of them are shorter they are joined in order. Returns (units, whether the record was too short for any).
    """
    texts = list(_strings(record, ""))
    units = [Unit(benchmark, item, field, text) for field, text in texts if _long_enough(text)]
    if not units:
        joined = " ".join(text for _, text in texts)
        units = [Unit(benchmark, item, "+".join(field for field, _ in texts), joined)] if _long_enough(joined) else []
    return units, not units


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _strings(inner, f"{path}[{index}]")


def _long_enough(text: str) -> bool:
    return sum(1 for _, _ in zip(_WORD.finditer(text), range(LEAST_WORDS), strict=False)) == LEAST_WORDS


class Benchmarks:
    """All units as runs, indexed for search.

    Of unit u, `benchmarks[u]` says where it is from, `names[u]` how it is called, `widths[u]` how many words its runs
    have; the hashes of its runs that count are `flat[bounds[u]:bounds[u + 1]]`, sorted and distinct.
    """

    def __init__(
        self, benchmarks: list[str], names: list[str], widths: Integers, flat: Hashes, bounds: Integers
    ) -> None:
        self.benchmarks, self.names = benchmarks, names
        self.widths, self.flat, self.bounds = widths, flat, bounds
        self._index: dict[int, tuple[Hashes, Integers, Integers]] = {}  # width: grams, starts, units of each gram
        units = np.repeat(np.arange(len(names)), np.diff(bounds))
        for width in np.unique(widths).tolist():
            here = widths[units] == width
            order = np.lexsort((units[here], flat[here]))
            grams, first = np.unique(flat[here][order], return_index=True)
            self._index[width] = grams, np.append(first, len(order)), units[here][order]

    def save(self, path: Path) -> None:
        """Write as one numpy file (no pickle)."""
        about = json.dumps({"benchmarks": self.benchmarks, "names": self.names}).encode()
        with atomic_path(path) as temporary, open(temporary, "wb") as sink:
            np.savez(
                sink,
                about=np.frombuffer(about, np.uint8),
                widths=self.widths,
                flat=self.flat,
                bounds=self.bounds,
            )

    @classmethod
    def load(cls, path: Path) -> Benchmarks:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            about = json.loads(stored["about"].tobytes().decode())
            arrays = [stored[name] for name in ("widths", "flat", "bounds")]
        return cls(about["benchmarks"], about["names"], *arrays)

    def search(self, texts: pa.Array) -> dict[int, Match]:
        """Row number to what was found in it, for the rows of `texts` that hold a unit.

        Cost: one pass of 2 ms a MB for each width that occurs (one, and one for each length of short units).
        """
        normalised = normalise(texts)
        hits: dict[int, dict[int, set[int]]] = {}  # row -> unit -> its runs, as indexes
        for width, (_, starts, units) in self._index.items():
            for row, gram in self._hits(normalised, width):
                for unit in units[starts[gram] : starts[gram + 1]].tolist():
                    hits.setdefault(row, {}).setdefault(unit, set()).add(gram)
        needed = np.diff(self.bounds)
        found: dict[int, Match] = {}
        for row, runs in sorted(hits.items()):
            best = max(runs, key=lambda unit: (len(runs[unit]) / needed[unit], -unit))
            coverage = len(runs[best]) / int(needed[best])
            if coverage >= COVERAGE:
                span = self._span(texts[row].as_py(), best)
                found[row] = Match(self.benchmarks[best], self.names[best], span, coverage)
        return found

    def _hits(self, normalised: Normalised, width: int) -> Iterator[tuple[int, int]]:
        """(row, gram index) for every run of the texts that some unit has."""
        flat, bounds = gram_hashes(normalised, width)
        grams = self._index[width][0]
        if not len(grams) or not len(flat):
            return
        known = np.zeros(1 << _FILTER_BITS, bool)
        mask = np.uint64((1 << _FILTER_BITS) - 1)
        known[grams & mask] = True
        maybe = np.flatnonzero(known[flat & mask])
        at = np.minimum(np.searchsorted(grams, flat[maybe]), len(grams) - 1)
        real = grams[at] == flat[maybe]
        rows = np.searchsorted(bounds, maybe[real], side="right") - 1
        yield from zip(rows.tolist(), at[real].tolist(), strict=True)

    def _span(self, text: str, unit: int) -> str:
        """The longest span of the text that consists of runs of the unit, cut to MATCHED_CHARACTERS."""
        text = normalise_text(text)
        width = int(self.widths[unit])
        flat, _ = gram_hashes(normalise(pa.array([text], pa.large_string())), width)
        edges = np.flatnonzero(np.diff(np.isin(flat, self._runs(unit)), prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        longest = int(np.argmax(ends - starts))
        first, last = int(starts[longest]), int(ends[longest]) + width - 2
        spans = [match.span() for match in itertools.islice(_WORD.finditer(text), first, last + 1)]
        return text[spans[0][0] : spans[-1][1]][:MATCHED_CHARACTERS]

    def _runs(self, unit: int) -> Hashes:
        return self.flat[self.bounds[unit] : self.bounds[unit + 1]]


def build_benchmarks(units: Iterable[Unit], width: int = 13) -> Benchmarks:
    """Index units for search. Memory: 30 bytes a run of the benchmarks."""
    known = list(units)
    texts = normalise(pa.array([unit.text for unit in known], pa.large_string()))
    counts = [_words(unit.text, width) for unit in known]
    licences = normalise(pa.array(LICENCE_NOTICES, pa.large_string()))
    runs: list[tuple[int, Hashes]] = []  # width and distinct hashes of each unit
    by_width: dict[int, tuple[Hashes, Integers]] = {w: gram_hashes(texts, w) for w in set(counts)}
    common = {w: np.unique(gram_hashes(licences, w)[0]) for w in set(counts)}
    for number, count in enumerate(counts):
        flat, bounds = by_width[count]
        own = np.unique(flat[bounds[number] : bounds[number + 1]])
        runs.append((count, own[~np.isin(own, common[count])]))
    template = _templates(known, runs)
    kept = []
    for number, (count, own) in enumerate(runs):
        plain = own[~np.isin(own, template.get((known[number].benchmark, count), np.empty(0, np.uint64)))]
        kept.append(plain if len(plain) else own)  # an item given several times is no template
    return Benchmarks(
        [unit.benchmark for unit in known],
        [f"{unit.item}:{unit.field}" for unit in known],
        np.array(counts, np.int64),
        np.concatenate(kept) if kept else np.empty(0, np.uint64),
        np.concatenate([[0], np.cumsum([len(own) for own in kept])]).astype(np.int64),
    )


def _words(text: str, width: int) -> int:
    """Words of the text, at most `width`: the length of the runs that it is cut into."""
    return max(1, sum(1 for _, _ in zip(_WORD.finditer(normalise_text(text)), range(width), strict=False)))


def _templates(units: list[Unit], runs: list[tuple[int, Hashes]]) -> dict[tuple[str, int], Hashes]:
    """Runs that so many items of a benchmark share that they are its template, by (benchmark, width)."""
    pools: dict[tuple[str, int], list[Hashes]] = {}
    items: dict[str, set[str]] = {}
    seen: dict[tuple[str, int, str], list[Hashes]] = {}
    for unit, (width, own) in zip(units, runs, strict=True):
        items.setdefault(unit.benchmark, set()).add(unit.item)
        seen.setdefault((unit.benchmark, width, unit.item), []).append(own)
    for (benchmark, width, _), parts in seen.items():
        pools.setdefault((benchmark, width), []).append(np.unique(np.concatenate(parts)))
    found = {}
    for (benchmark, width), parts in pools.items():
        values, times = np.unique(np.concatenate(parts), return_counts=True)
        found[benchmark, width] = values[times >= max(TEMPLATE_ITEMS, TEMPLATE_SHARE * len(items[benchmark]))]
    return found
