"""What compiled loops need beyond numba's own operations: 64 bytes looked at together, unaligned words, lowest bits.

Each is a few lines of LLVM's portable vector code, so it becomes AVX-512, AVX2, SSE2 or NEON, whatever the machine has,
with equal results. Indexes are not checked: callers leave BLOCK bytes of room behind what they use.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

__all__ = ["BLOCK", "load_word", "look", "lowest", "ones", "scan"]

BLOCK = 64
intrinsic: Any = _intrinsic  # its own types describe a call from Python, which nobody makes
_I8, _I64 = ir.IntType(8), ir.IntType(64)
_VECTOR = ir.VectorType(_I8, BLOCK)


def _all(value):
    """A vector of one byte value."""
    return ir.Constant(_VECTOR, [value] * BLOCK)


def _pointer(context, builder, kind, array, at, to):
    """The address of array[at], as a pointer to `to`."""
    data = cgutils.create_struct_proxy(kind)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [at]), to.as_pointer())


def _bits(builder, flags):
    """A vector of 64 flags as one integer, the first one lowest."""
    return builder.bitcast(flags, _I64)


def _between(builder, vector, first, last):
    """Which bytes lie in first..last (unsigned)."""
    return builder.icmp_unsigned("<=", builder.sub(vector, _all(first)), _all(last - first))


@intrinsic
def look(_, data, at, low, to):
    """Lower-case the ASCII letters of data[at:at + 64] into low[to:to + 64].

    Gives three masks: bytes of ASCII words (letters, digits, underscore), visible ASCII bytes, bytes above 0x7F.
    """
    if not (isinstance(data, types.Array) and isinstance(low, types.Array)):
        return None

    def generate(context, builder, signature, arguments):
        bytes_, first, lowered, second = arguments
        vector = builder.load(_pointer(context, builder, signature.args[0], bytes_, first, _VECTOR), align=1)
        capital = _between(builder, vector, 65, 90)
        small = builder.or_(vector, builder.select(capital, _all(32), _all(0)))
        builder.store(small, _pointer(context, builder, signature.args[2], lowered, second, _VECTOR), align=1)
        word = builder.or_(_between(builder, small, 97, 122), _between(builder, vector, 48, 57))
        word = builder.or_(word, builder.icmp_unsigned("==", vector, _all(95)))
        found = [word, _between(builder, vector, 0x21, 0x7F), _between(builder, vector, 0x80, 0xFF)]
        return context.make_tuple(builder, signature.return_type, [_bits(builder, flags) for flags in found])

    return types.UniTuple(types.uint64, 3)(data, types.uint64, low, types.uint64), generate


@intrinsic
def scan(_, data, at):
    """Two masks of data[at:at + 64]: carriage returns, and bytes from 0xCC on (characters from U+0300 on begin so)."""
    if not isinstance(data, types.Array):
        return None

    def generate(context, builder, signature, arguments):
        bytes_, first = arguments
        vector = builder.load(_pointer(context, builder, signature.args[0], bytes_, first, _VECTOR), align=1)
        found = [builder.icmp_unsigned("==", vector, _all(13)), _between(builder, vector, 0xCC, 0xFF)]
        return context.make_tuple(builder, signature.return_type, [_bits(builder, flags) for flags in found])

    return types.UniTuple(types.uint64, 2)(data, types.uint64), generate


@intrinsic
def load_word(_, data, at):
    """The eight bytes data[at:at + 8] as one integer, the first byte lowest (on little-endian machines)."""
    if not isinstance(data, types.Array):
        return None

    def generate(context, builder, signature, arguments):
        bytes_, first = arguments
        return builder.load(_pointer(context, builder, signature.args[0], bytes_, first, _I64), align=1)

    return types.uint64(data, types.uint64), generate


@intrinsic
def lowest(_, value):
    """The number of the lowest bit that is set; 64 when there is none."""

    def generate(_, builder, __, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def ones(_, value):
    """How many bits are set."""

    def generate(_, builder, __, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate
