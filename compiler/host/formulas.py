"""Formulas of kernels for the graph's elementwise operators.

NumPy computes everything else: other element types, integer quotients and remainders, most powers,
and conversions of floats to other integers than int32, because their overflow is undefined.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from ..cpu.kernels.formulas import Formula
from ..graph import operators as ops
from ..graph.operators import Operator, Where
from ..graph.operators.elementwise import COMPARISONS, LOGIC

TYPES = ("float32", "int8", "uint8", "int32", "int64", "bool")
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


def _hard_sigmoid(x: Formula, alpha: float, beta: float) -> Formula:
    line = ("add", ("mul", number(alpha), x), number(beta))
    return ("limit", line, 0.0, 1.0)


def _elu(x: Formula, alpha: float) -> Formula:
    rest = ("mul", number(alpha), ("expm1", ("min", x, 0.0)))
    return ("select", ("less", 0.0, x), x, rest)


def _celu(x: Formula, alpha: float) -> Formula:
    if alpha <= 0:
        raise NoFormulaError
    rest = ("mul", number(alpha), ("expm1", ("div", ("min", x, 0.0), number(alpha))))
    return ("add", ("max", x, 0.0), rest)


def _gelu_tanh(x: Formula) -> Formula:
    cube = ("mul", ("mul", x, x), x)
    inner = ("mul", number(math.sqrt(2 / math.pi)), ("add", x, ("mul", number(0.044715), cube)))
    return ("mul", ("mul", 0.5, x), ("add", 1.0, ("tanh", inner)))


def _shrink(x: Formula, bias: float, lambd: float) -> Formula:
    kept = ("select", ("less", number(lambd), x), ("sub", x, number(bias)), 0.0)
    return ("select", ("less", x, number(-lambd)), ("add", x, number(bias)), kept)


def _hard_swish(x: Formula) -> Formula:
    return ("mul", x, ("limit", ("add", ("div", x, 6.0), 0.5), 0.0, 1.0))


EXACT: Mapping[str, Callable[..., Formula]] = {
    "Abs": lambda x: ("abs", x),
    "Ceil": lambda x: ("ceil", x),
    "Clip": lambda x, low, high: ("min", ("max", x, number(low)), number(high)),
    "Floor": lambda x: ("floor", x),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "IsNaN": lambda x: ("xor", ("equal", x, x), 1),
    "LeakyRelu": lambda x, a: ("select", ("less", x, 0.0), ("mul", number(a), x), x),
    "Neg": lambda x: ("neg", x),
    "Reciprocal": lambda x: ("div", 1.0, x),
    "Relu": lambda x: ("max", x, 0.0),
    "Round": lambda x: ("round", x),
    "Shrink": _shrink,
    "Sign": lambda x: ("sign", x),
    "Softsign": lambda x: ("div", x, ("add", 1.0, ("abs", x))),
    "Sqrt": lambda x: ("sqrt", x),
    "ThresholdedRelu": lambda x, a: ("select", ("less", number(a), x), x, 0.0),
}
"""Functions of float32 whose operations round as those of the definition."""

NEAR: Mapping[str, Callable[..., Formula]] = {
    "Celu": _celu,
    "Elu": _elu,
    "Erf": lambda x: ("erf", x),
    "Exp": lambda x: ("exp", x),
    "Gelu": lambda x: ("gelu", x),
    "GeluTanh": _gelu_tanh,
    "Log": lambda x: ("log", x),
    "Mish": lambda x: ("mul", x, ("tanh", ("softplus", x))),
    "Selu": lambda x, alpha, gamma: ("mul", number(gamma), _elu(x, alpha)),
    "Sigmoid": lambda x: ("sigmoid", x),
    "Softplus": lambda x: ("softplus", x),
    "Swish": lambda x, alpha: ("mul", x, ("sigmoid", ("mul", number(alpha), x))),
    "Tanh": lambda x: ("tanh", x),
}
"""Approximated functions of float32."""

POWERS: Mapping[float, Callable[[Formula], Formula]] = {
    -1.0: lambda x: ("div", 1.0, x),
    1.0: lambda x: x,
    2.0: lambda x: ("mul", x, x),
    3.0: lambda x: ("mul", ("mul", x, x), x),
}
"""Powers with a constant exponent; the definition rounds each one once."""


def unary(operator: ops.Unary, x: Formula, dtype: str) -> tuple[Formula, bool]:
    """Return a function of one value, and whether it is bit-exact to the definition."""
    kind, parameters = operator.kind, operator.parameters
    if kind == "Not":
        return ("xor", x, 1), True
    if kind == "BitwiseNot":
        return cut(("xor", x, -1), dtype), True
    if dtype == FLOAT:
        for table, exact in ((EXACT, True), (NEAR, False)):
            if kind in table:
                return table[kind](x, *parameters), exact
    elif kind in ("Abs", "Neg", "Sign"):
        return cut((kind.lower(), x), dtype), True
    elif kind == "Relu":
        return ("max", x, 0), True
    raise NoFormulaError


def binary(operator: ops.Binary, a: Formula, b: Formula, dtype: str) -> tuple[Formula, bool]:
    """Return a function of two values of a type, and whether it is bit-exact to the definition."""
    kind = operator.kind
    if kind in COMPARISONS:
        less, swapped, equal = ("less", a, b), ("less", b, a), ("equal", a, b)
        formulas = {"Equal": equal, "Less": less, "Greater": swapped}
        formulas |= {"LessOrEqual": ("or", less, equal), "GreaterOrEqual": ("or", swapped, equal)}
        return formulas[kind], True
    if kind in LOGIC:
        return (kind.lower(), a, b), True
    if kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        return (kind.removeprefix("Bitwise").lower(), a, b), True
    if kind in ("Max", "Min"):
        return (kind.lower(), a, b), True
    if kind in ("Add", "Sub", "Mul"):
        return cut((kind.lower(), a, b), dtype), True
    if dtype == FLOAT and kind == "Div":
        return ("div", a, b), True
    if dtype == FLOAT and kind == "PRelu":
        return ("select", ("less", a, 0.0), ("mul", b, a), a), True
    if dtype == FLOAT and kind == "Pow" and isinstance(b, float) and b in POWERS:
        return POWERS[b](a), False
    raise NoFormulaError


def cast(x: Formula, source: str, target: str, last: bool) -> Formula:
    """Convert a value; to 64 bits, or from 64 to 32 bits, only if it is the `last` operation."""
    if source == target:
        return x
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


def shift(x: Formula, dtype: str) -> Formula:
    """Return `Shift` of a value of a type."""
    return ("sub", x, 128) if dtype == "uint8" else ("add", x, 128)


ELEMENTWISE: tuple[type[Operator], ...] = (
    *(ops.Unary, ops.Binary, ops.Cast, Where),
    *(ops.Quantize, ops.GeneralQuantize, ops.Dequantize, ops.GeneralDequantize, ops.Shift),
)
"""Operators that may be part of a chain."""
