"""VECTOR's arithmetic: it turns steps into totals for ACC and results for ACT, in order.

The unit handles addresses, memories and tokens. The datapath never waits.
"""

from amaranth.hdl import Cat, EnableInserter, Module, Mux, Shape, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.instructions.vector import ResultKind, Vector
from .blocks import lane_blocks
from .delay import delayed
from .fan_out import copied
from .lookup_table import ROW_BYTES, ROWS, LookupTable
from .requantizer import WIDE_BITS, Requantizer
from .technology import Technology
from .vector_lane import VectorLane
from .vector_rows import ANNOUNCED


def constants_layout(configuration: Configuration) -> data.StructLayout:
    """Return the immediate fields of a VECTOR instruction as a layout, in encoding order."""
    return data.StructLayout(
        {field.name: Shape(field.bits, field.signed) for field in Vector.immediates(configuration)}
    )


class VectorDatapath(wiring.Component):
    """Execute VECTOR's steps, one per cycle without bubbles; idle cycles anywhere are harmless.

    A slice that goes to ACC appears in `totals` `TOTALS_LATENCY` cycles after the last step of its
    reduction; one that goes to ACT in `results` after `RESULTS_LATENCY` cycles. Never stalls.

    Parameters
    ----------
    configuration : Configuration
        Gives the lanes and the number of tables.
    blocks : int, optional
        Multiplier blocks that the chip has for all lanes. They change neither bytes nor cycles.

    Members
    -------
    constants : In(constants_layout(configuration))
        Immediate fields of the instruction; stable while `busy`, in the cycle of a step and in the
        one before.
    valid : In(1)
        A step is present, with its `first`, `last`, `a_acc`, `a_act` and `b`.
    first, last : In(1)
        The step begins, or ends, a reduction. Without reduce loops, both are set.
    a_acc : In(int32)[vector_lanes]
        Operand a if `constants.a_from_acc`.
    a_act : In(int8)[vector_lanes]
        Operand a otherwise.
    b : In(int8)[vector_lanes]
        Ignored if the law of `constants.combine` does not read it.
    bias : In(int32)[vector_lanes]
    scale : In(32)[vector_lanes]
        Parameters, read `PARAM_DELAY` cycles after the last step of a reduction.
    totals : Out(int32)[vector_lanes]
    totals_valid : Out(1)
        `totals` has a slice for ACC; only if `constants.to_acc`.
    results : Out(int8)[vector_lanes]
    results_valid : Out(1)
        `results` has a slice for ACT; only if not `constants.to_acc`. With `row_statistics`, one
        that is not a total.
    values, entries, wides : Out(int8), Out(16), Out(int18) [vector_lanes]
        Value before the look-up, entry and wide result beside `results`, with `row_statistics`.
        The wide result is 0 unless it goes to ACC; if it does, the entry is.
    looks_up_entries : In(1)
        Tables hold entries; stable like `constants`.
    counts : In(vector_lanes)
        Lanes that have entries in the next cycle.
    announces : Out(1)
        `results_valid` in two cycles.
    busy : Out(1)
        A step is in flight; low in the cycle after its slice has appeared.
    table_address : In(range(tables * 64))
        Row of the look-up tables to write: `table * 64 + index // 4`.
    table_data : In(32)
        Bytes of the row, the lowest index first.
    table_bytes : In(4)
        Mask of the bytes to write.
    """

    PARAM_DELAY = VectorLane.PARAM_DELAY
    TOTALS_LATENCY = VectorLane.TOTAL_LATENCY
    RESULTS_LATENCY = VectorLane.RESULT_LATENCY + LookupTable.LATENCY

    def __init__(self, configuration: Configuration, blocks: int | None = None):
        self.configuration, self.blocks = configuration, blocks
        self.has_rows = configuration.row_statistics != "none"
        lanes = configuration.vector_lanes
        members = {
            "values": Out(signed(8)).array(lanes),
            "entries": Out(16).array(lanes),
            "wides": Out(signed(WIDE_BITS)).array(lanes),
            "looks_up_entries": In(1),
            "counts": In(lanes),
            "announces": Out(1),
        }
        super().__init__(
            {
                "constants": In(constants_layout(configuration)),
                "valid": In(1),
                "first": In(1),
                "last": In(1),
                "a_acc": In(signed(32)).array(lanes),
                "a_act": In(signed(8)).array(lanes),
                "b": In(signed(8)).array(lanes),
                "bias": In(signed(32)).array(lanes),
                "scale": In(32).array(lanes),
                "totals": Out(signed(32)).array(lanes),
                "totals_valid": Out(1),
                "results": Out(signed(8)).array(lanes),
                "results_valid": Out(1),
                "busy": Out(1),
                "table_address": In(range(configuration.lut_tables * ROWS)),
                "table_data": In(8 * ROW_BYTES),
                "table_bytes": In(ROW_BYTES),
                **(members if self.has_rows else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        constants = self.constants
        reduces, restarts = Signal(), Signal()

        # In simulation registers hold while no step is in flight, so that simulators skip lanes.
        # Elsewhere one net would have to reach the clock enables of all lanes in a cycle.
        active, lingers = Signal(), Signal()
        m.d.sync += lingers.eq(self.valid | self.busy)
        holds = platform is Technology.SIMULATION
        m.d.comb += active.eq(self.valid | lingers if holds else 1)

        # `a_from_acc` selects every bit of an operand, so each lane has its own copy of it.
        lanes = self.configuration.vector_lanes
        blocks = lane_blocks(lanes, self.blocks)
        wide_delay = LookupTable.LATENCY + Requantizer.WIDE_LEAD
        a_from_acc = copied(m, platform, constants.a_from_acc, lanes, "a_from_acc")
        for index in range(lanes):
            lane = VectorLane(constants.shape(), self.configuration.operations, blocks)
            table = LookupTable(self.configuration.lut_tables, self.has_rows)
            m.submodules[f"lane_{index}"] = EnableInserter(active)(lane) if holds else lane
            m.submodules[f"table_{index}"] = table
            m.d.comb += [
                lane.constants.eq(constants),
                lane.constants.a_from_acc.eq(a_from_acc[index]),
                lane.a_acc.eq(self.a_acc[index]),
                lane.a_act.eq(self.a_act[index]),
                lane.b.eq(self.b[index]),
                lane.reduces.eq(reduces),
                lane.restarts.eq(restarts),
                lane.bias.eq(self.bias[index]),
                lane.scale.eq(self.scale[index]),
                self.totals[index].eq(lane.total),
                table.index.eq(lane.result),
                table.active.eq(active),
                table.enable.eq(constants.lookup),
                table.table.eq(constants.table),
                table.write_address.eq(self.table_address),
                table.write_data.eq(self.table_data),
                table.write_bytes.eq(self.table_bytes),
                self.results[index].eq(table.value),
            ]
            if self.has_rows:
                is_wide = constants.to_acc & (constants.result == ResultKind.WIDE)
                wide = Mux(is_wide, lane.wide, 0)
                m.d.comb += [
                    table.entries.eq(self.looks_up_entries),
                    table.counts.eq(self.counts[index] & ~is_wide),
                    self.values[index].eq(table.unchanged),
                    self.entries[index].eq(table.entry),
                    self.wides[index].eq(delayed(m, wide, wide_delay, "wides")),
                ]

        # Bit n: n + 1 cycles ago a step was taken; it was the first; it was the last, so that a
        # slice follows; such a slice for ACT passed its total.
        steps = Signal(VectorLane.REDUCE_DELAY)
        firsts = Signal(VectorLane.REDUCE_DELAY - 1, reset_less=True)
        slices = Signal(self.TOTALS_LATENCY)
        outputs = Signal(self.RESULTS_LATENCY - self.TOTALS_LATENCY)
        stays_total = constants.to_acc
        if self.has_rows:
            stays_total &= constants.result == ResultKind.USUAL
        m.d.sync += [
            steps.eq(Cat(self.valid, steps)),
            firsts.eq(Cat(self.first, firsts)),
            slices.eq(Cat(self.valid & self.last, slices)),
            outputs.eq(Cat(slices[-1] & ~stays_total, outputs)),
        ]
        m.d.comb += [
            reduces.eq(steps[-2]),
            restarts.eq(firsts[-1]),
            self.totals_valid.eq(slices[-1] & stays_total),
            self.results_valid.eq(outputs[-1]),
            self.busy.eq(steps.any() | slices.any() | outputs.any()),
        ]
        if self.has_rows:
            m.d.comb += self.announces.eq(outputs[-1 - ANNOUNCED])
        return m
