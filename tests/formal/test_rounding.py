"""The requantiser rounds as IEEE-754 binary32 does, for every total, scale and zero point.

Three lemmas make the theorem. The block is the integer arithmetic of `round_product`, whatever the
product of significands is (formal, every cycle). The multiplier's product is a product (formal).
The integer arithmetic is the two roundings of IEEE-754 for every product (formal for each binade,
exhaustive over binades and exponents). Beside them, the NumPy definitions are compared with the
same functions densely.
"""

import numpy as np
import pytest
import z3
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from tilewright.hardware import requantizer
from tilewright.hardware.multiplier import Multiplier
from tilewright.hardware.registers import delayed
from tilewright.isa import numbers
from tilewright.isa.numbers import (
    EXACT_BITS,
    EXACT_LIMIT,
    EXPONENT_BIAS,
    FRACTION_BITS,
    PRODUCT_ZEROS,
    SATURATED,
    SATURATING_EXPONENT,
    VANISHING_SHIFT,
)

from .prove import Bench, bounded, induction, probe

PRODUCT_BITS = 2 * EXACT_BITS


class Integers:
    """Python's integers; `Hardware` and `Terms` have the same operators on other values."""

    @staticmethod
    def mux(condition, one, other):
        """Choose; a condition is the result of a comparison."""
        return one if condition else other

    @staticmethod
    def const(value: int):
        """Make a number."""
        return value


class Hardware(Integers):
    """Amaranth's values."""

    mux = staticmethod(Mux)
    const = staticmethod(Const)


class Terms(Integers):
    """z3's bit vectors, wide enough that nothing overflows or is negative."""

    BITS = 64
    mux = staticmethod(z3.If)

    @staticmethod
    def const(value: int):
        """Make a number."""
        return z3.BitVecVal(value, Terms.BITS)


def round_product(kind: type[Integers], product, shift):
    """Align a product of significands and round it, as `isa.numbers.requantise_integer` does.

    Parameters
    ----------
    kind
        What the operands are.
    product
        Of the magnitude of a total below 2**24 and a significand.
    shift
        `SATURATING_EXPONENT` - 1 less the biased exponent of the scale, limited to
        0..`VANISHING_SHIFT`.

    Returns
    -------
    0..SATURATED
    """
    return round_aligned(kind, *align(kind, product, shift))


def align(kind: type[Integers], product, shift) -> tuple:
    """Return the value with `FRACTION_BITS` fraction bits, and 1 if any bit was dropped, else 0."""
    wide = product << PRODUCT_ZEROS
    dropped = wide & ((kind.const(1) << shift) - 1)
    return wide >> shift, kind.mux(dropped != 0, kind.const(1), kind.const(0))


def round_aligned(kind: type[Integers], aligned, sticky):
    """Round to the binary32 grid and to an integer at once: `isa.numbers.round_twice`."""
    one, zero = kind.const(1), kind.const(0)
    whole = aligned >> FRACTION_BITS
    fraction = ((aligned & ((1 << FRACTION_BITS) - 1)) << 1) | sticky
    width = zero
    for bit in range(SATURATED.bit_length() - 1):
        width = width + kind.mux((whole >> bit) != 0, one, zero)
    # Only of use below 256, where the width is at most 8.
    step, half = one << width, 1 << (FRACTION_BITS - 1)
    odd = (whole & 1) == 1
    threshold = kind.mux(odd, (half - step) << 1, ((half + step) << 1) + 1)
    rounded = whole + kind.mux(fraction >= threshold, one, zero)
    return kind.mux(whole >= SATURATED, kind.const(SATURATED), rounded)


def round_twice(kind: type[Integers], product, binade: int, exponent: int):
    """Round as IEEE-754 says: the product to 24 significant bits, the result to an integer.

    Parameters
    ----------
    product
        In 2**binade..2**(binade + 1) - 1.
    exponent
        Biased exponent of the scale: the value is product * 2**(exponent - 150).

    Returns
    -------
    0..SATURATED
        Saturated.
    """
    significant = round_half_even(kind, product, max(0, binade + 1 - EXACT_BITS))
    weight = exponent - EXPONENT_BIAS - (EXACT_BITS - 1)
    if weight >= 0:
        value = significant << weight
    else:
        value = round_half_even(kind, significant, -weight) >> -weight
    return kind.mux(value >= SATURATED, kind.const(SATURATED), value)


