"""Elementary functions of float32 on vectors: range reduction, then a polynomial.

Coefficients are weighted minimax fits in binary64, rounded to binary32. Errors are in units in the
last place (ULP) of the correctly rounded result, the largest found against NumPy's binary64
functions by `tests/compiler/cpu/test_functions.py`. A NaN gives a NaN.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from llvmlite import ir

from ....isa.expressions import Op
from ..instructions import Intrinsic
from .emitter import DOUBLE, FLOAT, I32, I64, Emitter, LlvmValue

_MAGIC = 12582912.0
"""1.5 * 2**23: adding it rounds to a whole number, which the low bits then hold."""

_ONE_BITS = 0x3F800000
_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4

_EXP = (0.00138142216, 0.008368899114, 0.04166840389, 0.1666651964, 0.4999999404)
_TANH = tuple(2.0 ** (5 - place) * value for place, value in enumerate(_EXP))
"""Coefficients `p` of `(exp(2 r) - 1) / 2 = r + r**2 p(r)`; `_EXP` has those of `exp(r) - 1`."""

_LOG = (
    -0.07634497434,
    0.1276157796,
    -0.1316018254,
    0.1420175731,
    -0.1662335694,
    0.2000122666,
    -0.2500081956,
    0.3333333135,
)
_ERF = (-0.000595375488, 0.004985943902, -0.02676172182, 0.1128168255, -0.3761247993, 0.1283791512)
_LOG_ERFC = (
    0.0001959372457,
    -0.003043217352,
    0.02222692035,
    -0.1039315984,
    -0.6371822357,
    -1.127675653,
    -0.0001956755732,
)

_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
"""Source: S. L. Moshier, Cephes, `sinf.c`."""

_HALF_PI = tuple(map(float.fromhex, ("0x1.921fb0p0", "0x1.5110b4p-22", "0x1.846988p-48")))
_FEW_TURNS = 65536.0
"""Magnitude up to which these three parts of pi / 2 are enough."""

_MAGIC_DOUBLE = 1.5 * 2.0**52
_TURN_BITS = 29
_TURNS = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E410
"""192 bits of 1 / (2 pi) behind the point."""

_BLOCKS = ((48, 0), (73, 25), (98, 50), (123, 75), (128, 100))
"""Magnitudes below `2**first` are multiplied by `2**-second`: below 2**48, and whole if scaled."""


def exp(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The exponential, within 1.01 ULP even if it is subnormal; infinity above 88.73."""
    value, power, shifted = _exponential(e, _limited(e, x, -104.0, 89.0))
    scaling = e.target.scaling
    if scaling and e.whole_registers(x):
        return e.by_register(partial(_scaled, e, scaling), value, power)
    # Powers of 2 beyond the range of float32, in two steps.
    whole = e.bits(shifted, I32)
    half = e.builder.ashr(whole, e.constant(1, whole))
    for part in (half, e.builder.sub(whole, half)):
        value = e.builder.fmul(value, _power_of_two(e, part))
    return value


