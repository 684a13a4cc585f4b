"""Elementary functions of float32 on vectors: range reduction, then a polynomial.

Coefficients are weighted minimax fits in binary64, rounded to binary32. Errors are in units in the
last place (ULP) of the correctly rounded result, the largest found against NumPy's binary64
functions by `tests/compiler/cpu/test_functions.py`. A NaN gives a NaN.
"""

from collections.abc import Callable, Mapping
from functools import partial

from ....isa.expressions import Op
from .emitter import FLOAT, I16, I32, Emitter, LlvmValue

_MAGIC = 12582912.0
"""1.5 * 2**23: adding it rounds to a whole number, which the low bits then hold."""

_CURRENT_ROUNDING = 4
_MAGIC_BITS = 0x4B400000
_ONE_BITS = 0x3F800000
_LOG2_E = 1.4426950408889634
_LN2 = 0.6931471805599453
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4

_LEAST_SIGMOID = -87.0
"""Below, a sigmoid would be subnormal, and arithmetic with that takes a hundred times as long."""

_EXP = (0.00138142216, 0.008368899114, 0.04166840389, 0.1666651964, 0.4999999404)
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


def exp(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The exponential: at most 1 ULP, subnormal results included; above 88.73 infinity."""
    value, power, shifted = _exponential(e, x, -104.0, 89.0)
    if _has_scaling(e, x):
        return e.by_register(partial(_scaled, e), value, power)
    whole = e.builder.sub(e.bits(shifted, I32), e.constant(_MAGIC_BITS, e.bits(shifted, I32)))
    half = e.builder.ashr(whole, e.constant(1, whole))
    for part in (half, e.builder.sub(whole, half)):
        value = e.builder.fmul(value, _power_of_two(e, part))
    return value


def _exponential(
    e: Emitter, x: LlvmValue, low: float, high: float
) -> tuple[LlvmValue, LlvmValue, LlvmValue]:
    """The exponential of `x`, limited to two bounds, as a number of about 1 and a power of 2.

    The power is given as a float, and in the low bits of another one.
    """
    x = e.minimum(e.constant(high, x), e.maximum(e.constant(low, x), x))
    shifted = e.multiply_add(x, e.constant(_LOG2_E, x), e.constant(_MAGIC, x))
    power = e.builder.fsub(shifted, e.constant(_MAGIC, x))
    rest = e.multiply_add(power, e.constant(-_LN2_HIGH, x), x)
    rest = e.multiply_add(power, e.constant(-_LN2_LOW, x), rest)
    square = e.multiply(rest, rest)
    value = e.multiply_add(polynomial(e, rest, _EXP), square, rest)
    return e.builder.fadd(value, e.constant(1.0, x)), power, shifted


def sigmoid(e: Emitter, x: LlvmValue) -> LlvmValue:
    """`1 / (1 + exp(-x))`: at most 3 ULP from -87 up, where it is 1.6e-38; 0 below."""
    value, power, shifted = _exponential(e, e.builder.fneg(x), _LEAST_SIGMOID, -_LEAST_SIGMOID)
    if _has_scaling(e, x):
        grown = e.by_register(partial(_scaled, e), value, power)
    else:
        grown = e.builder.fmul(value, _power_of_two(e, e.bits(shifted, I32)))
    one = e.constant(1.0, x)
    value = e.builder.fdiv(one, e.builder.fadd(grown, one))
    small = e.compare("<", x, e.constant(_LEAST_SIGMOID, x))
    return e.select(small, e.constant(0.0, x), value)


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
    """The hyperbolic tangent, `t / (t + 2)` where `t + 1` is `exp(2 x)`: at most 3 ULP."""
    one, two = e.constant(1.0, x), e.constant(2.0, x)
    bounded = e.minimum(e.constant(10.0, x), e.overloaded("fabs", [x]))
    twice = e.builder.fadd(bounded, bounded)
    shifted = e.multiply_add(twice, e.constant(_LOG2_E, x), e.constant(_MAGIC, x))
    whole = e.builder.fsub(shifted, e.constant(_MAGIC, x))
    rest = e.multiply_add(whole, e.constant(-_LN2, x), twice)
    grown = e.multiply_add(polynomial(e, rest, _EXP), e.multiply(rest, rest), rest)
    power = _power_of_two(e, e.bits(shifted, I32))
    t = e.multiply_add(grown, power, e.builder.fsub(power, one))
    return _signed_like(e, e.builder.fdiv(t, e.builder.fadd(t, two)), x)


def erf(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The error function: at most 2 ULP."""
    size = e.overloaded("fabs", [x])
    near = e.multiply_add(polynomial(e, e.multiply(x, x), _ERF), x, x)
    bounded = e.minimum(e.constant(4.0, x), size)
    rest = e.builder.fsub(e.constant(1.0, x), exp(e, polynomial(e, bounded, _LOG_ERFC)))
    far = _signed_like(e, rest, x)
    return e.select(e.compare("<", size, e.constant(0.925, x)), near, far)


def square_root(e: Emitter, x: LlvmValue) -> LlvmValue:
    """The square root, correctly rounded."""
    return e.overloaded("sqrt", [x])


FUNCTIONS: Mapping[Op, Callable[[Emitter, LlvmValue], LlvmValue]] = {
    Op.EXP: exp,
    Op.LOG: log,
    Op.TANH: tanh,
    Op.ERF: erf,
    Op.SIGMOID: sigmoid,
    Op.SQRT: square_root,
}
"""Operations of one float32 argument."""


def polynomial(e: Emitter, x: LlvmValue, coefficients: tuple[float, ...]) -> LlvmValue:
    """Evaluate a polynomial by Horner's rule; coefficients from the highest power down."""
    value = e.constant(coefficients[0], x)
    for coefficient in coefficients[1:]:
        value = e.multiply_add(value, x, e.constant(coefficient, x))
    return value


def _has_scaling(e: Emitter, x: LlvmValue) -> bool:
    """Whether one instruction multiplies by a power of 2."""
    return e.target.has_scaling and e.whole_registers(x)


def _scaled(e: Emitter, value: LlvmValue, power: LlvmValue) -> LlvmValue:
    """`value * 2**power`, `power` a whole number, in one instruction of AVX-512."""
    arguments = [value, power, value, I16(-1), I32(_CURRENT_ROUNDING)]
    return e.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", value.type, arguments)


def _power_of_two(e: Emitter, exponent: LlvmValue) -> LlvmValue:
    """`2**exponent` of the low nine bits."""
    placed = e.builder.shl(exponent, e.constant(23, exponent))
    return e.bits(e.builder.add(placed, e.constant(_ONE_BITS, exponent)), FLOAT)


def _signed_like(e: Emitter, value: LlvmValue, sign: LlvmValue) -> LlvmValue:
    return e.overloaded("copysign", [value, sign])
