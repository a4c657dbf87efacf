"""Hashes of the words of a text, 64 bytes at a time.

The bytes are classified and lower-cased by vector operations; the edges of words come from bit masks; a word is hashed
by eight bytes at a time. Nothing branches on the text but the ends of blocks, words of more than 16 bytes and words
with characters beyond ASCII: a branch on every word would be mispredicted at every word, which costs more than the
hash. Measured on 4 KB documents: about 1 GB a CPU second.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"
from __future__ import annotations

import numpy as np
from numba import types

from filters.text.dedup.blocks import load_word, look, lowest, ones
from filters.text.dedup.compiled import bare, inlined
from filters.text.dedup.utf8 import class_of, decode

__all__ = ["ROOM", "hash_code_words", "hash_words"]

U8, U32, U64, I64 = types.uint8, types.uint32, types.uint64, types.int64
RO8 = types.Array(U8, 1, "C", readonly=True)
RO32 = types.Array(U32, 1, "C", readonly=True)
RO64 = types.Array(U64, 1, "C", readonly=True)
W8 = types.Array(U8, 1, "C")
W32 = types.Array(U32, 1, "C")
W64 = types.Array(U64, 1, "C")

ROOM = 160  # values that work arrays must have beyond the bytes of a document
_FIRST = 0x9AE16A3B2F90404F
_FACTOR = 0xD6E8FEB86659FD93
_HIGH = 0x8080808080808080


@inlined
def _step(value, chunk):
    """Take eight more bytes into a hash."""
    value = (value ^ chunk) * np.uint64(_FACTOR)
    return value ^ (value >> np.uint64(32))


@bare(U64(W8, U64, U64, RO32))
def _hash_beyond_ascii(low, at, stop, points):
    """The hash of a word with characters beyond ASCII: that of its lower-cased characters' UTF-8 bytes."""
    value = np.uint64(_FIRST)
    chunk = np.uint64(0)
    size = np.uint64(0)
    chunks = 0
    six, mask, top = np.uint32(6), np.uint32(0x3F), np.uint32(0x80)
    while at < stop:
        point = np.uint32(low[at])
        length = np.uint64(1)
        if point >= np.uint32(0x80):
            point, length = decode(low, at, stop)
            point = class_of(point, points) & np.uint32(0x1FFFFF)
        at += length
        if point < np.uint32(0x80):
            code, length = point, 1
        elif point < np.uint32(0x800):
            code, length = (np.uint32(0xC0) | (point >> six)) | ((top | (point & mask)) << np.uint32(8)), 2
        else:  # four bytes of which only the three low groups and the rest matter: no other character has them
            code = np.uint32(0xE0) | ((top | (point >> np.uint32(12) & mask)) << np.uint32(8))
            code |= (top | (point >> six & mask)) << np.uint32(16)
            code |= (top | (point & mask) | (point >> np.uint32(18) << six)) << np.uint32(24)
            length = 4
        for _ in range(length):
            chunk |= np.uint64(code & np.uint32(0xFF)) << (np.uint64(8) * size)
            code >>= np.uint32(8)
            size += np.uint64(1)
            if size == np.uint64(8):
                value = _step(value, chunk)
                chunk, size = np.uint64(0), np.uint64(0)
                chunks += 1
    if size > np.uint64(0):
        value = _step(value, chunk)
        chunks += 1
    return value if chunks > 1 else _step(value, np.uint64(0))


@bare(U64(W8, U64, U64, RO64, RO32))
def _hash_long(low, at, stop, masks, points):
    """The hash of a word that has more than 16 bytes, or characters beyond ASCII."""
    eight = np.uint64(8)
    value = np.uint64(_FIRST)
    high = np.uint64(0)
    chunks = 0
    place = at
    while place < stop:
        chunk = load_word(low, place) & masks[min(stop - place, eight)]
        high |= chunk & np.uint64(_HIGH)
        value = _step(value, chunk)
        place += eight
        chunks += 1
    if high:
        return _hash_beyond_ascii(low, at, stop, points)
    return value if chunks > 1 else _step(value, np.uint64(0))


@bare(types.void(W8, W32, U64, U64, RO64, RO32, W32, W64))
def _hash_places(low, places, stride, count, masks, points, rare, out):
    """out[i] = hash of low[places[i * stride]:places[i * stride + 1]] for `count` words.

    Two steps of eight bytes with zeros behind the end; words that need more are noted in `rare` and hashed again.
    """
    one = np.uint64(1)
    eight = np.uint64(8)
    sixteen = np.uint64(16)
    found = np.uint64(0)
    index = np.uint64(0)
    place = np.uint64(0)
    while index < count:
        at = np.uint64(places[place])
        size = np.uint64(places[place + one]) - at
        first = load_word(low, at) & masks[min(size, eight)]
        second = load_word(low, at + eight) & masks[min(max(size, eight), sixteen) - eight]
        out[index] = _step(_step(np.uint64(_FIRST), first), second)
        rare[found] = np.uint32(index)
        found += np.uint64((size > sixteen) | (((first | second) & np.uint64(_HIGH)) != np.uint64(0)))
        index += one
        place += stride
    for number in range(found):
        index = np.uint64(rare[number])
        place = index * stride
        out[index] = _hash_long(low, np.uint64(places[place]), np.uint64(places[place + one]), masks, points)


