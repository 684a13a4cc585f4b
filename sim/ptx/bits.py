"""Shifts, fields of bits, bytes, and functions of three bits."""

import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import apply, builds, type_of, unsupported
from .syntax import BitPattern, PtxInstruction

U32 = np.dtype(np.uint32)


def shift_left(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """Shift left; an amount of at least the width gives 0."""
    bits = 8 * a.dtype.itemsize
    shifted = a << np.minimum(amount, bits - 1).astype(a.dtype)
    return np.where(amount < bits, shifted, a.dtype.type(0))


def shift_right(a: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """Shift right, with the sign of signed types; an amount of at least the width gives 0 or -1."""
    bits = 8 * a.dtype.itemsize
    shifted = a >> np.minimum(amount, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(amount < bits, shifted, a.dtype.type(0))


@builds("shl", "shr")
def build_shift(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`shl` and `shr`; amounts are clamped to the width."""
    dtype = TYPES[type_of(instruction)]
    result, value, amount = instruction.operands
    row, source = batch.row(result, dtype), batch.source(value, dtype)
    left = instruction.name == "shl"
    if isinstance(amount, BitPattern) and 0 <= amount.bits < 8 * dtype.itemsize:
        constant = np.broadcast_to(dtype.type(amount.bits), batch.count)
        return apply(np.left_shift if left else np.right_shift, row, source, constant)
    return apply(shift_left if left else shift_right, row, source, batch.source(amount, U32))


@builds("shf")
def build_funnel_shift(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`shf.l` and `shf.r`: shifts of the 64 bits `{b, a}`."""
    left, clamp = "l" in instruction.parts, "clamp" in instruction.parts

    def function(a, b, c):
        amount = (np.minimum(c, 32) if clamp else c & np.uint32(31)).astype(np.uint64)
        both = b.astype(np.uint64) << np.uint64(32) | a
        if left:
            return ((both << amount) >> np.uint64(32)).astype(np.uint32)
        return (both >> amount).astype(np.uint32)

    result, *sources = instruction.operands
    return apply(function, batch.row(result, U32), *(batch.source(s, U32) for s in sources))


@builds("bfe")
def build_extract(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`bfe`: a field of bits, extended by zeros or by its sign."""
    dtype = TYPES[type_of(instruction)]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = 8 * dtype.itemsize

    def function(a, position, length):
        start, width = position & np.uint32(0xFF), length & np.uint32(0xFF)
        held = np.minimum(width, np.uint32(bits) - np.minimum(start, np.uint32(bits)))
        ones = shift_left(np.ones(len(a), unsigned), held) - unsigned.type(1)
        field = shift_right(a.view(unsigned), start) & ones
        if dtype.kind == "i":
            at = np.minimum(start + width - np.uint32(1), np.uint32(bits - 1))
            sign = (a.view(unsigned) >> at.astype(unsigned)) & unsigned.type(1)
            field = np.where((sign == 1) & (width > 0), field | ~ones, field)
        return field

    result, a, position, length = instruction.operands
    rows = batch.source(a, dtype), batch.source(position, U32), batch.source(length, U32)
    return apply(function, batch.row(result, unsigned), *rows)


@builds("bfi")
def build_insert(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`bfi`: put the low bits of `a` into `b`."""
    dtype = TYPES[type_of(instruction)]

    def function(a, b, position, length):
        start, width = position & np.uint32(0xFF), length & np.uint32(0xFF)
        ones = np.where(
            width >= 8 * dtype.itemsize,
            ~dtype.type(0),
            shift_left(np.ones_like(a), width) - dtype.type(1),
        )
        mask = shift_left(ones, start)
        return (b & ~mask) | (shift_left(a, start) & mask)

    result, a, b, position, length = instruction.operands
    rows = [batch.source(a, dtype), batch.source(b, dtype)]
    rows += [batch.source(position, U32), batch.source(length, U32)]
    return apply(function, batch.row(result, dtype), *rows)


@builds("bmsk")
def build_mask(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`bmsk`: a mask of `b` bits from bit `a` on."""
    clamp = "clamp" in instruction.parts

    def function(a, b):
        start, width = (a, b) if clamp else (a & np.uint32(31), b & np.uint32(31))
        ones = np.where(
            width >= 32, ~np.uint32(0), shift_left(np.ones_like(a), width) - np.uint32(1)
        )
        return shift_left(ones, start)

    result, *sources = instruction.operands
    return apply(function, batch.row(result, U32), *(batch.source(s, U32) for s in sources))


@builds("lop3")
def build_lop3(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`lop3`: any function of three bits, given as a table of 8 bits."""
    result, *sources, table = instruction.operands
    if not isinstance(table, BitPattern) or len(sources) != 3:
        raise unsupported(instruction)
    minterms = [index for index in range(8) if table.bits >> index & 1]

    def function(a, b, c):
        value = np.zeros_like(a)
        for index in minterms:
            x, y, z = (word if index & bit else ~word for word, bit in ((a, 4), (b, 2), (c, 1)))
            value |= x & y & z
        return value

    return apply(function, batch.row(result, U32), *(batch.source(s, U32) for s in sources))


@builds("prmt")
def build_permute(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`prmt`: pick four bytes out of eight, each with an option to spread its sign."""
    if instruction.parts[-1] != "b32":
        raise unsupported(instruction)

    def function(a, b, selector):
        octets = np.stack((a, b), axis=-1).view(np.uint8)
        fields = selector[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)
        chosen = np.take_along_axis(octets, (fields & np.uint32(7)).astype(np.intp), axis=-1)
        signs = np.where(chosen & np.uint8(0x80), np.uint8(0xFF), np.uint8(0))
        chosen = np.where(fields & np.uint32(8), signs, chosen)
        return np.ascontiguousarray(chosen).view(np.uint32)[:, 0]

    result, *sources = instruction.operands
    return apply(function, batch.row(result, U32), *(batch.source(s, U32) for s in sources))
