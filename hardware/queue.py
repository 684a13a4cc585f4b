"""A queue between two streams."""

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from .technology import Technology

SHALLOW = 16
"""Greatest depth of an iCE40 queue made of flip-flops; the chip has no distributed RAM."""


class Queue(wiring.Component):
    """Keep up to `depth` payloads in order.

    Latency one cycle, or two if `buffered`; one payload in and one out per cycle. `input` stalls
    only while `depth` payloads wait, regardless of `output` in that cycle, so no combinational path
    joins the ready signals. A buffered queue of two also stalls while a payload moves to its
    output. Queues of two are registers; deeper ones are memories.

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
        super().__init__(_members(shape, depth))

    def elaborate(self, platform) -> Module:
        m = Module()
        if self.buffered:
            self._register_output(m)
        elif self.depth == 2:
            self._keep_in_registers(m)
        else:
            self._keep_in_memory(m, platform is Technology.ICE40 and self.depth > SHALLOW)
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

    def _keep_in_memory(self, m: Module, in_blocks: bool) -> None:
        """Keep the payloads in a memory, and a copy of the oldest one in the output register.

        Block RAM has that register already.
        """
        width = Shape.cast(self.shape).width
        m.submodules.storage = storage = memory.Memory(shape=width, depth=self.depth, init=[])
        # `some`, `several` and `full` follow from the level, but are registers to shorten paths.
        some = Signal()
        several = Signal()
        full = Signal()
        enters = Signal()
        leaves = Signal()
        write = storage.write_port()
        m.d.comb += [
            enters.eq(self.input.valid & ~full),
            leaves.eq(self.output.ready & some),
            # The next place is free unless the queue is full, so it may be written in any cycle.
            write.en.eq(~full),
            write.data.eq(self.input.payload),
            self.input.ready.eq(~full),
            self.output.valid.eq(some),
        ]
        with m.If(enters):
            m.d.sync += write.addr.eq(self._after(write.addr))
        if in_blocks:
            read = storage.read_port(transparent_for=[write])
            oldest = Signal.like(read.addr)
            m.d.comb += [
                read.addr.eq(Mux(leaves, self._after(oldest), oldest)),
                self.output.payload.eq(read.data),
            ]
            m.d.sync += oldest.eq(read.addr)
        else:
            read = storage.read_port(domain="comb")
            second = Signal.like(read.addr, init=1 % self.depth)
            first = Signal(width, reset_less=True)
            m.d.comb += [read.addr.eq(second), self.output.payload.eq(first)]
            with m.If(leaves):
                m.d.sync += second.eq(self._after(second))
            with m.If(leaves | ~some):
                m.d.sync += first.eq(Mux(several, read.data, self.input.payload))
        with m.If(enters ^ leaves):
            m.d.sync += [
                self.level.eq(_counted(self.level, leaves)),
                some.eq(enters | (self.level != 1)),
                several.eq(Mux(enters, some, self.level > 2)),
                full.eq(enters & (self.level == self.depth - 1)),
            ]

    def _after(self, address: Value) -> Value:
        following = _counted(address)
        if self.depth & (self.depth - 1):
            return Mux(address == self.depth - 1, 0, following)
        return following


class PausingQueue(wiring.Component):
    """Keep up to `depth` wide payloads in order; pause for a cycle after each one.

    Latency two cycles; at most one payload out in two cycles. The output register takes the next
    payload in the pause, so no late signal enables its many bits. A queue of two is made of
    registers; it also stalls while a payload moves to its output.

    Parameters and members are those of `Queue`. In a queue deeper than two, `level` still
    counts a payload during the pause after it.
    """

    def __init__(self, shape: ShapeLike, depth: int):
        self.shape, self.depth = shape, depth
        super().__init__(_members(shape, depth))

    def elaborate(self, platform) -> Module:
        m = Module()
        if self.depth == 2:
            self._keep_in_registers(m)
        else:
            self._keep_in_memory(m)
        return m

    def _keep_in_registers(self, m: Module) -> None:
        """Take payloads in one register and give them from another one."""
        width = Shape.cast(self.shape).width
        taken, given = Signal(width, reset_less=True), Signal(width, reset_less=True)
        full, valid, follows = Signal(), Signal(), Signal()
        # The inverse of `valid`, with the many loads; `valid` has few and can be near them.
        loads = Signal(reset_less=True)
        m.d.comb += [
            follows.eq(Mux(valid, ~self.output.ready, full)),
            self.input.ready.eq(~full),
            self.output.valid.eq(valid),
            self.output.payload.eq(given),
            self.level.eq(full + valid),
        ]
        m.d.sync += [valid.eq(follows), loads.eq(~follows)]
        with m.If(~full):
            m.d.sync += [taken.eq(self.input.payload), full.eq(self.input.valid)]
        with m.Elif(~valid):
            m.d.sync += full.eq(0)
        with m.If(loads):
            m.d.sync += given.eq(taken)

    def _keep_in_memory(self, m: Module) -> None:
        m.submodules.queue = queue = Queue(self.shape, self.depth, buffered=True)
        wiring.connect(m, wiring.flipped(self.input), queue.input)
        gone = Signal()
        m.d.sync += gone.eq(self.output.valid & self.output.ready)
        m.d.comb += [
            self.output.valid.eq(queue.output.valid & ~gone),
            self.output.payload.eq(queue.output.payload),
            queue.output.ready.eq(gone),
            self.level.eq(queue.level),
        ]


def _members(shape: ShapeLike, depth: int) -> dict[str, wiring.Member]:
    return {
        "input": In(stream.Signature(shape)),
        "output": Out(stream.Signature(shape)),
        "level": Out(range(depth + 1)),
    }


def _counted(count: Value, down: Value | None = None) -> Value:
    """Return `count` plus one, or minus one if `down`, without a carry chain.

    For a few bits, look-up tables are smaller than a chain. `down` passes through only one table,
    so it may arrive late in the cycle.
    """
    toggles = [Value.cast(1)]
    for bit in range(1, len(count)):
        toggles.append(count[:bit].all())
        if down is not None:
            toggles[bit] = Mux(down, ~count[:bit].any(), toggles[bit])
    return count ^ Cat(toggles)
