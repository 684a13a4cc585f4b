"""Formulas of kernels for the graph's elementwise operators.

NumPy computes everything else: other element types, integer quotients and remainders, most powers,
and conversions of floats to other integers than int32, because their overflow is undefined.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...isa.meanings.cells import GATE_ONE, GATE_ZERO_POINT, HIGH_UNIT
from ...isa.numbers import EXACT_LIMIT, INT8_MAX, INT8_MIN
from ..formulas import APPROXIMATED, Formula, is_number, operations_in, real_numbers, substituted
from ..graph import operators as ops
from ..graph.operators import Operator, Where
from .integer_bounds import is_plain

HALF = "float16"

TYPES = ("float32", HALF, "int8", "uint8", "int32", "int64", "bool")
"""Element types of kernels."""

PASSING = ("int16", "uint16")
"""Element types of values that only pass from a quantisation to a dequantisation in a kernel."""

FLOAT = "float32"


class NoFormulaError(Exception):
    """An operator has no formula that equals its definition, exactly or within rounding."""


def number(value: float) -> float:
    """Round a number to float32.

    Raises
    ------
    NoFormulaError
        For a NaN, which would need a second comparison in every formula that compares.
    """
    if math.isnan(value):
        raise NoFormulaError
    with np.errstate(over="ignore"):
        return float(np.float32(value))


WHOLE = frozenset(
    (
        *("add", "sub", "mul", "max", "min", "neg", "abs", "sign", "and", "or", "xor", "not"),
        *("invert", "less", "less_equal", "equal"),
    )
)
"""Operations of integers; the others round or overflow in another way than the definition."""

LEAVING = ("add", "sub", "mul", "neg", "abs", "sign", "invert")
"""Operations of integers whose results may leave the operands' type."""


def pointwise(
    operator: ops.Pointwise, parts: Sequence[Formula], dtype: str
) -> tuple[Formula, bool]:
    """Return the function of operands of a type, and whether it is bit-exact to the definition."""
    operands = dict(zip(operator.function.operands, parts, strict=True))
    if dtype == FLOAT:
        formula = float_formula(operator.formula)
        known = {name: part for name, part in operands.items() if is_number(part)}
        # Numbers that meet are computed in float64, so they are rounded again.
        rounded = real_numbers(substituted(formula, known))
        return substituted(rounded, operands), APPROXIMATED.isdisjoint(operations_in(formula))
    formula = operator.formula
    if not (WHOLE.issuperset(operations_in(formula)) and _is_whole(formula)):
        raise NoFormulaError
    cuts = isinstance(formula, tuple) and formula[0] in LEAVING
    formula = substituted(formula, operands)
    return cut(formula, dtype) if cuts else formula, True


def float_formula(formula: Formula) -> Formula:
    """Return a law for float32 operands: its numbers in float32, and `expm1` of any number."""
    if isinstance(formula, str):
        return formula
    if not isinstance(formula, tuple):
        return number(formula)
    name, *arguments = (formula[0], *map(float_formula, formula[1:]))
    if name != "expm1" or _is_at_most_zero(arguments[0]):
        return (name, *arguments)
    (x,) = arguments
    below = ("expm1", ("neg", ("abs", x)))
    return ("select", ("less", 0.0, x), ("neg", ("mul", below, ("exp", x))), below)


def _is_at_most_zero(x: Formula) -> bool:
    """Whether the form of a formula shows that it is not positive, as `expm1` in kernels needs."""
    if not isinstance(x, tuple):
        return not isinstance(x, str) and x <= 0
    name, first, *others = x
    if name == "min":
        return any(map(_is_at_most_zero, (first, *others)))
    positive = bool(others) and isinstance(others[0], float) and others[0] > 0
    return name == "div" and positive and _is_at_most_zero(first)


def _is_whole(formula: Formula) -> bool:
    if isinstance(formula, tuple):
        return all(map(_is_whole, formula[1:]))
    return isinstance(formula, (str, int))


