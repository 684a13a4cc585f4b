"""Integer arithmetic, bits and logic."""

import numpy as np

from . import floats
from .batch import TYPES, BlockBatch, Step
from .builders import apply, builds, type_of, unsupported
from .syntax import PtxInstruction

FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
U32 = np.dtype(np.uint32)


def _multiply_wide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    return a.astype(wide) * b.astype(wide)


def _multiply_high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.itemsize < 8:
        return (_multiply_wide(a, b) >> (8 * a.dtype.itemsize)).astype(a.dtype)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    low = (x & mask) * (y & mask)
    middle = (x >> half) * (y & mask) + (low >> half)
    other = (x & mask) * (y >> half) + (middle & mask)
    high = (x >> half) * (y >> half) + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # PTX leaves x / 0 open; GPUs give all ones.
    quotient = a // np.where(b == 0, 1, b)
    if a.dtype.kind == "i":
        truncate = ((a % np.where(b == 0, 1, b)) != 0) & ((a < 0) != (b < 0))
        quotient = quotient + truncate.astype(a.dtype)
    return np.where(b == 0, a.dtype.type(-1) if a.dtype.kind == "i" else ~a.dtype.type(0), quotient)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, a, a - _divide(a, b) * b)


def _saturating(function):
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        limits = np.iinfo(np.int32)
        exact = function(a.astype(np.int64), b.astype(np.int64))
        return np.clip(exact, limits.min, limits.max).astype(np.int32)

    return run


BINARY = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}