@bare(types.UniTuple(U64, 4)(RO8, U64, U64, U64, U64, U64, U64, RO32))
def _beyond_ascii(data, base, stop, high, word, kept, skip, points):
    """Complete the masks of a block that holds bytes above 0x7F.

    `skip` bytes at its beginning belong to a character of the block before. Gives word, kept, and how many bytes of the
    next block belong to this one's last character, as `skip` and whether they are word (bit 8) or visible (bit 9).
    """
    one = np.uint64(1)
    full = ~np.uint64(0)
    after = np.uint64(0)
    high &= full << skip
    while high:
        place = lowest(high)
        point, size = decode(data, base + place, stop)
        entry = class_of(point, points)
        span = ((one << size) - one) << place
        if entry & np.uint32(0x80000000):
            word |= span
        if entry != np.uint32(0):
            kept |= span
        high &= ~span
        if place + size > np.uint64(64):
            after = place + size - np.uint64(64)
            after |= np.uint64(256) * np.uint64(entry >> np.uint32(31)) | np.uint64(512) * np.uint64(entry != 0)
    return word, kept, after, full


@inlined
def _masks_of(data, base, stop, low, to, after, points):
    """(word, kept, after) of the block of data[base:stop] that begins at `base`; see `_beyond_ascii` for `after`."""
    one = np.uint64(1)
    if base + np.uint64(64) <= stop:
        word, kept, high = look(data, base, low, to)
    else:
        for index in range(np.uint64(64)):
            low[to + index] = data[base + index] if base + index < stop else np.uint8(0)
        word, kept, high = look(low, to, low, to)
    skip = after & np.uint64(255)
    begun = (one << skip) - one
    if after & np.uint64(256):
        word |= begun
    if after & np.uint64(512):
        kept |= begun
    after = np.uint64(0)
    if high:
        word, kept, after, _ = _beyond_ascii(data, base, stop, high, word, kept, skip, points)
    return word, kept, after


@bare(U64(RO8, I64, I64, RO64, RO32, W8, W32, W32, W64))
def hash_words(data, start, end, masks, points, low, places, rare, out):
    """Write the hash of every word of data[start:end] to `out`; returns how many. Marks and gaps only separate.

    `low`, `places` and `out` have ROOM values more than the text has bytes; `masks[n]` has the low n bytes set.
    """
    one = np.uint64(1)
    begin = np.uint64(start)
    stop = np.uint64(end)
    base = begin
    after = np.uint64(0)
    before = np.uint64(0)
    edges_found = np.uint64(0)
    while base < stop:
        word, _, after = _masks_of(data, base, stop, low, base - begin, after, points)
        edges = word ^ (word << one | before)
        before = word >> np.uint64(63)
        offset = base - begin
        while edges:
            places[edges_found] = np.uint32(offset + lowest(edges))
            edges &= edges - one
            edges_found += one
        base += np.uint64(64)
    if edges_found & one:
        places[edges_found] = np.uint32(base - begin)
    count = (edges_found + one) >> one
    _hash_places(low, places, np.uint64(2), count, masks, points, rare, out)
    return count


@bare(U64(RO8, I64, I64, RO64, RO32, W8, W8, W32, W32, W64))
def hash_code_words(data, start, end, masks, points, low, dense, places, rare, out):
    """As `hash_words`, but visible characters after a word belong to it. Those before the first word are left out.

    `dense` takes the visible bytes without the gaps between them, so that white space plays no role.
    """
    one = np.uint64(1)
    begin = np.uint64(start)
    stop = np.uint64(end)
    base = begin
    after = np.uint64(0)
    before = np.uint64(0)
    count = np.uint64(0)
    used = np.uint64(0)
    while base < stop:
        word, kept, after = _masks_of(data, base, stop, low, np.uint64(0), after, points)
        begins = word & ~(word << one | before)
        before = word >> np.uint64(63)
        kept |= word
        while begins:
            first = begins & (~begins + one)
            places[count] = np.uint32(used + ones(kept & (first - one)))
            begins ^= first
            count += one
        for index in range(np.uint64(64)):
            dense[used] = low[index]
            used += kept & one
            kept >>= one
        base += np.uint64(64)
    places[count] = np.uint32(used)
    for index in range(16):
        dense[used + np.uint64(index)] = np.uint8(0)
    _hash_places(dense, places, one, count, masks, points, rare, out)
    return count
