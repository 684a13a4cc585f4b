"""Sums and maxima of rows, across the lanes of a slice and along the slices of a row."""

from functools import reduce
from operator import add, or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..isa.instructions import Statistic
from ..isa.row_statistics import SUM_BITS
from .delay import delayed
from .logic_adder import Gate, LogicAdder, less

COUNT_BITS = 13
"""Elements of a row whose spread is taken: at most 4096."""

VALUE_BITS = 20
"""Signed sum of the int8 values of such a row."""


class RowSums(wiring.Component):
    """Sum the slices of rows, a slice a cycle; never stalls.

    The sums of a row appear `latency` cycles after its last slice, its bias a cycle later.

    Parameters
    ----------
    lanes : int
        A power of two.

    Members
    -------
    statistic : In(3)
        Stable, like `centre`, while slices are in flight.
    centre : In(int8)
        Takes the place of each value with `Statistic.POWER`.
    valid, first : In(1)
        A slice is present; it is the first one of its row.
    mask : In(lanes)
        Lanes that count: none is above one that does not.
    values, entries : In(int8)[lanes], In(uint16)[lanes]
        Entries are 0 in lanes that do not count.
    count : Out(13)
        Number of elements; 1 with `Statistic.SUM`.
    middle : Out(int20)
        Sum of values.
    total : Out(32)
        Sum of entries.
    bias : Out(int21)
        The negative sum of values, or the negative maximum.
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.latency = ceil_log2(lanes) + 2
        super().__init__(
            {
                "statistic": In(3),
                "centre": In(signed(8)),
                "valid": In(1),
                "first": In(1),
                "mask": In(lanes),
                "values": In(signed(8)).array(lanes),
                "entries": In(16).array(lanes),
                "count": Out(COUNT_BITS),
                "middle": Out(signed(VALUE_BITS)),
                "total": Out(SUM_BITS),
                "bias": Out(signed(VALUE_BITS + 1)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        is_maximum = self.statistic == Statistic.MAXIMUM
        is_power = self.statistic == Statistic.POWER
        is_sum = self.statistic == Statistic.SUM

        def register(value: Value, name: str) -> Signal:
            kept = Signal(value.shape(), name=name, reset_less=True)
            m.d.sync += kept.eq(value)
            return kept

        # Lanes that do not count are 0, or the least byte for a maximum.
        absent = Cat(Const(0, 7), is_maximum)
        values, entries = [], []
        for lane, (value, entry) in enumerate(zip(self.values, self.entries, strict=True)):
            value = Mux(self.mask[lane], Mux(is_power, self.centre, value), absent)
            values.append(register(value[:8].as_signed(), f"value_{lane}"))
            entries.append(register(entry, f"entry_{lane}"))
        trees = {"sum": (values, add), "entries": (entries, add), "maximum": (values, _larger)}
        across = {}
        for name, (nodes, join) in trees.items():
            while len(nodes) > 1:
                pairs = zip(nodes[::2], nodes[1::2], strict=True)
                nodes = [register(join(*pair), f"{name}_{len(nodes)}") for pair in pairs]
            across[name] = nodes[0]

        ahead = self.latency - 1
        carried = delayed(m, Cat(self.valid, self.first, _ones(self.mask)), ahead, "carried")
        valid, first, ones = carried[0], carried[1], carried[2:]

        def accumulate(sums: Signal, value: Value, counts: Value) -> None:
            """Add the bits of the value that count, to 0 at the beginning of a row."""
            m.submodules[f"{sums.name}_adder"] = adder = LogicAdder(len(sums))
            m.d.comb += [
                adder.a.eq(sums),
                adder.b.eq((~first).replicate(len(sums))),
                adder.c.eq(value),
                adder.d.eq(counts),
            ]
            with m.If(valid):
                m.d.sync += sums.eq(adder.sum)

        middle = Signal.like(self.middle, reset_less=True)
        total = Signal.like(self.total, reset_less=True)
        count = Signal.like(self.count, reset_less=True)
        accumulate(middle, across["sum"], Const(-1, VALUE_BITS))
        accumulate(total, across["entries"], Const(-1, SUM_BITS))
        one = Mux(is_sum, first, ones[0])
        accumulate(count, Cat(one, ones[1:]), Cat(1, (~is_sum).replicate(COUNT_BITS - 1)))
        maximum = Signal(signed(8), reset_less=True)
        with m.If(valid & (first | less(maximum, across["maximum"]))):
            m.d.sync += maximum.eq(across["maximum"])

        m.submodules.negative = negative = LogicAdder(len(self.bias), Gate.ANDNOT, Gate.ANDNOT)
        m.d.comb += [
            negative.a.eq((~is_maximum).replicate(len(self.bias))),
            negative.b.eq(middle),
            negative.c.eq(is_maximum.replicate(len(self.bias))),
            negative.d.eq(maximum),
            negative.carry.eq(1),
            self.count.eq(count),
            self.middle.eq(middle),
            self.total.eq(total),
            self.bias.eq(register(negative.sum, "bias_of_row").as_signed()),
        ]
        return m


def _larger(one: Value, other: Value) -> Value:
    return Value.cast(Mux(less(one, other), other, one)).as_signed()


def _ones(mask: Value) -> Value:
    """Return how many bits are set, if these are the lowest ones."""
    lanes, bits = len(mask), []
    for bit in range(ceil_log2(lanes) + 1):
        step = 1 << bit
        reached = [mask[n - 1] for n in range(step, lanes + 1, step)]
        reached += [Const(0)] * (len(reached) % 2)
        pairs = zip(reached[::2], reached[1::2], strict=True)
        bits.append(reduce(or_, (low & ~high for low, high in pairs)))
    return Value.cast(Cat(bits))
