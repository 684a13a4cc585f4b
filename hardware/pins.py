"""A design around the core with four pins, so that it can be placed alone on any package.

The core has several hundred ports, more than small packages have pins. A shift register drives all
inputs and another one collects all outputs. So every path that is timed runs from register to
register, as in a system, and the clock uses the chip's own network. The two registers are counted
apart from the core.
"""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

CORE = "core"
"""Name of the core inside the design."""


class Pins(wiring.Component):
    """The core, its inputs from one pin and its outputs to another.

    Parameters
    ----------
    core : wiring.Component
        Its ports must be plain signals.

    Members
    -------
    shift_in : In(1)
        Next bit of the register in front of the inputs.
    shift_out : Out(1)
        Last bit of the register behind the outputs. Each bit of it is the exclusive or of an output
        and the bit before.
    """

    shift_in: In(1)
    shift_out: Out(1)

    def __init__(self, core: wiring.Component):
        self.core = core
        super().__init__()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules[CORE] = self.core
        inputs, outputs = [], []
        for _, member, value in self.core.signature.flatten(self.core):
            (inputs if member.flow is In else outputs).append(Value.cast(value))
        taken, given = Cat(inputs), Cat(outputs)
        before = Signal(len(taken), reset_less=True)
        behind = Signal(len(given), reset_less=True)
        m.d.comb += [taken.eq(before), self.shift_out.eq(behind[-1])]
        m.d.sync += [
            before.eq(Cat(self.shift_in, before)),
            behind.eq(given ^ Cat(before[-1], behind)),
        ]
        return m
