"""Data side of STORE: reads pieces from scratchpads and packs them into beats."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.fields import address_width
from ..isa.instructions import Store
from ..isa.instructions.store import SOURCES
from ..isa.pipeline import QUEUED_BEATS, READ_LATENCY
from .axi import write_beat_layout
from .bytes import expand, mask_between, rotate_bytes
from .pieces import piece_layout
from .queue import Queue


def read_client(memory: Memory, configuration: Configuration) -> wiring.Signature:
    """Read client of a scratchpad, seen from the client; data follow by `READ_LATENCY` cycles."""
    return wiring.Signature(
        {
            "enable": Out(1),
            "address": Out(address_width(configuration.rows(memory))),
            "data": In(8 * configuration.row_bytes(memory)),
        }
    )


class BeatPacker(wiring.Component):
    """Read the row of each piece and merge pieces into beats, one piece per cycle.

    A beat is at `beats` `PACKING_CYCLES` cycles after its last piece was taken. A piece that ends a
    beat waits while all `QUEUED_BEATS` places are taken; a place is free `FREEING_CYCLES` cycles
    after its beat has left. Pieces merge in the memory of the queue, which is written byte by byte.

    Members
    -------
    pieces : In(stream of piece_layout)
    act, acc : Out(read_client)
        A row is read in the cycle in which its piece is taken.
    beats : Out(stream of write_beat_layout)
        Strobes are low for bytes outside all pieces, and those bytes have any value.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        self.layout = piece_layout(Store, configuration, SOURCES)
        super().__init__(
            {
                "pieces": In(stream.Signature(self.layout)),
                "act": Out(read_client(Memory.ACT, configuration)),
                "acc": Out(read_client(Memory.ACC, configuration)),
                "beats": Out(stream.Signature(write_beat_layout(configuration))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        clients = [getattr(self, memory.name.lower()) for memory in SOURCES]

        # A slot of the queue is reserved before the read, so the data never wait.
        piece = self.pieces.payload
        # `free` follows from the number of slots, but is a register to shorten paths.
        slots = Signal(range(QUEUED_BEATS + 1), init=QUEUED_BEATS)
        free = Signal(init=1)
        takes = Signal()
        m.d.comb += [
            self.pieces.ready.eq(~piece.ends_beat | free),
            takes.eq(self.pieces.valid & self.pieces.ready),
        ]
        # The port's `ready` comes from far away, so a register tells that a beat has left.
        returned = Signal()
        reserved = piece.ends_beat & free
        m.d.sync += [
            returned.eq(self.beats.valid & self.beats.ready),
            slots.eq(slots - reserved + returned),
            free.eq(returned | (slots > reserved)),
        ]
        for code, client in enumerate(clients):
            m.d.comb += [
                client.enable.eq(takes & (piece.code == code)),
                client.address.eq(piece.row),
            ]

        # Pieces are delayed like their rows: through the scratchpad, then three cycles in which
        # their bytes move into place.
        valids = Signal(READ_LATENCY + 3)
        m.d.sync += valids.eq(Cat(takes, valids))
        stages = [piece]
        for cycles in range(1, READ_LATENCY + 4):
            stages.append(Signal(self.layout, name=f"piece_{cycles}", reset_less=True))
            m.d.sync += stages[-1].eq(stages[-2])
        placed = self._move(m, [client.data for client in clients], stages[READ_LATENCY - 1 :])
        self._merge(m, placed, stages[-2:], valids[-1])
        return m

    def _move(self, m: Module, rows: Sequence[Value], stages: Sequence) -> Value:
        """Move bytes into place; `stages` begins with the piece in the cycle before its row.

        Byte `i` of a row first goes to place `i` modulo the beat. Two adjacent beat-sized words of
        the row can contribute, an even and an odd one; all other words are zero in their registers.
        Then the beat rotates, in two steps.
        """
        bus_bytes = self.configuration.bus_bytes
        beat_bits = (bus_bytes - 1).bit_length()
        word_of_piece = stages[0].byte[beat_bits:]
        words: list[list[Value]] = [[], []]
        for code, row in enumerate(map(Value.cast, rows)):
            row = row.replicate(-(-8 * bus_bytes // len(row)))
            for place in range(len(row) // (8 * bus_bytes)):
                reads = Signal(name=f"reads_{code}_{place}", reset_less=True)
                word = Signal(8 * bus_bytes, name=f"word_{code}_{place}", reset_less=True)
                near = (word_of_piece == place) | (word_of_piece + 1 == place)
                m.d.sync += [
                    reads.eq((stages[0].code == code) & near),
                    word.eq(Mux(reads, row.word_select(place, 8 * bus_bytes), 0)),
                ]
                words[place % 2].append(word)

        byte = stages[1].byte
        from_odd = Signal(bus_bytes, reset_less=True)
        if words[1]:
            starts = Cat(byte[:beat_bits] > place for place in range(bus_bytes))
            m.d.sync += from_odd.eq(starts ^ byte[beat_bits].replicate(bus_bytes))
        even, odd = (reduce(or_, parity, Const(0)) for parity in words)
        chosen = expand(from_odd)
        picked = Signal(8 * bus_bytes, reset_less=True)
        m.d.sync += picked.eq((even & ~chosen) | (odd & chosen))

        # Half of the rotation before the register, half behind it.
        half = (beat_bits + 1) // 2
        turned = Signal(8 * bus_bytes, reset_less=True)
        m.d.sync += turned.eq(rotate_bytes(picked, stages[3].rotation[:half]))
        return rotate_bytes(turned, stages[4].rotation[half:], 8 << half)

    def _merge(self, m: Module, placed: Value, stages: Sequence, valid: Value) -> None:
        """Write the bytes of a piece to the last beat of the queue; the end of a beat enters it."""
        bus_bytes = self.configuration.bus_bytes
        before, piece = stages
        layout = data.StructLayout({"strobe": bus_bytes, "last": 1})
        m.submodules.queue = queue = Queue(layout, QUEUED_BEATS)
        depth = 1 << (QUEUED_BEATS - 1).bit_length()
        m.submodules.data = beats = memory.Memory(shape=8 * bus_bytes, depth=depth, init=[])
        write, read = beats.write_port(granularity=8), beats.read_port(domain="comb")

        strobe = Signal(bus_bytes, reset_less=True)
        merged_strobe = Signal(bus_bytes)
        last_byte = (before.beat_byte + before.bytes_minus_one)[: len(before.beat_byte)]
        m.d.sync += strobe.eq(mask_between(before.beat_byte, last_byte))
        m.d.comb += [
            write.en.eq(strobe & valid.replicate(bus_bytes)),
            write.data.eq(placed),
            queue.input.valid.eq(valid & piece.ends_beat),
            queue.input.payload.strobe.eq(merged_strobe | strobe),
            queue.input.payload.last.eq(piece.ends_burst),
            queue.output.ready.eq(self.beats.ready),
            self.beats.valid.eq(queue.output.valid),
            self.beats.payload.data.eq(read.data),
            self.beats.payload.strobe.eq(queue.output.payload.strobe),
            self.beats.payload.last.eq(queue.output.payload.last),
        ]
        with m.If(valid):
            m.d.sync += merged_strobe.eq(Mux(piece.ends_beat, 0, merged_strobe | strobe))
        with m.If(queue.input.valid):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += read.addr.eq(read.addr + 1)
