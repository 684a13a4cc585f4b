"""Local side of LOAD and STORE: cuts bursts into pieces that move in one cycle.

A piece lies in one row of a scratchpad and in one beat of the memory port.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.instructions import Load, Store
from .bursts import beat_bits, burst_layout, carried_layout
from .logic_adder import Gate, LogicAdder
from .selection import choose


def _log2(power: int) -> int:
    return power.bit_length() - 1


def piece_layout(
    family: type[Load] | type[Store], configuration: Configuration, memories: Sequence[Memory]
) -> data.StructLayout:
    """One piece.

    It has `bytes_minus_one` + 1 bytes, from `byte` of the row and from `beat_byte` of the beat on.
    `rotation` is the distance from source to target, modulo the beat. `ends_beat` marks the last
    piece of a beat of memory, `ends_burst` that of a burst, `last` that of a command. `ends_beat`
    is 0 without a piece, and in a fill. Of a tile to unpack, a piece lies in one packed row, whose
    bytes `byte` counts, and `row` has a meaning only where the run `begins`. A transposed piece is
    a byte.
    """
    burst = burst_layout(family, configuration)
    widest = max(configuration.row_bytes(memory) for memory in memories)
    fields = {
        "code": burst["code"].shape,
        "row": max(_log2(configuration.rows(memory)) for memory in memories),
        "byte": _log2(widest),
        "beat_byte": _log2(configuration.bus_bytes),
        "rotation": _log2(configuration.bus_bytes),
        "bytes_minus_one": beat_bits(family, configuration),
        "ends_beat": 1,
        "ends_burst": 1,
        "last": 1,
    }
    return data.StructLayout(fields | carried_layout(family, configuration))


def cut_layout(
    family: type[Load] | type[Store], configuration: Configuration, memories: Sequence[Memory]
) -> data.StructLayout:
    """A burst as the cutter's registers hold it before the first piece.

    `to_row` counts the bytes after the first one, up to the end of the row. `beats_left` counts the
    beats after the first one, which is the only one if `final`. Then `end` counts the bytes after
    the first one, up to the end of the burst; otherwise the burst ends with byte `end` of its last
    beat.
    """
    burst = burst_layout(family, configuration)
    piece = piece_layout(family, configuration, memories)
    fields = {
        "code": burst["code"].shape,
        "row": piece["row"].shape,
        "to_row": piece["byte"].shape,
        "beat_byte": piece["beat_byte"].shape,
        "end": burst["end_byte"].shape,
        "beats_left": burst["beats_minus_one"].shape,
        "final": 1,
        "last": 1,
    }
    return data.StructLayout(fields | carried_layout(family, configuration))


def begin_cut(
    burst: Any,
    family: type[Load] | type[Store],
    configuration: Configuration,
    memories: Sequence[Memory],
) -> dict[str, Value]:
    """Return the fields of a burst's `cut_layout`, by name."""
    bits = [_log2(configuration.row_bytes(memory)) for memory in memories]
    carried = {name: burst[name] for name in carried_layout(family, configuration)}
    row_end = _row_end(burst.code, carried, configuration, memories)
    if "transpose" in carried:
        lanes = configuration.lanes_out - 1
        carried["value"] = Mux(burst.transpose, burst.local & lanes, burst.value)
    is_fill = carried.get("fill", Const(0))
    first_byte = Mux(is_fill, 0, burst.address & (configuration.bus_bytes - 1))
    final = burst.beats_minus_one == 0
    fields = {
        "code": burst.code,
        "row": choose([burst.local >> count for count in bits], burst.code),
        "to_row": row_end & ~burst.local,
        "beat_byte": first_byte,
        "end": Mux(final, burst.end_byte - first_byte, burst.end_byte),
        "beats_left": burst.beats_minus_one,
        "final": final,
        "last": burst.last,
    }
    return fields | carried


def _row_end(
    code: Value,
    carried: Mapping[str, Value],
    configuration: Configuration,
    memories: Sequence[Memory],
) -> Value:
    """Return the last byte of a row of the memory, or of a packed row; 0 in a transposed run."""
    widest = _log2(max(configuration.row_bytes(memory) for memory in memories))
    end = choose([Const(configuration.row_bytes(m) - 1, widest) for m in memories], code)
    if "unpack" in carried:
        end = Mux(carried["unpack"], configuration.packed_row_bytes - 1, end)
    return Mux(carried["transpose"], 0, end) if "transpose" in carried else end


def _beat_end(is_fill: Value, bits: int, configuration: Configuration) -> Value:
    """Return the last byte of a beat, which is a longer one in a fill."""
    return Mux(is_fill, Const(-1, bits), Const(configuration.bus_bytes - 1, bits))


