"""Cells of the Lattice ECP5: multiplier, block RAM, wide multiplexer, carry chain and pads.

The modes follow Lattice's FPGA-TN-02205 (sysDSP) and FPGA-TN-02204 (memory). Yosys passes the cells
on, nextpnr-ecp5 places them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import (
    Cat,
    ClockSignal,
    Const,
    Instance,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from . import interfaces

MULTIPLIER_BITS = 18


class Multiplier18(wiring.Component):
    """One MULT18X18D with all of its registers: operands, pipeline, product.

    Latency three cycles; one product per cycle; never stalls. The registers have no reset.

    Parameters
    ----------
    left_signed, right_signed : bool
        How the operands are read.

    Members
    -------
    left, right : In(18)
    load_left : In(1)
        The register of `left` holds its value without it.
    product : Out(36)
    """

    def __init__(self, left_signed: bool, right_signed: bool):
        self.left_signed, self.right_signed = left_signed, right_signed
        super().__init__(
            {
                "left": In(MULTIPLIER_BITS),
                "right": In(MULTIPLIER_BITS),
                "load_left": In(1),
                "product": Out(2 * MULTIPLIER_BITS),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        registers = {
            f"p_REG_{stage}_{what}": choice
            for stage in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT")
            for what, choice in (
                ("CLK", "CLK0"),
                ("CE", "CE1" if stage == "INPUTA" else "CE0"),
                ("RST", "RST0"),
            )
        }
        m.submodules.cell = Instance(
            "MULT18X18D",
            **registers,
            **_bits("i_A", self.left),
            **_bits("i_B", self.right),
            **_bits("o_P", self.product),
            i_SIGNEDA=Const(self.left_signed),
            i_SIGNEDB=Const(self.right_signed),
            i_SOURCEA=Const(0),
            i_SOURCEB=Const(0),
            i_CLK0=ClockSignal(),
            i_CE0=Const(1),
            i_CE1=self.load_left,
            i_RST0=Const(0),
        )
        return m


class BlockRam(interfaces.BlockRam):
    """One DP16KD."""

    def elaborate(self, platform) -> Module:
        m = Module()
        half = 18
        unused = 14 - self.address_bits
        # The lowest address bits that a wide word does not need are its byte enables.
        enables = self.write_enable if self.lanes > 1 else Const(0, 0)
        write_address = Cat(enables, Const(0, unused - len(enables)), self.write_address)
        read_address = Cat(Const(0, unused), self.read_address)
        # Port A writes and port B reads. A word of 36 bits takes the data pins of both, those of
        # port A for its lower half: Lattice's tools give this half to DO18 to DO35 of a PDPW16KD,
        # which nextpnr turns into DOA, and Yosys connects its own memories likewise.
        is_wide = self.width > half
        outputs = [Signal(half, name="low"), Signal(half, name="high")]
        m.d.comb += self.read_data.eq(Cat(outputs))
        lower = "o_DOA" if is_wide else "o_DOB"
        halves = {**_bits(lower, outputs[0]), **_bits("i_DIA", self.write_data[:half])}
        if is_wide:
            halves |= {**_bits("o_DOB", outputs[1]), **_bits("i_DIB", self.write_data[half:])}
        m.submodules.cell = Instance(
            "DP16KD",
            p_DATA_WIDTH_A=self.width,
            p_DATA_WIDTH_B=self.width,
            p_REGMODE_A="OUTREG",
            p_REGMODE_B="OUTREG",
            p_RESETMODE="SYNC",
            p_WRITEMODE_A="NORMAL",
            p_WRITEMODE_B="NORMAL",
            p_CSDECODE_A="0b000",
            p_CSDECODE_B="0b000",
            p_GSR="DISABLED",
            **_bits("i_ADA", write_address),
            **_bits("i_ADB", read_address),
            **halves,
            **{f"i_CS{port}{index}": Const(0) for port in "AB" for index in range(3)},
            **{f"i_CLK{port}": ClockSignal() for port in "AB"},
            **{f"i_RST{port}": Const(0) for port in "AB"},
            **{f"i_OCE{port}": Const(1) for port in "AB"},
            i_CEA=self.write,
            i_CEB=self.read_enable,
            i_WEA=Const(1) if self.lanes > 1 else self.write_enable,
            i_WEB=Const(0),
        )
        return m


class Copies(interfaces.Copies):
    """Each copy is one TRELLIS_FF.

    Parameters
    ----------
    count : int
        Number of registers.
    set_by_reset : bool
        Whether a reset sets the registers; otherwise they have no reset.
    """

    def __init__(self, count: int, *, set_by_reset: bool = False):
        self.set_by_reset = set_by_reset
        super().__init__(count)

    def register(self, copy: Value) -> Instance:
        return Instance(
            "TRELLIS_FF",
            p_GSR="DISABLED",
            p_CEMUX="1",
            p_CLKMUX="CLK",
            p_LSRMUX="LSR",
            p_REGSET="SET" if self.set_by_reset else "RESET",
            p_SRMODE="LSR_OVER_CE",
            i_CLK=ClockSignal(),
            i_LSR=ResetSignal() if self.set_by_reset else Const(0),
            i_DI=self.value,
            o_Q=copy,
        )


class Choice4(wiring.Component):
    """A choice of four values, from two LUT4 and a PFUMX per bit; Yosys needs twice as many.

    Parameters
    ----------
    width : int
        Bits of a value.

    Members
    -------
    values : In(width)[4]
    index : In(2)
    chosen : Out(width)
        `values[index]`, in the same cycle.
    """

    def __init__(self, width: int):
        self.width = width
        super().__init__({"values": In(width).array(4), "index": In(2), "chosen": Out(width)})

    def elaborate(self, platform) -> Module:
        m = Module()
        for bit in range(self.width):
            halves = []
            for half in range(2):
                output = Signal(name=f"half_{half}")
                m.submodules[f"bit_{bit}_{half}"] = Instance(
                    "LUT4",
                    p_INIT=Const(0xCACA, 16),
                    i_A=self.values[2 * half][bit],
                    i_B=self.values[2 * half + 1][bit],
                    i_C=self.index[0],
                    i_D=Const(0),
                    o_Z=output,
                )
                halves.append(output)
            m.submodules[f"bit_{bit}"] = Instance(
                "PFUMX",
                i_BLUT=halves[0],
                i_ALUT=halves[1],
                i_C0=self.index[1],
                o_Z=self.chosen[bit],
            )
        return m


def pad_register(value: Value, output: Value) -> Instance:
    """Return a register in a pad, for its output or its direction; 0 at power-up."""
    return _pad_register("OFS1P3DX", value, output)


def forwarded_clock(clock: Value, output: Value) -> Instance:
    """Return the double-rate register that puts a clock on a pad."""
    return Instance(
        "ODDRX1F",
        i_SCLK=clock,
        i_RST=Const(0),
        i_D0=Const(1),
        i_D1=Const(0),
        o_Q=output,
    )


class BidirectionalPad(interfaces.BidirectionalPad):
    """A BB cell with a register cell for each direction."""

    def elaborate(self, platform) -> Module:
        m = Module()
        driven, released, found = Signal(), Signal(), Signal()
        m.submodules.driven = pad_register(self.output, driven)
        m.submodules.released = pad_register(~self.drives, released)
        m.submodules.found = _pad_register("IFS1P3DX", found, self.input)
        m.submodules.pad = Instance("BB", i_I=driven, i_T=released, o_O=found, io_B=self.port)
        return m


def _pad_register(cell: str, value: Value, output: Value) -> Instance:
    return Instance(
        cell,
        p_GSR="DISABLED",
        i_SCLK=ClockSignal(),
        i_SP=Const(1),
        i_CD=Const(0),
        i_D=value,
        o_Q=output,
    )


class CarryChain(wiring.Component):
    """A chain of CCU2C cells: an adder, two bits per cell, with a look-up table before each bit.

    A bit's table computes the sum without carry from four inputs. Where it is 1, the carry passes.
    Elsewhere the carry out is the table's value for c = d = 0.

    Parameters
    ----------
    bits : int
        Length of the chain.
    table : int
        16 bits; bit a + 2 b + 4 c + 8 d is the value for these inputs.

    Members
    -------
    a, b, c, d : In(bits)
    carry : In(1)
        Carry into the lowest bit.
    sum : Out(bits)
    """

    def __init__(self, bits: int, table: int):
        self.bits, self.table = bits, table
        super().__init__(
            {**dict.fromkeys("abcd", In(bits)), "carry": In(1), "sum": Out(bits)},
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        halves = [
            Half(self.table, tuple(getattr(self, name)[bit] for name in "abcd"), self.sum[bit])
            for bit in range(self.bits)
        ]
        _add_chain(m, halves, self.carry)
        return m


class TopSum(wiring.Component):
    """The sum `first + second + 4 * third` of numbers of 4, 4 and 2 bits, modulo 16.

    Members
    -------
    first, second : In(4)
    third : In(2)
    total : Out(4)
        `first + second + 4 * third`, in the same cycle.
    """

    def __init__(self):
        super().__init__({"first": In(4), "second": In(4), "third": In(2), "total": Out(4)})

    def elaborate(self, platform) -> Module:
        m = Module()
        first, second, third = self.first, self.second, self.third
        # Bit 2 adds three bits and a carry. If the sum of the three is odd, its half of the chain
        # passes the carry in; if it is even, it gives the carry of the three. The carry of three
        # ones is missing and is added at bit 3.
        missed = first[2] & second[2] & third[0]
        m.d.comb += self.total[0].eq(first[0] ^ second[0])
        _add_chain(
            m,
            [
                Half(0x0008, (first[0], second[0], Const(1), Const(0)), None),
                Half(0x6666 | 0x8, (first[1], second[1], Const(1), Const(1)), self.total[1]),
                Half(0x960E, (first[2], second[2], third[0], Const(1)), self.total[2]),
                Half(0x6996, (first[3], second[3], third[1], missed), self.total[3]),
            ],
        )
        return m


@dataclass(frozen=True, slots=True)
class Half:
    """Half of a CCU2C: one bit of a carry chain.

    The sum is the table's value xor the carry in. Where the table has 1, the carry out is the carry
    in. Elsewhere it is the bit of the table's lowest four that the first two inputs select.

    Parameters
    ----------
    table : int
        The 16 bits of the table, as for a LUT4.
    inputs : tuple[Value, ...]
        Up to four inputs of the table.
    total : Value, optional
        Receives the sum.
    """

    table: int
    inputs: tuple[Value, ...]
    total: Value | None


def _add_chain(m: Module, halves: Sequence[Half], carry: Value | None = None) -> None:
    """Add a carry chain; without a carry, its first half must not depend on one."""
    for number, low in enumerate(range(0, len(halves), 2)):
        following = Signal(name=f"carry_{number}")
        ports: dict[str, object] = {"o_COUT": following}
        for index in range(2):
            half = halves[low + index] if low + index < len(halves) else Half(0, (), None)
            ports |= {f"p_INIT{index}": Const(half.table, 16), f"p_INJECT1_{index}": "NO"}
            inputs = [*half.inputs, *[Const(0)] * (4 - len(half.inputs))]
            ports |= {f"i_{pin}{index}": bit for pin, bit in zip("ABCD", inputs, strict=True)}
            if half.total is not None:
                ports[f"o_S{index}"] = half.total
        if carry is not None:
            ports["i_CIN"] = carry
        m.submodules[f"chain_{number}"] = Instance("CCU2C", **ports)
        carry = following


def _bits(prefix: str, value: Value) -> dict[str, Value]:
    """Return one port per bit of a value, by name: `prefix` followed by the bit's number."""
    return {f"{prefix}{index}": bit for index, bit in enumerate(Value.cast(value))}
