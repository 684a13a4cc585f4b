"""Cells of the Lattice ECP5: its multiplier and its carry chain.

The modes follow Lattice's FPGA-TN-02205 (sysDSP). Yosys passes the cells on, nextpnr-ecp5 places
them.
"""

from amaranth.hdl import ClockSignal, Const, Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

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


class CarryChain(wiring.Component):
    """CCU2C cells, each with two bits of an adder whose operands come through look-up tables.

    A bit's table gives its sum without carry, of its four inputs. Where that is 1 the carry passes;
    elsewhere the carry out is the table's value for c = d = 0.

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
        carry: Value = self.carry
        for low in range(0, self.bits, 2):
            following = Signal(name=f"carry_{low + 2}")
            pins = {}
            for half, bit in enumerate((low, low + 1)):
                inside = bit < self.bits
                for name in "abcd":
                    pins[f"i_{name.upper()}{half}"] = (
                        getattr(self, name)[bit] if inside else Const(0)
                    )
                pins[f"o_S{half}"] = self.sum[bit] if inside else Signal()
            m.submodules[f"bits_{low}"] = Instance(
                "CCU2C",
                p_INIT0=Const(self.table, 16),
                p_INIT1=Const(self.table, 16),
                p_INJECT1_0="NO",
                p_INJECT1_1="NO",
                i_CIN=carry,
                o_COUT=following,
                **pins,
            )
            carry = following
        return m


def _bits(prefix: str, value: Value) -> dict[str, Value]:
    """Return the bits of a port whose wires are numbered."""
    return {f"{prefix}{index}": bit for index, bit in enumerate(Value.cast(value))}
