"""`cvt`: conversions between integers and floats of all widths."""

import ml_dtypes
import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import apply, builds, unsupported
from .floats import flush, round_to, saturate, sticky_sum
from .syntax import PtxInstruction

U16, U32 = np.dtype(np.uint16), np.dtype(np.uint32)
INTEGER_ROUNDING = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
SMALL_FLOATS = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}


def to_tf32(value: np.ndarray) -> np.ndarray:
    """float32 to the nearest TF32, ties away from zero (`cvt.rna.tf32.f32`)."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(value), rounded, value)


def _float_to_integer(dtype: np.dtype, rounding: str):
    limits = np.iinfo(dtype)

    def function(value: np.ndarray) -> np.ndarray:
        whole = INTEGER_ROUNDING[rounding](value.astype(np.float64))
        # The largest int64 and uint64 are no floats: compare with the power of two above.
        high = whole >= float(limits.max) + (1 if dtype.itemsize < 8 else 0)
        low = whole <= float(limits.min)
        inside = np.where(high | low | np.isnan(whole), 0.0, whole)
        number = inside.astype(dtype)
        number = np.where(high, dtype.type(limits.max), number)
        return np.where(low, dtype.type(limits.min), number)

    return function


def _integer_to_float(dtype: np.dtype, rounding: str):
    def function(value: np.ndarray) -> np.ndarray:
        if value.dtype.itemsize < 8:
            return round_to(value.astype(np.float64), dtype, rounding)
        # Split, so that the sum in float64 is rounded to odd and rounded properly afterwards.
        low = (value & value.dtype.type(0xFFFFFFFF)).astype(np.float64)
        high = (value >> value.dtype.type(32)).astype(np.float64) * 2.0**32
        return (
            high + low if dtype == np.float64 else round_to(sticky_sum(high, low), dtype, rounding)
        )

    return function


def _integer_to_integer(source: np.dtype, dtype: np.dtype, clamp: bool):
    if not clamp:
        return lambda value: value.astype(dtype)
    low = max(np.iinfo(source).min, np.iinfo(dtype).min)
    high = min(np.iinfo(source).max, np.iinfo(dtype).max)
    return lambda value: np.clip(value, source.type(low), source.type(high)).astype(dtype)


@builds("cvt")
def build_convert(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`cvt` of single values; packed forms are built apart."""
    parts = instruction.parts
    if "pack" in parts:
        return _build_pack(batch, instruction)
    to, source_kind = parts[-2], parts[-1]
    if to.endswith("x2") or source_kind.endswith("x2"):
        return _build_packed_convert(batch, instruction)
    dtype, source = TYPES[to], TYPES[source_kind]
    to_float, from_float = dtype.kind not in "iu", source.kind not in "iu"
    rounding = next((p for p in parts if p in ("rn", "rz", "rm", "rp", "rna")), "rn")
    integral = next((p for p in parts if p in INTEGER_ROUNDING), None)
    if to == "tf32":
        if rounding != "rna":
            raise unsupported(instruction)
        function = to_tf32
    elif to_float and from_float:
        function = _float_to_float(dtype, rounding, integral)
    elif to_float:
        function = _integer_to_float(dtype, rounding)
    elif from_float:
        function = _float_to_integer(dtype, integral or "rzi")
    else:
        function = _integer_to_integer(source, dtype, "sat" in parts)
    row = batch.wide_row(instruction.operands[0], dtype)
    value = batch.source(instruction.operands[1], source, narrow=True)
    return apply(_modified(function, instruction), row, value)


def _modified(function, instruction: PtxInstruction):
    if "ftz" in instruction.parts:
        function = _flushing(function)
    if "sat" in instruction.parts and TYPES[instruction.parts[-2]].kind not in "iu":
        return lambda value: saturate(function(value))
    if "relu" in instruction.parts:
        return lambda value: np.where(value <= 0, 0, function(value))
    return function


def _flushing(function):
    def run(value):
        result = function(flush(value) if value.dtype == np.float32 else value)
        return flush(result) if result.dtype == np.float32 else result

    return run


def _float_to_float(dtype: np.dtype, rounding: str, integral: str | None):
    def function(value: np.ndarray) -> np.ndarray:
        wide = value.astype(np.float64)
        if integral is not None:
            wide = INTEGER_ROUNDING[integral](wide)
        return round_to(wide, dtype, rounding)

    return function


def _build_packed_convert(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`cvt` of two floats to a packed pair, and of a packed pair of small floats to halves."""
    to, source_kind = instruction.parts[-2:]
    rounding = "rz" if "rz" in instruction.parts else "rn"
    result, *operands = instruction.operands
    if to in ("f16x2", "bf16x2") and source_kind == "f32":
        row = batch.packed(result, TYPES[to])
        high, low = (batch.source(operand, TYPES["f32"]) for operand in operands)

        def convert(upper, lower):
            pair = np.stack((lower, upper), axis=-1).astype(np.float64)
            if "relu" in instruction.parts:
                pair = np.where(pair <= 0, 0, pair)
            return round_to(pair, TYPES[to], rounding)

        return apply(convert, row, high, low)
    if to in SMALL_FLOATS and source_kind == "f32":
        small = np.dtype(SMALL_FLOATS[to])
        limit = float(ml_dtypes.finfo(small).max)
        high, low = (batch.source(operand, TYPES["f32"]) for operand in operands)

        def narrow(upper, lower):
            pair = np.clip(np.stack((lower, upper), axis=-1), -limit, limit).astype(small)
            return np.ascontiguousarray(pair).view(np.uint16)[:, 0]

        return apply(narrow, batch.row(result, U16), high, low)
    if to == "f16x2" and source_kind in SMALL_FLOATS:
        small = SMALL_FLOATS[source_kind]

        def widen(word):
            pair = np.ascontiguousarray(word).view(small).reshape(-1, 2)
            return np.ascontiguousarray(pair.astype(np.float16)).view(np.uint32)[:, 0]

        return apply(widen, batch.row(result, U32), batch.source(operands[0], U16))
    raise unsupported(instruction)


def _build_pack(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`cvt.pack.sat`: two int32, clamped and put below what `c` holds."""
    kind = instruction.parts[3]
    if kind not in ("s8", "u8", "s16", "u16"):
        raise unsupported(instruction)
    dtype = TYPES[kind]
    bits = 8 * dtype.itemsize
    result, a, b, *rest = instruction.operands
    s32 = np.dtype(np.int32)
    rows = [batch.source(a, s32), batch.source(b, s32)]
    rows += [batch.source(operand, U32) for operand in rest]
    limits = np.iinfo(dtype)
    mask = np.uint32((1 << bits) - 1)

    def function(high, low, kept=None):
        x, y = (np.clip(v, limits.min, limits.max).astype(np.uint32) & mask for v in (high, low))
        packed = x << np.uint32(bits) | y
        return packed if kept is None else kept << np.uint32(2 * bits) | packed

    return apply(function, batch.row(result, U32), *rows)
