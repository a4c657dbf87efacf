"""The journal of an endpoint: one JSON line for each finished request, on disk before its reply is used.

A line is {key, task, sample, turn, reply, usage}; `key` is a digest of all that was asked. A line with `lost` is a
request that gave no reply but may have been billed. Neither requests nor the key to the endpoint are in it.

Guarantee: after kill -9 every reply that was used is there (each line is fsynced); a line cut short by the kill is
removed when the journal is opened again. Memory: 24 bytes of place and the key for each line, never the text.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from schemas.errors import InputError, UsageError

__all__ = ["Journal"]

REPLY = {"content", "reasoning", "calls", "stop", "problem", "detail"}  # the fields of Reply.to_record


class Journal:
    """An open journal; safe to use from several threads, refused to a second process."""

    def __init__(self, path: str | Path) -> None:
        """Open or make the file. Raises UsageError while another process has it, InputError when it is no journal.

        `usages` are the {prompt, completion} counts of all lines that were there, `damaged` the lines that could not be
        read (their requests are made again).
        """
        self.path = Path(path)
        self.usages: list[dict[str, Any]] = []
        self.damaged = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = open(self.path, "a+b")  # noqa: SIM115 - closed by close()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise UsageError(
                f"{self.path}: another process writes this journal. Wait for it to end, or name another journal"
            ) from error
        try:
            self._end = self._read()
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> int:
        """Note where every line is, cut off a last line without its end; returns the length."""
        end, lines = 0, 0
        self._file.seek(0)
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            lines += 1
            self._note(line, end)
            end += len(line)
        if lines and self.damaged == lines:
            raise InputError(
                f"none of its {lines} lines is a line of a journal", path=str(self.path), todo="Name another journal"
            )
        self._file.truncate(end)
        return end

    def _note(self, line: bytes, start: int) -> None:
        try:
            entry = json.loads(line)
            key, usage = entry["key"], entry["usage"]
            counted = {"prompt": int(usage["prompt"]), "completion": int(usage["completion"])}
            whole = "lost" in entry or set(entry["reply"]) >= REPLY
        except (ValueError, KeyError, TypeError, RecursionError):
            self.damaged += 1
            return
        self.usages.append(counted)
        if not whole:
            self.damaged += 1
        elif "lost" not in entry:
            self._places[str(key)] = (start, len(line))

    def __len__(self) -> int:
        """How many finished requests it holds."""
        return len(self._places)

    def get(self, key: str) -> dict[str, Any] | None:
        """The line of a finished request, None when there is none."""
        place = self._places.get(key)
        if place is None:
            return None
        entry: dict[str, Any] = json.loads(os.pread(self._file.fileno(), place[1], place[0]))
        return entry

    def add(self, entry: dict[str, Any]) -> None:
        """Append a line and wait until it is on disk. Raises OSError when it cannot be written.

        What was written of such a line (a full disk) is taken away again: it would spoil the line after it.
        """
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._file.fileno(), line[written:])
                os.fsync(self._file.fileno())
            except OSError:
                os.ftruncate(self._file.fileno(), self._end)
                raise
            if "lost" not in entry:
                self._places[entry["key"]] = (self._end, len(line))
            self._end += len(line)

    def close(self) -> None:
        """Close the file, which frees it for another process."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
