"""Local side of LOAD and STORE: bursts cut into what moves in one cycle.

A piece lies in one row of a scratchpad and in one beat of the memory port.
"""

from collections.abc import Sequence

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.instructions import Load, Store
from .bursts import burst_layout


def _log2(power: int) -> int:
    return power.bit_length() - 1


def piece_layout(
    family: type[Load] | type[Store], configuration: Configuration, memories: Sequence[Memory]
) -> data.StructLayout:
    """One piece.

    It takes `bytes_minus_one` + 1 bytes from `byte` of the row on, and of the beat from `beat_byte`
    on; `rotation` is how far they move up from source to target, modulo the beat. `ends_beat` marks
    the last piece of a beat, `ends_burst` of a burst, `last` of a command.
    """
    burst = burst_layout(family, configuration)
    widest = max(configuration.row_bytes(memory) for memory in memories)
    fields = {
        "code": burst["code"].shape,
        "row": max(_log2(configuration.rows(memory)) for memory in memories),
        "byte": _log2(widest),
        "beat_byte": _log2(configuration.bus_bytes),
        "rotation": _log2(configuration.bus_bytes),
        "bytes_minus_one": max(_log2(widest), _log2(configuration.bus_bytes)),
        "ends_beat": 1,
        "ends_burst": 1,
        "last": 1,
    }
    if family is Load:
        fields |= {"fill": 1, "value": burst["value"].shape}
    return data.StructLayout(fields)


class PieceCutter(wiring.Component):
    """Cut bursts into pieces, one piece per cycle without bubbles.

    A piece is as long as the row, the beat and the burst allow; in a fill there are no beats. The
    first piece stands at `pieces` two cycles after its burst was accepted.

    Parameters
    ----------
    family : type[Load] or type[Store]
        Whose bursts.
    configuration : Configuration
    memories : Sequence[Memory]
        Scratchpads by the code in the bursts.

    Members
    -------
    bursts : In(stream of burst_layout)
    pieces : Out(stream of piece_layout)
    """

    def __init__(
        self,
        family: type[Load] | type[Store],
        configuration: Configuration,
        memories: Sequence[Memory],
    ):
        self.family = family
        self.configuration = configuration
        self.memories = tuple(memories)
        self.layout = piece_layout(family, configuration, memories)
        super().__init__(
            {
                "bursts": In(stream.Signature(burst_layout(family, configuration))),
                "pieces": Out(stream.Signature(self.layout)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        burst = self.bursts.payload
        fills = self.family is Load

        # What remains of the burst: the next byte on both sides, and how many follow it.
        valid = Signal()
        code = Signal.like(burst.code, reset_less=True)
        row = Signal(self.layout["row"].shape, reset_less=True)
        byte = Signal(self.layout["byte"].shape, reset_less=True)
        row_end = Signal.like(byte, reset_less=True)
        beat_byte = Signal(self.layout["beat_byte"].shape, reset_less=True)
        left = Signal.like(burst.bytes_minus_one, reset_less=True)
        last = Signal(reset_less=True)
        fill = Signal(reset_less=True)
        value = Signal(8, reset_less=True)

        # The nearest of the three ends; `to_*` counts the bytes before it.
        to_row = Signal.like(byte)
        to_beat = Signal.like(beat_byte)
        count = Signal(self.layout["bytes_minus_one"].shape)
        ends_row = Signal()
        ends_burst = Signal()
        ends_beat = Signal()
        m.d.comb += [
            to_row.eq(row_end - byte),
            to_beat.eq(~beat_byte),
            ends_row.eq((to_row <= left) & (fill | (to_row <= to_beat))),
            ends_burst.eq((left <= to_row) & (fill | (left <= to_beat))),
            ends_beat.eq(ends_burst | (~fill & (to_beat <= to_row) & (to_beat <= left))),
            count.eq(Mux(ends_row, to_row, Mux(ends_burst, left, to_beat))),
        ]

        pieces = self.pieces
        moves = Signal()
        m.d.comb += [
            moves.eq(~pieces.valid | pieces.ready),
            self.bursts.ready.eq(~valid | (moves & ends_burst)),
        ]
        with m.If(moves):
            m.d.sync += [
                pieces.valid.eq(valid),
                pieces.payload.code.eq(code),
                pieces.payload.row.eq(row),
                pieces.payload.byte.eq(byte),
                pieces.payload.beat_byte.eq(beat_byte),
                pieces.payload.rotation.eq(byte - beat_byte if fills else beat_byte - byte),
                pieces.payload.bytes_minus_one.eq(count),
                pieces.payload.ends_beat.eq(ends_beat),
                pieces.payload.ends_burst.eq(ends_burst),
                pieces.payload.last.eq(last & ends_burst),
                # Only the amount matters below; the byte itself wraps with the row.
                row.eq(row + ends_row),
                byte.eq(Mux(ends_row, 0, byte + count + 1)),
                beat_byte.eq(beat_byte + count + 1),
                left.eq(left - count - 1),
            ]
            if fills:
                m.d.sync += [pieces.payload.fill.eq(fill), pieces.payload.value.eq(value)]
        with m.If(self.bursts.ready):
            row_bits = [_log2(self.configuration.row_bytes(memory)) for memory in self.memories]
            m.d.sync += [
                valid.eq(self.bursts.valid),
                code.eq(burst.code),
                row.eq(Array(burst.local >> bits for bits in row_bits)[burst.code]),
                byte.eq(Array(burst.local[:bits] for bits in row_bits)[burst.code]),
                row_end.eq(Array((1 << bits) - 1 for bits in row_bits)[burst.code]),
                beat_byte.eq(burst.address),
                left.eq(burst.bytes_minus_one),
                last.eq(burst.last),
            ]
            if fills:
                m.d.sync += [fill.eq(burst.fill), value.eq(burst.value)]
        return m
