"""Elementwise functions by ONNX's names, selection, and conversions between element types.

Floats narrower than 32 bits are computed in float32 and rounded once.
"""

import math
from collections.abc import Callable

import numpy as np

from ..operator import Operator, operator
from ..types import DTYPES, FLOATS, INTEGERS, NARROW_FLOATS, NUMBERS, TensorType, Types, wide

Function = Callable[..., np.ndarray]


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


UNARY: dict[str, Function] = {
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
"""Functions of one tensor; their parameters are in the order of the importer's table."""

ALL_FLOATS = tuple(name for name in DTYPES if "float" in name)

OPERAND_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Abs", "Neg", "Relu", "Shrink", "Sign"), NUMBERS),
    **dict.fromkeys(("IsInf", "IsNaN"), ALL_FLOATS),
    "Not": ("bool",),
    "BitwiseNot": INTEGERS,
}
"""Element types that functions of one tensor take; `FLOATS` for functions not listed."""

TESTS = ("IsInf", "IsNaN")
"""Functions of one tensor that return bool."""


@operator("unary")
class Unary(Operator):
    """An elementwise function of one tensor; `kind` and `parameters` as in ONNX."""

    kind: str
    parameters: tuple[float, ...] = ()

    def result_type(self, types: Types) -> TensorType:
        (x,), allowed = types, OPERAND_TYPES.get(self.kind, FLOATS)
        self.expect(self.kind in UNARY and x.dtype in allowed, " or ".join(allowed), types)
        return TensorType("bool" if self.kind in TESTS else x.dtype, x.shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = UNARY[self.kind](wide(x), *self.parameters)
            return result if self.kind in TESTS else result.astype(x.dtype)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide; integers round towards zero."""
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    inexact = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return quotient + inexact.astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu" and (b < 0).any():
        return np.trunc(np.power(a.astype(np.float64), b.astype(np.float64)))
    return np.power(a, b)


ARITHMETIC: dict[str, Function] = {
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

LOGIC: dict[str, Function] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}

COMPARISONS: dict[str, Function] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}

BINARY: dict[str, Function] = {**ARITHMETIC, **LOGIC, **COMPARISONS}
"""Functions of two tensors of one type."""


@operator("binary", 2)
class Binary(Operator):
    """An elementwise function of two tensors of one type, with broadcasting; `kind` as in ONNX."""

    kind: str

    def result_type(self, types: Types) -> TensorType:
        a, b = types
        self.expect(a.dtype == b.dtype, "one element type", types)
        shape = self.broadcast(types, a.shape, b.shape)
        allowed = ("bool",) if self.kind in LOGIC else NUMBERS
        if self.kind.startswith("Bit"):
            allowed = INTEGERS
        elif self.kind == "Equal":
            allowed = ("bool", *NUMBERS)
        self.expect(self.kind in BINARY and a.dtype in allowed, " or ".join(allowed), types)
        return TensorType("bool" if self.kind in COMPARISONS else a.dtype, shape)

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = BINARY[self.kind](wide(a), wide(b))
            return np.asarray(result, dtype=bool if self.kind in COMPARISONS else a.dtype)


@operator("where", 3)
class Where(Operator):
    """The second input where the first (bool) is true, else the third; with broadcasting."""

    def result_type(self, types: Types) -> TensorType:
        condition, a, b = types
        fits = condition.dtype == "bool" and a.dtype == b.dtype
        self.expect(fits, "bool and two of a type", types)
        return TensorType(a.dtype, self.broadcast(types, *(t.shape for t in types)))

    def compute(self, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(condition, a, b)


@operator("cast")
class Cast(Operator):
    """Conversion to `dtype`: to bool, nonzero is True; to integers, values round towards zero."""

    dtype: str

    def result_type(self, types: Types) -> TensorType:
        return TensorType(self.dtype, types[0].shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        values = wide(x)
        if values.dtype.kind == "V":  # narrow integers convert only to NumPy's own types
            values = values.astype(np.int32)
        if self.dtype == "bool":
            return values != 0
        if self.dtype in NARROW_FLOATS and values.dtype.kind != "f":
            values = values.astype(np.float32)
        with np.errstate(all="ignore"):
            return values.astype(DTYPES[self.dtype])
