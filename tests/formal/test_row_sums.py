"""The sums of rows and their spread are those of the definition, for slices of any kind.

Products are arbitrary: a proof shows that the right numbers are multiplied and how the products are
added, and an exhaustive test that this makes a square.
"""

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed

from tilewright.hardware import row_statistics
from tilewright.hardware.delay import delayed
from tilewright.hardware.row_statistics import CUT, ROOM_BITS, RowStatistics
from tilewright.hardware.row_sums import COUNT_BITS, VALUE_BITS, RowSums
from tilewright.isa.instructions import Statistic
from tilewright.isa.row_statistics import SPREAD_BITS, SUM_BITS

from .any_product import free_products
from .bench import ProofBench, probe
from .prove import bounded, induction


class SumsBench(ProofBench):
    """Slices of two lanes in any cycle. A fault adds the second one's value always.

    Simulation compares more lanes, for which this proof takes too long.
    """

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.block = RowSums(2)

    def world(self, m: Module) -> None:
        m.submodules.block = block = self.block
        statistic = self.some(m, "statistic", 3)
        centre = self.some(m, "centre", signed(8))
        is_sum, is_power = statistic == Statistic.SUM, statistic == Statistic.POWER
        valid, first = self.any(m, "valid"), self.any(m, "first")
        mask = self.any(m, "mask", 2)
        values = [self.any(m, f"value_{lane}", signed(8)) for lane in range(2)]
        entries = [self.any(m, f"entry_{lane}", 16) for lane in range(2)]
        self.assume(m, (mask & (mask + 1)) == 0)
        for lane in range(2):
            self.assume(m, mask[lane] | (entries[lane] == 0))
            m.d.comb += [block.values[lane].eq(values[lane]), block.entries[lane].eq(entries[lane])]
        m.d.comb += [
            block.statistic.eq(statistic),
            block.centre.eq(centre),
            block.valid.eq(valid),
            block.first.eq(first),
            block.mask.eq(mask),
        ]

        # The definition adds each slice when the block adds it, from the first slice of a row on.
        counted = [mask[lane] for lane in range(2)]
        taken = [Mux(is_power, centre, value) for value in values]
        masked = [Mux(on, value, 0) for on, value in zip(counted, taken, strict=True)]
        if self.fault:
            masked[-1] = taken[-1]
        known = [Mux(on, value, -128) for on, value in zip(counted, values, strict=True)]
        greatest = Mux(known[0] > known[1], *known)
        parts = {
            "middle": (masked[0] + masked[1], VALUE_BITS),
            "total": (entries[0] + entries[1], SUM_BITS),
            "count": (counted[0] + counted[1], COUNT_BITS),
        }
        line = block.latency - 1
        flags = delayed(m, Cat(valid, first), line, "flags")
        valid, first = flags[0], flags[1]
        filled, begun, begun_before = Signal(line), Signal(), Signal()
        m.d.sync += [
            filled.eq(Cat(1, filled)),
            begun.eq(begun | (filled[-1] & valid & first)),
            begun_before.eq(begun),
        ]
        sums: dict[str, Signal] = {}
        for name, (value, bits) in parts.items():
            added = Signal(bits, name=f"{name}_added")
            m.d.comb += added.eq(value)
            sums[name] = Signal(bits, name=f"expected_{name}")
            now = delayed(m, added, line, f"{name}_line")
            with m.If(valid):
                m.d.sync += sums[name].eq(Mux(first, 0, sums[name]) + now)
        most, now = Signal(signed(8)), delayed(m, greatest.as_signed()[:8], line, "greatest_line")
        with m.If(valid & (first | (now.as_signed() > most))):
            m.d.sync += most.eq(now)
        # A maximum replaces the values that do not count by the least byte, so they have no sum.
        is_maximum = statistic == Statistic.MAXIMUM
        same = is_maximum | (Cat(block.middle) == sums["middle"])
        self.claim(m, ~begun | same, "the middle is the sum of the values")
        self.claim(m, ~begun | (block.total == sums["total"]), "the total is that of the entries")
        count = Mux(is_sum, 1, sums["count"])
        self.claim(m, ~begun | (block.count == count), "lanes that count are counted")
        bias = Signal(VALUE_BITS + 1)
        m.d.comb += bias.eq(-Mux(is_maximum, most, sums["middle"].as_signed()))
        same = Cat(block.bias) == delayed(m, bias, 1, "bias_line")
        self.claim(m, ~begun_before | same, "the bias is the negative sum or maximum")


