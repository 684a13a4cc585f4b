"""A queue between two streams."""

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from .technology import Technology

SHALLOW = 16
"""Greatest depth of an iCE40 queue made of flip-flops.

That chip has no distributed RAM. Its block RAMs are read with a clock, so deeper queues read ahead.
"""


class Queue(wiring.Component):
    """Keep up to `depth` payloads in order.

    Latency one cycle, or two if `buffered`; one payload in and one out per cycle. `input` stalls
    only while `depth` payloads wait, regardless of `output` in that cycle, so no combinational path
    joins the ready signals. A buffered queue of two also stalls while a payload moves to its
    output. An unbuffered queue of two is a pair of registers; deeper ones are a memory.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a payload.
    depth : int
        Greatest number of payloads inside.
    buffered : bool
        Whether the output is a register after the memory, for wide payloads.

    Members
    -------
    input : In(stream of shape)
    output : Out(stream of shape)
    level : Out(range(depth + 1))
        Number of payloads inside.
    """

    def __init__(self, shape: ShapeLike, depth: int, *, buffered: bool = False):
        self.shape = shape
        self.buffered = buffered
        self.depth = depth
        super().__init__(
            {
                "input": In(stream.Signature(shape)),
                "output": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        if self.buffered:
            self._register_output(m)
        elif self.depth == 2:
            self._keep_in_registers(m)
        else:
            ahead = platform is Technology.ICE40 and self.depth > SHALLOW
            self._keep_in_memory(m, ahead)
        return m

    def _register_output(self, m: Module) -> None:
        width = Shape.cast(self.shape).width
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=width, depth=self.depth)
        m.d.comb += [
            fifo.w_data.eq(self.input.payload),
            fifo.w_en.eq(self.input.valid),
            self.input.ready.eq(fifo.w_rdy),
            self.output.payload.eq(fifo.r_data),
            self.output.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.output.ready),
            self.level.eq(fifo.level),
        ]

    def _keep_in_registers(self, m: Module) -> None:
        """Keep the older payload in the register at the output, the younger one behind it."""
        width = Shape.cast(self.shape).width
        first = Signal(width, reset_less=True)
        second = Signal(width, reset_less=True)
        one, both = Signal(), Signal()
        enters = Signal()
        m.d.comb += [
            enters.eq(self.input.valid & ~both),
            self.input.ready.eq(~both),
            self.output.valid.eq(one),
            self.output.payload.eq(first),
            self.level.eq(one + both),
        ]
        with m.If(~one | self.output.ready):
            m.d.sync += [one.eq(both | enters), both.eq(0)]
            m.d.sync += first.eq(Mux(both, second, self.input.payload))
        with m.Elif(enters):
            m.d.sync += both.eq(1)
        with m.If(~both):
            m.d.sync += second.eq(self.input.payload)

    def _keep_in_memory(self, m: Module, ahead: bool) -> None:
        """Keep the payloads in a memory that is read without a clock, or ahead with one."""
        width = Shape.cast(self.shape).width
        m.submodules.storage = storage = memory.Memory(shape=width, depth=self.depth, init=[])
        if ahead:
            write = storage.write_port()
            read = storage.read_port(transparent_for=[write])
            place = Signal.like(read.addr)
        else:
            write, read = storage.write_port(), storage.read_port(domain="comb")
            place = read.addr
        # Whether there is a payload, and no room, are registers of their own beside the level.
        some, full = Signal(), Signal()
        enters, leaves = Signal(), Signal()
        m.d.comb += [
            enters.eq(self.input.valid & ~full),
            leaves.eq(self.output.ready & some),
            write.en.eq(enters),
            write.data.eq(self.input.payload),
            self.input.ready.eq(~full),
            self.output.payload.eq(read.data),
            self.output.valid.eq(some),
        ]
        for address, moves in ((write.addr, enters), (place, leaves)):
            following = Mux(address == self.depth - 1, 0, address + 1)
            with m.If(moves):
                m.d.sync += address.eq(following)
            if ahead and address is place:
                m.d.comb += read.addr.eq(Mux(moves, following, place))
        with m.If(enters & ~leaves):
            m.d.sync += [
                self.level.eq(self.level + 1),
                some.eq(1),
                full.eq(self.level == self.depth - 1),
            ]
        with m.Elif(leaves & ~enters):
            m.d.sync += [self.level.eq(self.level - 1), some.eq(self.level != 1), full.eq(0)]
