"""GEMM: activation rows stream through stationary weight tiles into the accumulators.

Two walkers share a command. The row walker issues one ACT row per cycle. The tile walker fetches
weight tiles into the array's shadow registers, one tile ahead, so it takes the next command while
the rows of this one still stream.
"""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.fields import address_width
from ..isa.instructions import Gemm
from ..isa.pipeline import GEMM_ISSUE_CYCLES, GEMMS_IN_FLIGHT, READ_LATENCY
from .array_operands import ELEMENT_BITS, array_modes
from .delay import delayed
from .fan_out import copied
from .gemm_walkers import RowWalker, TileWalker
from .in_flight import InFlight
from .layouts import command_layout
from .mac_array import MacArray
from .scratchpad import RowFormat, elements

ACCUMULATOR_BITS = 32


class GemmUnit(wiring.Component):
    """ACC[acc] (+)= ACT[act] x WGT[tile], one vector-by-tile product per cycle.

    Timing, in cycles, with P = max(lanes_in, GEMM_REVISIT_STEPS): a tile iteration takes
    max(rows, P). The first row of a command is read P + 1 after the command reached an idle unit.
    After another command, the tile is already fetched, and
    max(GEMM_REVISIT_STEPS - 1, P + 1 - rows) cycles pass between the last row of the earlier
    command and the first row of the later one; `rows` are those of the earlier command. Sums are
    written `array latency` + READ_LATENCY + 1 after their row was read. A command retires in the
    cycle after its last sums.

    Members
    -------
    commands : In(stream of command_layout)
        Taken when the first row can follow the last row of the previous command. The weights may
        have been fetched before.
    retired : Out(stream)
    act, wgt : Out(read client)
    acc_read, acc_write : Out(read client), Out(write client)
    busy : Out(1)
        A command is in flight, or the first tile of the next command.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        formats = {
            memory: RowFormat(configuration, memory)
            for memory in (Memory.ACT, Memory.WGT, Memory.ACC)
        }
        super().__init__(
            {
                "commands": In(stream.Signature(command_layout(Gemm, configuration))),
                "retired": Out(stream.Signature(0)),
                "act": Out(formats[Memory.ACT].read_port()),
                "wgt": Out(formats[Memory.WGT].read_port()),
                "acc_read": Out(formats[Memory.ACC].read_port()),
                "acc_write": Out(formats[Memory.ACC].write_port(announces=True)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        configuration = self.configuration
        m.submodules.array = array = MacArray(
            configuration.lanes_in,
            configuration.lanes_out,
            configuration.depthwise_taps,
            configuration.window_lines,
        )
        m.submodules.tiles = tiles = TileWalker(configuration)
        m.submodules.rows = rows = RowWalker(configuration)
        m.submodules.in_flight = in_flight = InFlight(GEMMS_IN_FLIGHT)
        step = rows.step

        # Both walkers read the first command of the queue; it is taken when its rows begin.
        begun = Signal()
        begins = Signal()
        m.d.comb += [
            tiles.command.eq(self.commands.payload),
            rows.command.eq(self.commands.payload),
            tiles.load.eq(self.commands.valid & tiles.idle & ~begun),
            begins.eq(self.commands.valid & rows.idle & in_flight.room),
            rows.load.eq(begins),
            self.commands.ready.eq(rows.idle & in_flight.room),
            rows.tile_ready.eq(tiles.ready),
            tiles.take.eq(step.valid & step.first_row),
        ]
        m.d.sync += [
            begun.eq((begun | tiles.load) & ~begins),
            Assert(~begins | begun | tiles.load, "rows begin before their tiles"),
        ]

        # Weights: the row counter follows its row through the scratchpad.
        reads = _history(m, tiles.read, READ_LATENCY, "reads")
        m.d.comb += [
            self.wgt.enable.eq(tiles.read),
            self.wgt.address.eq(tiles.address),
            array.write.eq(reads[READ_LATENCY]),
            array.row.eq(delayed(m, tiles.row, READ_LATENCY, "weights_row")),
            *_assign(array.weights, elements(self.wgt.data, ELEMENT_BITS)),
        ]

        # Activations: issued from registers, so the decision and the read are in separate cycles.
        vector_delay = GEMM_ISSUE_CYCLES + READ_LATENCY
        sums_delay = vector_delay + array.latency
        steps = _history(m, step.valid, sums_delay + 1, "steps")
        swaps = _history(m, step.valid & step.first_row, vector_delay, "swaps")
        with m.If(step.valid):
            m.d.sync += self.act.address.eq(step.act)
        m.d.comb += [
            self.act.enable.eq(steps[GEMM_ISSUE_CYCLES]),
            array.valid.eq(steps[vector_delay]),
            array.swap.eq(swaps[vector_delay]),
            *_assign(array.vector, elements(self.act.data, ELEMENT_BITS)),
        ]
        if configuration.depthwise_taps:
            m.d.comb += array.for_depthwise.eq(
                delayed(m, tiles.depthwise, READ_LATENCY, "weights_depthwise")
            )
            for name in sorted(
                array_modes(configuration.depthwise_taps, configuration.window_lines)
            ):
                mode = Value.cast(getattr(step, name))
                m.d.comb += getattr(array, name).eq(delayed(m, mode, vector_delay, f"mode_{name}"))

        # Accumulators: read so that they arrive with the sums, written in the cycle after.
        reads_at, writes_at = sums_delay - READ_LATENCY, sums_delay + 1
        overwrites = _history(m, step.overwrites, sums_delay - 1, "overwrites")
        lasts = _history(m, step.valid & step.last, writes_at, "lasts")
        rows_read = _later(m, step.acc, reads_at, "acc_read_row")
        rows_next = _later(m, rows_read, writes_at - 1 - reads_at, "acc_next_row")
        bank = Value.cast(rows_next)[address_width(configuration.depth(Memory.ACC)) :]
        writes_next = steps[writes_at - 1]
        m.d.comb += [
            announced.eq(writes_next & (bank == index))
            for index, announced in enumerate(self.acc_write.announced)
        ]
        m.d.comb += [
            self.acc_read.enable.eq(steps[reads_at] & ~overwrites[reads_at]),
            self.acc_read.address.eq(rows_read),
            self.acc_write.enable.eq(steps[writes_at]),
            self.acc_write.address.eq(_later(m, rows_next, 1, "acc_write_row")),
            in_flight.complete.eq(lasts[writes_at]),
        ]
        before = elements(self.acc_read.data, ACCUMULATOR_BITS)
        after = elements(self.acc_write.data, ACCUMULATOR_BITS)
        lanes = configuration.lanes_out
        replaces = copied(m, platform, overwrites[sums_delay - 1], lanes, "replaces")
        for lane, addend in enumerate(array.sums):
            total = Signal(signed(ACCUMULATOR_BITS), name=f"total_{lane}", reset_less=True)
            m.d.sync += total.eq(Mux(replaces[lane], 0, before[lane]) + addend)
            m.d.comb += after[lane].eq(total)
        m.d.comb += [mask.eq(-1) for mask in self.acc_write.mask]

        m.d.comb += [
            in_flight.accept.eq(begins),
            self.retired.valid.eq(in_flight.retired.valid),
            in_flight.retired.ready.eq(self.retired.ready),
            self.busy.eq(in_flight.active | begun),
        ]
        return m


def _history(m: Module, bit: Value, cycles: int, name: str) -> dict[int, Value]:
    """Return a bit from 1 to `cycles` cycles ago, keyed by that number; low after reset."""
    line = Signal(cycles, name=name)
    m.d.sync += line.eq(Cat(bit, line))
    return {cycle: Value.cast(line[cycle - 1]) for cycle in range(1, cycles + 1)}


def _later(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Delay a value by `cycles` cycles in one narrow register per cycle."""
    for cycle in range(1, cycles + 1):
        stage = Signal(value.shape(), name=f"{name}_{cycle}", reset_less=True)
        m.d.sync += stage.eq(value)
        value = stage
    return value


def _assign(targets, values) -> list:
    return [target.eq(value) for target, value in zip(targets, values, strict=True)]
