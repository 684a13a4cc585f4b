"""The two walkers that control GEMM: one fetches weight tiles, the other issues rows."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.fields import address_width
from ..isa.instructions import Gemm
from ..isa.pipeline import GEMM_REVISIT_STEPS, LINE_STEPS
from .affine import AffineNest
from .layouts import command_layout


def _address_bits(configuration: Configuration) -> dict[str, int]:
    return {operand.name: Gemm.base_bits(operand.name, configuration) for operand in Gemm.operands}


class TileWalker(wiring.Component):
    """Read weight tiles row by row, each tile as soon as the previous one was taken.

    A tile's first row is read in the cycle after `load` or `take`, the others one by one after it.

    Members
    -------
    load : In(1)
        Take the loops of `command`; allowed while `idle`.
    command : In(command_layout)
    idle : Out(1)
        All tiles of the last command were taken.
    read : Out(1)
        Read row `address` of WGT, which is row `row` of the tile.
    address, row : Out
    depthwise : Out(1)
        The tile belongs to a depthwise command; only in machines that have the mode.
    ready : Out(1)
        Set from the cycle in which a tile's last row is read until the tile is taken.
    take : In(1)
        The array swaps to this tile; allowed while `ready`.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        super().__init__(
            {
                "load": In(1),
                "command": In(command_layout(Gemm, configuration)),
                "idle": Out(1),
                "read": Out(1),
                "address": Out(address_width(configuration.rows(Memory.WGT))),
                "row": Out(range(configuration.lanes_in)),
                "ready": Out(1),
                "take": In(1),
                **({"depthwise": Out(1)} if configuration.depthwise_taps else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes = self.configuration.lanes_in
        m.submodules.nest = nest = AffineNest(
            self.configuration.extent_bits,
            {"wgt": _address_bits(self.configuration)["wgt"]},
            self.configuration.tile_loops,
        )
        # Even a tile with few rows lasts until its accumulators may be revisited.
        period = max(lanes, GEMM_REVISIT_STEPS)
        count = Signal(range(period))
        fetching, ends, loaded = Signal(), Signal(), Signal()
        m.d.comb += [
            nest.assign(self.command, ["tile_loops"]),
            nest.load.eq(self.load),
            # The address is free once the tile's last row is read, whenever the tile is taken.
            nest.advance.eq(ends),
            self.idle.eq(~nest.active & ~loaded),
            fetching.eq(nest.active & ~loaded),
            self.read.eq(fetching & (count < lanes)),
            self.row.eq(count),
            self.address.eq(Cat(self.row, nest.addresses.wgt)),
        ]
        with m.If(fetching):
            m.d.sync += count.eq(Mux(ends, 0, count + 1))
        follows = fetching & (count == period - 2)
        m.d.sync += [ends.eq(follows), self.ready.eq(follows | (self.ready & ~self.take))]
        if self.configuration.depthwise_taps:
            depthwise = Signal(reset_less=True)
            m.d.comb += self.depthwise.eq(depthwise)
            with m.If(self.load):
                m.d.sync += depthwise.eq(self.command.depthwise)
        m.d.sync += [
            loaded.eq(self.ready & ~self.take),
            Assert(~self.take | self.ready, "a weight tile was taken before it was there"),
        ]
        return m


def step_layout(configuration: Configuration) -> data.StructLayout:
    """One GEMM step: its rows, and its position in the command.

    The flags say whether the step opens a tile, overwrites, or ends the command. With a depthwise
    mode, `begins` marks the start of the innermost row loop; `depthwise` and `part` say which
    channels the command takes. With lines, `opens` marks the start of the row loop outside it, and
    `joins` says that lines are short enough to be kept.
    """
    bits = _address_bits(configuration)
    layout: dict[str, ShapeLike] = {
        "valid": 1,
        "act": bits["act"],
        "acc": bits["acc"],
        "first_row": 1,
        "overwrites": 1,
        "last": 1,
    }
    if configuration.depthwise_taps:
        layout |= {"begins": 1, "depthwise": 1, "part": range(configuration.depthwise_parts)}
    if configuration.window_lines > 1:
        layout |= {"opens": 1, "joins": 1}
    return data.StructLayout(layout)


class RowWalker(wiring.Component):
    """Issue one ACT row per cycle; the first row of each tile waits until the tile is ready.

    The first step of a command follows the last step of the previous command by at least
    GEMM_REVISIT_STEPS cycles, so both may accumulate to the same row.

    Members
    -------
    load : In(1)
        Take the loops of `command`; allowed while `idle`. The first step may be in the next cycle.
    command : In(command_layout)
    idle : Out(1)
        All rows of the last command were issued.
    tile_ready : In(1)
        The tile after the current one can be taken.
    step : Out(step_layout)
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        super().__init__(
            {
                "load": In(1),
                "command": In(command_layout(Gemm, configuration)),
                "idle": Out(1),
                "tile_ready": In(1),
                "step": Out(step_layout(configuration)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        tile_loops, row_loops = self.configuration.tile_loops, self.configuration.row_loops
        bits = _address_bits(self.configuration)
        m.submodules.nest = nest = AffineNest(
            self.configuration.extent_bits,
            {"act": bits["act"], "acc": bits["acc"]},
            tile_loops + row_loops,
        )
        step = self.step
        rest = Signal(range(GEMM_REVISIT_STEPS))
        rested = Signal(init=1)
        first_row = Signal()
        m.d.comb += [
            nest.assign(self.command, Gemm.nests),
            nest.load.eq(self.load),
            nest.advance.eq(step.valid),
            self.idle.eq(~nest.active),
            step.first_row.eq(first_row),
            step.valid.eq(nest.active & rested & (~first_row | self.tile_ready)),
            step.act.eq(nest.addresses.act),
            step.acc.eq(nest.addresses.acc),
            step.last.eq(nest.last),
        ]
        with m.If(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        with m.If(rest <= 1):
            m.d.sync += rested.eq(1)
        with m.If(step.valid & step.last):
            m.d.sync += [rest.eq(GEMM_REVISIT_STEPS - 1), rested.eq(0)]
        # All row loops begin anew after an iteration in which all of them are at their ends.
        with m.If(self.load):
            m.d.sync += first_row.eq(1)
        with m.Elif(step.valid):
            m.d.sync += first_row.eq(nest.ends[tile_loops])

        # Of a loop that reduces, only the first iteration overwrites.
        accumulates = Signal(reset_less=True)
        reduces = Signal(tile_loops, reset_less=True)
        with m.If(self.load):
            m.d.sync += accumulates.eq(self.command.accumulate)
            m.d.sync += [
                reduces[level].eq(getattr(self.command, f"tile_loops__{level}__reduces"))
                for level in range(tile_loops)
            ]
        m.d.comb += step.overwrites.eq(~accumulates & (nest.zeros[:tile_loops] | ~reduces).all())
        if self.configuration.depthwise_taps:
            self._take_channels(m, nest.zeros[tile_loops:])
        return m

    def _take_channels(self, m: Module, zeros: Value) -> None:
        """Derive a depthwise step; the innermost row loop is the last with 2 or more iterations."""
        step = self.step
        inner = Signal(len(zeros), reset_less=True)
        depthwise = Signal(reset_less=True)
        part = Signal.like(step.part, reset_less=True)
        with m.If(self.load):
            m.d.sync += [depthwise.eq(self.command.depthwise), part.eq(self.command.part)]
            several: Value = Const(0)
            for level in reversed(range(len(zeros))):
                loops = getattr(self.command, f"row_loops__{level}__extent") != 0
                m.d.sync += inner[level].eq(loops & ~several)
                several = several | loops
        m.d.comb += [
            step.begins.eq((zeros | ~inner).all()),
            step.depthwise.eq(depthwise),
            step.part.eq(part),
        ]
        if self.configuration.window_lines > 1:
            self._join_lines(m, zeros, inner)

    def _join_lines(self, m: Module, zeros: Value, inner: Value) -> None:
        """Derive where lines begin, and whether they are kept."""
        step = self.step
        outer = Signal(len(zeros), reset_less=True)
        joins = Signal(reset_less=True)
        with m.If(self.load):
            found: Value = Const(0)
            before: Value = Const(0)
            short: Value = Const(1)
            for level in reversed(range(len(zeros))):
                extent = getattr(self.command, f"row_loops__{level}__extent")
                loops = extent != 0
                m.d.sync += outer[level].eq(loops & found & ~before)
                short = Mux(loops & ~found, extent < LINE_STEPS, short)
                before = before | (loops & found)
                found = found | loops
            m.d.sync += joins.eq(short)
        m.d.comb += [
            step.opens.eq((zeros | ~(inner | outer)).all()),
            step.joins.eq(joins),
        ]
