"""Issue side of LOAD and STORE: turns commands into bursts on the memory port."""

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.configuration_rules import PAGE_BYTES
from ..isa.instructions import Load, Store
from ..isa.instructions.load import DESTINATIONS
from ..isa.pipeline import QUEUED_BURSTS
from .affine import AffineNest
from .axi import LEN_BITS, WINDOW_BITS
from .layouts import command_layout
from .logic_adder import LogicAdder, less
from .queue import Queue

MEMORY_CODE = {Load: "destination", Store: "source"}
"""Field of the command that selects a scratchpad."""


def beat_bits(family: type[Load] | type[Store], configuration: Configuration) -> int:
    """Bits of a byte's place in the longest beat; LOAD fills in beats of the longest row."""
    bits = (configuration.bus_bytes - 1).bit_length()
    if family is Store:
        return bits
    return max(bits, *((configuration.row_bytes(m) - 1).bit_length() for m in DESTINATIONS))


def carried_layout(
    family: type[Load] | type[Store], configuration: Configuration
) -> dict[str, ShapeLike]:
    """Fields of LOAD's bursts that only its data side reads.

    A fill has its `value`. What a machine unpacks is marked, and the first burst of a run `begins`.
    So is what it transposes, into the lane `value`.
    """
    if family is Store:
        return {}
    command = command_layout(family, configuration)
    fields: dict[str, ShapeLike] = {"fill": 1, "value": command["value"].shape}
    if configuration.packed_weights != "none":
        fields |= {"unpack": 1, "begins": 1}
    if configuration.transposed_weights != "none":
        fields |= {"transpose": 1}
    return fields


def burst_layout(family: type[Load] | type[Store], configuration: Configuration):
    """One burst: its address in memory, its place in the scratchpad and its end.

    `address` and `local` count bytes. The burst ends with byte `end_byte` of its last beat. `last`
    marks the final burst of a command. A fill (LOAD only) is one burst per run of any length; it
    has no address, and its beats are as long as the longest row or beat.
    """
    command = command_layout(family, configuration)
    end_bits = beat_bits(family, configuration)
    length_bits = command["length"].shape.width
    fields = {
        "address": configuration.address_bits,
        "beats_minus_one": max(LEN_BITS, length_bits - end_bits) if family is Load else LEN_BITS,
        "end_byte": end_bits,
        "local": command["local"].shape,
        "code": command[MEMORY_CODE[family]].shape,
        "last": 1,
    }
    return data.StructLayout(fields | carried_layout(family, configuration))


