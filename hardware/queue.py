"""A queue between two streams."""

from amaranth.hdl import Module, Shape, ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out


class Queue(wiring.Component):
    """Keep up to `depth` payloads in order.

    Latency one cycle, or two if `buffered`; one payload in and one out per cycle. `input` stalls
    only while `depth` payloads wait, regardless of `output` in that cycle, so no combinational path
    joins the ready signals. A buffered queue of two also stalls while a payload moves to its
    output.

    Parameters
    ----------
    shape : ShapeLike
        Shape of a payload.
    depth : int
        Most payloads inside.
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
        kind = SyncFIFOBuffered if self.buffered else SyncFIFO
        m.submodules.fifo = fifo = kind(width=Shape.cast(self.shape).width, depth=self.depth)
        m.d.comb += [
            fifo.w_data.eq(self.input.payload),
            fifo.w_en.eq(self.input.valid),
            self.input.ready.eq(fifo.w_rdy),
            self.output.payload.eq(fifo.r_data),
            self.output.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.output.ready),
            self.level.eq(fifo.level),
        ]
        return m
