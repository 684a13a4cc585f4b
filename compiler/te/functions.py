"""Operations of a processor that the accelerator lacks: float32 numbers and comparisons."""

import math

from ...errors import CompileError
from ...isa.expressions import Op
from .values import TensorExpression, call, combine, value_from


def constant(number: float) -> TensorExpression:
    """A constant: whole numbers become integers, other numbers float32."""
    return value_from(number, "`constant`")


def real(value: TensorExpression) -> TensorExpression:
    """An integer as float32, rounded to nearest even."""
    return call(Op.REAL, [_checked("real", value, real_wanted=False)], real=True)


def single(value: TensorExpression) -> TensorExpression:
    """A float32 sum or product with a rounding of its own, so that it is never fused."""
    return call(Op.REAL, [_checked("single", value, real_wanted=True)], real=True)


def rounded(value: TensorExpression) -> TensorExpression:
    """A float32 number rounded to int32, halves to even; undefined if it does not fit int32."""
    return call(Op.ROUND, [_checked("rounded", value, real_wanted=True)])


def less(a: TensorExpression | float, b: TensorExpression | float) -> TensorExpression:
    """1 where `a < b`, else 0."""
    return combine(Op.LESS, a, b)


def equal(a: TensorExpression | float, b: TensorExpression | float) -> TensorExpression:
    """1 where both values are equal, else 0."""
    return combine(Op.EQUAL, a, b)


def select(
    condition: TensorExpression, a: TensorExpression | float, b: TensorExpression | float
) -> TensorExpression:
    """`a` where the condition is not 0, else `b`; both must be integers, or both float32."""
    values = [value_from(part, "`select`") for part in (a, b)]
    if values[0].real != values[1].real:
        raise CompileError(f"`select` of `{values[0]}` and `{values[1]}`, one of them float32")
    checked = _checked("select", condition, real_wanted=False)
    return call(Op.SELECT, [checked, *values], real=values[0].real)


def sqrt(value: TensorExpression) -> TensorExpression:
    """The square root of a float32 number, correctly rounded."""
    return _function(Op.SQRT, value)


def exp(value: TensorExpression) -> TensorExpression:
    """The exponential of a float32 number."""
    return _function(Op.EXP, value)


def decay(value: TensorExpression) -> TensorExpression:
    """`exp(value)` for `value <= 0`, in fewer instructions than `exp`.

    Results below the smallest normal float32 may be 0; for positive values, they are unspecified.
    """
    return _function(Op.DECAY, value)


def log(value: TensorExpression) -> TensorExpression:
    """The natural logarithm of a float32 number."""
    return _function(Op.LOG, value)


def tanh(value: TensorExpression) -> TensorExpression:
    """The hyperbolic tangent of a float32 number."""
    return _function(Op.TANH, value)


def erf(value: TensorExpression) -> TensorExpression:
    """The error function of a float32 number."""
    return _function(Op.ERF, value)


def sigmoid(value: TensorExpression) -> TensorExpression:
    """`1 / (1 + exp(-value))`."""
    return _function(Op.SIGMOID, value)


def sin(value: TensorExpression) -> TensorExpression:
    """The sine of a float32 angle in radians."""
    return _function(Op.SIN, value)


def cos(value: TensorExpression) -> TensorExpression:
    """The cosine of a float32 angle in radians."""
    return _function(Op.COS, value)


def gelu(value: TensorExpression) -> TensorExpression:
    """`value / 2 * (1 + erf(value / sqrt(2)))`."""
    return value * 0.5 * (erf(value * math.sqrt(0.5)) + 1.0)


def _function(op: Op, value: TensorExpression) -> TensorExpression:
    return call(op, [_checked(op.value, value, real_wanted=True)], real=True)


def _checked(name: str, value: TensorExpression, real_wanted: bool) -> TensorExpression:
    if not isinstance(value, TensorExpression) or value.real != real_wanted:
        wanted = "a float32 value" if real_wanted else "an integer value"
        raise CompileError(f"`{name}` takes {wanted}, not `{value}`")
    return value
