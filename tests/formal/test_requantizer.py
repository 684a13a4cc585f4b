"""The requantizer computes the integer arithmetic of `rounding`, whatever the product is.

`test_rounding` proves that this arithmetic is IEEE-754's. Together they show that the block rounds
as binary32 does for every total, scale and zero point, and clamps to any bounds.
"""

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from tilewright.hardware import requantizer, wide_multiplier
from tilewright.hardware.delay import delayed
from tilewright.hardware.multiplier import Multiplier
from tilewright.hardware.wide_multiplier import WideMultiplier
from tilewright.isa.numbers import (
    EXACT_BITS,
    EXACT_LIMIT,
    EXPONENT_BIAS,
    PRODUCT_ZEROS,
    SATURATED,
    SATURATING_EXPONENT,
    VANISHING_SHIFT,
)

from .bench import ProofBench, probe
from .prove import bounded, induction
from .rounding import PRODUCT_BITS, Hardware, align, round_aligned


class AnyProduct:
    """A multiplier that may be wrong: its product is any number, the same as its bench sees."""

    arbitrary: Signal

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.product.eq(self.arbitrary)
        return m


class AnyWideProduct(AnyProduct, WideMultiplier):
    pass


NORMAL_CYCLES = 3
"""Cycles from a total to its normal magnitude."""


