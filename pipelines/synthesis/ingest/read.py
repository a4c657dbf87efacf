"""Files of recorded runs to canonical trajectories, one at a time; what cannot be read comes back as SetAside.

Memory is bounded by one record: lines, elements of a top-level array and values of a map of records are parsed one
by one. Held whole: a session file (Claude Code, pi, Codex: its lines are one run), a top-level object that is one
log (an Inspect .json, tau2), a list that is one run (messages, events), and a Parquet batch of 64 rows.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.compressed import DamagedError
from pipelines.synthesis.ingest import files
from pipelines.synthesis.ingest.arrow_nulls import drop_filled_nulls
from pipelines.synthesis.ingest.detect import Readers, score_of
from pipelines.synthesis.ingest.records import Place, RecordError, Session, SetAside, parse_json, shorten
from schemas.errors import InputError
from schemas.trajectory import Trajectory

__all__ = ["find_files", "ingest_paths", "read_file"]

Item = Trajectory | SetAside
_Lines = Iterator[tuple[int, bytes]]

_SESSION_HEAD = 40
_SESSION_SCORE = 0.5
_ARRAY_HEAD = 3
_MAP_SCORE = 0.9
_PARQUET_BATCH = 64


def find_files(paths: Iterable[str | Path]) -> list[str]:
    """The files of paths, folders (searched through, hidden names left out) and patterns, sorted, each once.

    Raises InputError for a path or pattern that matches nothing.
    """
    found: set[str] = set()
    for given in paths:
        path = Path(given)
        if path.is_file():
            found.add(str(path))
        elif path.is_dir():
            found.update(str(file) for file in path.rglob("*") if file.is_file() and _shown(file, path))
        else:
            matches = _matching(str(given))
            if not matches:
                raise InputError("there is no such file or folder", path=str(given), todo="Check the path")
            found.update(matches)
    return sorted(found)


def _shown(file: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _matching(pattern: str) -> list[str]:
    import glob

    return [name for name in glob.iglob(pattern, recursive=True) if Path(name).is_file()]  # noqa: PTH207


def ingest_paths(paths: Iterable[str | Path], format: str = "auto") -> Iterator[Item]:
    """Every trajectory of `paths` in sorted file order, and a SetAside for all that gives none.

    `format` is a name of `detect.FORMATS`, or auto: found by content, record by record. Raises InputError for a
    missing path and UsageError for an unknown format; nothing inside a file raises.
    """
    Readers(format)
    for path in find_files(paths):
        yield from read_file(path, format)


def read_file(path: str, format: str = "auto") -> Iterator[Item]:
    """The trajectories of one file (see `ingest_paths`)."""
    readers = Readers(format)
    given = False
    try:
        for item in _BY_KIND[files.sniff(path)](path, readers):
            given = True
            yield item
        if not given:
            yield SetAside(path, "", "", "the file holds no record", "", None)
    except (OSError, EOFError) as error:
        yield SetAside(path, "", "", f"the file cannot be read to its end: {error}", "", None)
    except Exception as error:
        if type(error).__module__.startswith(("zstandard", "zstd", "zlib", "pyarrow")) or isinstance(
            error, zipfile.BadZipFile
        ):
            yield SetAside(path, "", "", f"the file cannot be decoded: {error}", "", None)
        else:
            raise


def _one(value: Any, place: Place, readers: Readers, repairs: list[str]) -> Iterator[Item]:
    """The trajectories of one parsed record."""
    reader = readers.best(value)
    if reader is None:
        yield SetAside(place.path, place.record, "", "no reader recognises this record", shorten(value), None)
        return
    given = False
    try:
        for item in reader.read(value, place):
            given = True
            if repairs and isinstance(item, Trajectory):
                item.notes.extend(dict.fromkeys(repairs))
            yield item
        if not given:
            raise RecordError("", "the record holds no run", value)
    except RecordError as error:
        yield error.at(place, reader.name)
    except (AttributeError, KeyError, TypeError, IndexError, ValueError, RecursionError) as error:
        problem = f"the record is not shaped like {reader.name}: {type(error).__name__}: {error}"
        yield SetAside(place.path, place.record, "", problem, shorten(value), reader.name)


def _parsed(data: bytes, place: Place) -> tuple[Any, list[str]] | SetAside:
    try:
        return parse_json(data)
    except ValueError as error:
        received = shorten(data[:400].decode("utf-8", "replace"), 120)
        return SetAside(place.path, place.record, "", f"not JSON: {error}", received, None)


def _lines(path: str, readers: Readers) -> Iterator[Item]:
    with files.open_stream(path) as stream:
        lines = files.read_lines(stream)
        head, lines = _taken(lines, _SESSION_HEAD)
        parsed = [(number, _parsed(data, Place(path, f"line {number}"))) for number, data in head]
        sample = Session([(number, value[0]) for number, value in parsed if not isinstance(value, SetAside)])
        reader = readers.best(sample) if sample.lines else None
        if reader is not None and score_of(reader, sample) >= _SESSION_SCORE:
            yield from _session(path, readers, parsed, lines)
            return
        for number, value in parsed:
            yield from _line(value, Place(path, f"line {number}"), readers)
        for number, data in lines:
            place = Place(path, f"line {number}")
            yield from _line(_parsed(data, place), place, readers)


def _taken(lines: _Lines, count: int) -> tuple[list[tuple[int, bytes]], _Lines]:
    """The first lines and the rest; damage among the first is met where the rest begins."""
    head: list[tuple[int, bytes]] = []
    try:
        for line in islice(lines, count):
            head.append(line)
    except DamagedError as damage:
        return head, _damaged(damage)
    return head, lines


def _damaged(damage: DamagedError) -> _Lines:
    """No line: raises."""
    yield from ()
    raise damage


def _line(value: tuple[Any, list[str]] | SetAside, place: Place, readers: Readers) -> Iterator[Item]:
    if isinstance(value, SetAside):
        yield value
    else:
        yield from _one(value[0], place, readers, value[1])


def _session(
    path: str, readers: Readers, head: list[tuple[int, Any]], rest: Iterator[tuple[int, bytes]]
) -> Iterator[Item]:
    """A file whose lines are one run; lines that are not JSON are set aside and the run goes on without them."""
    kept: list[tuple[int, Any]] = []
    repairs: list[str] = []
    later = ((number, _parsed(data, Place(path, f"line {number}"))) for number, data in rest)
    for group in (head, later):
        for number, value in group:
            if isinstance(value, SetAside):
                yield value
            else:
                kept.append((number, value[0]))
                repairs.extend(value[1])
    yield from _one(Session(kept), Place(path), readers, repairs)


def _array(path: str, readers: Readers) -> Iterator[Item]:
    with files.open_stream(path) as stream:
        cut = files.elements(stream)
        index = 0
        held: list[tuple[Any, list[str]] | SetAside] = []
        try:
            for data in islice(cut, _ARRAY_HEAD):
                held.append(_parsed(data, Place(path, f"[{len(held)}]")))
            values = [value[0] for value in held if not isinstance(value, SetAside)]
            reader = readers.best(values)
            if reader is not None and score_of(reader, values) > 0:
                yield from _whole(path, readers)
                return
            for value in held:
                yield from _line(value, Place(path, f"[{index}]"), readers)
                index += 1
            held = []
            for data in cut:
                place = Place(path, f"[{index}]")
                yield from _line(_parsed(data, place), place, readers)
                index += 1
        except (ValueError, DamagedError) as error:
            for value in held:
                yield from _line(value, Place(path, f"[{index}]"), readers)
                index += 1
            if isinstance(error, DamagedError):
                raise
            yield SetAside(path, f"[{index}]", "", f"not JSON: {error}", "", None)


def _object(path: str, readers: Readers) -> Iterator[Item]:
    if not _is_map(path, readers):
        yield from _whole(path, readers)
        return
    with files.open_stream(path) as stream:
        last = ""
        try:
            for key, data in files.pairs(stream):
                last = f"key {parse_json(key)[0]!r}"
                place = Place(path, last)
                yield from _line(_parsed(data, place), place, readers)
        except ValueError as error:
            yield SetAside(path, f"after {last}" if last else "", "", f"not JSON: {error}", "", None)


def _is_map(path: str, readers: Readers) -> bool:
    """Whether the object's first value is surely a record of its own (a map of records)."""
    with files.open_stream(path) as stream:
        try:
            first = next(files.pairs(stream), None)
            value = parse_json(first[1])[0] if first and first[1][:1] == b"{" else None
        except ValueError:
            return False
    if value is None:
        return False
    reader = readers.best(value)
    return reader is not None and score_of(reader, value) >= _MAP_SCORE


