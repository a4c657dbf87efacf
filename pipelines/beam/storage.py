"""Files of a pipeline, wherever Beam's file systems reach: found, copied near, spooled, uploaded."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from pipelines.corpus.read.paths import SUFFIXES
from schemas.errors import UsageError

__all__ = ["is_local", "local_copy", "matching", "read_spool", "spool_folder", "upload", "write_spool"]

_BYTES = "application/octet-stream"
_ENDINGS = (*SUFFIXES["jsonl"], *SUFFIXES["parquet"])


def is_local(path: str) -> bool:
    """Is `path` one of this machine's file system (no scheme)?"""
    return "://" not in path


def matching(pattern: str) -> list[tuple[str, str]]:
    """Files of another file system that `pattern` means, as (path, name relative to what was given), sorted.

    A pattern that ends in '/' means every file with a known ending below it, hidden ones not. Raises UsageError when
    nothing matches.
    """
    wanted = pattern + "**" if pattern.endswith("/") else pattern
    found = sorted(entry.path for result in FileSystems.match([wanted]) for entry in result.metadata_list)
    if wanted != pattern:
        found = [path for path in found if path.endswith(_ENDINGS) and not path.rpartition("/")[2].startswith(".")]
    if not found:
        raise UsageError(f"input {pattern!r}: no file matches. Give a file, a folder that ends in '/', or a pattern")
    fixed = wanted.split("*", 1)[0].split("?", 1)[0].split("[", 1)[0]
    base = len(fixed.rpartition("/")[0]) + 1
    return [(path, path[base:]) for path in found]


@contextmanager
def local_copy(path: str, beside: Sequence[str] = ()) -> Iterator[Path]:
    """`path` as a file of this machine: itself, or a copy that is gone after the block (disk: one file).

    Files called as in `beside` that stand in the same folder are copied too.
    """
    if is_local(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="datamix-copy-") as folder:
        base, _, name = path.rpartition("/")
        others = [other for other in beside if FileSystems.exists(f"{base}/{other}")]
        for each in (name, *others):
            with (
                FileSystems.open(f"{base}/{each}", _BYTES, CompressionTypes.UNCOMPRESSED) as source,
                Path(folder, each).open("wb") as sink,
            ):
                shutil.copyfileobj(source, sink, 1 << 20)
        yield Path(folder, name)


def upload(source: Path, target: str) -> None:
    """Move a finished local file to `target`; a reader never sees half of it."""
    if is_local(target):
        place = Path(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        near = place.parent / f".tmp-{uuid.uuid4().hex}"
        shutil.copyfile(source, near)
        os.replace(near, place)
        return
    with (
        source.open("rb") as data,
        FileSystems.create(target, _BYTES, CompressionTypes.UNCOMPRESSED) as sink,  # object stores publish on close
    ):
        shutil.copyfileobj(data, sink, 1 << 20)


def spool_folder(options: PipelineOptions, given: str | None) -> str:
    """A new folder for the batches between two passes: under `given`, else temp_location, else on this machine.

    A folder on this machine is removed when the program that built the pipeline ends; in a bucket the spool stays
    until the bucket's rules for temporary files remove it, for a retried worker may read it again.
    """
    base = given or options.view_as(GoogleCloudOptions).temp_location
    if base:
        return FileSystems.join(str(base), f"datamix-spool-{uuid.uuid4().hex}")
    folder = tempfile.mkdtemp(prefix="datamix-spool-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write_spool(folder: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Write batches as one Arrow IPC file with a new name in `folder`; returns its path."""
    path = FileSystems.join(folder, f"{uuid.uuid4().hex}.arrow")
    if is_local(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
    with (
        FileSystems.create(path, _BYTES, CompressionTypes.UNCOMPRESSED) as sink,
        pa.PythonFile(_Sink(sink), mode="w") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    return path


def read_spool(path: str) -> list[pa.RecordBatch]:
    """All batches of a spool file (memory-mapped where it is a local one)."""
    if is_local(path):
        reader = pa.ipc.open_file(pa.memory_map(path))
    else:
        with FileSystems.open(path, _BYTES, CompressionTypes.UNCOMPRESSED) as source:
            reader = pa.ipc.open_file(pa.py_buffer(source.read()))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


class _Sink:
    """A Beam file as the plain file that Arrow expects: closing it is left to Beam."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes."""
        self._sink.write(bytes(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        """Bytes so far."""
        return self._written

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """See the class."""
        self.closed = True

    def writable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False
