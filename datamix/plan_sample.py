"""A sample of a source without reading it whole: records at seeded places of its bytes, one in each equal stretch.

A record is met in proportion to its size, so the part of the places that lie in a domain is that domain's part of the
bytes, whatever the lengths of documents. One place in each stretch also follows the order of the files: sources that
lie one after another in a file are met in their proportions, and none is missed for coming at regular distances.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
import zstandard

from pipelines.corpus.read.jsonl import parse_line
from pipelines.corpus.read.paths import SourceFile, find_files
from pipelines.corpus.read.python_environment import choose_packages, read_package
from pipelines.corpus.read.records import Document, Problem, Record, to_document
from schemas.errors import UsageError
from schemas.recipe import SourceConfig

__all__ = ["Sampled", "SourceSample", "sample_source"]

MOST_FILES = 16  # of a source that are opened
MOST_BYTES = 64 << 20  # of a source that are read, decompressed
WINDOWS = 8  # places of a large plain file that are read
ROW_GROUPS = 32  # of a large Parquet file
LONGEST_BATCH = 128  # rows of a Parquet file that are held at once


@dataclass(frozen=True, slots=True)
class Sampled:
    """One place: the document there, and how many bytes of text and documents of the source it stands for."""

    document: Document
    bytes: float
    documents: float


@dataclass(slots=True)
class SourceSample:
    """What was seen of a source. `whole`: every byte was looked through; `problems` are records that cannot be read."""

    name: str
    files: int = 0
    files_read: int = 0
    disk_bytes: int = 0
    whole: bool = True
    problems: Counter[str] = field(default_factory=Counter)
    rows: list[Sampled] = field(default_factory=list)

    @property
    def text_bytes(self) -> float:
        """UTF-8 bytes of all readable text of the source (estimated)."""
        return sum(row.bytes for row in self.rows)

    @property
    def documents(self) -> float:
        """Readable documents of the source (estimated)."""
        return sum(row.documents for row in self.rows)


@dataclass(slots=True)
class _Part:
    """What was read of one file: sizes of its records, the whole file's size in the same unit, a way to a record."""

    sizes: npt.NDArray[np.int64]
    total: float
    whole: bool
    load: Callable[[int], Document | Problem | None]


def sample_source(config: SourceConfig, count: int, seed: int) -> SourceSample:
    """About `count` places of a source; no file gives an empty sample with `files` 0.

    Depends on the files, `count` and `seed` alone. Memory and time are bounded by MOST_BYTES of text a source (a
    python-environment is read whole). A damaged file gives what could be read of it.
    """
    sample = SourceSample(config.name)
    if config.kind == "python-environment":
        part = _environment(config)
        sample.files = sample.files_read = 1
        sample.disk_bytes = int(part.sizes.sum())
        _pick(sample, part, part.total, count, _fraction(config.name, seed))
        return sample
    try:
        files = find_files(config)
    except UsageError:
        return sample
    sizes = np.array([Path(file.path).stat().st_size for file in files], np.int64)
    sample.files, sample.disk_bytes = len(files), int(sizes.sum())
    start = _fraction(config.name, seed)
    chosen = _choose_files(sizes, start, limited=config.limit_documents is not None)
    sample.files_read, sample.whole = len(chosen), len(chosen) == len(files)
    budget = MOST_BYTES // max(1, len(chosen))
    left = config.limit_documents
    parts: list[tuple[int, _Part]] = []
    for number in chosen:
        if left is not None and left <= 0:
            break
        part = _open(config, files[number], budget, start, sample)
        if left is not None:
            part = _first(part, left)
            left -= len(part.sizes)
        parts.append((number, part))
    _pick_all(sample, parts, sizes, count, start)
    return sample


def _pick_all(
    sample: SourceSample, parts: Sequence[tuple[int, _Part]], sizes: npt.NDArray[np.int64], count: int, start: float
) -> None:
    """Share the places out over the files that were read; together they stand for all files."""
    totals = [part.total for _, part in parts]
    whole = float(sum(totals))
    sample.whole = sample.whole and all(part.whole for _, part in parts)
    if not whole:
        return
    all_read = len(parts) == len(sizes) or sample.files_read == sample.files
    blown = whole if all_read else whole / float(sum(sizes[n] for n, _ in parts)) * float(sizes.sum())
    for (_, part), total in zip(parts, totals, strict=True):
        share = total / whole if all_read else 1 / len(parts)  # chosen in proportion to size: equal weights
        _pick(sample, part, blown * share, max(1, round(count * share)), start)


def _pick(sample: SourceSample, part: _Part, stands_for: float, count: int, start: float) -> None:
    """The records at `count` places of a part, one in each equal stretch; each stands for its part of `stands_for`."""
    ends = np.cumsum(part.sizes)
    if not len(ends):
        return
    inside = np.random.default_rng(int(start * 2**53)).random(count)
    places = (np.arange(count) + inside) * (int(ends[-1]) / count)
    each = stands_for / count
    known: dict[int, Document | Problem | None] = {}
    for index in np.minimum(np.searchsorted(ends, places, side="right"), len(ends) - 1).tolist():
        if index not in known:
            known[index] = part.load(index)
            if isinstance(found := known[index], Problem):
                sample.problems[found.problem] += 1
        found = known[index]
        if isinstance(found, Document):
            size = int(part.sizes[index])
            text = len(found.text.encode("utf-8", "replace"))
            sample.rows.append(Sampled(found, each * text / size, each / size))


def _fraction(name: str, seed: int) -> float:
    """A number in [0, 1) from the source's name and the seed."""
    return xxhash.xxh3_64_intdigest(f"plan:{seed}:{name}".encode()) / 2**64