class BurstIssuer(wiring.Component):
    """Unroll commands into runs and cut the runs into bursts, one per cycle.

    The first burst is at `bursts` three cycles after its command was accepted. The next command is
    accepted at the earliest in the cycle after the last run of this one has left the nest. A run
    whose bytes leave the data window sets `out_of_window`. Neither that run nor any later one is
    issued.

    Parameters
    ----------
    family : type[Load] or type[Store]
        Family of the commands.
    configuration : Configuration

    Members
    -------
    commands : In(stream of command_layout)
    data_base : In(address_bits)
        Byte address of the data window; a multiple of `PAGE_BYTES`, lower bits are ignored.
    data_bytes : In(WINDOW_BITS)
        Size of the data window in bytes.
    bursts : Out(stream of burst_layout)
    out_of_window : Out(1)
        Stays set until reset.
    """

    def __init__(self, family: type[Load] | type[Store], configuration: Configuration):
        self.family = family
        self.configuration = configuration
        self.layout = burst_layout(family, configuration)
        super().__init__(
            {
                "commands": In(stream.Signature(command_layout(family, configuration))),
                "data_base": In(configuration.address_bits),
                "data_bytes": In(WINDOW_BITS),
                "bursts": Out(stream.Signature(self.layout)),
                "out_of_window": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.nest = nest = AffineNest.for_family(
            self.family, self.configuration, guard_bits=1
        )
        m.submodules.queue = queue = Queue(self.layout, QUEUED_BURSTS)
        wiring.connect(m, queue.output, wiring.flipped(self.bursts))
        command = self.commands.payload
        fills = self.family is Load
        unpacks = fills and self.configuration.packed_weights != "none"
        transposes = fills and self.configuration.transposed_weights != "none"
        burst_bits = (self.configuration.burst_bytes - 1).bit_length()

        # Fields of the command that the nest does not keep. They apply to all its runs.
        carried = Signal(self.layout, reset_less=True)
        length = Signal.like(command.length, reset_less=True)
        is_long = Signal(reset_less=True)
        room = Signal(signed(WINDOW_BITS + 1), reset_less=True)
        m.d.comb += [
            nest.assign(command, self.family.nests),
            self.commands.ready.eq(nest.idle),
            nest.load.eq(self.commands.valid),
        ]
        with m.If(~nest.active):
            m.d.sync += [
                length.eq(command.length),
                is_long.eq(command.length[burst_bits:].any()),
                carried.code.eq(getattr(command, MEMORY_CODE[self.family])),
                room.eq(self.data_bytes - command.length - 1),
            ]
            if fills:
                m.d.sync += [carried.fill.eq(command.fill), carried.value.eq(command.value)]
            if unpacks:
                m.d.sync += [carried.unpack.eq(command.unpack), carried.begins.eq(1)]
            if transposes:
                m.d.sync += carried.transpose.eq(command.transpose)

        # Runs, placed in memory and checked against the window, which starts at a page. `end` is
        # the last byte, counted from the burst boundary before the run. A run that leaves the
        # window stays here until reset. One that crosses boundaries stays for several bursts.
        page_bits = (PAGE_BYTES - 1).bit_length()
        offset = nest.addresses.memory
        run = Signal(self.layout, reset_less=True)
        end = Signal(max(len(length), burst_bits) + 1, reset_less=True)
        crosses = Signal(reset_less=True)
        valid = Signal()
        leaves = Signal()
        is_fill = carried.fill if fills else Const(0)
        m.submodules.end_adder = end_adder = LogicAdder(len(end))
        m.d.comb += [
            end_adder.a.eq(offset[:burst_bits]),
            end_adder.b.eq((~is_fill).replicate(len(end))),
            end_adder.c.eq(length),
            end_adder.d.eq(-1),
        ]
        ready = Signal()
        stays = Signal(reset_less=True)
        m.d.comb += [
            ready.eq(~valid | (queue.input.ready & ~stays)),
            nest.advance.eq(nest.active & ready),
            self.out_of_window.eq(valid & leaves),
        ]
        outside = ~is_fill & (less(room, offset) | offset[-1])
        # The carry into the bits above a burst, and `length` itself, tell whether the run crosses.
        carried_over = (end_adder.sum ^ length)[burst_bits]
        more = ~is_fill & (is_long | carried_over)
        with m.If(ready):
            pages = offset[page_bits:] + self.data_base[page_bits:]
            m.d.sync += [
                valid.eq(nest.active),
                leaves.eq(outside),
                run.eq(carried),
                run.address.eq(Cat(offset[:page_bits], pages)),
                run.local.eq(nest.addresses.local),
                run.last.eq(nest.last),
                end.eq(end_adder.sum),
                crosses.eq(more),
                stays.eq(outside | more),
            ]

        # Bursts: up to the next boundary, or to the end of the run.
        bus_bits = (self.configuration.bus_bytes - 1).bit_length()
        start = run.address[:burst_bits]
        stop = Mux(crosses, (1 << burst_bits) - 1, end)
        burst = queue.input.payload
        m.d.comb += [
            queue.input.valid.eq(valid & ~leaves),
            burst.eq(run),
            burst.last.eq(run.last & ~crosses),
            burst.end_byte.eq(stop[:bus_bits]),
            burst.beats_minus_one.eq(stop[bus_bits:burst_bits] - start[bus_bits:]),
        ]
        if fills:
            with m.If(run.fill):
                m.d.comb += Cat(burst.end_byte, burst.beats_minus_one).eq(end)
        following = run.local + ~start + 1
        if transposes:
            row_bits = (self.configuration.lanes_out - 1).bit_length()
            rows = run.local + ((~start + 1) << row_bits)
            following = Mux(run.transpose, rows, following)
        with m.If(valid & queue.input.ready & crosses & ~leaves):
            m.d.sync += [
                run.address.eq(Cat(Const(0, burst_bits), run.address[burst_bits:] + 1)),
                run.local.eq(following),
                end.eq(Cat(end[:burst_bits], end[burst_bits:] - 1)),
                crosses.eq(end[burst_bits:] != 1),
                stays.eq(end[burst_bits:] != 1),
            ]
            if unpacks:
                m.d.sync += run.begins.eq(0)
        return m
