"""Formulas of elementwise kernels, in the language of `te`.

By default each float32 sum and product is rounded by itself, and NaNs, infinities and signs of zero
are NumPy's, so that a formula without elementary functions has the same bits as in NumPy.
"""

import math
from collections.abc import Callable, Mapping

from ....errors import CompileError
from ....isa.expressions import Call, Expression, Op, Real
from ... import te
from ...formulas import Formula
from ...te import TensorExpression
from ...te.values import combine

WHOLE = 8388608.0
"""From 2**23 on, float32 numbers are whole."""


def _single(value: TensorExpression) -> TensorExpression:
    return te.single(value) if value.real else value


def _add(a: TensorExpression, b: TensorExpression) -> TensorExpression:
    return _single(a + b)


def _sub(a: TensorExpression, b: TensorExpression) -> TensorExpression:
    return _add(a, _neg(b))


def _mul(a: TensorExpression, b: TensorExpression) -> TensorExpression:
    return _single(a * b)


def _neg(x: TensorExpression) -> TensorExpression:
    return _single(-x)


def _truth(value: TensorExpression) -> TensorExpression:
    """1 if a value is not 0, NaNs included."""
    zero = 0.0 if value.real else 0
    return combine(Op.XOR, te.equal(value, zero), 1)


def _max(a: TensorExpression, b: TensorExpression) -> TensorExpression:
    """The larger value; NaN if either is; the second if both are equal."""
    zero = _known(b)
    if _known(a) is None and zero == 0 and math.copysign(1.0, zero) > 0:
        return te.single(te.maximum(a, b) + 0.0)
    return _first_where(te.less(b, a), a, b, te.maximum)


def _min(a: TensorExpression, b: TensorExpression) -> TensorExpression:
    """The smaller value; NaN if either is; the second if both are equal."""
    return _first_where(te.less(a, b), a, b, te.minimum)


def _first_where(
    first: TensorExpression,
    a: TensorExpression,
    b: TensorExpression,
    extreme: Callable[[TensorExpression, TensorExpression], TensorExpression],
) -> TensorExpression:
    """`a` if the condition holds, else `b`; NaN if either is. `te`'s own extreme if equal."""
    if not (a.real or b.real) or _known(a) is not None or _known(b):
        return extreme(a, b)
    return te.select(first, a, te.select(te.equal(a, a), b, a))


def _known(value: TensorExpression) -> float | None:
    """The value of a float32 constant, with which `te`'s minimum and maximum are NumPy's.

    They return the other operand if it is a NaN, or if both are equal, which only shows for zeros.
    """
    return value.tree.value if isinstance(value.tree, Real) else None


def _clip(x: TensorExpression, low: TensorExpression, high: TensorExpression) -> TensorExpression:
    """`np.clip`; `x` itself where it equals a limit."""
    bounded = te.select(te.less(x, low), low, x)
    return te.select(te.less(high, bounded), high, bounded)


def _abs(x: TensorExpression) -> TensorExpression:
    if not x.real:
        return te.select(te.less(x, 0), -x, x)
    return te.select(te.less(0.0, x), x, _sub(te.constant(0.0), x))


def _sign(x: TensorExpression) -> TensorExpression:
    zero, one = (te.constant(0.0), te.constant(1.0)) if x.real else (te.constant(0), te.constant(1))
    rest = te.select(te.equal(x, zero), zero, x)
    return te.select(te.less(zero, x), one, te.select(te.less(x, zero), -one, rest))


def _whole(
    x: TensorExpression, change: Callable[[TensorExpression], TensorExpression]
) -> TensorExpression:
    """A rounded number with its sign of zero; large numbers and NaNs stay as they are."""
    found = change(te.real(te.rounded(x)))
    signed = te.select(te.equal(found, 0.0), te.single(x * 0.0), found)
    return te.select(te.less(_abs(x), WHOLE), signed, x)


def _floor(x: TensorExpression) -> TensorExpression:
    return _whole(x, lambda near: te.select(te.less(x, near), near - 1.0, near))


def _ceil(x: TensorExpression) -> TensorExpression:
    return _whole(x, lambda near: te.select(te.less(near, x), near + 1.0, near))


def _expm1(x: TensorExpression) -> TensorExpression:
    """`exp(x) - 1` for `x <= 0`, computed from `tanh(x / 2)`."""
    half = te.tanh(x * 0.5)
    return half * 2.0 / (1.0 - half)


def _softplus(x: TensorExpression) -> TensorExpression:
    """`log(1 + exp(x))`, corrected for the rounding of the logarithm's argument.

    Source: W. Kahan's log1p, in N. Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1.
    """
    small = te.decay(te.minimum(0.0, x) - te.maximum(0.0, x))
    above = te.constant(1.0) + small
    ratio = te.log(above) / (above - 1.0)
    return _max(x, te.constant(0.0)) + te.select(te.equal(above, 1.0), small, small * ratio)