class AnySums(RowSums):
    """Sums with any bits."""

    bench: ProofBench

    def elaborate(self, platform) -> Module:
        m = Module()
        for name in ("count", "middle", "total", "bias"):
            sums = getattr(self, name)
            m.d.comb += sums.eq(self.bench.any(m, f"any_{name}", sums.shape()))
        return m


SPREAD_CYCLES = {"operands": 0, "products": 2, "square": 2, "spread": 1}
"""Steps from sums to their spread, each with its cycles; the last one takes both before it."""


class SpreadBench(ProofBench):
    """A row each cycle; one step is checked. A fault subtracts the square from every spread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, fault: str = "") -> None:
        super().__init__()
        self.monkeypatch, self.step, self.fault = monkeypatch, step, fault

    def world(self, m: Module) -> None:
        self.monkeypatch.setattr(AnySums, "bench", self, raising=False)
        self.monkeypatch.setattr(row_statistics, "RowSums", AnySums)
        multipliers = free_products(self, row_statistics, self.monkeypatch)
        block = RowStatistics(2)
        inside = probe(m, "block", block)
        low_product, high_product, low_square, rest = multipliers
        sums, found, cycles = block.sums, block.reciprocal, SPREAD_CYCLES[self.step]
        statistic, epsilon = self.some(m, "statistic", 3), self.some(m, "epsilon", signed(32))
        is_sum, squares = statistic == Statistic.SUM, statistic == Statistic.VARIANCE
        if self.fault:
            squares = Value.cast(1)
        m.d.comb += [block.statistic.eq(statistic), block.epsilon.eq(epsilon)]
        filled = Signal(cycles)
        m.d.sync += filled.eq(Cat(1, filled))

        def claim(step: str, condition: Value, words: str) -> None:
            if step == self.step:
                self.claim(m, ~filled.all() | condition, words)

        def expected(step: str, value: Value) -> Value:
            """Return the value when the step is over."""
            kept = Signal(ROOM_BITS, name=f"{step}_now")
            m.d.comb += kept.eq(value)
            return delayed(m, kept, cycles, f"{step}_line") if step == self.step else kept

        low, top = sums.middle[:CUT], sums.middle >> CUT
        for multiplier, left, right, words in (
            (low_product, sums.total[:CUT], sums.count, "the low bits of Q and C"),
            (high_product, sums.total[CUT:], sums.count, "the high bits of Q and C"),
            (low_square, low, low, "the low bits of S"),
            (rest, sums.middle + low, top, "what is left of S"),
        ):
            same = (multiplier.left == left) & (multiplier.right == right)
            claim("operands", same, f"{words} are multiplied")
        product = low_product.product + (high_product.product << CUT) + Mux(is_sum, 0, epsilon)
        products = Cat(inside["lower_line"], inside["upper"])
        claim("products", products == expected("products", product), "C Q + E are added")
        square = low_square.product + (rest.product << CUT)
        whole = inside["square"]
        claim("square", whole == expected("square", square), "the parts of S^2 are added")

        spread = expected("spread", products - Mux(squares, whole, 0)).as_signed()
        negative = spread < 0
        large = ~negative & spread[SPREAD_BITS:-1].any()
        same = Cat(found.number, found.negative, found.large, found.is_root) == Cat(
            spread[:SPREAD_BITS], negative, large, ~is_sum
        )
        claim("spread", same, "the square is subtracted, and beyond 40 bits there are flags")


def test_two_products_make_a_square():
    """For every sum of values: S^2 = l^2 + t (S + l) 2^n."""
    sums = np.arange(-(1 << (VALUE_BITS - 1)), 1 << (VALUE_BITS - 1))
    low, top = sums & ((1 << CUT) - 1), sums >> CUT
    assert np.array_equal(sums**2, low**2 + (top * (sums + low) << CUT))


def test_slices_are_summed_as_defined(prover):
    bench = SumsBench()
    prover.proves(bench, induction(bench.block.latency + 2))


def test_the_proof_of_sums_can_fail(prover):
    words = "the middle is the sum of the values"
    prover.refutes(SumsBench(fault="no mask"), words, bounded(8))


@pytest.mark.parametrize("step", SPREAD_CYCLES)
def test_the_spread_is_that_of_the_products(prover, monkeypatch, step):
    prover.proves(SpreadBench(monkeypatch, step), induction(SPREAD_CYCLES[step] + 1))


def test_the_proof_of_spreads_can_fail(prover, monkeypatch):
    bench = SpreadBench(monkeypatch, "spread", fault="square")
    prover.refutes(bench, "the square is subtracted", bounded(3))
