"""Counter of the commands that a unit works on, and of those that are complete."""

from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class InFlight(wiring.Component):
    """Count commands between acceptance and retirement, in order.

    Parameters
    ----------
    limit : int
        Greatest number of commands in flight.

    Members
    -------
    accept : In(1)
        A command enters; allowed while `room`, but not in two cycles in a row.
    complete : In(1)
        The oldest incomplete command becomes complete.
    freeze : In(1)
        Nothing retires from the next cycle on.
    room : Out(1)
        Fewer than `limit` commands are in flight.
    active : Out(1)
        At least one command is in flight.
    retired : Out(stream)
        Once per command, valid from the cycle after its `complete` until it is taken.
    """

    def __init__(self, limit: int):
        self.limit = limit
        super().__init__(
            {
                "accept": In(1),
                "complete": In(1),
                "freeze": In(1),
                "room": Out(1),
                "active": Out(1),
                "retired": Out(stream.Signature(0)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        inside = Signal(range(self.limit + 1))
        complete = Signal(range(self.limit + 1))
        full, some = Signal(), Signal()
        frozen = Signal()
        # The gate that gives commands may lie far away, so they are counted a cycle later.
        entered, occupied = Signal(), Signal()
        retires = self.retired.valid & self.retired.ready
        m.d.comb += [
            self.room.eq(~full),
            self.active.eq(occupied | entered),
            self.retired.valid.eq(some & ~frozen),
        ]
        m.d.sync += [frozen.eq(self.freeze), entered.eq(self.accept)]
        # The flags are registers beside the counts, since units wait for them.
        with m.If(entered & ~retires):
            m.d.sync += [inside.eq(inside + 1), occupied.eq(1), full.eq(inside == self.limit - 1)]
        with m.If(retires & ~entered):
            m.d.sync += [inside.eq(inside - 1), occupied.eq(inside != 1), full.eq(0)]
        with m.If(self.complete & ~retires):
            m.d.sync += [complete.eq(complete + 1), some.eq(1)]
        with m.If(retires & ~self.complete):
            m.d.sync += [complete.eq(complete - 1), some.eq(complete != 1)]
        m.d.sync += [
            Assert(~self.accept | self.room, "more commands in flight than the limit"),
            Assert(~self.accept | ~entered, "commands entered in two cycles in a row"),
            Assert(complete <= inside, "a command completed that never entered"),
        ]
        return m