def _finite(x: TensorExpression) -> TensorExpression:
    """The number limited to 2**20 in magnitude; 0 for NaN."""
    number = te.select(te.equal(x, x), x, 0.0)
    return te.minimum(float(1 << 20), te.maximum(-float(1 << 20), number))


POWERS: Mapping[float, Callable[[TensorExpression], TensorExpression]] = {
    -1.0: lambda x: 1.0 / x,
    1.0: lambda x: x,
    2.0: lambda x: _mul(x, x),
    3.0: lambda x: _mul(_mul(x, x), x),
}


def _pow(x: TensorExpression, exponent: TensorExpression) -> TensorExpression:
    """A power with a constant exponent; the definition rounds it once."""
    power = POWERS.get(_known(exponent) or 0.0)
    if power is None:
        raise CompileError(
            f"elementwise: power `{exponent}`: expected one of {', '.join(map(str, POWERS))}"
        )
    return power(x)


def _of_te(*names: str) -> dict[str, Callable[..., TensorExpression]]:
    """Operations that are functions of `te` of the same name."""
    return {name: getattr(te, name) for name in names}


OPERATIONS: Mapping[str, Callable[..., TensorExpression]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": lambda a, b: a / b,
    "max": _max,
    "min": _min,
    "pow": _pow,
    "clip": _clip,
    "less": te.less,
    "less_equal": lambda a, b: combine(Op.OR, te.less(a, b), te.equal(a, b)),
    **_of_te("equal", "select"),
    "not": lambda x: combine(Op.XOR, x, 1),
    "invert": lambda x: combine(Op.XOR, x, -1),
    "and": lambda a, b: combine(Op.AND, a, b),
    "or": lambda a, b: combine(Op.OR, a, b),
    "xor": lambda a, b: combine(Op.XOR, a, b),
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "round": lambda x: _whole(x, lambda near: near),
    "floor": _floor,
    "ceil": _ceil,
    **_of_te("exp", "decay"),
    "expm1": _expm1,
    **_of_te("log", "sqrt", "sin", "cos", "tanh", "sigmoid"),
    "softplus": _softplus,
    **_of_te("erf", "gelu", "real", "rounded"),
    "finite": _finite,
    "truth": _truth,
    "int8": lambda x: combine(Op.XOR, combine(Op.AND, x, 255), 128) - 128,
    "uint8": lambda x: combine(Op.AND, x, 255),
}
"""Operations of formulas; `decay` and those after `gelu` occur in no law.

Comparisons give 1 or 0; `truth` is 1 for any number but 0. `int8` and `uint8` take an integer's low
bits. `expm1` and `decay` take no positive numbers. `finite` limits numbers to 2**20.
"""


def _fused_div(a: TensorExpression, b: TensorExpression) -> TensorExpression:
    number = _known(b)
    return a / b if number is None else a * (1 / number)


FUSED: Mapping[str, Callable[..., TensorExpression]] = {
    **OPERATIONS,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": _fused_div,
    "max": te.maximum,
    "min": te.minimum,
    "clip": lambda x, low, high: te.minimum(te.maximum(x, low), high),
    "real": lambda x: x if x.real else te.real(x),
    "single": te.single,
    "requantise": te.requantise,
}
"""Operations of epilogues: sums and products fuse unless they are `single`, and NaNs may become
numbers. Sums that are float32 already stay so."""


def value_of(
    formula: Formula,
    read: Mapping[str, TensorExpression],
    operations: Mapping[str, Callable[..., TensorExpression]] = OPERATIONS,
    known: dict[int, TensorExpression] | None = None,
) -> TensorExpression:
    """Build the value of a formula from those of its operands.

    Parameters
    ----------
    known
        Values of formulas by their `id`, for formulas that share parts; new ones are added.

    Raises
    ------
    CompileError
        When an operand or operation is unknown, or an operation gets arguments of the wrong type.
    """
    if isinstance(formula, str):
        if formula not in read:
            raise CompileError(
                f"elementwise: unknown operand `{formula}`; operands are {', '.join(read)}"
            )
        return read[formula]
    if not isinstance(formula, tuple):
        return te.constant(formula)
    if known is not None and id(formula) in known:
        return known[id(formula)]
    name, *arguments = formula
    if name not in operations:
        raise CompileError(
            f"elementwise: unknown operation `{name}`; choose {', '.join(operations)}"
        )
    value = operations[name](*(value_of(one, read, operations, known) for one in arguments))
    if known is not None:
        known[id(formula)] = value
    return value


def size_of(tree: Expression, known: dict[int, int]) -> int:
    """Number of calls in an expression, repeated ones included; `known` keeps those of its parts.

    The keys are `id`s, so the parts must outlive `known`.
    """
    if not isinstance(tree, Call):
        return 0
    if id(tree) not in known:
        known[id(tree)] = 1 + sum(size_of(one, known) for one in tree.arguments)
    return known[id(tree)]
