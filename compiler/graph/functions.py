"""The elementwise functions of ONNX, one line each: law, parameters, element types.

NumPy's results, machine code, tables of int8, fused activations, import and export all follow from
these lines. Floats narrower than 32 bits are computed in float32 and rounded once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..formulas import Formula, read_formula, substituted
from .types import DTYPES, FLOATS, INTEGERS, NUMBERS


@dataclass(frozen=True, slots=True)
class OnnxVariant:
    """The form in ONNX of a kind that is another operator with an attribute.

    Parameters
    ----------
    kind : str
        Name of ONNX's operator.
    attribute, value
        The attribute, and its value that selects the kind.
    default
        The attribute's default, which selects the kind named as ONNX's operator; "" if ONNX has
        none.
    """

    kind: str
    attribute: str
    value: str | int
    default: str | int = ""


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function.

    Parameters
    ----------
    law : str
        What it computes, as `read_formula` reads it.
    operands : tuple of str
        Names of its operands in the law.
    parameters : mapping
        Names of its parameters in the law, with their defaults.
    types : tuple of str
        Element types of its operands.
    test : bool
        Whether its result is bool; otherwise it has the operands' type.
    attributes : tuple of str
        Names of the parameters in ONNX, where they differ.
    variant : OnnxVariant or None
        Its form in ONNX, unless that is an operator of its own.
    """

    law: str
    operands: tuple[str, ...] = ("x",)
    parameters: Mapping[str, float] = field(default_factory=dict)
    types: tuple[str, ...] = FLOATS
    test: bool = False
    attributes: tuple[str, ...] = ()
    variant: OnnxVariant | None = None
    formula: Formula = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "formula", read_formula(self.law))

    def with_parameters(self, values: Iterable[float]) -> Formula:
        """Return the formula with values for its parameters, in their order."""
        return substituted(self.formula, dict(zip(self.parameters, values, strict=True)))

    @property
    def onnx_parameters(self) -> dict[str, float]:
        """ONNX's name of each parameter -> its default."""
        names = self.attributes or self.parameters
        return dict(zip(names, self.parameters.values(), strict=True))


def _one(law: str, *types: str, **parameters: float) -> Function:
    return Function(law, ("x",), parameters, types or FLOATS)


def _two(law: str, *types: str, test: bool = False, variant: OnnxVariant | None = None) -> Function:
    return Function(law, ("a", "b"), types=types or NUMBERS, test=test, variant=variant)


def _single(value: float) -> float:
    return float(np.float32(value))


_ALL_FLOATS = tuple(name for name in DTYPES if "float" in name)
_SIGNS: dict[str, Any] = {
    "parameters": {"negative": 1, "positive": 1},
    "attributes": ("detect_negative", "detect_positive"),
}

UNARY: dict[str, Function] = {
    "Abs": _one("abs(x)", *NUMBERS),
    "Acos": _one("acos(x)"),
    "Acosh": _one("acosh(x)"),
    "Asin": _one("asin(x)"),
    "Asinh": _one("asinh(x)"),
    "Atan": _one("atan(x)"),
    "Atanh": _one("atanh(x)"),
    "BitwiseNot": _one("~x", *INTEGERS),
    "Ceil": _one("ceil(x)"),
    "Celu": _one("max(x, 0) + alpha * expm1(min(x, 0) / alpha)", alpha=1.0),
    "Clip": _one("min(max(x, low), high)", low=-np.inf, high=np.inf),
    "Cos": _one("cos(x)"),
    "Cosh": _one("cosh(x)"),
    "Elu": _one("x if x > 0 else alpha * expm1(min(x, 0))", alpha=1.0),
    "Erf": _one("erf(x)"),
    "Exp": _one("exp(x)"),
    "Floor": _one("floor(x)"),
    "Gelu": _one("gelu(x)"),
    "GeluTanh": Function(
        "0.5 * x * (1 + tanh(sqrt(2 / 3.141592653589793) * (x + 0.044715 * x**3)))",
        variant=OnnxVariant("Gelu", "approximate", "tanh", "none"),
    ),
    "HardSigmoid": _one("clip(alpha * x + beta, 0, 1)", alpha=_single(0.2), beta=0.5),
    "HardSwish": _one("x * clip(x / 6 + 0.5, 0, 1)"),
    "IsInf": Function(
        "isinf(x) and (negative if x < 0 else positive) != 0",
        types=_ALL_FLOATS,
        test=True,
        **_SIGNS,
    ),
    "IsNaN": Function("x != x", types=_ALL_FLOATS, test=True),
    "LeakyRelu": _one("alpha * x if x < 0 else x", alpha=_single(0.01)),
    "Log": _one("log(x)"),
    "Mish": _one("x * tanh(softplus(x))"),
    "Neg": _one("-x", *NUMBERS),
    "Not": _one("not x", "bool"),
    "Reciprocal": _one("1 / x"),
    "Relu": _one("max(x, 0)", *NUMBERS),
    "Round": _one("round(x)"),
    "Selu": _one(
        "gamma * (x if x > 0 else alpha * expm1(min(x, 0)))",
        alpha=_single(1.6732632423543772),
        gamma=_single(1.0507009873554805),
    ),
    "Shrink": _one(
        "x + bias if x < -lambd else x - bias if x > lambd else 0", *NUMBERS, bias=0.0, lambd=0.5
    ),
    "Sigmoid": _one("sigmoid(x)"),
    "Sign": _one("sign(x)", *NUMBERS),
    "Sin": _one("sin(x)"),
    "Sinh": _one("sinh(x)"),
    "Softplus": _one("softplus(x)"),
    "Softsign": _one("x / (1 + abs(x))"),
    "Sqrt": _one("sqrt(x)"),
    "Swish": _one("x * sigmoid(alpha * x)", alpha=1.0),
    "Tan": _one("tan(x)"),
    "Tanh": _one("tanh(x)"),
    "ThresholdedRelu": _one("x if x > alpha else 0", alpha=1.0),
}
"""Functions of one tensor; parameters in the order of `Unary.parameters`."""

LEFT, RIGHT = (OnnxVariant("BitShift", "direction", one) for one in ("LEFT", "RIGHT"))

BINARY: dict[str, Function] = {
    "Add": _two("a + b"),
    "And": _two("a & b", "bool"),
    "BitShiftLeft": _two("a << b", *INTEGERS, variant=LEFT),
    "BitShiftRight": _two("a >> b", *INTEGERS, variant=RIGHT),
    "BitwiseAnd": _two("a & b", *INTEGERS),
    "BitwiseOr": _two("a | b", *INTEGERS),
    "BitwiseXor": _two("a ^ b", *INTEGERS),
    "Div": _two("a / b"),
    "Equal": _two("a == b", "bool", *NUMBERS, test=True),
    "FMod": _two("fmod(a, b)", variant=OnnxVariant("Mod", "fmod", 1, 0)),
    "Greater": _two("a > b", test=True),
    "GreaterOrEqual": _two("a >= b", test=True),
    "Less": _two("a < b", test=True),
    "LessOrEqual": _two("a <= b", test=True),
    "Max": _two("max(a, b)"),
    "Min": _two("min(a, b)"),
    "Mod": _two("a % b"),
    "Mul": _two("a * b"),
    "Or": _two("a | b", "bool"),
    "PRelu": _two("b * a if a < 0 else a"),
    "Pow": _two("a**b"),
    "Sub": _two("a - b"),
    "Xor": _two("a ^ b", "bool"),
}
"""Functions of two tensors of one type."""