def _whole(path: str, readers: Readers) -> Iterator[Item]:
    with files.open_stream(path) as stream:
        data = stream.read()
    yield from _line(_parsed(data, Place(path)), Place(path), readers)


def _yaml(path: str, readers: Readers) -> Iterator[Item]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with files.open_stream(path) as stream:
        try:
            value = yaml.load(stream.read().decode("utf-8", "replace"), Loader=loader)  # noqa: S506 - a safe loader
        except yaml.YAMLError as error:
            yield SetAside(path, "", "", f"not YAML: {shorten(str(error))}", "", None)
            return
    for item in _one(value, Place(path), readers, []):
        if isinstance(item, Trajectory):
            item.notes.append("a demonstration file (YAML), edited by hand: not the model's words")
            for message in item.messages:
                if message.role == "assistant":
                    message.author = "demo"
        yield item


def _parquet(path: str, readers: Readers) -> Iterator[Item]:
    import pyarrow.parquet as pq

    index = 0
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=_PARQUET_BATCH):
            for row in batch.to_pylist():
                repairs = drop_filled_nulls(row)
                yield from _one(row, Place(path, f"row {index}"), readers, repairs)
                index += 1


def _zip(path: str, readers: Readers) -> Iterator[Item]:
    """Inspect's .eval: a zip of one JSON file a sample (and a header that holds no run)."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in sorted(archive.namelist()) if name.startswith("samples/") and name.endswith(".json")]
        if not names:
            yield SetAside(
                path, "", "", "a zip without samples/*.json is not an Inspect log", shorten(archive.namelist())
            )
        for name in names:
            place = Place(path, name)
            yield from _line(_parsed(archive.read(name), place), place, readers)


def _nothing(path: str, readers: Readers) -> Iterator[Item]:
    yield SetAside(path, "", "", "the file is empty", "", None)


def _text(path: str, readers: Readers) -> Iterator[Item]:
    with files.open_stream(path) as stream:
        head = stream.read(400)
    received = shorten(head.decode("utf-8", "replace").strip().partition("\n")[0], 80)
    yield SetAside(path, "", "", "not a trajectory file: neither JSON, YAML, Parquet nor zip", received, None)


_BY_KIND = {
    "lines": _lines, "array": _array, "object": _object, "yaml": _yaml, "parquet": _parquet, "zip": _zip,
    "empty": _nothing, "text": _text,
}  # fmt: skip
