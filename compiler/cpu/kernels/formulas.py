"""Formulas of elementwise kernels: names of operations, and what they are in the language of `te`.

Every sum and product of float32 is rounded on its own, and NaNs, infinities and signs of zero come
out as NumPy has them, so that a formula without elementary functions has NumPy's very bits.
"""

import math
from collections.abc import Callable, Mapping

from ....errors import CompileError
from ....isa.expressions import Call, Expression, Op, Real
from ... import te
from ...te import Value
from ...te.values import combine

Formula = str | float | tuple
"""An operand's name, a number, or an operation's name with its arguments."""

WHOLE = 8388608.0
"""From 2**23 on, float32 numbers are whole."""


def _single(value: Value) -> Value:
    return te.single(value) if value.real else value


def _add(a: Value, b: Value) -> Value:
    return _single(a + b)


def _sub(a: Value, b: Value) -> Value:
    return _add(a, _neg(b))


def _mul(a: Value, b: Value) -> Value:
    return _single(a * b)


def _neg(x: Value) -> Value:
    return _single(-x)


def _truth(value: Value) -> Value:
    """1 where a value is not 0, NaNs included."""
    zero = 0.0 if value.real else 0
    return combine(Op.XOR, te.equal(value, zero), 1)


def _max(a: Value, b: Value) -> Value:
    """The larger; NaN where one is; the second where both are equal."""
    known = _known(b)
    if not (a.real or b.real) or _known(a) is not None or known:
        return te.maximum(a, b)
    if known == 0 and math.copysign(1.0, known) > 0:
        return te.single(te.maximum(a, b) + 0.0)
    return te.select(te.less(b, a), a, te.select(te.equal(a, a), b, a))


def _min(a: Value, b: Value) -> Value:
    if not (a.real or b.real) or _known(a) is not None or _known(b):
        return te.minimum(a, b)
    return te.select(te.less(a, b), a, te.select(te.equal(a, a), b, a))


def _known(value: Value) -> float | None:
    """A float32 known now, beside which `te`'s own minimum and maximum are those of NumPy.

    They give the other one where it is a NaN; so they do where both are equal, which only zeros
    show.
    """
    return value.tree.value if isinstance(value.tree, Real) else None


def _limit(x: Value, low: Value, high: Value) -> Value:
    """`np.clip`: where equal, x itself."""
    bounded = te.select(te.less(x, low), low, x)
    return te.select(te.less(high, bounded), high, bounded)


def _abs(x: Value) -> Value:
    if not x.real:
        return te.select(te.less(x, 0), -x, x)
    return te.select(te.less(0.0, x), x, _sub(te.constant(0.0), x))


def _sign(x: Value) -> Value:
    zero, one = (te.constant(0.0), te.constant(1.0)) if x.real else (te.constant(0), te.constant(1))
    rest = te.select(te.equal(x, zero), zero, x)
    return te.select(te.less(zero, x), one, te.select(te.less(x, zero), -one, rest))


def _whole(x: Value, change: Callable[[Value], Value]) -> Value:
    """A rounded number that keeps the sign of zero; large numbers and NaNs are whole already."""
    found = change(te.real(te.rounded(x)))
    signed = te.select(te.equal(found, 0.0), te.single(x * 0.0), found)
    return te.select(te.less(_abs(x), WHOLE), signed, x)


def _floor(x: Value) -> Value:
    return _whole(x, lambda near: te.select(te.less(x, near), near - 1.0, near))


def _ceil(x: Value) -> Value:
    return _whole(x, lambda near: te.select(te.less(near, x), near + 1.0, near))


def _expm1(x: Value) -> Value:
    """`exp(x) - 1` of numbers that are not positive, by the hyperbolic tangent of half of them."""
    half = te.tanh(x * 0.5)
    return half * 2.0 / (1.0 - half)


def _softplus(x: Value) -> Value:
    """`log(1 + exp(x))`; what rounding takes from the logarithm's argument is put back.

    Source: W. Kahan's log1p, in N. Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1.
    """
    small = te.exp(te.minimum(0.0, x) - te.maximum(0.0, x))
    above = te.constant(1.0) + small
    ratio = te.log(above) / (above - 1.0)
    return _max(x, te.constant(0.0)) + te.select(te.equal(above, 1.0), small, small * ratio)


def _finite(x: Value) -> Value:
    """0 in the place of NaN, and numbers that int32 holds."""
    number = te.select(te.equal(x, x), x, 0.0)
    return te.minimum(float(1 << 20), te.maximum(-float(1 << 20), number))


OPERATIONS: Mapping[str, Callable[..., Value]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": lambda a, b: a / b,
    "max": _max,
    "min": _min,
    "limit": _limit,
    "less": te.less,
    "equal": te.equal,
    "select": te.select,
    "and": lambda a, b: combine(Op.AND, a, b),
    "or": lambda a, b: combine(Op.OR, a, b),
    "xor": lambda a, b: combine(Op.XOR, a, b),
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "round": lambda x: _whole(x, lambda near: near),
    "floor": _floor,
    "ceil": _ceil,
    "exp": te.exp,
    "expm1": _expm1,
    "log": te.log,
    "sqrt": te.sqrt,
    "tanh": te.tanh,
    "sigmoid": te.sigmoid,
    "softplus": _softplus,
    "erf": te.erf,
    "gelu": te.gelu,
    "real": te.real,
    "rounded": te.rounded,
    "finite": _finite,
    "truth": _truth,
    "int8": lambda x: combine(Op.XOR, combine(Op.AND, x, 255), 128) - 128,
    "uint8": lambda x: combine(Op.AND, x, 255),
}
"""What a formula may call.

A comparison gives 1 or 0, and `truth` the same of any number; `int8` and `uint8` are an integer's
low bits; `expm1` takes no positive numbers; `finite` limits to 2**20.
"""


def value_of(formula: Formula, read: Mapping[str, Value]) -> Value:
    """A formula over the values of its operands.

    Raises
    ------
    CompileError
        When there is no such operand or operation, or an operation does not take what it is given.
    """
    if isinstance(formula, str):
        if formula not in read:
            raise CompileError(
                f"elementwise: there is no operand `{formula}`; operands are {', '.join(read)}"
            )
        return read[formula]
    if not isinstance(formula, tuple):
        return te.constant(formula)
    name, *arguments = formula
    if name not in OPERATIONS:
        raise CompileError(
            f"elementwise: there is no operation `{name}`; choose {', '.join(OPERATIONS)}"
        )
    return OPERATIONS[name](*(value_of(argument, read) for argument in arguments))


def size_of(tree: Expression) -> int:
    """Calls in an expression, those that stand twice counted twice."""
    if not isinstance(tree, Call):
        return 0
    return 1 + sum(map(size_of, tree.arguments))