def decay(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The exponential of `x <= 0`, within 1.01 ULP from -87.68 up; 0 from -87.69 down."""
    # -88 becomes 2**-127, which counts as 0.
    value, _, shifted = _exponential(e, e.maximum(e.constant(-88.0, x), x))
    return e.builder.fmul(value, _power_of_two(e, e.bits(shifted, I32)))


def sigmoid(e: Emitter, x: LlvmValue) -> LlvmValue:
    """`1 / (1 + exp(-x))`, within 3 ULP from -86.98 up; 0 from -86.99 down.

    Numerator and denominator are four times as large, so that the denominator is infinite before
    the result is subnormal. Arithmetic with subnormal numbers takes a hundred times as long.
    """
    value, _, shifted = _exponential(e, _limited(e, x, -87.0, 87.0), -1.0)
    four = e.constant(4.0, x)
    scale = _power_of_two(e, e.bits(shifted, I32), 2)
    return e.builder.fdiv(four, e.multiply_add(value, scale, four))


def _limited(e: Emitter, x: LlvmValue, low: float, high: float) -> LlvmValue:
    """`x`, limited to `low`..`high`; a NaN stays a NaN."""
    return e.minimum(e.constant(high, x), e.maximum(e.constant(low, x), x))


def _exponential(
    e: Emitter, x: LlvmValue, sign: float = 1.0
) -> tuple[LlvmValue, LlvmValue, LlvmValue]:
    """`exp(sign * x)` as a number near 1 and a power of 2.

    The exponent is returned as a float, and in the low bits of a second float.
    """
    shifted = e.multiply_add(x, e.constant(sign * _LOG2_E, x), e.constant(_MAGIC, x))
    power = e.builder.fsub(shifted, e.constant(_MAGIC, x))
    rest = e.multiply_add(power, e.constant(-sign * _LN2_HIGH, x), x)
    rest = e.multiply_add(power, e.constant(-sign * _LN2_LOW, x), rest)
    signed = tuple(sign**place * value for place, value in enumerate(_EXP))
    linear = rest if sign > 0 else e.builder.fneg(rest)
    value = e.multiply_add(polynomial(e, rest, signed), e.multiply(rest, rest), linear)
    return e.builder.fadd(value, e.constant(1.0, x)), power, shifted


def log(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The natural logarithm: at most 1 ULP; -infinity of zero, NaN of negative numbers."""
    small = e.compare("<", x, e.constant(1.17549435e-38, x))
    scaled = e.select(small, e.builder.fmul(x, e.constant(8388608.0, x)), x)
    bits = e.bits(scaled, I32)
    above = e.builder.sub(bits, e.constant(0x3F3504F3, bits))
    exponent = e.builder.ashr(above, e.constant(23, bits))
    mantissa = e.builder.sub(bits, e.builder.shl(exponent, e.constant(23, bits)))
    exponent = e.builder.sub(exponent, e.select(small, e.constant(23, bits), e.constant(0, bits)))
    power = e.builder.sitofp(exponent, e.like(x, FLOAT))
    f = e.builder.fsub(e.bits(mantissa, FLOAT), e.constant(1.0, x))
    square = e.multiply(f, f)
    value = e.multiply(polynomial(e, f, _LOG), e.multiply(f, square))
    value = e.multiply_add(power, e.constant(_LN2_LOW, x), value)
    value = e.multiply_add(square, e.constant(-0.5, x), value)
    value = e.multiply_add(power, e.constant(_LN2_HIGH, x), e.add(f, value))
    infinity, nothing = e.constant(float("inf"), x), e.constant(0.0, x)
    value = e.select(e.compare("<", x, infinity), value, x)
    value = e.select(e.compare("==", x, nothing), e.constant(float("-inf"), x), value)
    return e.select(e.compare("<", x, nothing), e.constant(float("nan"), x), value)


def tanh(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The hyperbolic tangent, `t / (t + 1)` where `2 t + 1` is `exp(2 x)`: at most 3 ULP."""
    size = e.minimum(e.constant(10.0, x), e.overloaded("fabs", [x]))
    shifted = e.multiply_add(size, e.constant(2 * _LOG2_E, x), e.constant(_MAGIC, x))
    whole = e.builder.fsub(shifted, e.constant(_MAGIC, x))
    rest = e.multiply_add(whole, e.constant(-_LN2 / 2, x), size)
    grown = e.multiply_add(polynomial(e, rest, _TANH), e.multiply(rest, rest), rest)
    power = _power_of_two(e, e.bits(shifted, I32))
    half = e.constant(0.5, x)
    t = e.multiply_add(grown, power, e.multiply_add(power, half, e.builder.fneg(half)))
    return _signed_like(e, e.builder.fdiv(t, e.builder.fadd(t, e.constant(1.0, x))), x)


def erf(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The error function: at most 2 ULP."""
    size = e.overloaded("fabs", [x])
    near = e.multiply_add(polynomial(e, e.multiply(x, x), _ERF), x, x)
    bounded = e.minimum(e.constant(4.0, x), size)
    rest = e.builder.fsub(e.constant(1.0, x), decay(e, polynomial(e, bounded, _LOG_ERFC)))
    far = _signed_like(e, rest, x)
    return e.select(e.compare("<", size, e.constant(0.925, x)), near, far)


def sine(e: Emitter, x: LlvmValue, quadrant: int = 0) -> LlvmValue:
    """The sine of `x` plus so many quadrants, for every number: at most 2 ULP."""
    turned = partial(_turned_far, e, x)
    if e.target.fused:
        near = e.compare("<", e.overloaded("fabs", [x]), e.constant(_FEW_TURNS, x))
        angle, turns = e.either(e.all(near), partial(_turned_near, e, x), turned)
    else:
        angle, turns = turned()
    turns = e.builder.add(turns, e.constant(quadrant, turns))
    square = e.multiply(angle, angle)
    sine = e.multiply_add(polynomial(e, square, _SIN), e.multiply(square, angle), angle)
    rest = e.multiply_add(square, e.constant(-0.5, x), e.constant(1.0, x))
    cosine = e.multiply_add(polynomial(e, square, _COS), e.multiply(square, square), rest)
    odd = e.builder.and_(turns, e.constant(1, turns))
    value = e.select(e.compare("!=", odd, e.constant(0, odd)), cosine, sine)
    sign = e.builder.shl(e.builder.and_(turns, e.constant(2, turns)), e.constant(30, turns))
    value = e.bits(e.builder.xor(e.bits(value, I32), sign), FLOAT)
    return value if quadrant else e.select(e.compare("==", x, e.constant(0.0, x)), x, value)


def _turned_near(e: Emitter, x: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
    """`x` less the nearest quadrants, and their number in the low bits.

    Source: W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980.
    """
    shifted = e.multiply_add(x, e.constant(2 / np.pi, x), e.constant(_MAGIC, x))
    quadrants = e.builder.fsub(shifted, e.constant(_MAGIC, x))
    for part in _HALF_PI:
        x = e.multiply_add(quadrants, e.constant(-part, x), x)
    return x, e.bits(shifted, I32)


def _turned_far(e: Emitter, x: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
    """The same for any `x`, in binary64; products with parts of 1 / (2 pi) are exact.

    Source: M. Payne and R. Hanek, Radian reduction for trigonometric functions, 1983.
    """
    wide = e.builder.fpext(x, e.like(x, DOUBLE))
    size, factors = e.overloaded("fabs", [wide]), [e.constant(n, wide) for n in _turns_at(0)]
    for (least, _), (_, shift) in itertools.pairwise(_BLOCKS):
        far = e.builder.fcmp_ordered(">=", size, e.constant(2.0**least, wide))
        numbers = [e.constant(number, wide) for number in _turns_at(shift)]
        factors = [e.select(far, *pair) for pair in zip(numbers, factors, strict=True)]
    scale, *parts = factors
    wide = e.builder.fmul(wide, scale)
    high, middle, low = (e.builder.fmul(wide, part) for part in parts)
    angle, quadrants = _cut(e, _cut(e, high, 1.0)[0], 0.25)
    rest = e.builder.fadd(_cut(e, middle, 1.0)[0], low)
    angle, more = _cut(e, e.builder.fadd(angle, rest), 0.25)
    shifted = e.builder.fadd(e.builder.fadd(quadrants, more), e.constant(_MAGIC_DOUBLE, wide))
    whole = e.builder.trunc(e.bits(shifted, I64), e.like(x, I32))
    angle = e.builder.fmul(angle, e.constant(2 * np.pi, wide))
    return e.builder.fptrunc(angle, e.like(x, FLOAT)), whole


def _turns_at(shift: int) -> tuple[float, ...]:
    """`2**-shift`, and three parts of the fraction of `2**shift / (2 pi)`."""
    fraction, place, parts = (_TURNS << shift) % (1 << 192), 192, []
    for _ in range(2):
        place -= _TURN_BITS
        parts.append((fraction >> place) / 2.0 ** (192 - place))
        fraction %= 1 << place
    return 2.0**-shift, *parts, fraction / 2.0**192


def _cut(e: Emitter, x: LlvmValue, unit: float) -> tuple[LlvmValue, LlvmValue]:
    """`x` less the nearest multiple of a unit, exactly, and that multiple in units."""
    magic = e.constant(_MAGIC_DOUBLE, x)
    scaled = x if unit == 1 else e.builder.fmul(x, e.constant(1 / unit, x))
    units = e.builder.fsub(e.builder.fadd(scaled, magic), magic)
    return e.builder.fsub(x, e.builder.fmul(units, e.constant(unit, x))), units


def square_root(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The square root, correctly rounded."""
    return e.overloaded("sqrt", [x])


FUNCTIONS: Mapping[Op, Callable[[Emitter, LlvmValue], LlvmValue]] = {
    Op.EXP: exp,
    Op.DECAY: decay,
    Op.LOG: log,
    Op.TANH: tanh,
    Op.ERF: erf,
    Op.SIGMOID: sigmoid,
    Op.SIN: sine,
    Op.COS: partial(sine, quadrant=1),
    Op.SQRT: square_root,
}
"""Operations of one float32 argument."""


def polynomial(e: Emitter, x: LlvmValue, coefficients: tuple[float, ...]) -> LlvmValue:
    """Evaluate a polynomial by Horner's rule; coefficients from the highest power down."""
    value = e.constant(coefficients[0], x)
    for coefficient in coefficients[1:]:
        value = e.multiply_add(value, x, e.constant(coefficient, x))
    return value


def _scaled(e: Emitter, scaling: Intrinsic, value: LlvmValue, power: LlvmValue) -> LlvmValue:
    """`value * 2**power`, `power` a whole number, in one instruction."""
    more = [ir.IntType(bits)(number) for bits, number in scaling.operands]
    return e.intrinsic(scaling.name, value.type, [value, power, value, *more])


def _power_of_two(e: Emitter, exponent: LlvmValue, more: int = 0) -> LlvmValue:
    """`2**(exponent + more)`, from the low nine bits of `exponent`.

    The sum is at least -127, which gives 0, and at most 128, which gives infinity.
    """
    placed = e.builder.shl(exponent, e.constant(23, exponent))
    return e.bits(e.builder.add(placed, e.constant(_ONE_BITS + (more << 23), exponent)), FLOAT)


def _signed_like(e: Emitter, value: LlvmValue, sign: LlvmValue) -> LlvmValue:
    """A number that is not negative, with the sign of another."""
    bits = e.bits(sign, I32)
    signs = e.builder.and_(bits, e.constant(-(1 << 31), bits))
    return e.bits(e.builder.or_(e.bits(value, I32), signs), FLOAT)
