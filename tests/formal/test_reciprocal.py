"""Reciprocals read the entry, interpolate and pack as their definition does, for every number.

The products are arbitrary, and so are the table's contents: simulation compares these.
"""

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from tilewright.hardware import reciprocal
from tilewright.hardware.delay import delayed
from tilewright.hardware.multiplier import Multiplier
from tilewright.hardware.reciprocal import FRACTION_BITS, SHIFTS, Reciprocal
from tilewright.isa.row_statistics import (
    CELL_BITS,
    INTERPOLATION_BITS,
    SIGNIFICANT_BITS,
    SPREAD_BITS,
)

from .bench import ProofBench, probe
from .prove import bounded, induction


class ReciprocalBench(ProofBench):
    """Numbers and flags with any bits, one each cycle. A fault counts one bit less."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: str = "") -> None:
        super().__init__()
        self.monkeypatch, self.fault = monkeypatch, fault

    def world(self, m: Module) -> None:
        bench, blocks = self, []

        class AnyMultiplier(Multiplier):
            """A multiplier that may be wrong: its product is any number."""

            def __init__(self, left, right, *, in_fabric: bool = False) -> None:
                super().__init__(left, right, in_fabric=in_fabric)
                blocks.append(self)

            def elaborate(self, platform) -> Module:
                inner = Module()
                arbitrary = bench.any(inner, "arbitrary", self.product.shape())
                inner.d.comb += self.product.eq(arbitrary)
                return inner

        self.monkeypatch.setattr(reciprocal, "Multiplier", AnyMultiplier)
        block = Reciprocal()
        inside = probe(m, "block", block)
        number, negative, large = (
            self.any(m, "number", SPREAD_BITS),
            self.any(m, "negative"),
            self.any(m, "large"),
        )
        is_root, factor = self.some(m, "is_root"), self.some(m, "factor", 31)
        self.assume(m, ~(negative & large))
        m.d.comb += [
            block.number.eq(number),
            block.negative.eq(negative),
            block.large.eq(large),
            block.is_root.eq(is_root),
            block.factor.eq(factor),
        ]
        ages = Signal(range(block.LATENCY + 1))
        with m.If(ages != block.LATENCY):
            m.d.sync += ages.eq(ages + 1)

        # The definition: bits below the leading one, and its place.
        limited = Mux(negative | ((number == 0) & ~large), 1, Mux(large, -1, number))
        whole = Signal(SPREAD_BITS)
        m.d.comb += whole.eq(limited)
        leading: Value = Const(0, 6)
        for bit in range(SPREAD_BITS - (1 if self.fault else 0)):
            leading = Mux(whole[bit], bit, leading)
        place, below = Signal(6), Signal(SPREAD_BITS)
        m.d.comb += [place.eq(leading), below.eq(whole << (SPREAD_BITS - 1 - place)[:6])]
        fraction = below[SPREAD_BITS - 1 - FRACTION_BITS : SPREAD_BITS - 1]
        found = delayed(m, Cat(fraction, place), len(SHIFTS), "found_early")
        fraction, place = found[:FRACTION_BITS], found[FRACTION_BITS:]
        cells = 1 << CELL_BITS
        cell = fraction[INTERPOLATION_BITS:]
        address = Mux(is_root, cells + (place[0] << CELL_BITS) + cell, cell)
        self.claim(
            m,
            (ages < len(SHIFTS)) | (inside["address"] == address),
            "the table is read at the number's cell",
        )
        interpolated, scaled = blocks
        after = len(SHIFTS) + 2
        rest = delayed(m, fraction[:INTERPOLATION_BITS], 2, "expected_rest")
        self.claim(
            m, (ages < after) | (interpolated.right == rest), "the rest of the number interpolates"
        )

        # The arithmetic that follows, whatever table and products are.
        entry_bits = SIGNIFICANT_BITS - 1
        entry = delayed(m, inside["found"][:entry_bits], Multiplier.LATENCY, "expected_entry")
        less = interpolated.product >> INTERPOLATION_BITS
        significand = Signal(SIGNIFICANT_BITS)
        m.d.sync += significand.eq((1 << entry_bits) + entry - less)
        after += Multiplier.LATENCY + 1
        factor_bits = (1 << entry_bits) | factor[24 - SIGNIFICANT_BITS : 23]
        same = (scaled.left == significand) & (scaled.right == factor_bits)
        self.claim(m, (ages < after) | same, "the interpolated entry is multiplied by F")
        place = delayed(m, place, block.LATENCY - len(SHIFTS), "expected_place")
        exponent = Mux(is_root, place >> 1, place)
        double = scaled.product[-1]
        kept = Signal(2 * SIGNIFICANT_BITS)
        m.d.comb += kept.eq(scaled.product >> (entry_bits + double))
        packed = Signal(32)
        m.d.comb += packed.eq(
            Cat(
                Const(0, 24 - SIGNIFICANT_BITS),
                kept[:entry_bits],
                (factor[23:] - 1 - exponent + double)[:8],
            )
        )
        full = ages == block.LATENCY
        self.claim(m, ~full | (block.scale == packed), "the scale is the product as binary32")


@pytest.mark.slow
def test_every_number_has_its_reciprocal(prover, monkeypatch):
    prover.proves(ReciprocalBench(monkeypatch), induction(Reciprocal.LATENCY + 1))


@pytest.mark.slow
def test_the_proof_of_reciprocals_can_fail(prover, monkeypatch):
    words = "the table is read at the number's cell"
    prover.refutes(ReciprocalBench(monkeypatch, fault="top bit"), words, bounded(len(SHIFTS) + 2))