def round_half_even(kind: type[Integers], value, bits: int):
    """Round to a multiple of 2**bits. Source: IEEE 754-2019, section 4.3.1."""
    if bits == 0:
        return value
    unit, low = 1 << bits, value & ((1 << bits) - 1)
    down = value - low
    odd = (down & unit) != 0
    up = kind.mux(odd, kind.const(unit // 2), kind.const(unit // 2 + 1)) <= low
    return kind.mux(up, down + unit, down)


def refute(*conditions) -> None:
    """Demand that no product meets all conditions."""
    solver = z3.SolverFor("QF_BV")
    solver.add(PRODUCT >= 0, PRODUCT < 1 << PRODUCT_BITS, *conditions)
    assert solver.check() == z3.unsat, solver.model()


PRODUCT = z3.BitVec("product", Terms.BITS)
LEAST = SATURATING_EXPONENT - 1 - VANISHING_SHIFT
"""Largest biased exponent of a scale that makes every product less than 1/2."""


@pytest.mark.parametrize("part", range(2))
def test_one_comparison_rounds_as_two_roundings_of_binary32(part):
    for exponent in range(LEAST + part, SATURATING_EXPONENT, 2):
        shift = SATURATING_EXPONENT - 1 - exponent
        ours = round_product(Terms, PRODUCT, Terms.const(shift))
        # Both roundings are monotone: what lies below 1/2 gives 0, what lies above 256 saturates.
        point = 150 - exponent
        half, most = max(0, point - 1), min(PRODUCT_BITS, point + 8)
        refute(PRODUCT < 1 << half, ours != 0)
        refute(PRODUCT >= 1 << most, ours != SATURATED)
        for binade in range(half, most):
            inside = (PRODUCT >= 1 << binade, PRODUCT < 1 << (binade + 1))
            refute(*inside, ours != round_twice(Terms, PRODUCT, binade, exponent))


def test_what_vanishes_is_below_a_half_and_what_saturates_is_not():
    # Below: the largest product is less than 1/2, so that both roundings give 0.
    assert (1 << PRODUCT_BITS) * 2.0 ** (LEAST - 150) <= 0.5
    refute(round_product(Terms, PRODUCT, Terms.const(VANISHING_SHIFT)) != 0)
    # Above: the smallest product but 0 has a total of 1 and a significand of 2**23.
    assert (1 << (EXACT_BITS - 1)) * 2.0 ** (SATURATING_EXPONENT - 150) >= SATURATED


def test_a_total_that_is_not_scaled_stays_as_it_is():
    shift = Terms.const(SATURATING_EXPONENT - 1 - EXPONENT_BIAS)
    total = PRODUCT >> (EXACT_BITS - 1)
    kept = z3.If(total >= SATURATED, Terms.const(SATURATED), total)
    refute(PRODUCT == total << (EXACT_BITS - 1), round_product(Terms, PRODUCT, shift) != kept)


def test_the_proof_of_rounding_can_fail():
    product = z3.BitVec("product", Terms.BITS)
    solver = z3.Solver()
    solver.add(product >= 1 << 40, product < 1 << 41)
    once = round_half_even(Terms, product, 30) >> 30
    solver.add(once != round_twice(Terms, product, 40, 120))
    assert solver.check() == z3.sat
    found = solver.model()[product].as_long()
    assert round_half_even(Integers, found, 30) >> 30 != round_twice(Integers, found, 40, 120)


@pytest.mark.parametrize("binade", range(EXACT_BITS, PRODUCT_BITS))
def test_the_first_rounding_is_the_one_of_the_floating_point_theory(binade):
    product = z3.BitVec("product", Terms.BITS)
    solver = z3.Solver()
    solver.add(product >= 1 << binade, product < 1 << (binade + 1))
    theirs = z3.fpUnsignedToFP(z3.RNE(), product, z3.Float32())
    ours = round_half_even(Terms, product, binade + 1 - EXACT_BITS)
    solver.add(z3.fpToUBV(z3.RTZ(), theirs, z3.BitVecSort(Terms.BITS)) != ours)
    assert solver.check() == z3.unsat


class AnyProduct(Multiplier):
    """A multiplier that may be wrong: its product is any number, the same as its bench sees."""

    arbitrary: Signal

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.product.eq(self.arbitrary)
        return m


class RequantizerBench(Bench):
    """Totals and scales with any bits, one each cycle; constants with any value.

    Of the product only one thing is assumed: that of 0 is 0.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: str = "") -> None:
        super().__init__()
        self.monkeypatch, self.fault = monkeypatch, fault

    def world(self, m: Module) -> None:
        arbitrary = self.any(m, "product", PRODUCT_BITS)
        multiplier = AnyProduct(EXACT_BITS, EXACT_BITS)
        multiplier.arbitrary = arbitrary
        self.monkeypatch.setattr(requantizer, "Multiplier", lambda *shapes: multiplier)
        block = requantizer.Requantizer()
        inside = probe(m, "block", block)
        m.d.comb += [
            block.total.eq(self.any(m, "total", signed(32))),
            block.scale.eq(self.any(m, "scale", 32)),
            block.scaled.eq(self.some(m, "scaled")),
            block.zero_point.eq(self.some(m, "zero_point", signed(8))),
            block.low.eq(self.some(m, "low", signed(8))),
            block.high.eq(self.some(m, "high", signed(8))),
        ]
        one = Const(EXPONENT_BIAS << (EXACT_BITS - 1), 32)
        scale, magnitude = Signal(32), Signal(32)
        m.d.comb += [scale.eq(Mux(block.scaled, block.scale, one)), magnitude.eq(abs(block.total))]
        operands = multiplier.left == magnitude[:EXACT_BITS]
        operands &= multiplier.right == Cat(scale[: EXACT_BITS - 1], Const(1, 1))
        self.claim(m, operands, "the multiplier gets magnitude and significand")

        # When the product is there: what the definition makes of it.
        early = Cat(magnitude, block.total[31] ^ scale[31], scale[EXACT_BITS - 1 : 31])
        early = delayed(m, early, Multiplier.LATENCY, "expected_early")
        magnitude, negative, exponent = early[:32], early[32], early[33:]
        self.assume(m, magnitude[:EXACT_BITS].any() | (arbitrary == 0))
        distance = SATURATING_EXPONENT - 1 - exponent
        limited = Mux(distance > VANISHING_SHIFT, VANISHING_SHIFT, distance)
        shift = Signal(range(VANISHING_SHIFT + 1))
        m.d.comb += shift.eq(Mux(exponent >= SATURATING_EXPONENT, 0, limited))
        saturates = magnitude >= EXACT_LIMIT
        saturates |= (exponent >= SATURATING_EXPONENT) & (magnitude != 0)
        aligned, sticky = Signal(PRODUCT_BITS + PRODUCT_ZEROS), Signal()
        wide, drops = align(Hardware, arbitrary, shift)
        m.d.comb += [aligned.eq(wide), sticky.eq(drops)]

        # The stages of the block one after the other, so that each is compared by itself.
        ages = Signal(range(block.LATENCY + 1))
        with m.If(ages != block.LATENCY):
            m.d.sync += ages.eq(ages + 1)
        known = Cat(aligned, sticky, saturates, negative)
        known = delayed(m, known, 2, "expected_alignment")
        aligned, sticky, saturates, negative = (
            known[: len(aligned)], known[-3], known[-2], known[-1]
        )
        same = inside["fraction"] == Cat(sticky, aligned[:FRACTION_BITS])
        whole = aligned[FRACTION_BITS:]
        overflows = saturates | (whole >= SATURATED)
        same &= (inside["whole"] == whole[: len(inside["whole"])])
        same = (inside["overflows"] == overflows) & (overflows | same)
        filled = Multiplier.LATENCY + 2
        self.claim(m, (ages < filled) | same, "the block aligns as the definition does")

        rounded, later_negative = Signal(range(SATURATED + 1)), Signal()
        nearest = round_aligned(Hardware, aligned, sticky)
        m.d.sync += rounded.eq(Mux(saturates, SATURATED, nearest))
        m.d.sync += later_negative.eq(negative)
        same = inside["rounded"] == rounded
        self.claim(m, (ages < filled + 1) | same, "the block rounds as the definition does")

        shifted, result = Signal(signed(11)), Signal(signed(8))
        m.d.sync += shifted.eq(Mux(later_negative, -rounded, rounded) + block.zero_point)
        saturated = limit(shifted, Const(-128), Const(127))
        m.d.sync += result.eq(limit(saturated, block.low, block.high))
        ready = ages >= block.LATENCY - (1 if self.fault else 0)
        self.claim(m, ~ready | (block.result == result), "the block is the integer arithmetic")


def limit(value: Value, low: Value, high: Value) -> Value:
    raised = Mux(value > low, value, low)
    return Mux(raised < high, raised, high)


def test_the_block_is_the_integer_arithmetic_for_every_product(prover, monkeypatch):
    prover.proves(RequantizerBench(monkeypatch), induction(requantizer.Requantizer.LATENCY + 1))


def test_the_proof_of_the_block_can_fail(prover, monkeypatch):
    words = "the block is the integer arithmetic"
    prover.refutes(RequantizerBench(monkeypatch, fault="early"), words, bounded(9))


class MultiplierBench(Bench):
    """Operands with any value; narrow, since the block has no other use for its width."""

    BITS = 4

    def world(self, m: Module) -> None:
        m.submodules.multiplier = multiplier = Multiplier(self.BITS, self.BITS)
        m.d.comb += [
            multiplier.left.eq(self.any(m, "left", self.BITS)),
            multiplier.right.eq(self.any(m, "right", self.BITS)),
        ]
        operands = delayed(m, Cat(multiplier.left, multiplier.right), multiplier.LATENCY, "both")
        product = operands[: self.BITS] * operands[self.BITS :]
        filled = Signal(range(multiplier.LATENCY + 1))
        with m.If(filled != multiplier.LATENCY):
            m.d.sync += filled.eq(filled + 1)
        ready = filled == multiplier.LATENCY
        self.claim(m, ~ready | (multiplier.product == product), "the product of its operands")


def test_the_multiplier_multiplies(prover):
    prover.proves(MultiplierBench(), induction(Multiplier.LATENCY + 1))


def test_the_numpy_definitions_are_the_same_functions():
    rng = np.random.default_rng(5)
    for exponent in range(LEAST - 1, SATURATING_EXPONENT + 1):
        totals = rng.integers(1, EXACT_LIMIT, 100) >> rng.integers(0, EXACT_BITS, 100)
        patterns = exponent << (EXACT_BITS - 1) | rng.integers(0, 1 << (EXACT_BITS - 1), 100)
        scales = patterns.astype(np.uint32).view(np.float32)
        shift = min(max(SATURATING_EXPONENT - 1 - exponent, 0), VANISHING_SHIFT)
        ours = []
        for total, pattern in zip(totals.tolist(), patterns.tolist(), strict=True):
            product = total * (pattern % (1 << (EXACT_BITS - 1)) + (1 << (EXACT_BITS - 1)))
            saturates = exponent >= SATURATING_EXPONENT and total != 0
            ours.append(SATURATED if saturates else round_product(Integers, product, shift))
            if LEAST < exponent < SATURATING_EXPONENT and total:
                binade = product.bit_length() - 1
                assert ours[-1] == round_twice(Integers, product, binade, exponent)
        np.testing.assert_array_equal(ours, numbers.requantise_integer(totals, scales))
        np.testing.assert_array_equal(ours, numbers.requantise(totals, scales))
