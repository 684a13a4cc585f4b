"""Blocks built from a technology's cells equal their portable descriptions.

The arithmetic of a pair of products is tested for all operands (`test_mac_array`); block RAMs and
multipliers of full width are simulated.
"""

from collections.abc import Callable, Mapping

import pytest
from amaranth.hdl import Fragment, Module, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring

from tilewright.hardware.cells.ecp5 import TopSum
from tilewright.hardware.fabric_multiplier import FabricMultiplier
from tilewright.hardware.logic_adder import Gate, LogicAdder
from tilewright.hardware.multiplier import Multiplier
from tilewright.hardware.ram import Ram
from tilewright.hardware.selection import Choice
from tilewright.hardware.technology import Technology

from .bench import ProofBench
from .prove import bounded

EQUAL = "outputs are equal"
MULTIPLYING = [Technology.ECP5, Technology.GOWIN, Technology.XILINX7, Technology.ULTRASCALE]


class SameOutputs(ProofBench):
    """A block in two descriptions, with the same inputs, any in each cycle.

    Parameters
    ----------
    make
        Returns the block; called twice.
    latency
        Cycles after which the outputs depend on nothing but inputs.
    limits
        Inputs whose values stay below a number.
    fault
        An input that the mapped block reads inverted.
    """

    def __init__(
        self,
        make: Callable[[], wiring.Component],
        technology: Technology,
        latency: int = 0,
        limits: Mapping[str, int] | None = None,
        fault: str = "",
    ) -> None:
        super().__init__()
        self.technology, self.latency, self.fault = technology, latency, fault
        self.blocks, self.limits = (make(), make()), limits or {}

    def world(self, m: Module) -> None:
        described, mapped = self.blocks
        m.submodules.described = Fragment.get(described, None)
        m.submodules.mapped = Fragment.get(mapped, self.technology)
        cycles = Signal(range(self.latency + 1))
        settled = cycles == self.latency
        with m.If(~settled):
            m.d.sync += cycles.eq(cycles + 1)
        ports = [block.signature.flatten(block) for block in self.blocks]
        for (path, member, left), (_, _, right) in zip(*ports, strict=True):
            name = "_".join(map(str, path))
            if member.flow is wiring.Out:
                self.claim(m, ~settled | (Value.cast(left) == Value.cast(right)), EQUAL)
                continue
            value = self.any(m, name, len(Value.cast(left)))
            m.d.comb += [left.eq(value), right.eq(~value if name == self.fault else value)]
            if name in self.limits:
                self.assume(m, value < self.limits[name])


@pytest.mark.parametrize("gate", list(Gate), ids=lambda gate: gate.value)
def test_a_carry_chain_has_gates_in_front(prover, gate):
    for bits in (2, 11):
        prover.proves(SameOutputs(lambda n=bits: LogicAdder(n, gate), Technology.ECP5), bounded(1))


def test_a_choice_is_the_indexed_value(prover):
    for count in (4, 6):
        bench = SameOutputs(lambda n=count: Choice(n, 2), Technology.ECP5, limits={"index": count})
        prover.proves(bench, bounded(1))


@pytest.mark.parametrize("technology", MULTIPLYING, ids=lambda technology: technology.value)
@pytest.mark.parametrize("shapes", [(signed(5), signed(4)), (unsigned(4), signed(5))], ids=str)
def test_a_multiplier_has_all_of_its_registers(prover, shapes, technology):
    latency = Multiplier.LATENCY
    bench = SameOutputs(lambda: Multiplier(*shapes), technology, latency)
    prover.proves(bench, bounded(latency + 2))


def test_products_of_logic_cells_are_those_of_the_description(prover):
    shapes: list[tuple[Shape, Shape]] = [(signed(7), signed(5)), (unsigned(6), unsigned(4))]
    for left, right in shapes:
        bench = SameOutputs(
            lambda a=left, b=right: FabricMultiplier(a, b),
            Technology.ECP5,
            FabricMultiplier.LATENCY,
        )
        prover.proves(bench, bounded(FabricMultiplier.LATENCY + 2))


class ThreeSums(ProofBench):
    """The cells that add the parts of a product's lowest bits, against arithmetic."""

    technology = Technology.ECP5

    def world(self, m: Module) -> None:
        block = TopSum()
        m.submodules.block = Fragment.get(block, self.technology)
        first, second = self.any(m, "first", 4), self.any(m, "second", 4)
        third = self.any(m, "third", 2)
        m.d.comb += [block.first.eq(first), block.second.eq(second), block.third.eq(third)]
        self.claim(m, block.total == (first + second + (third << 2))[:4], "three sums are added")


def test_three_parts_of_a_product_are_added(prover):
    prover.proves(ThreeSums(), bounded(1))


class SameWord(ProofBench):
    """A RAM in two descriptions: any word, once it was written, is read alike."""

    def __init__(self, technology: Technology, fault: bool = False) -> None:
        super().__init__()
        self.technology, self.fault = technology, fault
        self.blocks = Ram(4, 4, 2), Ram(4, 4, 2)

    def world(self, m: Module) -> None:
        described, mapped = self.blocks
        m.submodules.described = Fragment.get(described, None)
        m.submodules.mapped = Fragment.get(mapped, self.technology)
        inputs = {
            name: self.any(m, name, len(getattr(mapped, name)))
            for name in mapped.signature.members
            if name != "read_data"
        }
        for name, value in inputs.items():
            m.d.comb += [getattr(block, name).eq(value) for block in self.blocks]
        if self.fault:
            m.d.comb += mapped.write_address.eq(inputs["write_address"] ^ 1)
        word = self.some(m, "word", 2)
        reads, writes = inputs["read_enable"], inputs["write"]
        same = inputs["read_address"] == inputs["write_address"]
        self.assume(m, ~(reads & writes & same))

        written = Signal(2)
        known, shown = Signal(), Signal()
        with m.If(writes & (inputs["write_address"] == word)):
            m.d.sync += written.eq(written | inputs["write_enable"])
        with m.If(reads):
            m.d.sync += known.eq((inputs["read_address"] == word) & written.all())
        m.d.sync += shown.eq(known)
        self.claim(m, ~shown | (described.read_data == mapped.read_data), EQUAL)
        self.goal(m, shown, "a known word is shown")


def test_a_ram_of_logic_cells_reads_what_was_written(prover):
    prover.proves(SameWord(Technology.ECP5))


def test_the_proofs_of_cells_can_fail(prover):
    prover.refutes(
        SameOutputs(lambda: LogicAdder(4), Technology.ECP5, fault="c"), EQUAL, bounded(1)
    )
    prover.refutes(SameWord(Technology.ECP5, fault=True), EQUAL, bounded(6))
    prover.reaches(SameWord(Technology.ECP5), "a known word is shown", bounded(6))