@builds("add", "sub", "min", "max")
def build_binary(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`add`, `sub`, `min` and `max` of integers; floats have their own."""
    kind = type_of(instruction)
    if kind in FLOATS:
        return floats.build_binary(batch, instruction)
    if "cc" in instruction.parts:
        return build_carry(batch, instruction)
    function = BINARY[instruction.name]
    if "sat" in instruction.parts:
        function = _saturating(function)
    if kind in ("u16x2", "s16x2") or "relu" in instruction.parts:
        raise unsupported(instruction)
    dtype = TYPES[kind]
    result, *sources = instruction.operands
    return apply(
        function, batch.row(result, dtype), *(batch.source(source, dtype) for source in sources)
    )


@builds("addc", "subc")
def build_carry(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`add.cc`, `addc`, `sub.cc` and `subc`: sums with the carry of each lane."""
    dtype = np.dtype(f"u{TYPES[type_of(instruction)].itemsize}")
    result = batch.row(instruction.operands[0], dtype)
    a, b = (batch.source(source, dtype) for source in instruction.operands[1:])
    carry = batch.rows.setdefault("%carry", np.zeros(batch.count, bool))
    carry_in = instruction.name.endswith("c")
    subtract = instruction.name.startswith("sub")
    writes_carry = "cc" in instruction.parts

    def run(lanes) -> None:
        x, y = a[lanes], b[lanes]
        step = carry[lanes].astype(dtype) if carry_in else np.zeros_like(x)
        if subtract:
            value = x - y - step
            out = (x < y) | ((x == y) & (step != 0))
        else:
            partial = x + y
            value = partial + step
            out = (partial < x) | (value < partial)
        result[lanes] = value
        if writes_carry:
            carry[lanes] = out

    return run


@builds("mul", "mad")
def build_multiply(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`mul` and `mad`: low half, high half, or the wide product."""
    kind = type_of(instruction)
    if kind in FLOATS:
        build = floats.build_binary if instruction.name == "mul" else floats.build_fma
        return build(batch, instruction)
    if "cc" in instruction.parts or "sat" in instruction.parts:
        raise unsupported(instruction)
    dtype = TYPES[kind]
    wide = np.dtype(f"{dtype.kind}{dtype.itemsize * 2}") if "wide" in instruction.parts else dtype
    result = batch.row(instruction.operands[0], wide)
    a, b = (batch.source(source, dtype) for source in instruction.operands[1:3])
    addends = [batch.source(source, wide) for source in instruction.operands[3:]]
    product = np.multiply
    if "wide" in instruction.parts:
        product = _multiply_wide
    elif "hi" in instruction.parts:
        product = _multiply_high
    if not addends:
        return apply(product, result, a, b)
    return apply(lambda x, y, z: product(x, y) + z, result, a, b, *addends)


@builds("mul24", "mad24")
def build_multiply24(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`mul24.lo` and `mad24.lo`."""
    dtype = TYPES[type_of(instruction)]
    if "lo" not in instruction.parts:
        raise unsupported(instruction)
    shift = dtype.type(8)

    def product(x, y):
        return ((x << shift) >> shift) * ((y << shift) >> shift)

    result, *sources = instruction.operands
    rows = [batch.source(source, dtype) for source in sources]
    if len(rows) == 2:
        return apply(product, batch.row(result, dtype), *rows)
    return apply(lambda x, y, z: product(x, y) + z, batch.row(result, dtype), *rows)


@builds("div", "rem", "sad")
def build_divide(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`div`, `rem` and `sad` of integers."""
    kind = type_of(instruction)
    if kind in FLOATS:
        return floats.build_divide(batch, instruction)
    dtype = TYPES[kind]
    functions = {
        "div": _divide,
        "rem": _remainder,
        "sad": lambda a, b, c: c + np.where(a < b, b - a, a - b),
    }
    result, *sources = instruction.operands
    rows = [batch.source(source, dtype) for source in sources]
    return apply(functions[instruction.name], batch.row(result, dtype), *rows)


def _count_leading_zeros(a: np.ndarray) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    count = np.full(a.shape, bits, np.uint32)
    for position in range(bits):
        count[(a >> a.dtype.type(position)) & a.dtype.type(1) == 1] = bits - 1 - position
    return count


def _reverse_bits(a: np.ndarray) -> np.ndarray:
    octets = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, a.dtype.itemsize)
    bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., ::-1]
    return np.packbits(bits, axis=-1, bitorder="little").view(a.dtype)[..., 0]


def _find_bit(a: np.ndarray) -> np.ndarray:
    value = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
    unsigned = value.view(f"u{a.dtype.itemsize}")
    return (np.uint32(8 * a.dtype.itemsize - 1) - _count_leading_zeros(unsigned)).astype(np.uint32)


@builds("abs", "neg", "not", "cnot", "popc", "clz", "brev", "bfind")
def build_unary(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """Instructions of one integer; `neg` and `abs` of floats have their own."""
    kind = type_of(instruction)
    if kind in FLOATS:
        return floats.build_unary(batch, instruction)
    if "shiftamt" in instruction.parts:
        raise unsupported(instruction)
    functions = {
        "abs": np.abs,
        "neg": lambda a: -a,
        "not": np.logical_not if kind == "pred" else np.invert,
        "cnot": lambda a: a == 0,
        "popc": np.bitwise_count,
        "clz": _count_leading_zeros,
        "brev": _reverse_bits,
        "bfind": _find_bit,
    }
    dtype = TYPES[kind]
    narrow = instruction.name in ("popc", "clz", "bfind")
    result = batch.row(instruction.operands[0], U32 if narrow else dtype)
    source = batch.source(instruction.operands[1], dtype)
    return apply(functions[instruction.name], result, source)


@builds("and", "or", "xor")
def build_logic(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`and`, `or` and `xor` of bits and predicates."""
    dtype = TYPES[type_of(instruction)]
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[instruction.name]
    result, a, b = instruction.operands
    return apply(function, batch.row(result, dtype), batch.source(a, dtype), batch.source(b, dtype))


@builds("dp4a", "dp2a")
def build_dot(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`dp4a` and `dp2a`: a dot product of bytes, added to 32 bits."""
    kinds = [part for part in instruction.parts if part in ("s32", "u32")]
    types = [np.int8 if kind == "s32" else np.uint8 for kind in kinds]
    signed = np.int32 if "s32" in kinds else np.uint32
    half = instruction.name == "dp2a"
    offset = 2 if "hi" in instruction.parts else 0

    def function(a, b, c):
        y = np.ascontiguousarray(b).view(types[1]).reshape(-1, 4).astype(np.int64)
        if half:
            wide = np.int16 if kinds[0] == "s32" else np.uint16
            x = np.ascontiguousarray(a).view(wide).reshape(-1, 2).astype(np.int64)
            y = y[:, offset : offset + 2]
        else:
            x = np.ascontiguousarray(a).view(types[0]).reshape(-1, 4).astype(np.int64)
        return ((x * y).sum(axis=1) + c.view(signed)).astype(np.uint32)

    result, *sources = instruction.operands
    return apply(function, batch.row(result, U32), *(batch.source(s, U32) for s in sources))