class PieceCutter(wiring.Component):
    """Cut bursts into pieces, one piece per cycle without bubbles.

    A piece is as long as the row, the beat and the burst allow. A fill reads no memory: its beats
    are as long as the longest row or beat and begin with its first byte. The first piece is at
    `pieces` two cycles after its burst was accepted.

    Parameters
    ----------
    family : type[Load] or type[Store]
        Family of the bursts.
    configuration : Configuration
    memories : Sequence[Memory]
        Scratchpads by the code in the bursts.

    Members
    -------
    bursts : In(stream of cut_layout)
        From `begin_cut`.
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
                "bursts": In(stream.Signature(cut_layout(family, configuration, memories))),
                "pieces": Out(stream.Signature(self.layout)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        burst = self.bursts.payload
        pieces, piece = self.pieces, self.pieces.payload
        fills = self.family is Load

        # The rest of the burst. `to_row` and `to_beat` count the bytes after the next one, up to
        # the end of the row, and of the beat or the burst. In a fill no beat is shorter than a row.
        valid = Signal()
        code = Signal.like(burst.code, reset_less=True)
        row = Signal(self.layout["row"].shape, reset_less=True)
        to_row = Signal(self.layout["byte"].shape, reset_less=True)
        end_byte = Signal.like(burst.end, reset_less=True)
        to_beat = Signal.like(end_byte, reset_less=True)
        beat_byte = Signal(self.layout["beat_byte"].shape, reset_less=True)
        beats_left = Signal.like(burst.beats_left, reset_less=True)
        final = Signal(reset_less=True)
        last = Signal(reset_less=True)
        carried = {
            name: Signal(shape, name=name, reset_less=True)
            for name, shape in carried_layout(self.family, self.configuration).items()
        }
        fill = carried.get("fill", Signal(name="fill", reset_less=True))
        row_end = Signal.like(to_row)
        beat_end = Signal.like(end_byte)
        m.d.comb += [
            row_end.eq(_row_end(code, carried, self.configuration, self.memories)),
            beat_end.eq(_beat_end(fill, len(end_byte), self.configuration)),
        ]

        # The nearest end terminates the piece.
        bits = max(len(to_row), len(to_beat)) + 1
        row_beyond_beat = Signal(bits)
        beat_beyond_row = Signal(bits)
        ends_row = Signal()
        ends_beat = Signal()
        ends_burst = Signal()
        moves = Signal()
        for name, minuend, subtrahend, beyond in (
            ("row", to_row, to_beat, row_beyond_beat),
            ("beat", to_beat, to_row, beat_beyond_row),
        ):
            # `minuend - subtrahend - 1`, with the inversion in the cells of the carry chain.
            m.submodules[f"{name}_adder"] = adder = LogicAdder(bits, other=Gate.XOR)
            m.d.comb += [
                adder.a.eq(minuend),
                adder.b.eq(-1),
                adder.c.eq(subtrahend),
                adder.d.eq(-1),
                beyond.eq(adder.sum),
            ]
        m.d.comb += [
            ends_row.eq(row_beyond_beat[-1]),
            ends_beat.eq(beat_beyond_row[-1]),
            ends_burst.eq(ends_beat & final),
            moves.eq(~pieces.valid | pieces.ready),
            self.bursts.ready.eq(~valid | (moves & ends_burst)),
        ]

        byte = row_end & ~to_row
        if "transpose" in carried:
            byte = byte | Mux(carried["transpose"], carried["value"], 0)
        with m.If(moves):
            m.d.sync += [
                pieces.valid.eq(valid),
                piece.code.eq(code),
                piece.row.eq(row),
                piece.byte.eq(byte),
                piece.beat_byte.eq(beat_byte),
                piece.rotation.eq(byte - beat_byte if fills else beat_byte - byte),
                piece.bytes_minus_one.eq(Mux(ends_row, to_row, to_beat)),
                piece.ends_beat.eq(ends_beat & valid & ~fill),
                piece.ends_burst.eq(ends_burst),
                piece.last.eq(last & ends_burst),
                to_row.eq(Mux(ends_row, row_end, row_beyond_beat)),
                to_beat.eq(beat_beyond_row),
                beat_byte.eq(beat_byte + to_row + 1),
            ]
            with m.If(ends_row):
                m.d.sync += row.eq(row + 1)
            with m.If(ends_beat):
                m.d.sync += [
                    to_beat.eq(Mux(beats_left == 1, end_byte, beat_end)),
                    beat_byte.eq(0),
                    beats_left.eq(beats_left - 1),
                    final.eq(beats_left == 1),
                ]
            m.d.sync += [piece[name].eq(kept) for name, kept in carried.items()]
            if "begins" in carried:
                m.d.sync += carried["begins"].eq(0)
        with m.If(self.bursts.ready):
            is_fill = burst.fill if "fill" in carried else Const(0)
            first_beat_end = _beat_end(is_fill, len(end_byte), self.configuration)
            m.d.sync += [
                valid.eq(self.bursts.valid),
                code.eq(burst.code),
                row.eq(burst.row),
                to_row.eq(burst.to_row),
                beat_byte.eq(burst.beat_byte),
                to_beat.eq(Mux(burst.final, burst.end, first_beat_end ^ burst.beat_byte)),
                end_byte.eq(burst.end),
                beats_left.eq(burst.beats_left),
                final.eq(burst.final),
                last.eq(burst.last),
            ]
            m.d.sync += [kept.eq(burst[name]) for name, kept in carried.items()]
        return m
