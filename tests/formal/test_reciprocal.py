"""Reciprocals read the entry, interpolate and pack as their definition does, for every number.

The products are arbitrary, and so are the table's contents: simulation compares these. A proof for
each step takes seconds; one of all steps takes minutes.
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

from .any_product import free_products
from .bench import ProofBench, probe
from .prove import Method, bounded, induction

ENTRY_BITS = SIGNIFICANT_BITS - 1
NORMALISED = len(SHIFTS)
"""Cycles after which the leading one is known."""

ENDS = {
    "address": NORMALISED,
    "rest": NORMALISED + 2,
    "exponent": NORMALISED + 1,
    "significand": NORMALISED + 3 + Multiplier.LATENCY,
    "scale": Reciprocal.LATENCY,
}
"""Steps of the computation, each with the number of cycles after which it is over."""


class ReciprocalBench(ProofBench):
    """Numbers and flags with any bits, one each cycle; one step is checked. A fault counts one bit
    less."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, fault: str = "") -> None:
        super().__init__()
        self.monkeypatch, self.step, self.fault = monkeypatch, step, fault

    def world(self, m: Module) -> None:
        multipliers = free_products(self, reciprocal, self.monkeypatch)
        block = Reciprocal()
        inside = probe(m, "block", block)
        interpolated, scaled = multipliers
        number = self.any(m, "number", SPREAD_BITS)
        negative, large = self.any(m, "negative"), self.any(m, "large")
        is_root, factor = self.some(m, "is_root"), self.some(m, "factor", 31)
        self.assume(m, ~(negative & large))
        m.d.comb += [
            block.number.eq(number),
            block.negative.eq(negative),
            block.large.eq(large),
            block.is_root.eq(is_root),
            block.factor.eq(factor),
        ]
        ages = Signal(range(Reciprocal.LATENCY + 1))
        with m.If(ages != Reciprocal.LATENCY):
            m.d.sync += ages.eq(ages + 1)

        def claim(step: str, condition: Value, words: str) -> None:
            if step == self.step:
                self.claim(m, (ages < ENDS[step]) | condition, words)

        limited = Mux(negative | ((number == 0) & ~large), 1, Mux(large, -1, number))
        place, fraction = self._normalised(m, limited)
        cells, cell = 1 << CELL_BITS, fraction[INTERPOLATION_BITS:]
        address = Mux(is_root, cells + (place[0] << CELL_BITS) + cell, cell)
        read = inside["read__addr"]
        claim("address", read == address, "the table is read at the number's cell")
        rest = delayed(m, fraction[:INTERPOLATION_BITS], 2, "expected_rest")
        claim("rest", interpolated.right == rest, "the rest of the number interpolates")
        exponent = Mux(is_root, place >> 1, place)
        halved, kept = delayed(m, exponent, 1, "expected_exponent"), inside["lower"][: len(place)]
        claim("exponent", kept == halved, "a root halves the exponent")

        # The arithmetic that follows, whatever number, table and products are.
        entry = delayed(m, inside["found"][:ENTRY_BITS], Multiplier.LATENCY, "expected_entry")
        less = interpolated.product >> INTERPOLATION_BITS
        significand = Signal(SIGNIFICANT_BITS)
        m.d.sync += significand.eq((1 << ENTRY_BITS) + entry - less)
        factor_bits = (1 << ENTRY_BITS) | factor[24 - SIGNIFICANT_BITS : 23]
        same = (scaled.left == significand) & (scaled.right == factor_bits)
        claim("significand", same, "the interpolated entry is multiplied by F")
        waits = Reciprocal.LATENCY - ENDS["exponent"]
        exponent = delayed(m, kept, waits, "packed_exponent")
        double, product = scaled.product[-1], Signal(2 * SIGNIFICANT_BITS)
        m.d.comb += product.eq(scaled.product >> (ENTRY_BITS + double))
        packed = Cat(
            Const(0, 24 - SIGNIFICANT_BITS),
            product[:ENTRY_BITS],
            (factor[23:] - 1 - exponent + double)[:8],
        )
        claim("scale", block.scale == packed, "the scale is the product as binary32")

    def _normalised(self, m: Module, limited: Value) -> tuple[Value, Value]:
        """Return the place of the leading one and the bits below it, by definition."""
        whole, place, below = Signal(SPREAD_BITS), Signal(6), Signal(SPREAD_BITS)
        leading: Value = Const(0, 6)
        for bit in range(SPREAD_BITS - (1 if self.fault else 0)):
            leading = Mux(whole[bit], bit, leading)
        m.d.comb += [
            whole.eq(limited),
            place.eq(leading),
            below.eq(whole << (SPREAD_BITS - 1 - place)[:6]),
        ]
        fraction = below[SPREAD_BITS - 1 - FRACTION_BITS : SPREAD_BITS - 1]
        found = delayed(m, Cat(fraction, place), NORMALISED, "expected")
        return Value.cast(found[FRACTION_BITS:]), Value.cast(found[:FRACTION_BITS])


def over(step: str) -> Method:
    """Induct over a step: its registers then hold what came in, whatever they held before."""
    return induction(ENDS[step] + 1)


@pytest.mark.parametrize("step", [
    "address", "rest", "exponent", pytest.param("significand", marks=pytest.mark.slow), "scale",
])  # fmt: skip
def test_every_number_has_its_reciprocal(prover, monkeypatch, step):
    prover.proves(ReciprocalBench(monkeypatch, step), over(step))


def test_the_proof_of_reciprocals_can_fail(prover, monkeypatch):
    words = "the table is read at the number's cell"
    bench = ReciprocalBench(monkeypatch, "address", fault="top bit")
    prover.refutes(bench, words, bounded(NORMALISED + 2))
