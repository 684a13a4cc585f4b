"""Operands of a depthwise step over lines: at any place of a line, those of the lines before it.

Lines of any length up to 4 follow one another; a memory of the array begins with any contents.
"""

from amaranth.hdl import Module, Mux, Signal

from tilewright.hardware.array_operands import ELEMENT_BITS, ArrayOperands
from tilewright.hardware.blocks import TapRows

from .bench import ProofBench, probe
from .prove import bounded

LANES, LINES = 2, 2
CYCLES = 8
"""Two lines of 3 vectors, and two cycles more."""


class LinesBench(ProofBench):
    """Vectors with pauses, in lines, and a record of what one place of each line had."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def world(self, m: Module) -> None:
        array = ArrayOperands(LANES, LANES, 1, LINES, TapRows(LANES, LINES, spread=False))
        inside = probe(m, "array", array)
        last, watched = self.some(m, "last", 2), self.some(m, "watched", 2)
        index, line, begun = Signal(2), Signal(range(LINES)), Signal(init=0)
        begins, opens = Signal(), Signal()
        now = Signal(range(LINES))
        self.assume(m, watched <= last)
        m.d.comb += [
            begins.eq(index == 0),
            opens.eq(begins & (self.any(m, "opens") | ~begun)),
            now.eq(Mux(begins, Mux(opens, 0, Mux(line == LINES - 1, line, line + 1)), line)),
            array.valid.eq(self.any(m, "valid")),
            array.depthwise.eq(1),
            array.begins.eq(begins),
            array.opens.eq(0 if self.fault else opens),
            array.joins.eq(self.any(m, "joins")),
            *(
                element.eq(self.any(m, f"vector_{lane}", ELEMENT_BITS))
                for lane, element in enumerate(array.vector)
            ),
        ]
        seen = [
            [Signal(ELEMENT_BITS, name=f"seen_{back}_{lane}") for lane in range(LANES)]
            for back in range(LINES)
        ]
        taken, joins = Signal(init=0), Signal()
        m.d.sync += [taken.eq(array.valid & (index == watched)), joins.eq(array.joins)]
        with m.If(array.valid):
            m.d.sync += [index.eq(Mux(index == last, 0, index + 1)), line.eq(now), begun.eq(1)]
            with m.If(index == watched):
                for newer, older in zip([list(array.vector), *seen], seen, strict=False):
                    m.d.sync += [a.eq(b) for a, b in zip(older, newer, strict=True)]
        for back in range(LINES):
            for lane in range(LANES):
                counts = (back == 0) | (joins & (line >= back))
                right = inside[f"channel_{lane:02}_{back:02}"].as_unsigned() == Mux(
                    counts, seen[back][lane], 0
                )
                self.claim(m, ~taken | right, "the operand is the one of the line")
        self.goal(
            m, taken & joins & (line == LINES - 1) & (watched != 0), "all lines have a vector"
        )


def test_operands_are_those_of_the_line_before(prover):
    prover.proves(LinesBench(), bounded(CYCLES))


def test_the_proof_of_lines_can_fail(prover):
    prover.refutes(LinesBench("lines go on"), "the operand", bounded(CYCLES))
    prover.reaches(LinesBench(), "all lines have a vector", bounded(CYCLES))