def _choose_files(sizes: npt.NDArray[np.int64], start: float, *, limited: bool) -> list[int]:
    """All files, or MOST_FILES in proportion to their sizes; the first ones where only first records are wanted."""
    if len(sizes) <= MOST_FILES or limited:
        return list(range(min(len(sizes), MOST_FILES)))
    ends = np.cumsum(sizes)
    places = (np.arange(MOST_FILES) + start) * (int(ends[-1]) / MOST_FILES)
    return sorted(set(np.searchsorted(ends, places, side="right").tolist()))


def _first(part: _Part, count: int) -> _Part:
    sizes = part.sizes[:count]
    return _Part(sizes, float(sizes.sum()), True, part.load) if len(part.sizes) >= count else part


def _open(config: SourceConfig, file: SourceFile, budget: int, start: float, sample: SourceSample) -> _Part:
    """One file as far as `budget` bytes; one that cannot be opened is a problem and empty."""
    try:
        return (
            _parquet(config, file, budget, start) if config.kind == "parquet" else _jsonl(config, file, budget, start)
        )
    except (OSError, pa.ArrowException, KeyError):
        sample.problems["unreadable_file"] += 1
        return _Part(np.empty(0, np.int64), 0.0, False, lambda _: None)


def _jsonl(config: SourceConfig, file: SourceFile, budget: int, start: float) -> _Part:
    size = Path(file.path).stat().st_size
    pieces, total, whole = _read(Path(file.path), size, budget, start)
    lines = [line for piece in pieces for line in piece.split(b"\n") if line.strip()]

    def load(index: int) -> Document | Problem | None:
        record = parse_line(file.path, index + 1, lines[index], config.id)
        return to_document(record, config, file.path, file.relative) if isinstance(record, Record) else record

    return _Part(np.array([len(line) + 1 for line in lines], np.int64), total, whole, load)


def _read(path: Path, size: int, budget: int, start: float) -> tuple[list[bytes], float, bool]:
    """Whole lines of a file in pieces, how many bytes it has (estimated when not read to the end), and whether it was.

    A plain file above the budget is read in WINDOWS places, a compressed one from its beginning.
    """
    with path.open("rb") as handle:
        head = handle.read(4)
        handle.seek(0)
        if head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
            data, whole = _decompressed(handle, head, budget)
            total = float(len(data)) if whole else len(data) * size / max(1, handle.tell())
            return [data if whole else data[: data.rfind(b"\n") + 1]], total, whole
        if size <= budget:
            return [handle.read()], float(size), True
        pieces = []
        width = budget // WINDOWS
        for number in range(WINDOWS):
            handle.seek(int((size - width) * (number + start) / WINDOWS))
            window = handle.read(width)
            pieces.append(window[window.find(b"\n") + 1 : window.rfind(b"\n") + 1])
        return pieces, float(size), False


def _decompressed(handle: BinaryIO, head: bytes, budget: int) -> tuple[bytes, bool]:
    """Up to `budget` bytes of a compressed file, and whether that is all of it. Damage ends it early."""
    stream: Any = (
        gzip.GzipFile(fileobj=handle)
        if head.startswith(b"\x1f\x8b")
        else zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(
            handle, read_size=1 << 14, read_across_frames=True
        )
    )
    pieces: list[bytes] = []
    got = 0
    try:
        while got < budget and (piece := stream.read(min(1 << 20, budget - got))):
            pieces.append(piece)
            got += len(piece)
        whole = got < budget or not stream.read(1)
    except (EOFError, OSError, zlib.error, zstandard.ZstdError):
        whole = False
    return b"".join(pieces), whole


def _parquet(config: SourceConfig, file: SourceFile, budget: int, start: float) -> _Part:
    names = {config.text, config.id, config.domain_field, config.license_field, config.language_field} - {None}
    records: list[Record] = []
    sizes: list[int] = []
    with pq.ParquetFile(file.path) as source:
        rows, groups = source.metadata.num_rows, source.metadata.num_row_groups
        known = [source.metadata.row_group(group) for group in range(groups)]
        large = sum(group.total_byte_size for group in known) > budget
        chosen = sorted({int((n + start) * groups / ROW_GROUPS) for n in range(ROW_GROUPS)}) if large else range(groups)
        columns = sorted(str(name) for name in names if name in source.schema_arrow.names)
        for group in chosen:
            seen = 0
            for batch in source.iter_batches(LONGEST_BATCH, row_groups=[group], columns=columns):
                for row in batch.to_pylist():
                    text = row.get(config.text)
                    records.append(Record(len(records) + 1, row))
                    sizes.append(max(1, len(text.encode("utf-8", "replace")) if isinstance(text, str) else 1))
                    seen += sizes[-1]
                if large and seen > budget // len(chosen):
                    break
    total = sum(sizes) * rows / max(1, len(sizes))

    def load(index: int) -> Document | Problem:
        return to_document(records[index], config, file.path, file.relative)

    return _Part(np.array(sizes, np.int64), total, len(sizes) == rows, load)


def _environment(config: SourceConfig) -> _Part:
    """The running Python's text, all of it: a few seconds."""
    texts = [found for package in choose_packages(config) for found in read_package(package)]
    kept = [found for found in texts if not isinstance(found, Problem)][: config.limit_documents]
    named = config.model_copy(update={"domain_field": "domain", "text": "text"})
    sizes = np.array([len(found.record.fields["text"].encode("utf-8", "replace")) for found in kept], np.int64)
    return _Part(
        sizes,
        float(sizes.sum()),
        True,
        lambda index: to_document(kept[index].record, named, kept[index].file, kept[index].file),
    )
