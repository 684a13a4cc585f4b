"""The array multiplies the operands in GEMM's law: the vector, or channels of earlier vectors.

The proof covers the inputs of the multipliers; products and their sums are simulated.
"""

import pytest
from amaranth.hdl import Module, Mux, Signal, Value

from tilewright.hardware.array_operands import ELEMENT_BITS, ArrayOperands
from tilewright.hardware.blocks import TapRows

from .bench import ProofBench, probe
from .prove import bounded, induction


class OperandsBench(ProofBench):
    """Vectors with pauses, in runs that are depthwise or not, and a record of the last vectors."""

    def __init__(
        self, lanes_in: int, lanes_out: int, taps: int, *, spread: bool = False, fault: str = ""
    ) -> None:
        super().__init__()
        self.shape, self.fault = (lanes_in, lanes_out, taps), fault
        self.rows = TapRows(lanes_in, taps, spread)

    def world(self, m: Module) -> None:
        lanes_in, lanes_out, taps = self.shape
        array = ArrayOperands(lanes_in, lanes_out, taps, 1, self.rows)
        inside = probe(m, "array", array)
        begins = self.any(m, "begins")
        m.d.comb += [
            array.valid.eq(self.any(m, "valid")),
            array.depthwise.eq(self.any(m, "depthwise")),
            array.part.eq(self.any(m, "part", array.part.shape())),
            array.begins.eq(0 if self.fault else begins),
            *(
                element.eq(self.any(m, f"vector_{lane}", ELEMENT_BITS))
                for lane, element in enumerate(array.vector)
            ),
        ]

        depthwise, part = Signal(), Signal.like(array.part)
        vectors = [
            [Signal(ELEMENT_BITS, name=f"vector_{back}_{lane}") for lane in range(lanes_in)]
            for back in range(taps)
        ]
        steps = Signal(range(taps + 1))
        with m.If(array.valid):
            m.d.sync += [depthwise.eq(array.depthwise), part.eq(array.part)]
            for newer, older in zip([list(array.vector), *vectors], vectors, strict=False):
                m.d.sync += [after.eq(before) for after, before in zip(older, newer, strict=True)]
            m.d.sync += steps.eq(Mux(begins, 1, Mux(steps == taps, taps, steps + 1)))
        goes_on = array.valid & array.depthwise & ~begins
        self.assume(m, ~goes_on | ((steps != 0) & depthwise & (part == array.part)))

        channels = min(lanes_in, lanes_out)

        def channel(back: int, output: int) -> Value:
            chosen: Value = vectors[back][output]
            for group in range(1, lanes_in // channels):
                chosen = Mux(part == group, vectors[back][group * channels + output], chosen)
            return chosen

        expected = {
            f"vector_{row:02}": Mux(depthwise, 0, vectors[0][row])
            for row in range(self.rows.last, lanes_in)
        }
        for tap in range(taps):
            for output in range(channels):
                taken = Mux(tap < steps, channel(tap, output), 0)
                element = vectors[0][self.rows.row(tap, output)]
                expected[f"channel_{output:02}_{tap:02}"] = Mux(depthwise, taken, element)
        for name, value in expected.items():
            right = inside[name].as_unsigned() == value
            self.claim(m, (steps == 0) | right, "the operand is the one of the law")
        self.goal(m, depthwise & (steps == taps), "all taps have a vector")


SHAPES = [(2, 2, 2)]
SLOW = [(4, 4, 1), (4, 2, 3), (2, 4, 2), (4, 2, 4)]


@pytest.mark.parametrize("spread", [False, True], ids=["rows", "spread rows"])
@pytest.mark.parametrize(
    "shape", [*SHAPES, *(pytest.param(s, marks=pytest.mark.slow) for s in SLOW)], ids=str
)
def test_operands_are_those_of_the_law(prover, shape, spread):
    prover.proves(OperandsBench(*shape, spread=spread), induction())


@pytest.mark.parametrize("lanes_in", [2, 4, 8, 16])
def test_spread_taps_of_a_pair_have_rows_of_their_own(lanes_in):
    for taps in range(lanes_in + 1):
        rows = TapRows(lanes_in, taps, spread=True)
        assert rows.last <= lanes_in
        for tap in range(taps):
            places = [rows.row(tap, lane) for lane in range(2)]
            assert [rows.tap(row) for row in places] == [tap, tap]
            assert (places[0] == places[1]) == (tap < rows.separate)
        used = {rows.row(tap, lane) for tap in range(taps) for lane in range(2)}
        assert used == set(range(rows.last))


def test_the_proof_of_operands_can_fail(prover):
    prover.refutes(OperandsBench(2, 2, 2, fault="runs join"), "the operand", bounded(6))
    prover.reaches(OperandsBench(4, 2, 3), "all taps have a vector", bounded(8))
