"""Float arithmetic of all widths, rounded as IEEE 754 asks, and the approximate functions.

Results are computed in float64 with its last bit sticky ("round to odd") and rounded once more, so
that `fma` in float32 and below, and every directed rounding, is exact. The approximations of a GPU
(`ex2.approx` and the like) are computed in float64 and rounded, so they differ by its error bound.
"""

import math

import ml_dtypes
import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import apply, builds, type_of, unsupported
from .syntax import PtxInstruction

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SMALLEST_NORMAL = {np.dtype(np.float32): 2.0**-126, np.dtype(np.float16): 2.0**-14}
MANTISSA_BITS = {np.dtype(np.float16): 10, BFLOAT16: 7, np.dtype(np.float32): 23}
MIN_EXPONENT = {np.dtype(np.float16): -14, BFLOAT16: -126, np.dtype(np.float32): -126}


def sticky_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float64 `a + b`, rounded to odd: a sum that is inexact has an odd last bit."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = (np.ascontiguousarray(total).view(np.uint64) & np.uint64(1)) == 0
    fix = (error != 0) & even & np.isfinite(total)
    return np.where(fix, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def round_to(value: np.ndarray, dtype: np.dtype, rounding: str = "rn") -> np.ndarray:
    """Round float64 once to a narrower float: `rn`, `rz`, `rm` or `rp`."""
    if dtype == np.float64:
        return value
    if rounding == "rn" and dtype != BFLOAT16:
        return value.astype(dtype)
    # One unit in the last place of the result; all of it is exact in float64.
    _, exponent = np.frexp(np.where(np.isfinite(value), value, 0.0))
    unit = np.ldexp(1.0, np.maximum(exponent - 1, MIN_EXPONENT[dtype]) - MANTISSA_BITS[dtype])
    functions = {"rn": np.rint, "rna": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)}
    functions |= {"rz": np.trunc, "rm": np.floor, "rp": np.ceil}
    rounded = np.where(np.isfinite(value), functions[rounding](value / unit) * unit, value)
    if rounding in ("rz", "rm", "rp"):
        largest = float(ml_dtypes.finfo(dtype).max)
        over = np.isfinite(value) & (np.abs(rounded) > largest)
        keep = {"rz": over, "rm": over & (value > 0), "rp": over & (value < 0)}[rounding]
        rounded = np.where(keep, np.copysign(largest, value), rounded)
    return rounded.astype(np.float32).astype(dtype)


def flush(value: np.ndarray) -> np.ndarray:
    """Subnormal numbers become zeros of their sign (`.ftz`)."""
    limit = SMALLEST_NORMAL.get(value.dtype, 0.0)
    return np.where(np.abs(value) < limit, np.copysign(value.dtype.type(0), value), value)


def saturate(value: np.ndarray) -> np.ndarray:
    """Clamp to [0, 1], NaN to 0 (`.sat`)."""
    one, zero = value.dtype.type(1), value.dtype.type(0)
    return np.where(value > zero, np.where(value < one, value, one), zero)


def _rounding(instruction: PtxInstruction) -> str:
    return next((part for part in instruction.parts if part in ("rz", "rm", "rp")), "rn")


def _step(batch: BlockBatch, instruction: PtxInstruction, function) -> Step:
    """Apply `function` of arrays of the instruction's type, with `.ftz`, `.sat` and `.relu`."""
    kind = type_of(instruction)
    dtype = TYPES[kind]
    result, *operands = instruction.operands
    if kind.endswith("x2"):
        row = batch.packed(result, dtype)
        sources = [batch.packed(operand, dtype) for operand in operands]
    else:
        row = batch.row(result, dtype)
        sources = [batch.source(operand, dtype) for operand in operands]
    modifiers = {"ftz", "sat", "relu"} & set(instruction.parts)
    return apply(_modified(function, modifiers) if modifiers else function, row, *sources)


def _modified(function, modifiers: set[str]):
    def run(*values):
        if "ftz" in modifiers:
            value = flush(function(*(flush(value) for value in values)))
        else:
            value = function(*values)
        if "sat" in modifiers:
            value = saturate(value)
        if "relu" in modifiers:
            value = np.where((value > 0) | (value != value), value, value.dtype.type(0))
        return value

    return run


