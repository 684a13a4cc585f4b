"""Elementwise functions, by ONNX's names: what they compute, of which types, and with what result.

Floats narrower than 32 bits are computed in float32 and rounded once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .ir import DTYPES, TensorType
from .operator import Operator
from .rules import FLOATS, INTEGERS, Definition, Types, broadcast, expect, wide

NUMBERS = (*FLOATS, *INTEGERS)
Kernel = Callable[..., np.ndarray]


@dataclass(frozen=True, slots=True)
class Where(Operator):
    """The second input where the first, a bool, holds, else the third; broadcast."""

    op: ClassVar[str] = "where"


@dataclass(frozen=True, slots=True)
class BitCast(Operator):
    """The same bits as elements of `dtype`, which has the same width."""

    op: ClassVar[str] = "bitcast"
    dtype: str


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[x.dtype.type])(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x.astype(np.float64)))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def _elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _shrink(x: np.ndarray, bias: float, lambd: float) -> np.ndarray:
    kept = np.where(x > lambd, x - bias, 0)
    return np.where(x < -lambd, x + bias, kept)


def _is_inf(x: np.ndarray, negative: float, positive: float) -> np.ndarray:
    return np.isinf(x) & np.where(x < 0, bool(negative), bool(positive))


UNARY: dict[str, Kernel] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.bitwise_not,
    "Ceil": np.ceil,
    "Celu": lambda x, alpha: np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "Clip": lambda x, low, high: np.minimum(np.maximum(x, np.float32(low)), np.float32(high)),
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Elu": _elu,
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "GeluTanh": _gelu_tanh,
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "IsInf": _is_inf,
    "IsNaN": np.isnan,
    "LeakyRelu": lambda x, alpha: np.where(x < 0, x.dtype.type(alpha) * x, x),
    "Log": np.log,
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Selu": lambda x, alpha, gamma: gamma * _elu(x, alpha),
    "Shrink": _shrink,
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Swish": lambda x, alpha: x * _sigmoid(alpha * x),
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, alpha: np.where(x > alpha, x, 0),
}
"""Functions of one tensor; parameters in the importer's order."""

OF_NUMBERS = ("Abs", "Neg", "Relu", "Shrink", "Sign")
OF_ALL_FLOATS = ("IsInf", "IsNaN")


def unary_type(operator: Operator, kind: str, types: Types) -> TensorType:
    """Return the type of an elementwise function of one tensor.

    Raises
    ------
    CompileError
        If the operand's type has no such function.
    """
    (x,) = types
    allowed = FLOATS
    if kind in OF_NUMBERS:
        allowed = NUMBERS
    elif kind in OF_ALL_FLOATS:
        allowed = tuple(name for name in DTYPES if "float" in name)
    elif kind == "Not":
        allowed = ("bool",)
    elif kind == "BitwiseNot":
        allowed = INTEGERS
    expect(kind in UNARY and x.dtype in allowed, operator, f"{' or '.join(allowed)}", types)
    return TensorType("bool" if kind in OF_ALL_FLOATS else x.dtype, x.shape)


def unary(x: np.ndarray, kind: str, parameters: tuple[float, ...] = ()) -> np.ndarray:
    """Apply an elementwise function; the result has the operand's type, or is a bool."""
    with np.errstate(all="ignore"):
        result = UNARY[kind](wide(x), *parameters)
        return result if kind in OF_ALL_FLOATS else result.astype(x.dtype)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide; integers are rounded towards zero."""
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    inexact = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return quotient + inexact.astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu" and (b < 0).any():
        return np.trunc(np.power(a.astype(np.float64), b.astype(np.float64)))
    return np.power(a, b)


ARITHMETIC: dict[str, Kernel] = {
    "Add": np.add,
    "BitShiftLeft": np.left_shift,
    "BitShiftRight": np.right_shift,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Div": _divide,
    "FMod": np.fmod,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Mul": np.multiply,
    "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
    "Pow": _power,
    "Sub": np.subtract,
}

LOGIC: dict[str, Kernel] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}

COMPARISONS: dict[str, Kernel] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}

BINARY: dict[str, Kernel] = {**ARITHMETIC, **LOGIC, **COMPARISONS}
"""Functions of two tensors of one type."""


def binary_type(operator: Operator, kind: str, types: Types) -> TensorType:
    """Return the type of an elementwise function of two tensors.

    Raises
    ------
    CompileError
        If the operands' types differ or have no such function, or their shapes do not broadcast.
    """
    a, b = types
    expect(a.dtype == b.dtype, operator, "one element type", types)
    shape = broadcast(operator, types, a.shape, b.shape)
    allowed = ("bool",) if kind in LOGIC else NUMBERS
    if kind.startswith("Bit"):
        allowed = INTEGERS
    elif kind == "Equal":
        allowed = ("bool", *NUMBERS)
    expect(kind in BINARY and a.dtype in allowed, operator, " or ".join(allowed), types)
    return TensorType("bool" if kind in COMPARISONS else a.dtype, shape)


def binary(a: np.ndarray, b: np.ndarray, kind: str) -> np.ndarray:
    """Apply an elementwise function of two tensors of one type."""
    with np.errstate(all="ignore"):
        result = BINARY[kind](wide(a), wide(b))
        return np.asarray(result, dtype=bool if kind in COMPARISONS else a.dtype)


def _where_type(op: Where, types: Types) -> TensorType:
    condition, a, b = types
    expect(condition.dtype == "bool" and a.dtype == b.dtype, op, "bool and two of a type", types)
    return TensorType(a.dtype, broadcast(op, types, *(t.shape for t in types)))


def _bitcast_type(op: BitCast, types: Types) -> TensorType:
    (x,) = types
    widths = [_bits(name) for name in (x.dtype, op.dtype)]
    expect(widths[0] == widths[1], op, f"elements of {widths[1]} bits", types)
    return TensorType(op.dtype, x.shape)


def _bits(dtype: str) -> int:
    narrow = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
    return narrow.get(dtype, 8 * np.dtype(DTYPES[dtype]).itemsize)


DEFINITIONS = (
    Definition(Where, (3, 3), _where_type, lambda op, c, a, b: np.where(c, a, b)),
    Definition(BitCast, (1, 1), _bitcast_type, lambda op, x: x.view(DTYPES[op.dtype])),
)
