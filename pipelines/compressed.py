"""A file's bytes, decompressed: gzip and zstandard are told by their first bytes, not by the name.

Whatever a cut or damaged file still holds is given out before the error, so the records before the damage are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import Any

import zstandard

__all__ = ["BlockStream", "DamagedError", "read_blocks"]

_BLOCK = 1 << 20
_COMPRESSED_BLOCK = 1 << 14  # a small piece of compressed input can only become so much output at once
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class DamagedError(EOFError):
    """The compressed data ended early or is damaged: what came before was given out already."""


def read_blocks(path: str | Path) -> Generator[bytes, None, None]:
    """The content in blocks that are not empty. Memory: one block.

    Raises OSError when the file cannot be opened, DamagedError where the compressed data is not whole.
    """
    with Path(path).open("rb") as handle:
        start = handle.read(4)
        handle.seek(0)
        make: Callable[[], Any]
        if start.startswith(_GZIP):
            make = lambda: zlib.decompressobj(wbits=31)  # noqa: E731
        elif start == _ZSTD:
            make = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj
        else:
            while block := handle.read(_BLOCK):
                yield block
            return
        decoder = make()
        waiting = b""
        begun = False  # has the current member received any input?
        while data := waiting or handle.read(_COMPRESSED_BLOCK):
            try:
                block = decoder.decompress(data)
            except (zlib.error, zstandard.ZstdError) as error:
                raise DamagedError(f"damaged compressed data ({error})") from None
            begun = True
            if block:
                yield block
            waiting = decoder.unused_data if decoder.eof else b""
            if decoder.eof:
                waiting = waiting.lstrip(b"\0")  # padding between members
                decoder, begun = make(), False
        if begun:
            raise DamagedError("the compressed data ends early")


class BlockStream:
    """`read_blocks` as an object with `read(size)` and `close`, for use in `with`.

    A read may return fewer bytes than asked for, b"" at the end. Once the damage is reached every further read raises
    DamagedError.
    """

    def __init__(self, path: str | Path) -> None:
        self._blocks = read_blocks(path)
        self._block = memoryview(b"")
        self._damage: DamagedError | None = None
        self._read_on()  # so that a file that cannot be opened is refused here

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; -1 for all that is left."""
        if size < 0:
            pieces = []
            while piece := self.read(_BLOCK):
                pieces.append(piece)
            return b"".join(pieces)
        if not self._block:
            self._read_on()
        if not self._block and self._damage is not None:
            raise self._damage
        given, self._block = bytes(self._block[:size]), self._block[size:]
        return given

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()

    def __enter__(self) -> BlockStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_on(self) -> None:
        try:
            self._block = memoryview(next(self._blocks, b""))
        except DamagedError as damage:
            self._damage = damage
