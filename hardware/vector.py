"""VECTOR: reads the operands, feeds the datapath, and writes the results.

Three nests share the loops: steps (operands a and b), parameters (per output) and destinations (per
output). Each nest advances with its data, so no address travels through the pipeline.
"""

from collections.abc import Iterable

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.instructions import ResultKind, Statistic, Vector
from ..isa.pipeline import READ_LATENCY, VECTOR_OPERAND_CYCLES, VECTORS_IN_FLIGHT
from .affine import AffineNest
from .blocks import USUAL_ROW_BLOCKS, row_blocks
from .delay import delayed
from .in_flight import InFlight
from .layouts import command_layout
from .scratchpad import RowFormat, elements
from .selection import choose
from .vector_datapath import VectorDatapath
from .vector_rows import VectorRows


class VectorUnit(wiring.Component):
    """dst = finish(reduce(combine(a, b))), one step per cycle.

    Timing: the first step is read in the cycle after the command was accepted, the others cycle by
    cycle. A slice is written VECTOR_OPERAND_CYCLES + TOTALS_LATENCY (to ACC) or RESULTS_LATENCY
    (to ACT) cycles after its last step was read. The command retires in the cycle after the last
    write, and the next command is accepted in the same cycle.

    Parameters
    ----------
    configuration : Configuration
    blocks : int, optional
        Multiplier blocks that the chip has for lanes and statistics over rows. They change neither
        bytes nor cycles.

    Members
    -------
    commands : In(stream of command_layout)
    retired : Out(stream)
    a_act, b_act, a_acc, param : Out(read client)
    act, acc : Out(write client)
    table_address, table_data, table_bytes : In
        Write port of the look-up tables.
    busy : Out(1)
    """

    def __init__(self, configuration: Configuration, blocks: int | None = None):
        self.configuration = configuration
        of_rows = row_blocks(configuration, blocks)
        self.datapath = VectorDatapath(configuration, None if blocks is None else blocks - of_rows)
        ahead = self.datapath.RESULTS_LATENCY - self.datapath.PARAM_DELAY + READ_LATENCY
        in_fabric = of_rows < USUAL_ROW_BLOCKS
        self.rows = VectorRows(configuration, ahead, in_fabric=in_fabric) if of_rows else None
        formats = {
            memory: RowFormat(configuration, memory)
            for memory in (Memory.ACT, Memory.ACC, Memory.PARAM)
        }
        tables = self.datapath.signature.members
        super().__init__(
            {
                "commands": In(stream.Signature(command_layout(Vector, configuration))),
                "retired": Out(stream.Signature(0)),
                "a_act": Out(formats[Memory.ACT].read_port()),
                "b_act": Out(formats[Memory.ACT].read_port()),
                "a_acc": Out(formats[Memory.ACC].read_port()),
                "param": Out(formats[Memory.PARAM].read_port()),
                "act": Out(formats[Memory.ACT].write_port()),
                "acc": Out(formats[Memory.ACC].write_port()),
                "table_address": tables["table_address"],
                "table_data": tables["table_data"],
                "table_bytes": tables["table_bytes"],
                "busy": Out(1),
                **({"param_write": Out(formats[Memory.PARAM].write_port())} if self.rows else {}),
            }
        )

    def _nest(self, operands: Iterable[str], nests: Iterable[str]) -> AffineNest:
        widths = {name: Vector.base_bits(name, self.configuration) for name in operands}
        levels = sum(Vector.levels(nest, self.configuration) for nest in nests)
        return AffineNest(self.configuration.extent_bits, widths, levels)

    def elaborate(self, platform) -> Module:
        m = Module()
        command, nests = self.commands.payload, Vector.nests
        outer = ["map_loops"]
        m.submodules.datapath = datapath = self.datapath
        m.submodules.steps = steps = self._nest(("a", "b"), nests)
        m.submodules.channels = parameters = self._nest(("param",), outer)
        m.submodules.targets = targets = self._nest(("dst",), outer)
        m.submodules.in_flight = in_flight = InFlight(VECTORS_IN_FLIGHT)

        accepts = Signal()
        written = Signal()
        m.d.comb += [
            self.commands.ready.eq(targets.idle & in_flight.room),
            accepts.eq(self.commands.valid & self.commands.ready),
            steps.assign(command, nests),
            parameters.assign(command, outer),
            targets.assign(command, outer),
            steps.load.eq(accepts),
            parameters.load.eq(accepts),
            targets.load.eq(self.commands.valid & in_flight.room),
            steps.advance.eq(steps.active),
            targets.advance.eq(written),
            in_flight.accept.eq(accepts),
            in_flight.complete.eq(written & targets.last),
            self.retired.valid.eq(in_flight.retired.valid),
            in_flight.retired.ready.eq(self.retired.ready),
            self.busy.eq(in_flight.active),
        ]

        constants = Signal(datapath.constants.shape(), reset_less=True)
        reads_b = Signal(reset_less=True)
        # Like the nests, the constants follow the command until it is accepted.
        idle = ~targets.active
        if self.rows:
            nests_of_rows = targets, parameters
            idle &= ~self._take_rows(m, self.rows, accepts, constants, nests_of_rows, in_flight)
        with m.If(idle):
            m.d.sync += reads_b.eq(
                Cat(
                    command.combine != code
                    for code, operation in enumerate(self.configuration.operations)
                    if not operation.reads("b")
                ).all()
            )
            m.d.sync += [
                getattr(constants, name).eq(getattr(command, name))
                for name in datapath.constants.shape().members
            ]
        m.d.comb += [
            datapath.constants.eq(constants),
            datapath.table_address.eq(self.table_address),
            datapath.table_data.eq(self.table_data),
            datapath.table_bytes.eq(self.table_bytes),
        ]
        self._read_operands(m, constants, reads_b, steps)
        self._read_parameters(m, constants, steps, parameters)
        self._write(m, targets, written)
        if self.rows:
            self._write_rows(m, self.rows, constants)
            self._read_constants(m, self.rows, accepts)
        return m

    def _take_rows(self, m: Module, rows: VectorRows, accepts, constants, nests, in_flight):
        """Connect the rows; return whether their parameters are still to come."""
        m.submodules.rows = rows
        targets, parameters = nests
        command, datapath = self.commands.payload, self.datapath
        pending, still = Signal(), Signal(self.configuration.map_loops, reset_less=True)

        def measured(of) -> Value:
            becomes_byte = ~of.to_acc | (of.result >= ResultKind.ENTRY)
            return Mux(becomes_byte, of.statistic, Statistic.NONE)

        started = Signal()  # the constants are there a cycle after the command
        m.d.sync += started.eq(accepts)
        with m.If(rows.done):
            m.d.sync += pending.eq(0)
        with m.If(accepts & (measured(command) != Statistic.NONE)):
            m.d.sync += pending.eq(1)
        with m.If(~targets.active & ~pending):
            m.d.sync += still.eq(
                Cat(
                    (loop.extent_minus_one == 0) | (loop.jumps.param == 0)
                    for loop in parameters.parameters.loops
                )
            )
        unmeasured = rows.statistic == Statistic.NONE
        m.d.comb += [
            self.commands.ready.eq(targets.idle & in_flight.room & ~pending),
            targets.load.eq(self.commands.valid & in_flight.room & ~pending),
            in_flight.complete.eq(rows.done | (targets.advance & targets.last & unmeasured)),
            rows.start.eq(started),
            rows.statistic.eq(measured(constants)),
            rows.centre.eq(constants.b_multiplier[:8].as_signed()),
            rows.bound_minus_one.eq(constants.bound),
            rows.bound_step.eq(constants.bound_step),
            rows.still.eq(still),
            rows.announced.eq(datapath.announces),
            rows.valid.eq(datapath.results_valid),
            rows.address.eq(parameters.addresses.param),
            rows.ends.eq(parameters.ends),
            datapath.counts.eq(rows.counts),
            datapath.looks_up_entries.eq(
                (constants.to_acc & (constants.result == ResultKind.ENTRY))
                | (rows.statistic > Statistic.MAXIMUM)
            ),
        ]
        return pending

    def _read_constants(self, m: Module, rows: VectorRows, accepts) -> None:
        """Read E and F, from the row of PARAM before the first one, before any other row."""
        pair = Cat(elements(self.param.data, 32)[:2])
        kept = Signal(64, reset_less=True)
        taken = Signal(READ_LATENCY)
        m.d.sync += taken.eq(Cat(accepts, taken))
        with m.If(accepts):
            m.d.comb += [
                self.param.enable.eq(self.commands.payload.statistic > Statistic.MAXIMUM),
                self.param.address.eq(self.commands.payload.param - 1),
            ]
        with m.If(taken[-1]):
            m.d.sync += kept.eq(pair)
        m.d.comb += [rows.epsilon.eq(kept[:32].as_signed()), rows.factor.eq(kept[32:])]

    def _write_rows(self, m: Module, rows: VectorRows, constants) -> None:
        """Write results other than totals and bytes, and the parameters of rows."""
        datapath = self.datapath
        wiring.connect(m, wiring.flipped(self.param_write), rows.param)
        values = self._slices(self.acc.data, Memory.ACC)
        with m.If(constants.result == ResultKind.NONE):
            m.d.comb += [self.act.enable.eq(0), self.acc.enable.eq(0)]
        with m.Elif(constants.to_acc & (constants.result != ResultKind.USUAL)):
            m.d.comb += [self.act.enable.eq(0), self.acc.enable.eq(datapath.results_valid)]
            for value in values:
                for lane, place in enumerate(value):
                    m.d.comb += place.eq(datapath.entries[lane] | datapath.wides[lane])
        for lane in range(self.configuration.vector_lanes):
            m.d.comb += [
                rows.values[lane].eq(datapath.values[lane]),
                rows.entries[lane].eq(datapath.entries[lane]),
            ]

    def _read_operands(self, m: Module, constants, reads_b: Signal, steps: AffineNest) -> None:
        """Read a and b of one step, and register their slices for the datapath."""
        datapath, level = self.datapath, self.configuration.map_loops
        valids = Signal(VECTOR_OPERAND_CYCLES)
        flags = Cat(steps.zeros[level:].all(), steps.ends[level])
        first, last = delayed(m, flags, VECTOR_OPERAND_CYCLES, "flags")
        m.d.sync += valids.eq(Cat(steps.active, valids))
        m.d.comb += [
            datapath.valid.eq(valids[-1]),
            datapath.first.eq(first),
            datapath.last.eq(last),
        ]
        for port, memory, address, enable, operands in (
            (self.a_acc, Memory.ACC, steps.addresses.a, constants.a_from_acc, datapath.a_acc),
            (self.a_act, Memory.ACT, steps.addresses.a, ~constants.a_from_acc, datapath.a_act),
            (self.b_act, Memory.ACT, steps.addresses.b, reads_b, datapath.b),
        ):
            bits = self._slice_bits(memory)
            chosen = delayed(m, address[:bits], READ_LATENCY, "slice") if bits else address[:0]
            m.d.comb += [
                port.enable.eq(steps.active & enable),
                port.address.eq(address >> bits),
            ]
            slices = self._slices(port.data, memory)
            for lane, operand in enumerate(operands):
                register = Signal(operand.shape(), name=f"operand_{lane}", reset_less=True)
                with m.If(valids[READ_LATENCY - 1] & enable):
                    m.d.sync += register.eq(choose([lanes[lane] for lanes in slices], chosen))
                m.d.comb += operand.eq(register)

    def _read_parameters(self, m: Module, constants, steps: AffineNest, nest: AffineNest) -> None:
        """Read an output's parameters so that they arrive with the last step of its reduction."""
        ends = Signal(VECTOR_OPERAND_CYCLES + self.datapath.PARAM_DELAY - READ_LATENCY)
        m.d.sync += ends.eq(Cat(steps.active & steps.ends[self.configuration.map_loops], ends))
        m.d.comb += [
            nest.advance.eq(ends[-1]),
            self.param.enable.eq(ends[-1] & (constants.bias | constants.scale)),
            self.param.address.eq(nest.addresses.param),
        ]
        pairs = elements(self.param.data, 32)
        for lane in range(self.configuration.vector_lanes):
            m.d.comb += [
                self.datapath.bias[lane].eq(pairs[2 * lane]),
                self.datapath.scale[lane].eq(pairs[2 * lane + 1]),
            ]

    def _write(self, m: Module, targets: AffineNest, written: Signal) -> None:
        """Write a slice: repeat it over the row and mask all other places."""
        datapath, address = self.datapath, targets.addresses.dst
        m.d.comb += written.eq(datapath.totals_valid | datapath.results_valid)
        for port, memory, valid, lanes in (
            (self.acc, Memory.ACC, datapath.totals_valid, datapath.totals),
            (self.act, Memory.ACT, datapath.results_valid, datapath.results),
        ):
            bits = self._slice_bits(memory)
            m.d.comb += [port.enable.eq(valid), port.address.eq(address >> bits)]
            values = self._slices(port.data, memory)
            masks = self._slices(port.mask, memory)
            for place, (value, mask) in enumerate(zip(values, masks, strict=True)):
                for lane, result in enumerate(lanes):
                    m.d.comb += [
                        value[lane].eq(result),
                        mask[lane].eq(address[:bits] == place),
                    ]
        m.d.sync += Assert(~written | targets.active, "a result without a destination")

    def _slice_bits(self, memory: Memory) -> int:
        lanes = self._lanes(memory) // self.configuration.vector_lanes
        return (lanes - 1).bit_length()

    def _lanes(self, memory: Memory) -> int:
        return {
            Memory.ACT: self.configuration.lanes_in,
            Memory.ACC: self.configuration.lanes_out,
        }[memory]

    def _slices(self, words, memory: Memory) -> list[list[Value]]:
        """Split a row into its elements (or their mask bits), by slice and lane."""
        row = elements(words, len(words[0]) * len(words) // self._lanes(memory))
        step = self.configuration.vector_lanes
        return [row[low : low + step] for low in range(0, len(row), step)]