def cast(x: Formula, source: str, target: str, last: bool) -> Formula:
    """Convert a value; to 64 bits, or from 64 to 32 bits, only if it is the `last` operation."""
    if source == target or (source, target) == (HALF, FLOAT):
        return x
    if target == HALF and source == FLOAT and last:
        return x
    if HALF in (source, target):
        raise NoFormulaError
    if target == "bool":
        return ("truth", x)
    if target == FLOAT:
        return ("real", x)
    if source == FLOAT and target == "int32":  # overflow gives what NumPy gives on x86-64
        return ("rounded", ("select", ("less", x, 0.0), ("ceil", x), ("floor", x)))
    if source == FLOAT or ("int64" in (source, target) and not last):
        raise NoFormulaError
    return cut(x, target)


def cut(x: Formula, dtype: str) -> Formula:
    """Wrap an integer of 32 bits or more to a narrower type; leave other values unchanged."""
    return (dtype, x) if dtype in ("int8", "uint8") else x


def quantize(
    operator: ops.Quantize | ops.GeneralQuantize, x: Formula, scale: Formula, zero: Formula
) -> Formula:
    """Return `Quantize` to 8 or 16 bits; values that overflow int32 saturate in any case."""
    if operator.dtype not in ("int8", "uint8", *PASSING):
        raise NoFormulaError
    limits = np.iinfo(operator.dtype)
    low, high = int(limits.min), int(limits.max)
    near = ("add", ("rounded", ("finite", ("div", x, scale))), zero)
    return ("min", ("max", near, low), high)


def dequantize(x: Formula, scale: Formula, zero: Formula, dtype: str) -> Formula:
    """Return `Dequantize`; not for 32-bit types, whose differences would wrap."""
    if dtype not in ("int8", "uint8", *PASSING) and (dtype != "int32" or zero != 0):
        raise NoFormulaError
    return ("mul", ("real", ("sub", x, zero)), scale)


def add(operator: ops.QAdd, a: Formula, b: Formula) -> Formula:
    """Return `QAdd`; its sum is exact in binary32."""
    first, second = operator.multipliers
    largest = -INT8_MIN * (abs(first) + abs(second)) + abs(operator.constant)
    if largest >= EXACT_LIMIT:
        raise NoFormulaError
    scaled = (("mul", ("real", x), float(factor)) for x, factor in ((a, first), (b, second)))
    total = ("add", ("add", *scaled), float(operator.constant))
    return _requantised(operator, total, largest)


def multiply(operator: ops.QMul, a: Formula, b: Formula) -> Formula:
    """Return `QMul`."""
    points = operator.zero_point_a, operator.zero_point_b
    largest = math.prod(max(INT8_MAX - zero, zero - INT8_MIN) for zero in points)
    first, second = (("sub", x, zero) for x, zero in zip((a, b), points, strict=True))
    return _requantised(operator, ("real", ("mul", first, second)), largest)


def blend(operator: ops.QBlend, *state: Formula) -> Formula:
    """Return `QBlend`; its totals and what the high byte leaves of them stay below 2**24."""
    high, low, gate, increment = state
    unit = HIGH_UNIT * GATE_ONE
    kept = ("mul", ("add", ("mul", high, HIGH_UNIT), low), ("sub", gate, GATE_ZERO_POINT))
    added = ("mul", ("sub", increment, operator.zero_point), operator.multiplier)
    total = ("add", kept, added)
    digit = _byte(("real", total), 1 / unit)
    if not operator.low:
        return digit
    return _byte(("real", ("sub", total, ("mul", digit, unit))), 1 / GATE_ONE)


def _requantised(operator: ops.QAdd | ops.QMul, total: Formula, largest: int) -> Formula:
    if not is_plain(largest, operator.scale):
        raise NoFormulaError
    return _byte(total, operator.scale, operator.zero_point_y, operator.low, operator.high)


def _byte(
    total: Formula, scale: float, zero_point: int = 0, low: int = INT8_MIN, high: int = INT8_MAX
) -> Formula:
    near = ("rounded", ("mul", total, number(scale)))
    return ("min", ("max", ("add", near, zero_point), low), high)


def shift(x: Formula, dtype: str) -> Formula:
    """Return `Shift` of a value of a type."""
    return ("sub", x, 128) if dtype == "uint8" else ("add", x, 128)


ELEMENTWISE: tuple[type[Operator], ...] = (
    *(ops.Pointwise, ops.Cast, Where),
    *(ops.Quantize, ops.GeneralQuantize, ops.Dequantize, ops.GeneralDequantize, ops.Shift),
    *(ops.QAdd, ops.QBlend, ops.QMul),
)
"""Operators that may be part of a chain."""
