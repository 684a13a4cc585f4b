"""The array multiplies the operands in GEMM's law: the vector, or channels of earlier vectors.

The proof covers the inputs of the multipliers; products and their sums are simulated.
"""

import pytest
from amaranth.hdl import Module, Mux, Signal, Value

from tilewright.hardware.mac_array import ELEMENT_BITS, MacArray

from .bench import ProofBench, probe
from .prove import bounded, induction


class OperandsBench(ProofBench):
    """Vectors with pauses, in runs that are depthwise or not, and a record of the last vectors."""

    def __init__(self, lanes_in: int, lanes_out: int, taps: int, fault: str = "") -> None:
        super().__init__()
        self.shape, self.fault = (lanes_in, lanes_out, taps), fault

    def world(self, m: Module) -> None:
        lanes_in, lanes_out, taps = self.shape
        array = MacArray(lanes_in, lanes_out, taps)
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

        for row in range(lanes_in):
            for output in range(channels if row < taps else 1):
                taken: Value | int = 0
                if row < taps:
                    taken = Mux(row < steps, channel(row, output), 0)
                name = f"channel_{output:02}_{row:02}" if row < taps else f"vector_{row:02}"
                expected = Mux(depthwise, taken, vectors[0][row])
                right = inside[name].as_unsigned() == expected
                self.claim(m, (steps == 0) | right, "the operand is the one of the law")
        self.goal(m, depthwise & (steps == taps), "all taps have a vector")


SHAPES = [(2, 2, 2), (4, 4, 1), (4, 2, 3), (2, 4, 2), (4, 2, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_operands_are_those_of_the_law(prover, shape):
    prover.proves(OperandsBench(*shape), induction())


def test_the_proof_of_operands_can_fail(prover):
    prover.refutes(OperandsBench(2, 2, 2, fault="runs join"), "the operand", bounded(6))
    prover.reaches(OperandsBench(4, 2, 3), "all taps have a vector", bounded(8))