def _minimum(larger: bool, nan: bool):
    pick = (np.maximum if larger else np.minimum) if nan else (np.fmax if larger else np.fmin)
    zeros = np.logical_and if larger else np.logical_or

    def function(a, b, *more):
        value = pick(a, b)
        both_zero = (a == 0) & (b == 0)
        if both_zero.any():  # -0 < +0 here, which NumPy leaves open
            sign = zeros(np.signbit(a), np.signbit(b))
            value = np.where(both_zero, np.where(sign, -value.dtype.type(0), 0), value)
        return function(value, *more) if more else value

    return function


def build_binary(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`add`, `sub`, `mul`, `min` and `max` of floats."""
    name, dtype = instruction.name, TYPES[type_of(instruction)]
    if name in ("min", "max"):
        if "xorsign" in instruction.parts:
            raise unsupported(instruction)
        return _step(batch, instruction, _minimum(name == "max", "NaN" in instruction.parts))
    rounding = _rounding(instruction)
    if rounding == "rn":
        return _step(
            batch, instruction, {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
        )
    if dtype == np.float64:
        raise unsupported(instruction)

    def function(a, b):
        x, y = a.astype(np.float64), b.astype(np.float64)
        exact = x * y if name == "mul" else sticky_sum(x, -y if name == "sub" else y)
        return round_to(exact, dtype, rounding)

    return _step(batch, instruction, function)


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    product = a * b
    scale = 2.0**27 + 1
    a_high = scale * a - (scale * a - a)
    b_high = scale * b - (scale * b - b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, np.where(np.isfinite(error), error, 0.0)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: str = "rn") -> np.ndarray:
    """`a * b + c`, rounded once; in float64 to nearest, rarely off by its last bit."""
    if a.dtype == np.float64:
        product, error = _two_product(a, b)
        total = product + c
        part = total - product
        rest = (product - (total - part)) + (c - part)
        return np.where(np.isfinite(total), total + (rest + error), total)
    exact = sticky_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    return round_to(exact, a.dtype, rounding)


@builds("fma")
def build_fma(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`fma`, and `mad` of floats."""
    rounding = _rounding(instruction)
    if rounding != "rn" and type_of(instruction) == "f64":
        raise unsupported(instruction)
    return _step(batch, instruction, lambda a, b, c: fma(a, b, c, rounding))


def build_divide(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`div` of floats; the approximate forms are computed exactly."""
    if _rounding(instruction) != "rn":
        raise unsupported(instruction)
    return _step(batch, instruction, np.divide)


def build_unary(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`abs` and `neg` of floats: their sign bit alone."""
    kind = type_of(instruction)
    bits = np.dtype(f"u{TYPES[kind].itemsize}")
    sign = bits.type(1 << (8 * bits.itemsize - 1))
    negate = instruction.name == "neg"

    def function(value):
        word = np.ascontiguousarray(value).view(bits)
        return (word ^ sign if negate else word & ~sign).view(value.dtype)

    return _step(batch, instruction, function)


def _accurate(function):
    """A function of float64 for values of any float type."""

    def run(value):
        return round_to(function(value.astype(np.float64)), value.dtype)

    return run


APPROXIMATE = {
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda value: 1 / np.sqrt(value),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


@builds(*APPROXIMATE)
def build_function(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """Reciprocals, roots and elementary functions."""
    if _rounding(instruction) != "rn":
        raise unsupported(instruction)
    return _step(batch, instruction, _accurate(APPROXIMATE[instruction.name]))


@builds("copysign")
def build_copysign(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`copysign d, a, b`: `b` with the sign of `a`."""
    return _step(batch, instruction, lambda a, b: np.copysign(b, a))


@builds("testp")
def build_test(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`testp`: the class of a float."""
    dtype = TYPES[type_of(instruction)]
    limit = math.ldexp(1.0, -126 if dtype == np.float32 else -1022)
    tests = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda value: ~np.isnan(value),
        "notanumber": np.isnan,
        "normal": lambda value: np.isfinite(value) & (np.abs(value) >= limit),
        "subnormal": lambda value: (value != 0) & (np.abs(value) < limit),
    }
    result, source = instruction.operands
    test = tests[instruction.parts[1]]
    return apply(test, batch.row(result, TYPES["pred"]), batch.source(source, dtype))
