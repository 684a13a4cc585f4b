"""Rows of VECTOR: where each ends, which elements count, and the parameters that it gives."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..isa.configuration import Configuration, Memory
from ..isa.instructions import Statistic
from .delay import delayed
from .logic_adder import Gate, LogicAdder
from .row_statistics import RowStatistics
from .scratchpad import RowFormat, elements

BOUND_BITS = 16
"""Width of a bound less one; a larger bound counts as the greatest one, which no row exceeds."""

ANNOUNCED = 2
"""Cycles between the announcement of a result and the result."""


class VectorRows(wiring.Component):
    """Follow the results of VECTOR through the rows, and write the parameters of each to PARAM.

    Parameters
    ----------
    configuration : Configuration
    ahead : int
        Cycles from the time when a result's place is known to the result.
    in_fabric : bool
        As in `Reciprocal`.

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
    address : In
        Row of PARAM, `ahead` cycles before the result.
    ends : In(map_loops)
        As in `AffineNest`, with `address`.
    announced : In(1)
        A result follows in two cycles.
    valid : In(1)
        A result with `values` and `entries`.
    counts : Out(vector_lanes)
        Lanes of the result of the next cycle that are below the bound. Only these have an entry.
    param : Out(write client)
    done : Out(1)
        The last parameters of the instruction are written in this cycle.
    """

    def __init__(self, configuration: Configuration, ahead: int, *, in_fabric: bool = False):
        self.lanes, levels = configuration.vector_lanes, configuration.map_loops
        self.ahead = ahead
        self.format = RowFormat(configuration, Memory.PARAM)
        self.statistics = RowStatistics(self.lanes, in_fabric=in_fabric)
        super().__init__(
            {
                "start": In(1),
                "statistic": In(3),
                "centre": In(signed(8)),
                "bound_minus_one": In(BOUND_BITS),
                "bound_step": In(8),
                "epsilon": In(signed(32)),
                "factor": In(31),
                "still": In(levels),
                "address": In(self.format.address_bits),
                "ends": In(levels),
                "announced": In(1),
                "valid": In(1),
                "values": In(signed(8)).array(self.lanes),
                "entries": In(16).array(self.lanes),
                "counts": Out(self.lanes),
                "param": Out(self.format.write_port()),
                "done": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.statistics = statistics = self.statistics
        # A row is the innermost levels that do not move `param`.
        levels = len(self.still)
        inner = [Cat(self.still[level:], 1).all() for level in range(levels + 1)]
        outside = [inner[level + 1] & ~inner[level] for level in range(levels)]
        row_ends = ~Cat(inner[level] & ~self.ends[level] for level in range(levels)).any()
        restarts = Cat(outside[level] & self.ends[level] for level in range(levels)).any()
        places = Cat(row_ends, restarts, self.ends[0])
        row_ends, restarts, finishes = delayed(m, places, self.ahead - ANNOUNCED, "places")
        begins, mask = self._follow(m, row_ends, restarts)
        flags = delayed(m, Cat(begins, row_ends, finishes), ANNOUNCED, "flags")
        first, last, finishes = flags
        counts = delayed(m, mask, 1, "counts_line")
        m.d.comb += [
            self.counts.eq(counts),
            statistics.statistic.eq(self.statistic),
            statistics.centre.eq(self.centre),
            statistics.epsilon.eq(self.epsilon),
            statistics.factor.eq(self.factor),
            statistics.valid.eq(self.valid),
            statistics.first.eq(first),
            statistics.mask.eq(delayed(m, counts, 1, "mask")),
            *(statistics.values[lane].eq(self.values[lane]) for lane in range(self.lanes)),
            *(statistics.entries[lane].eq(self.entries[lane]) for lane in range(self.lanes)),
        ]

        measured = self.valid & last & (self.statistic != Statistic.NONE)
        waits = RowStatistics.LATENCY
        rows, ends = Signal(waits), Signal(waits)
        m.d.sync += [rows.eq(Cat(measured, rows)), ends.eq(Cat(measured & finishes, ends))]
        port = self.param
        m.d.comb += [
            port.enable.eq(rows[-1]),
            port.address.eq(delayed(m, self.address, self.ahead + waits, "addresses")),
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

    def _follow(self, m: Module, row_ends: Value, restarts: Value) -> tuple[Value, Value]:
        """Return whether the announced result begins a row, and which of its lanes count."""
        lane_bits = ceil_log2(self.lanes)
        # The bound less one, and the slices before the one with the element of that number.
        bound = Signal(BOUND_BITS, reset_less=True)
        left = Signal(signed(BOUND_BITS - lane_bits + 1), reset_less=True)
        begins, enters, is_fresh = Signal(), Signal(), Signal()
        m.submodules.next_bound = next_bound = LogicAdder(BOUND_BITS + 1)
        m.submodules.next_left = next_left = LogicAdder(len(left), Gate.AND, Gate.OR)
        step_bits = len(self.bound_step)
        step = Mux(is_fresh, self.bound_minus_one[:step_bits], self.bound_step)
        upper = BOUND_BITS + 1 - step_bits
        limited = next_bound.sum[:-1] | next_bound.sum[-1].replicate(BOUND_BITS)
        m.d.comb += [
            enters.eq(self.start | row_ends),
            is_fresh.eq(self.start | restarts),
            next_bound.a.eq(bound),
            next_bound.b.eq((~is_fresh).replicate(BOUND_BITS + 1)),
            next_bound.c.eq(Cat(step, self.bound_minus_one[step_bits:])),
            next_bound.d.eq(Cat(Const(-1, step_bits), is_fresh.replicate(upper))),
            next_left.a.eq(left),
            next_left.b.eq((~enters).replicate(len(left))),
            next_left.c.eq(limited >> lane_bits),
            next_left.d.eq((~enters).replicate(len(left))),
        ]
        is_past = left[-1]
        with m.If(self.start | self.announced):
            m.d.sync += begins.eq(enters)
            with m.If(enters):
                m.d.sync += bound.eq(limited)
            with m.If(enters | ~is_past):
                m.d.sync += left.eq(next_left.sum)
        before, last = left[:-1].any(), bound[:lane_bits]
        mask = Cat(~is_past & (before | (last >= lane)) for lane in range(self.lanes))
        return begins, Value.cast(mask)