class RequantizerBench(ProofBench):
    """Totals and scales with any bits, one each cycle; constants with any value.

    The product is arbitrary, but it is one of the normalised magnitude: its top bit or the next one
    is set, and it ends with the zeros that normalising put there. A magnitude of 0 gives 0.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: str = "") -> None:
        super().__init__()
        self.monkeypatch, self.fault = monkeypatch, fault

    def world(self, m: Module) -> None:
        arbitrary = self.any(m, "product", PRODUCT_BITS)
        multiplier = AnyWideProduct(EXACT_BITS, requantizer.BLOCK_BITS)
        multiplier.arbitrary = arbitrary
        self.monkeypatch.setattr(requantizer, "WideMultiplier", lambda *widths: multiplier)
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
        ages = Signal(range(block.LATENCY + 1))
        with m.If(ages != block.LATENCY):
            m.d.sync += ages.eq(ages + 1)
        zeros: Value = Const(0, range(EXACT_BITS))
        for bit in range(EXACT_BITS):
            zeros = Mux(magnitude[bit], EXACT_BITS - 1 - bit, zeros)
        normal = (magnitude[:EXACT_BITS] << zeros)[:EXACT_BITS]
        operands = delayed(m, Cat(normal, scale[: EXACT_BITS - 1]), NORMAL_CYCLES, "operands")
        same = Cat(multiplier.left, multiplier.right) == Cat(operands, Const(1, 1))
        words = "the multiplier gets normal magnitude and significand"
        self.claim(m, (ages < NORMAL_CYCLES) | same, words)

        # When the product is there: what the definition makes of it.
        early = Cat(magnitude, block.total[31] ^ scale[31], scale[EXACT_BITS - 1 : 31], zeros)
        early = delayed(m, early, NORMAL_CYCLES + WideMultiplier.LATENCY, "expected_early")
        magnitude, negative, exponent, zeros = early[:32], early[32], early[33:41], early[41:]
        product = Signal(PRODUCT_BITS)
        m.d.comb += product.eq(arbitrary >> zeros)
        tops = Mux(magnitude[:EXACT_BITS].any(), arbitrary[-2:].any(), arbitrary == 0)
        self.assume(m, tops & ((product << zeros) == arbitrary))
        distance = SATURATING_EXPONENT - 1 - exponent
        limited = Mux(distance > VANISHING_SHIFT, VANISHING_SHIFT, distance)
        shift = Signal(range(VANISHING_SHIFT + 1))
        m.d.comb += shift.eq(Mux(exponent >= SATURATING_EXPONENT, 0, limited))
        saturates = magnitude >= EXACT_LIMIT
        saturates |= (exponent >= SATURATING_EXPONENT) & (magnitude != 0)
        aligned, sticky = Signal(PRODUCT_BITS + PRODUCT_ZEROS), Signal()
        wide, drops = align(Hardware, product, shift)
        m.d.comb += [aligned.eq(wide), sticky.eq(drops)]

        # Rounding and the last stages one after the other, so that each is compared by itself.
        nearest = round_aligned(Hardware, aligned, sticky)
        known = Cat(Mux(saturates, Const(SATURATED, 9), nearest[:9]), negative)
        known = delayed(m, known, 1, "expected_rounding")
        rounded, later_negative = known[:9], known[9]
        filled = NORMAL_CYCLES + WideMultiplier.LATENCY + 1
        found = Mux(inside["overflows"], SATURATED, inside["window"][1:] + inside["rises"])
        self.claim(
            m, (ages < filled) | (found == rounded), "the block rounds as the definition does"
        )

        shifted, result = Signal(signed(11)), Signal(signed(8))
        m.d.sync += shifted.eq(Mux(later_negative, -rounded, rounded) + block.zero_point)
        saturated = limit(shifted, Const(-128), Const(127))
        m.d.sync += result.eq(limit(saturated, block.low, block.high))
        ready = ages >= block.LATENCY - (1 if self.fault else 0)
        self.claim(m, ~ready | (block.result == result), "the block is the integer arithmetic")


def limit(value: Value, low: Value, high: Value) -> Value:
    raised = Mux(value > low, value, low)
    return Mux(raised < high, raised, high)


@pytest.mark.slow
def test_the_block_is_the_integer_arithmetic_for_every_product(prover, monkeypatch):
    prover.proves(RequantizerBench(monkeypatch), induction(requantizer.Requantizer.LATENCY + 1))


@pytest.mark.slow
def test_the_proof_of_the_block_can_fail(prover, monkeypatch):
    words = "the block is the integer arithmetic"
    prover.refutes(
        RequantizerBench(monkeypatch, fault="early"),
        words,
        bounded(requantizer.Requantizer.LATENCY + 1),
    )


class MultiplierBench(ProofBench):
    """Operands with any value; narrow, since the block has no other use for its width."""

    BITS = 4

    def __init__(self, latency: int = Multiplier.LATENCY) -> None:
        super().__init__()
        self.latency = latency

    def world(self, m: Module) -> None:
        m.submodules.multiplier = multiplier = Multiplier(self.BITS, self.BITS)
        m.d.comb += [
            multiplier.left.eq(self.any(m, "left", self.BITS)),
            multiplier.right.eq(self.any(m, "right", self.BITS)),
        ]
        operands = delayed(m, Cat(multiplier.left, multiplier.right), self.latency, "both")
        product = operands[: self.BITS] * operands[self.BITS :]
        filled = Signal(range(self.latency + 1))
        with m.If(filled != self.latency):
            m.d.sync += filled.eq(filled + 1)
        ready = filled == self.latency
        self.claim(m, ~ready | (multiplier.product == product), "the product of its operands")


def test_the_multiplier_multiplies(prover):
    prover.proves(MultiplierBench(), induction(Multiplier.LATENCY + 1))
    prover.refutes(MultiplierBench(latency=2), "the product of its operands", bounded(6))


class WideMultiplierBench(ProofBench):
    """Operands with any value, one pair each cycle, and blocks whose products are arbitrary.

    The middle term is assumed to fit the operands and one more bit, as that of real products does.

    A fault cuts the operands at another bit.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: str = "") -> None:
        super().__init__()
        self.monkeypatch, self.fault = monkeypatch, fault

    def world(self, m: Module) -> None:
        blocks: list[AnyBlock] = []

        def make(left, right, **options) -> AnyBlock:
            block = AnyBlock(left, right, **options)
            block.arbitrary = self.any(m, f"product_{len(blocks)}", block.product.shape())
            blocks.append(block)
            return block

        self.monkeypatch.setattr(wide_multiplier, "Multiplier", make)
        cut = requantizer.BLOCK_BITS
        whole = WideMultiplier(EXACT_BITS, cut)
        probe(m, "whole", whole)
        left, right = self.any(m, "left", EXACT_BITS), self.any(m, "right", EXACT_BITS)
        m.d.comb += [whole.left.eq(left), whole.right.eq(right)]
        if self.fault:
            cut += 1
        low, sums, high = blocks
        cycles = WideMultiplier.LATENCY - Multiplier.LATENCY
        ages = Signal(range(cycles + 1))
        with m.If(ages != cycles):
            m.d.sync += ages.eq(ages + 1)
        for side, operand in (("left", left), ("right", right)):
            lower, upper = operand[:cut], operand[cut:]
            same = (getattr(low, side) == lower) & (getattr(high, side) == upper)
            before = delayed(m, lower + upper, 1, f"{side}_sum")
            same &= (ages < 1) | (getattr(sums, side) == before)
            self.claim(m, same, "the blocks multiply the parts and their sums")
        outer = delayed(m, Cat(low.product, high.product), 1, "outer")
        bits = len(low.product)
        low_product, high_product = outer[:bits], outer[bits:]
        between = sums.product - low_product - high_product
        self.assume(m, (between >= 0) & (between < 1 << EXACT_BITS + 1))
        sum_of_all = low_product + (between << cut) + (high_product << (2 * cut))
        expected = delayed(m, sum_of_all[: 2 * EXACT_BITS], cycles - 1, "expected")
        same = (ages < cycles) | (whole.product == expected)
        self.claim(m, same, "the products sum to the whole")


class AnyBlock(AnyProduct, Multiplier):
    pass


@pytest.mark.slow
def test_the_wide_multiplier_adds_its_products_as_karatsuba_does(prover, monkeypatch):
    prover.proves(WideMultiplierBench(monkeypatch), induction(4))
    words = "the blocks multiply the parts and their sums"
    prover.refutes(WideMultiplierBench(monkeypatch, fault="cut"), words, bounded(2))
