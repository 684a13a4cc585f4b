"""LOAD: copies byte runs from main memory, or repeats a constant byte, into a scratchpad.

Requests run ahead of the data by up to `outstanding_bursts` bursts, across instructions, so the
memory's latency counts only once.
"""

from amaranth.hdl import Assert, Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.durations import commands_in_flight
from ..isa.fields import address_width
from ..isa.instructions import Load
from ..isa.instructions.load import DESTINATIONS
from ..isa.registers import Error
from .axi import WINDOW_BITS, read_beat_layout, request_layout
from .bursts import BurstIssuer
from .bytes import rotate_bytes
from .in_flight import InFlight
from .layouts import command_layout
from .pieces import PieceCutter, begin_cut, cut_layout
from .queue import Queue
from .weight_unpacker import WeightUnpacker


def write_client(memory: Memory, configuration: Configuration) -> wiring.Signature:
    """Write client of a scratchpad, seen from the client; the mask has a bit per byte."""
    row_bytes = configuration.row_bytes(memory)
    return wiring.Signature(
        {
            "enable": Out(1),
            "address": Out(address_width(configuration.rows(memory))),
            "data": Out(8 * row_bytes),
            "mask": Out(row_bytes),
        }
    )


class LoadUnit(wiring.Component):
    """Copy byte runs from main memory, or fill, one piece per cycle.

    Timing: the first request is at `requests` three cycles after the command was accepted. The
    others follow cycle by cycle while fewer than `outstanding_bursts` bursts, fills included, are
    open. A burst is open from its issue to the cycle in which its last piece is taken. A piece is
    written `PLACING_CYCLES` after it was taken. The first piece of a fill, if nothing precedes it,
    is taken six cycles after acceptance. At most `commands_in_flight` commands are in progress.

    Members
    -------
    commands : In(stream of command_layout)
    retired : Out(stream)
        Once per command, in order; valid from the cycle in which the last bytes are at the write
        port.
    requests : Out(stream of request_layout)
    beats : In(stream of read_beat_layout)
        `ready` does not depend on `valid`.
    act, wgt, param, lut : Out(write_client)
    data_base : In(address_bits)
        Byte address of the data window, a multiple of 4096.
    data_bytes : In(32)
        Size of the data window in bytes.
    stop : In(1)
        Make no more requests from the next cycle on; data already requested still arrive and are
        written.
    busy : Out(1)
        Commands are in flight; after `stop` or an error, transfers are in flight.
    starved : Out(1)
        A piece is due, but its beat has not arrived.
    moved_bytes : Out(range(bus_bytes + 1))
        Bytes taken from memory in this cycle.
    error : Out(Error)
        Stays set until reset. After an error there are no more requests or retirements.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        members = {
            "commands": In(stream.Signature(command_layout(Load, configuration))),
            "retired": Out(stream.Signature(0)),
            "requests": Out(stream.Signature(request_layout(configuration))),
            "beats": In(stream.Signature(read_beat_layout(configuration))),
            "data_base": In(configuration.address_bits),
            "data_bytes": In(WINDOW_BITS),
            "stop": In(1),
            "busy": Out(1),
            "starved": Out(1),
            "moved_bytes": Out(range(configuration.bus_bytes + 1)),
            "error": Out(Shape.cast(Error)),
        }
        for memory in DESTINATIONS:
            members[memory.name.lower()] = Out(write_client(memory, configuration))
        self.unpacks = configuration.packed_weights != "none"
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        configuration = self.configuration
        m.submodules.issuer = issuer = BurstIssuer(Load, configuration)
        m.submodules.expected = expected = Queue(
            cut_layout(Load, configuration, DESTINATIONS), configuration.outstanding_bursts
        )
        m.submodules.cutter = cutter = PieceCutter(Load, configuration, DESTINATIONS)
        m.submodules.in_flight = in_flight = InFlight(commands_in_flight(configuration))
        wiring.connect(m, expected.output, cutter.bursts)
        wiring.connect(m, in_flight.retired, wiring.flipped(self.retired))

        halted, failed = Signal(), Signal()
        m.d.comb += [
            halted.eq(self.stop | failed),
            in_flight.freeze.eq(halted),
            issuer.data_base.eq(self.data_base),
            issuer.data_bytes.eq(self.data_bytes),
            issuer.commands.payload.eq(self.commands.payload),
            issuer.commands.valid.eq(self.commands.valid & in_flight.room),
            self.commands.ready.eq(issuer.commands.ready & in_flight.room),
            in_flight.accept.eq(self.commands.valid & self.commands.ready),
        ]

        # Every burst is recorded as open until its last piece is taken. In the same cycle, every
        # burst but a fill is requested.
        burst = issuer.bursts.payload
        most_open = configuration.outstanding_bursts
        open_bursts = Signal(range(most_open + 1))
        # These follow from the count and from `halted`, but are registers to shorten paths.
        some, closed = Signal(), Signal()
        refuses = Signal()
        m.d.sync += refuses.eq(halted)
        offered = issuer.bursts.valid & ~refuses & ~closed
        m.d.comb += [
            self.requests.payload.address.eq(burst.address),
            self.requests.payload.beats_minus_one.eq(burst.beats_minus_one),
            self.requests.valid.eq(offered & ~burst.fill),
            *(
                expected.input.payload[name].eq(value)
                for name, value in begin_cut(burst, Load, configuration, DESTINATIONS).items()
            ),
            expected.input.valid.eq(offered & (burst.fill | self.requests.ready)),
            issuer.bursts.ready.eq(expected.input.valid),
        ]

        piece, pieces = cutter.pieces.payload, cutter.pieces
        takes = Signal()
        m.d.comb += [
            takes.eq(pieces.valid & (piece.fill | self.beats.valid)),
            pieces.ready.eq(takes),
            self.beats.ready.eq(piece.ends_beat),
        ]
        opens, ends = expected.input.valid, takes & piece.ends_burst
        with m.If(opens & ~ends):
            m.d.sync += [
                open_bursts.eq(open_bursts + 1),
                some.eq(1),
                closed.eq(open_bursts == most_open - 1),
            ]
        with m.Elif(ends & ~opens):
            m.d.sync += [open_bursts.eq(open_bursts - 1), some.eq(open_bursts != 1), closed.eq(0)]
        m.d.comb += in_flight.complete.eq(self._write(m, piece, takes))

        m.d.comb += [
            self.busy.eq(Mux(refuses, some, in_flight.active)),
            self.starved.eq(pieces.valid & ~piece.fill & ~self.beats.valid),
        ]
        with m.If(takes & ~piece.fill):
            m.d.comb += self.moved_bytes.eq(piece.bytes_minus_one + 1)

        with m.If(~failed):
            with m.If(self.beats.valid & self.beats.ready & self.beats.payload.failed):
                m.d.sync += [failed.eq(1), self.error.eq(Error.MEMORY_RESPONSE)]
            with m.Elif(issuer.out_of_window):
                m.d.sync += [failed.eq(1), self.error.eq(Error.OUT_OF_WINDOW)]
        m.d.sync += Assert(
            ~(self.beats.valid & self.beats.ready) | (self.beats.payload.last == piece.ends_burst),
            "a burst has another length than requested",
        )
        return m

    def _write(self, m: Module, piece, takes: Signal) -> Signal:
        """Rotate the beat, and mask it for every scratchpad; return when a last piece is written.

        Every scratchpad gets the rotated beat repeated or cut to a row. The first cycle makes half
        of the rotation and classifies the words of the rows, the second one does the rest.
        """
        bus_bytes = self.configuration.bus_bytes
        beat_bits = (bus_bytes - 1).bit_length()
        half = (beat_bits + 1) // 2
        data = Value.cast(self.beats.payload.data)
        amount = piece.rotation[:half]
        turned = Signal(8 * bus_bytes, reset_less=True)
        constant = Signal(8, reset_less=True)
        rest = Signal(beat_bits - half, reset_less=True)
        row = Signal.like(piece.row, reset_less=True)
        code = Signal.like(piece.code, reset_less=True)
        taken = Signal()
        last = Signal()
        m.d.sync += [
            turned.eq(Mux(piece.fill, 0, rotate_bytes(data, amount))),
            constant.eq(Mux(piece.fill, piece.value, 0)),
            rest.eq(piece.rotation[half:]),
            row.eq(piece.row),
            code.eq(piece.code),
            taken.eq(takes),
            last.eq(takes & piece.last),
        ]
        placed = Signal(8 * bus_bytes, reset_less=True)
        placed_row = Signal.like(row, reset_less=True)
        m.d.sync += [
            placed.eq(rotate_bytes(turned, rest, 8 << half) | constant.replicate(bus_bytes)),
            placed_row.eq(row),
        ]

        # In its first word a piece begins with a byte, in its last word it ends with one, and the
        # words between are whole. Rows of less than a beat are one word.
        first_byte = piece.byte
        last_byte = Signal(len(first_byte))
        begins = Signal(bus_bytes, reset_less=True)
        ends = Signal(bus_bytes, reset_less=True)
        m.d.comb += last_byte.eq(first_byte + piece.bytes_minus_one)
        first_word, last_word = first_byte[beat_bits:], last_byte[beat_bits:]
        until = Cat(last_byte[:beat_bits] >= byte for byte in range(bus_bytes))
        onwards = Cat(first_byte[:beat_bits] <= byte for byte in range(bus_bytes))
        m.d.sync += [
            begins.eq(onwards & (until | (first_word != last_word).replicate(bus_bytes))),
            ends.eq(until),
        ]
        for number, memory in enumerate(DESTINATIONS):
            port = getattr(self, memory.name.lower())
            if self.unpacks and memory is Memory.WGT:
                port = self._unpacker(m, piece, takes, placed)
            row_bytes = self.configuration.row_bytes(memory)
            words = max(1, row_bytes // bus_bytes)
            is_first = Signal(words)
            is_last = Signal(words)
            bits = (words - 1).bit_length()
            low, high = first_word[:bits], last_word[:bits]
            m.d.sync += [
                is_first.eq(Cat((low <= w) & ((w < high) | (low == w)) for w in range(words))),
                is_last.eq(Cat((low < w) & (w <= high) for w in range(words))),
                port.enable.eq(taken & (code == number)),
            ]
            mask = Cat(
                Mux(
                    is_first[word],
                    Mux(is_last[word], -1, begins),
                    Mux(is_last[word], ends, 0),
                )[:bus_bytes]
                for word in range(words)
            )
            m.d.sync += port.mask.eq(mask)
            repeats = -(-row_bytes // bus_bytes)
            m.d.comb += [port.address.eq(placed_row), port.data.eq(placed.replicate(repeats))]
        return last

    def _unpacker(self, m: Module, piece, takes: Signal, placed: Signal) -> wiring.PureInterface:
        """Connect the unpacker, which sees a piece one cycle after it was taken.

        Return the write client of WGT for all other pieces.
        """
        m.submodules.unpacker = unpacker = WeightUnpacker(self.configuration)
        other = write_client(Memory.WGT, self.configuration).create(path=("other",))
        unpacks = Signal()
        word_bits = (unpacker.word_bytes - 1).bit_length()
        m.d.sync += [
            unpacker.valid.eq(takes & piece.unpack),
            unpacker.begins.eq(piece.begins),
            unpacker.row.eq(piece.row),
            unpacker.word.eq(piece.byte >> word_bits),
            unpacks.eq(unpacker.valid),
        ]
        m.d.comb += unpacker.packed.eq(placed)
        for name in ("enable", "address", "data", "mask"):
            ours, theirs = getattr(unpacker, name), getattr(other, name)
            m.d.comb += getattr(self.wgt, name).eq(Mux(unpacks, ours, theirs))
        return other
