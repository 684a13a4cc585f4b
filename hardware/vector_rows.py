"""Rows of VECTOR: where each ends, which elements count, and the parameters that it gives."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.instructions import Statistic
from .delay import delayed
from .row_statistics import RowStatistics
from .scratchpad import RowFormat, elements

BOUND_BITS = 27
"""Signed width of a number of elements up to a bound."""


class VectorRows(wiring.Component):
    """Follow the results of VECTOR through the rows, and write the parameters of each to PARAM.

    Parameters
    ----------
    configuration : Configuration

    Members
    -------
    start : In(1)
        Begin with the first row of an instruction; its other members are stable from then on.
    statistic, centre, bound_minus_one, bound_step : In
        `Statistic.NONE` if nothing is measured.
    epsilon, factor : In(int32), In(31)
        E and F; stable before the first result.
    still : In(map_loops)
        Levels that do not move `param`, outermost first.
    valid : In(1)
        A result with `values`, `entries`, and the following.
    address : In
        Row of PARAM.
    ends : In(map_loops)
        As in `AffineNest`.
    mask : Out(vector_lanes)
        Lanes of the result below the bound.
    param : Out(write client)
    done : Out(1)
        The last parameters of the instruction are written in this cycle.
    """

    def __init__(self, configuration: Configuration):
        self.lanes, levels = configuration.vector_lanes, configuration.map_loops
        self.format = RowFormat(configuration, Memory.PARAM)
        super().__init__(
            {
                "start": In(1),
                "statistic": In(3),
                "centre": In(signed(8)),
                "bound_minus_one": In(16),
                "bound_step": In(8),
                "epsilon": In(signed(32)),
                "factor": In(31),
                "still": In(levels),
                "valid": In(1),
                "values": In(signed(8)).array(self.lanes),
                "entries": In(16).array(self.lanes),
                "address": In(self.format.address_bits),
                "ends": In(levels),
                "mask": Out(self.lanes),
                "param": Out(self.format.write_port()),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.statistics = statistics = RowStatistics(self.lanes)
        # A row is the innermost levels that do not move `param`.
        levels = len(self.still)
        inner = [Cat(self.still[level:], 1).all() for level in range(levels + 1)]
        outside = [inner[level + 1] & ~inner[level] for level in range(levels)]
        row_ends = ~Cat(inner[level] & ~self.ends[level] for level in range(levels)).any()
        restarts = Cat(outside[level] & self.ends[level] for level in range(levels)).any()

        begins = Signal()
        first_bound = self.bound_minus_one + 1
        bound = Signal(BOUND_BITS - 1, reset_less=True)
        left = Signal(signed(BOUND_BITS), reset_less=True)
        next_bound = Mux(restarts, first_bound, bound + self.bound_step)
        with m.If(self.valid):
            m.d.sync += [
                begins.eq(row_ends),
                left.eq(Mux(row_ends, next_bound, Mux(left > 0, left - self.lanes, left))),
            ]
            with m.If(row_ends):
                m.d.sync += bound.eq(next_bound)
        with m.If(self.start):
            m.d.sync += [begins.eq(1), left.eq(first_bound), bound.eq(first_bound)]
        m.d.comb += [
            self.mask.eq(Cat(left > lane for lane in range(self.lanes))),
            statistics.statistic.eq(self.statistic),
            statistics.centre.eq(self.centre),
            statistics.epsilon.eq(self.epsilon),
            statistics.factor.eq(self.factor),
            statistics.valid.eq(self.valid),
            statistics.first.eq(begins),
            statistics.last.eq(row_ends),
            statistics.mask.eq(self.mask),
            *(statistics.values[lane].eq(self.values[lane]) for lane in range(self.lanes)),
            *(statistics.entries[lane].eq(self.entries[lane]) for lane in range(self.lanes)),
        ]

        measured = self.valid & row_ends & (self.statistic != Statistic.NONE)
        rows, ends = Signal(RowStatistics.LATENCY), Signal(RowStatistics.LATENCY)
        m.d.sync += [
            rows.eq(Cat(measured, rows)),
            ends.eq(Cat(measured & self.ends[0], ends)),
        ]
        port = self.param
        m.d.comb += [
            port.enable.eq(rows[-1]),
            port.address.eq(delayed(m, self.address, RowStatistics.LATENCY, "addresses")),
            self.done.eq(ends[-1]),
        ]
        writes = self.statistic != Statistic.SUM, self.statistic > Statistic.MAXIMUM
        numbers = statistics.bias, statistics.scale
        masks = elements(port.mask, 32 // self.format.granularity)
        for place, (word, mask) in enumerate(zip(elements(port.data, 32), masks, strict=True)):
            m.d.comb += [
                word.eq(numbers[place % 2]),
                mask.eq(writes[place % 2].replicate(len(mask))),
            ]
        return m
