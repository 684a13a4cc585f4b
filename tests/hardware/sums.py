"""A small design with long carry chains and distributed RAM."""

from amaranth.hdl import Module, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out


class Sums(Component):
    """Long carry chains and distributed RAM behind a few pins."""

    entry: In(1)
    result: Out(1)

    def elaborate(self, platform) -> Module:
        m = Module()
        terms = [Signal(32, name=f"term_{number}") for number in range(4)]
        m.submodules.memory = memory = Memory(shape=8, depth=16, init=())
        write, read = memory.write_port(), memory.read_port(domain="comb")
        last = self.entry
        for term in terms:
            m.d.sync += term.eq((term << 1) + (term ^ last))
            last = term[-1]
        m.d.comb += [
            write.addr.eq(terms[0]), write.data.eq(terms[1]), write.en.eq(terms[2][0]),
            read.addr.eq(terms[3]),
        ]  # fmt: skip
        total = Signal(32)
        m.d.sync += [total.eq(terms[0] + terms[1] - read.data), self.result.eq(total.xor())]
        return m
