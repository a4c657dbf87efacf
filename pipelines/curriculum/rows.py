"""Choosing records row by row: a whole row at a time, so that what is chosen also fills rows.

A stage wants trained tokens of each kind (quotas) and rows that are at least 95 % full. Choosing first and packing
afterwards can leave half-empty rows (ten records of 70,000 tokens need ten rows of 131,072), so each row is built with
its fill in view: the kind that lags most gives the next record; when that does not fit, the kind's longest that does;
what room is left is filled by the best one, two or three records. A row that cannot be filled is undone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["MIN_FILL", "Records", "RowBuilder", "StageState"]

MIN_FILL = 0.95  # the share of a row that must be used (the promise of the shards step)
GOOD_FILL = 0.98  # below this a search over pairs and triples tries to do better
SEARCHED = 256  # records looked at in that search: all pairs and triples of them, 256^2 sums at once
ANCHOR_TRIES = 4  # rows that may fail around a long record before the stage goes on without one


@dataclass(slots=True)
class Records:
    """What is planned: parallel arrays over records, sorted by id.

    `lengths` and `trained` are tokens (int64); `difficulty` is the family's 1 to 10, NaN when unknown.
    """

    ids: list[str]
    kinds: list[str]
    lengths: npt.NDArray[np.int64]
    trained: npt.NDArray[np.int64]
    difficulty: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True)
class StageState:
    """One stage while it is planned. `taken` is trained tokens by kind; `rows` hold record indices.

    `stopped_by` says why the last row was not built: "budget" (it would pass the budget or the shares) or "fill".
    """

    number: int
    capacity: int
    budget: int
    shares: Mapping[str, float]
    anchor: int | None = None
    rows: list[list[int]] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    stopped_by: str = ""

    @property
    def trained(self) -> int:
        """Trained tokens of all rows."""
        return sum(self.taken.values())


class RowBuilder:
    """Holds which records are still free and builds rows from them. Cost: about 10 µs a record chosen."""

    def __init__(self, records: Records, free: Iterable[int], kinds: Sequence[str]) -> None:
        self.records = records
        self.free = bytearray(len(records))
        for index in free:
            self.free[index] = 1
        self._lengths: list[int] = records.lengths.tolist()
        self._trained: list[int] = records.trained.tolist()
        by_length = [i for i in np.lexsort((np.arange(len(records)), records.lengths)).tolist() if self.free[i]]
        self._by_length = {kind: [i for i in by_length if records.kinds[i] == kind] for kind in kinds}
        self._keys = {kind: [self._lengths[i] for i in indices] for kind, indices in self._by_length.items()}
        self._place = {i: at for indices in self._by_length.values() for at, i in enumerate(indices)}
        # one byte a record in the order of length: the nearest free one below a place is a backward byte search
        self._open = {kind: bytearray(b"\1" * len(indices)) for kind, indices in self._by_length.items()}
        self._preferred: dict[str, list[int]] = {}
        self._cursor: dict[str, int] = {}
        self._rank: dict[int, int] = {}
        self._longer_than = 0

    def start(self, preferred: Mapping[str, list[int]], longer_than: int) -> None:
        """Begin with a stage: its order of preference by kind, and the length that earlier stages could not pass."""
        self._preferred = dict(preferred)
        self._cursor = dict.fromkeys(preferred, 0)
        self._rank = {index: at for order in preferred.values() for at, index in enumerate(order)}
        self._longer_than = longer_than

    def supply(self, kind: str, longest: int) -> int:
        """Free trained tokens of a kind in records of at most `longest` tokens."""
        at = bisect_right(self._keys[kind], longest)
        return sum(self._trained[i] for i in self._by_length[kind][:at] if self.free[i])

    def add_row(self, stage: StageState, quotas: Mapping[str, float], limit: float, *, short: bool = False) -> bool:
        """Build one more row of `stage`; False when none could be filled (everything is as before then).

        `quotas` are the trained tokens wanted of each kind in the whole stage, `limit` those that all its rows may
        hold. A row counts only if it brings the stage closer to its quotas (what fills it up may be of a kind whose
        quota is used up). Neither binds a stage's first row. `short` accepts a row below MIN_FILL.
        """
        tries = 1 if short else ANCHOR_TRIES
        for attempt in range(tries + 1):
            row = self._build(stage, quotas, anchored=attempt < tries)
            room = stage.capacity - sum(self._lengths[i] for i in row)
            full = bool(row) and (short or room <= (1 - MIN_FILL) * stage.capacity)
            if full and (not stage.rows or self._within(stage, row, quotas, limit)):
                stage.rows.append(row)
                stage.taken = self._taken_with(stage, row)
                return True
            self._undo(row)
            stage.stopped_by = "budget" if full else "fill"
            if not row or self._lengths[row[0]] <= self._longer_than:
                return False
            stage.rejected.add(row[0])
        return False

    def _taken_with(self, stage: StageState, row: list[int]) -> dict[str, int]:
        taken = dict(stage.taken)
        for i in row:
            kind = self.records.kinds[i]
            taken[kind] = taken.get(kind, 0) + self._trained[i]
        return taken

    def _within(self, stage: StageState, row: list[int], quotas: Mapping[str, float], limit: float) -> bool:
        before, after = stage.taken, self._taken_with(stage, row)
        kinds = sorted({*quotas, *after})
        distance = sum(
            abs(quotas.get(k, 0.0) - after.get(k, 0)) - abs(quotas.get(k, 0.0) - before.get(k, 0)) for k in kinds
        )
        return distance < 0 and sum(after.values()) <= limit

    def _build(self, stage: StageState, quotas: Mapping[str, float], *, anchored: bool) -> list[int]:
        row: list[int] = []
        missing = {kind: quotas[kind] - stage.taken.get(kind, 0) for kind in quotas}
        room = stage.capacity
        first = self._anchor(stage, missing, quotas) if anchored else None
        while True:
            pick = first if first is not None else self._next(stage, missing, quotas, room, anchored)
            first = None
            if pick is None:
                break
            room = self._take(row, pick, room, missing)
        for _ in range(len(self.records)):
            if room <= (1 - GOOD_FILL) * stage.capacity:
                break
            pick = self._filler(missing, quotas, room, anchored)
            if pick is None:
                break
            room = self._take(row, pick, room, missing)
        if room > (1 - GOOD_FILL) * stage.capacity and row:
            self._refit(row, stage.capacity, quotas, anchored)
        return row

    def _take(self, row: list[int], pick: int, room: int, missing: dict[str, float]) -> int:
        self._remove(pick)
        row.append(pick)
        missing[self.records.kinds[pick]] -= self._trained[pick]
        return room - self._lengths[pick]

    def _anchor(self, stage: StageState, missing: Mapping[str, float], quotas: Mapping[str, float]) -> int | None:
        """The record that a row starts with when only this stage (or a later one) can hold it."""
        if not stage.number:
            return None
        if not stage.rows and stage.anchor is not None:
            anchor, stage.anchor = stage.anchor, None
            self._undo([anchor])
            return anchor
        for kind in self._lagging(missing, quotas):
            pick = self._favourite(kind, stage)
            if pick is None or self._trained[pick] > 2 * missing[kind]:
                continue
            if self._longer_than < self._lengths[pick] <= stage.capacity:
                return pick
        return None

    def _next(
        self,
        stage: StageState,
        missing: Mapping[str, float],
        quotas: Mapping[str, float],
        room: int,
        anchored: bool,
    ) -> int | None:
        """The next record by share: of the kind that lags most, its favourite, else its longest that fits."""
        for kind in self._lagging(missing, quotas):
            favourite = self._favourite(kind, stage)
            for pick in (favourite, self._longest(kind, room, anchored)):
                if pick is None or self._lengths[pick] > room or (not anchored and self._is_long(pick)):
                    continue
                if self._trained[pick] <= 2 * missing[kind]:  # closer to the quota with it than without it
                    return pick
        return None

    def _filler(
        self, missing: Mapping[str, float], quotas: Mapping[str, float], room: int, anchored: bool
    ) -> int | None:
        """A record to fill room with once the quotas are met: the longest that fits, of the kind least above quota."""
        for kind in sorted(quotas, key=lambda k: (-missing[k] / quotas[k] if quotas[k] else 1e9, k)):
            pick = self._longest(kind, room, anchored) if quotas[kind] > 0 else None
            if pick is not None:
                return pick
        return None

    def _lagging(self, missing: Mapping[str, float], quotas: Mapping[str, float]) -> list[str]:
        behind = [kind for kind in quotas if quotas[kind] > 0 and missing[kind] > 0]
        return sorted(behind, key=lambda kind: (-missing[kind] / quotas[kind], -quotas[kind], kind))

    def _favourite(self, kind: str, stage: StageState) -> int | None:
        order = self._preferred.get(kind, [])
        at = self._cursor.get(kind, 0)
        while at < len(order) and not self.free[order[at]]:
            at += 1
        self._cursor[kind] = at
        while at < len(order) and (not self.free[order[at]] or order[at] in stage.rejected):
            at += 1
        return order[at] if at < len(order) else None

    def _is_long(self, index: int) -> bool:
        return 0 < self._longer_than < self._lengths[index]

    def _longest(self, kind: str, room: int, anchored: bool) -> int | None:
        """The longest free record of a kind that fits in `room` (not one of the long ones, when not anchored)."""
        if not anchored and self._longer_than:
            room = min(room, self._longer_than)
        at = self._open[kind].rfind(b"\1", 0, bisect_right(self._keys[kind], room))
        return self._by_length[kind][at] if at >= 0 else None

    def _remove(self, index: int) -> None:
        self.free[index] = 0
        self._open[self.records.kinds[index]][self._place[index]] = 0

    def reserve(self, index: int) -> None:
        """Keep a record from every row but the one that is to start with it."""
        self._remove(index)

    def release(self, index: int) -> None:
        """Give a reserved record back."""
        self._undo([index])

    def _undo(self, row: list[int]) -> None:
        for index in row:
            kind = self.records.kinds[index]
            self.free[index] = 1
            self._open[kind][self._place[index]] = 1
            self._cursor[kind] = min(self._cursor.get(kind, 0), self._rank.get(index, 0))

    def _refit(self, row: list[int], capacity: int, quotas: Mapping[str, float], anchored: bool) -> None:
        """Fill a row better: take back its last 0 to 3 records and put the best one, two or three in their place."""
        best: tuple[int, int, list[int]] | None = None
        used = sum(self._lengths[i] for i in row)
        for back in range(min(4, len(row))):
            kept = row[: len(row) - back]
            room = capacity - sum(self._lengths[i] for i in kept)
            pool = self._candidates(row[len(row) - back :], quotas, room, anchored)
            chosen = _best_subset([self._lengths[i] for i in pool], room)
            total = capacity - room + sum(self._lengths[pool[c]] for c in chosen)
            if total > (best[0] if best else used):
                best = (total, back, [pool[c] for c in chosen])
            if best and best[0] >= GOOD_FILL * capacity:
                break
        if best is None:
            return
        _, back, chosen_records = best
        self._undo(row[len(row) - back :] if back else [])
        del row[len(row) - back :]
        for index in chosen_records:
            self._remove(index)
            row.append(index)

    def _candidates(self, back: list[int], quotas: Mapping[str, float], room: int, anchored: bool) -> list[int]:
        """Up to SEARCHED free records (and those taken back) that fit in `room`, spread evenly over their lengths."""
        bound = min(room, self._longer_than) if not anchored and self._longer_than else room
        found = [i for i in back if self._lengths[i] <= bound]
        for kind in sorted(quotas):
            if quotas[kind] > 0:
                at = bisect_right(self._keys[kind], bound)
                places = np.flatnonzero(np.frombuffer(self._open[kind], dtype=np.uint8)[:at])
                found.extend(self._by_length[kind][place] for place in _spread(places, SEARCHED))
        found.sort(key=lambda i: (self._lengths[i], i))
        return found


def _spread(places: npt.NDArray[np.int64], most: int) -> list[int]:
    """At most `most` of the places, evenly spaced, the first and the last among them."""
    if len(places) > most:
        places = places[np.linspace(0, len(places) - 1, most).astype(np.int64)]
    kept: list[int] = places.tolist()
    return kept


def _best_subset(lengths: list[int], room: int) -> list[int]:
    """Positions of at most three of the ascending `lengths` whose sum is the largest not above `room`."""
    sizes = np.array(lengths, dtype=np.int64)
    count = len(sizes)
    if not count:
        return []
    best, chosen = int(sizes[-1]), [count - 1]
    if count >= 2:
        first, second = np.triu_indices(count, 1)
        sums = sizes[first] + sizes[second]
        for extra in (False, True):
            if extra:
                third = np.searchsorted(sizes, room - sums, side="right") - 1
                third = np.minimum(third, first - 1)  # positions third < first < second: each record once
                usable = third >= 0
                total = np.where(usable, sums + sizes[np.maximum(third, 0)], 0)
            else:
                usable, total = sums <= room, np.where(sums <= room, sums, 0)
            usable = usable & (total <= room)
            if usable.any():
                at = int(np.argmax(np.where(usable, total, 0)))
                if int(total[at]) > best:
                    best = int(total[at])
                    chosen = [int(first[at]), int(second[at])] + ([int(third[at])] if extra else [])
    return chosen
