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


@dataclass(frozen=True, slots=True)
class Unit:
    """One text of a benchmark. `item` names its record ("file#line"), `field` where in it the text stands."""

    benchmark: str
    item: str
    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """What a document holds: the unit that is covered best, and the longest matched span of the document."""

    benchmark: str
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


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """All units, as runs. For each width: `grams` sorted hashes; `owners` the units of grams[i], by `starts`.

    `needed` is the number of runs of each unit that count, `names` how it is called in a record.
    """

    width: int
    names: list[str]
    needed: npt.NDArray[np.int64]
    grams: dict[int, Hashes]
    starts: dict[int, npt.NDArray[np.int64]]
    owners: dict[int, npt.NDArray[np.int64]]

    def save(self, path: Path) -> None:
        """Write as one numpy file (no pickle)."""
        arrays: dict[str, Any] = {"needed": self.needed}
        for width in self.grams:
            arrays |= {
                f"grams{width}": self.grams[width],
                f"starts{width}": self.starts[width],
                f"owners{width}": self.owners[width],
            }
        text = json.dumps({"width": self.width, "names": self.names, "widths": sorted(self.grams)})
        arrays["about"] = np.frombuffer(text.encode(), np.uint8)
        with atomic_path(path) as temporary, open(temporary, "wb") as sink:
            np.savez(sink, **arrays)

    @classmethod
    def load(cls, path: Path) -> Benchmarks:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            about = json.loads(stored["about"].tobytes().decode())
            tables = [{w: stored[f"{name}{w}"] for w in about["widths"]} for name in ("grams", "starts", "owners")]
            return cls(about["width"], about["names"], stored["needed"], *tables)

    def search(self, texts: pa.Array) -> dict[int, Match]:
        """Row number to what was found in it, for the rows of `texts` that hold a unit.

        Cost: one pass of 2 ms a MB for each width that occurs (one, and one for each length of short units).
        """
        normalised = normalise(texts)
        hits: dict[int, dict[int, set[int]]] = {}  # row -> unit -> indexes of its runs
        for width in self.grams:
            for row, gram in self._hits(normalised, width):
                units = self.owners[width][self.starts[width][gram] : self.starts[width][gram + 1]]
                for unit in units.tolist():
                    hits.setdefault(row, {}).setdefault(unit, set()).add(gram)
        found: dict[int, Match] = {}
        for row, units_of in sorted(hits.items()):
            best = max(units_of, key=lambda unit: (len(units_of[unit]) / self.needed[unit], -unit))
            coverage = len(units_of[best]) / int(self.needed[best])
            if coverage >= COVERAGE:
                found[row] = Match(self.names[best], self._span(texts[row].as_py(), best), coverage)
        return found

    def _hits(self, normalised: Normalised, width: int) -> Iterator[tuple[int, int]]:
        """(row, gram index) for every run of the texts that some unit has."""
        flat, bounds = gram_hashes(normalised, width)
        grams = self.grams[width]
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
        words = [match.span() for match in _WORD.finditer(text)]
        best = (0, 0)
        for width, grams in self.grams.items():
            flat, _ = gram_hashes(normalise(pa.array([text], pa.large_string())), width)
            own = grams[[unit in self.owners[width][a:b] for a, b in _pairs(self.starts[width])]]
            inside = np.isin(flat, own)
            start = 0
            for index in range(len(inside) + 1):
                if index == len(inside) or not inside[index]:
                    if index > start and index - start + width - 1 > best[1] - best[0]:
                        best = (start, min(index + width - 1, len(words)))
                    start = index + 1
        if best[1] <= best[0]:
            return ""
        return text[words[best[0]][0] : words[best[1] - 1][1]][:MATCHED_CHARACTERS]


def _pairs(starts: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    edges = starts.tolist()
    yield from zip(edges[:-1], edges[1:], strict=True)


def build_benchmarks(units: Iterable[Unit], width: int = 13) -> Benchmarks:
    """Index units for search. Memory: 30 bytes a run of the benchmarks."""
    known = list(units)
    texts = normalise(pa.array([unit.text for unit in known], pa.large_string()))
    counts = [_words(unit.text, width) for unit in known]
    licences = normalise(pa.array(LICENCE_NOTICES, pa.large_string()))
    runs: list[tuple[int, Hashes]] = []  # width and distinct hashes of each unit
    by_width: dict[int, tuple[Hashes, npt.NDArray[np.int64]]] = {w: gram_hashes(texts, w) for w in set(counts)}
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
    needed = np.array([max(1, len(own)) for own in kept], np.int64)
    grams, starts, owners = {}, {}, {}
    for w in sorted(set(counts)):
        members = [n for n, count in enumerate(counts) if count == w]
        hashes = np.concatenate([kept[n] for n in members])
        unit_of = np.repeat(np.array(members, np.int64), [len(kept[n]) for n in members])
        order = np.lexsort((unit_of, hashes))
        grams[w], first = np.unique(hashes[order], return_index=True)
        starts[w] = np.append(first, len(hashes)).astype(np.int64)
        owners[w] = unit_of[order]
    names = [f"{unit.item}:{unit.field}" for unit in known]
    return Benchmarks(width, names, needed, grams, starts, owners)


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
