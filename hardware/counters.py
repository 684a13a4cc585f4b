"""Performance counters: short ones count events, and a memory holds their long totals."""

from collections.abc import Mapping
from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.instructions import Unit
from ..isa.registers import TRANSFER_COUNTERS, unit_counters
from .selection import choose

COUNTER_BITS = 32

GROUP_BITS = 3
"""Short counters are selected in two steps, first within groups of 2**GROUP_BITS."""


def counters_of(configuration: Configuration, unit: Unit) -> tuple[str, ...]:
    """Return the counters of a unit that can count, in the order of their registers."""
    transfers = unit in (Unit.LOAD, Unit.STORE)
    return tuple(
        name
        for name in unit_counters(configuration.counters)
        if transfers or name not in TRANSFER_COUNTERS
    )


def increments_layout(configuration: Configuration, unit: Unit) -> data.StructLayout:
    """Increment of each counter in a cycle: 1, or the number of bytes moved."""
    return data.StructLayout(
        {
            name: range(most_per_cycle(name, configuration) + 1)
            for name in counters_of(configuration, unit)
        }
    )


def most_per_cycle(counter: str, configuration: Configuration) -> int:
    """Largest increment of a counter in one cycle."""
    return configuration.bus_bytes if counter == "bytes" else 1


class CounterBank(wiring.Component):
    """Count events and cycles; totals wrap, the total of cycles has twice as many bits.

    Every event has a short counter. One after the other, each short counter is compared with the
    low bits of its total in a memory, and the total catches up. A total is visited at least once in
    twice as many cycles as there are totals, so a short counter cannot lap it. Reads catch up in
    the same way and so are exact in every cycle. Only the upper half of the cycles follows an
    overflow of the lower half with the next visit.

    Parameters
    ----------
    events : Mapping[str, int]
        Name of each event, and its largest increment in a cycle.
    bits : int
        Width of a total.

    Members
    -------
    clear : In(1)
        All totals become zero.
    enable : In(1)
        Events and cycles count while it is set.
    increments : In(struct)
        Increment of each event.
    ask : In(1)
        Read the total `place`. Both stay until `answers`: for six cycles, and after a `clear` for
        as many more as there are totals, and three.
    place : In
        Place in `totals`.
    answers : Out(1)
        `total` is the total that was asked for.
    total : Out(bits)
    """

    def __init__(self, events: Mapping[str, int], bits: int = COUNTER_BITS):
        self.bits = bits
        self.most = {**events, "CYCLES_LOW": 1, "CYCLES_HIGH": 1}
        self.totals = tuple(self.most)
        """Names of the totals by place: the events, and the two halves of the cycles."""
        super().__init__(
            {
                "clear": In(1),
                "enable": In(1),
                "increments": In(
                    data.StructLayout({name: range(most + 1) for name, most in events.items()})
                ),
                "ask": In(1),
                "place": In(range(len(self.totals))),
                "answers": Out(1),
                "total": Out(bits),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        count = len(self.totals)
        m.submodules.totals = totals = memory.Memory(shape=self.bits, depth=count, init=[])
        read, write = totals.read_port(), totals.write_port()

        # After a clear, every total is visited once before anything is read, as if it were zero.
        turn = Signal(range(count))
        begins = Signal(init=1)
        answers = Signal(5)
        begin = Signal(3)
        asked = Signal()
        m.d.comb += asked.eq(self.ask & ~begins & ~begin.any() & ~answers.any())
        with m.If(self.clear):
            m.d.sync += [turn.eq(0), begins.eq(1)]
        with m.Elif(~asked):
            m.d.sync += turn.eq(turn + 1)
            with m.If(turn == count - 1):
                m.d.sync += [turn.eq(0), begins.eq(0)]

        carry = Signal()
        recent = self._count_recent(m, carry)
        widest = max(map(len, recent))
        masks = [Const((1 << len(short)) - 1, widest) for short in recent]

        # A visit takes five cycles: place, group, element and old total, difference, sum.
        visits = Signal(4)
        places = [Signal.like(turn, name=f"place_{stage}") for stage in range(4)]
        m.d.sync += [
            visits.eq(Mux(self.clear, 0, Cat(~asked, visits))),
            answers.eq(Cat(asked, answers)),
            begin.eq(Cat(begins, begin)),
            places[0].eq(Mux(asked, self.place, turn)),
            *(later.eq(earlier) for earlier, later in pairwise(places)),
        ]
        padded = [Cat(short, Const(0, widest - len(short))) for short in recent]
        groups = []
        for first in range(0, count, 1 << GROUP_BITS):
            group = Signal(widest, name=f"group_{first}", reset_less=True)
            m.d.sync += group.eq(choose(padded[first:][: 1 << GROUP_BITS], places[0][:GROUP_BITS]))
            groups.append(group)
        seen = Signal(widest, reset_less=True)
        growth = Signal(widest, reset_less=True)
        old = Signal(self.bits)
        before = Signal(self.bits, reset_less=True)
        difference = Signal(widest)
        m.d.comb += [
            read.en.eq(1),
            read.addr.eq(places[1]),
            old.eq(Mux(begin[2], 0, read.data)),
            difference.eq(seen - old),
        ]
        m.d.sync += [
            seen.eq(choose(groups, places[1][GROUP_BITS:])),
            before.eq(old),
            growth.eq(difference & choose(masks, places[2])),
        ]
        after = Signal(self.bits + 1)
        m.d.comb += [
            after.eq(before + growth),
            write.en.eq(visits[3]),
            write.addr.eq(places[3]),
            write.data.eq(after),
            carry.eq(visits[3] & after[-1] & (places[3] == self.totals.index("CYCLES_LOW"))),
            self.answers.eq(answers[-1]),
        ]
        m.d.sync += self.total.eq(after)
        return m

    def _count_recent(self, m: Module, carry: Value) -> list[Signal]:
        """Return the short counters: the low bits of all totals.

        They count one cycle late, because events come from distant parts of the chip.
        """
        enable = Signal()
        increments = Signal.like(self.increments, reset_less=True)
        m.d.sync += [enable.eq(self.enable & ~self.clear), increments.eq(self.increments)]
        shorts = []
        for name, most in self.most.items():
            short = Signal((2 * len(self.totals) * most).bit_length(), name=f"recent_{name}")
            counts = enable
            if name == "CYCLES_LOW":
                increment = Const(1)
            elif name == "CYCLES_HIGH":
                # The lower half may overflow when it is visited after the last cycle.
                increment = counts = carry
            else:
                increment = Value.cast(increments[name])
            with m.If(self.clear):
                m.d.sync += short.eq(0)
            with m.Elif(counts & (increment != 0)):
                m.d.sync += short.eq(short + (increment if most > 1 else 1))
            shorts.append(short)
        return shorts
