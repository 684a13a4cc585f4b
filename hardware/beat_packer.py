"""Data side of STORE: reads pieces from scratchpads and packs them into beats."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.fields import address_width
from ..isa.instructions import Store
from ..isa.instructions.store import SOURCES
from ..isa.pipeline import QUEUED_BEATS, READ_LATENCY
from .axi import write_beat_layout
from .bytes import mask_between, rotate_bytes
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

    A beat is at `beats` `READ_LATENCY` + 3 cycles after its last piece was taken. A piece that ends
    a beat waits while `QUEUED_BEATS` beats are in flight.

    Members
    -------
    pieces : In(stream of piece_layout)
    act, acc : Out(read_client)
        A row is read in the cycle in which its piece is taken.
    beats : Out(stream of write_beat_layout)
        Strobes are low for bytes outside all pieces.
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
        bus_bytes = self.configuration.bus_bytes
        clients = [getattr(self, memory.name.lower()) for memory in SOURCES]
        m.submodules.queue = queue = Queue(write_beat_layout(self.configuration), QUEUED_BEATS)
        wiring.connect(m, queue.output, wiring.flipped(self.beats))

        # A slot of the queue is reserved before the read, so the data never wait.
        piece = self.pieces.payload
        slots = Signal(range(QUEUED_BEATS + 1), init=QUEUED_BEATS)
        takes = Signal()
        m.d.comb += [
            self.pieces.ready.eq(~piece.ends_beat | (slots != 0)),
            takes.eq(self.pieces.valid & self.pieces.ready),
        ]
        returned = self.beats.valid & self.beats.ready
        m.d.sync += slots.eq(slots - (takes & piece.ends_beat) + returned)
        for code, client in enumerate(clients):
            m.d.comb += [
                client.enable.eq(takes & (piece.code == code)),
                client.address.eq(piece.row),
            ]

        # Pieces are delayed like their rows: through the scratchpad, then one cycle to pick their
        # bytes from the row, then one cycle to move them into place.
        valids = Signal(READ_LATENCY + 2)
        m.d.sync += valids.eq(Cat(takes, valids))
        stages = [piece]
        for cycles in range(1, READ_LATENCY + 3):
            stages.append(Signal(self.layout, name=f"piece_{cycles}", reset_less=True))
            m.d.sync += stages[-1].eq(stages[-2])

        piece = stages[READ_LATENCY]
        rows = Array(pick_bytes(m, client.data, piece.byte, bus_bytes) for client in clients)
        picked = Signal(8 * bus_bytes, reset_less=True)
        m.d.sync += picked.eq(rows[piece.code])

        piece = stages[READ_LATENCY + 1]
        strobe = mask_between(
            piece.beat_byte, (piece.beat_byte + piece.bytes_minus_one)[: len(piece.beat_byte)]
        )
        placed = Signal.like(picked, reset_less=True)
        placed_strobe = Signal(bus_bytes, reset_less=True)
        m.d.sync += [
            placed.eq(rotate_bytes(picked, piece.rotation) & expand(strobe)),
            placed_strobe.eq(strobe),
        ]

        # Bytes outside the strobes are zero, so pieces merge by OR.
        piece, valid = stages[READ_LATENCY + 2], valids[-1]
        merged = Signal.like(placed, reset_less=True)
        merged_strobe = Signal(bus_bytes)
        beat = queue.input.payload
        m.d.comb += [
            beat.data.eq(merged | placed),
            beat.strobe.eq(merged_strobe | placed_strobe),
            beat.last.eq(piece.ends_burst),
            queue.input.valid.eq(valid & piece.ends_beat),
        ]
        with m.If(valid):
            m.d.sync += [
                merged.eq(Mux(piece.ends_beat, 0, beat.data)),
                merged_strobe.eq(Mux(piece.ends_beat, 0, beat.strobe)),
            ]
        return m


def expand(mask: Value) -> Value:
    """Repeat every bit eight times: a mask of bits from a mask of bytes."""
    return Value.cast(Cat(bit.replicate(8) for bit in mask))


def pick_bytes(m: Module, row: Value, first: Value, bus_bytes: int) -> Value:
    """Take one beat of bytes from a row, starting at byte `first`.

    Byte `i` of the row goes to place `i` modulo the beat. Two adjacent beat-sized words of the row
    can contribute. Even and odd words are selected separately, so the two multiplexers together are
    no larger than one over all words.
    """
    row_bytes = len(row) // 8
    if row_bytes <= bus_bytes:
        return Value.cast(row.replicate(bus_bytes // row_bytes))
    beat_bits = (bus_bytes - 1).bit_length()
    words = [row.word_select(index, 8 * bus_bytes) for index in range(row_bytes // bus_bytes)]
    word = first[beat_bits : (row_bytes - 1).bit_length()]
    index_bits = len(word) - 1
    even = Signal(8 * bus_bytes)
    odd = Signal(8 * bus_bytes)
    m.d.comb += [
        even.eq(Array(words[0::2])[(word[1:] + word[0])[:index_bits]]),
        odd.eq(Array(words[1::2])[word[1:]]),
    ]
    start = first[:beat_bits]
    return Value.cast(
        Cat(
            Mux(word[0] ^ (byte < start), odd.word_select(byte, 8), even.word_select(byte, 8))
            for byte in range(bus_bytes)
        )
    )
