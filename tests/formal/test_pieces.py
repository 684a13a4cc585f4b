"""Bursts fall into pieces that cover them exactly, and pieces into as many beats as requested."""

from dataclasses import dataclass

import pytest
from amaranth.hdl import Const, Module, Mux, Signal, Value

from tilewright.hardware.beat_packer import QUEUED_BEATS, BeatPacker
from tilewright.hardware.load import DESTINATIONS
from tilewright.hardware.pieces import PieceCutter
from tilewright.hardware.selection import choose
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Load, Store
from tilewright.isa.instructions.store import SOURCES

from .prove import Bench, bounded, induction, probe
from .watch import watch_order

TINY = PRESETS["tiny"]
MEMORIES = {Load: DESTINATIONS, Store: SOURCES}


def smallest(first: Value, *others: Value) -> Value:
    for other in others:
        first = Mux(first < other, first, other)
    return first


@dataclass
class Cursor:
    """How far a burst is cut, in plain arithmetic: the definition that the cutter is held to."""

    local: Signal
    beat_byte: Signal
    left: Signal
    beats_left: Signal


class PiecesBench(Bench):
    """Bursts as `BurstIssuer` is proved to make them, a sink of any speed."""

    def __init__(self, family, fault: str = "") -> None:
        super().__init__()
        self.family, self.fault = family, fault

    def world(self, m: Module) -> None:
        cutter = PieceCutter(self.family, TINY, MEMORIES[self.family])
        inside = probe(m, "cutter", cutter)
        burst, piece = cutter.bursts.payload, cutter.pieces.payload
        bus_bytes = TINY.bus_bytes
        first = burst.address % bus_bytes
        is_fill = burst.fill if self.family is Load else Const(0)
        m.d.comb += [
            cutter.bursts.valid.eq(self.any(m, "valid")),
            cutter.bursts.payload.eq(self.any(m, "burst", burst.shape())),
            cutter.pieces.ready.eq(self.any(m, "ready")),
        ]
        if self.fault != "any length":
            beats = (first + burst.bytes_minus_one) // bus_bytes
            self.assume(m, is_fill | (beats == burst.beats_minus_one))

        # The definition: a piece ends with its row, its beat or its burst. A fill has no beats.
        at = Cursor(
            local=Signal(len(burst.local) + 1),
            beat_byte=Signal(range(bus_bytes)),
            left=Signal(len(burst.bytes_minus_one)),
            beats_left=Signal.like(burst.beats_minus_one),
        )
        cutting, fill, last = Signal(), Signal(), Signal()
        code = Signal.like(burst.code)
        row_bytes = Signal(range(65))
        sizes = [Const(TINY.row_bytes(memory)) for memory in MEMORIES[self.family]]
        m.d.comb += row_bytes.eq(choose(sizes, code))
        byte = Signal(6)
        m.d.comb += byte.eq(at.local & (row_bytes - 1))
        to_row, to_beat = row_bytes - 1 - byte, bus_bytes - 1 - at.beat_byte
        length = Signal(len(at.left))
        with m.If(fill):
            m.d.comb += length.eq(smallest(at.left, to_row))
        with m.Else():
            m.d.comb += length.eq(smallest(at.left, to_row, to_beat))
        ends_burst = length == at.left
        ends_beat = ends_burst | (~fill & (length == to_beat))

        moves = ~cutter.pieces.valid | cutter.pieces.ready
        expected = {
            "code": code,
            "byte": byte,
            "bytes_minus_one": length,
            "ends_burst": ends_burst,
            "last": last & ends_burst,
        }
        held = {name: Signal(len(piece[name]), name=f"expected_{name}") for name in expected}
        held_row = Signal(len(at.local))
        held_fill, held_ends_beat, held_beat_byte = Signal(), Signal(), Signal.like(at.beat_byte)
        present = Signal()
        with m.If(moves):
            m.d.sync += [present.eq(cutting), held_row.eq(at.local - byte), held_fill.eq(fill)]
            m.d.sync += [held_ends_beat.eq(ends_beat), held_beat_byte.eq(at.beat_byte)]
            m.d.sync += [held[name].eq(value) for name, value in expected.items()]
            m.d.sync += [
                at.local.eq(at.local + length + 1),
                at.beat_byte.eq(at.beat_byte + length + 1),
                at.left.eq(at.left - length - 1),
                at.beats_left.eq(at.beats_left - ends_beat),
            ]
            with m.If(ends_burst):
                m.d.sync += cutting.eq(0)
        with m.If(cutter.bursts.valid & cutter.bursts.ready):
            m.d.sync += [
                cutting.eq(1),
                code.eq(burst.code),
                fill.eq(is_fill),
                last.eq(burst.last),
                at.local.eq(burst.local),
                at.beat_byte.eq(first),
                at.left.eq(burst.bytes_minus_one),
                at.beats_left.eq(burst.beats_minus_one),
            ]
        shown = cutter.pieces.valid
        self.claim(m, shown == present, "a piece stands for what is cut")
        for name, value in held.items():
            self.claim(m, ~shown | (piece[name] == value), f"a piece has its {name}")
        held_bytes = Signal(range(65))
        m.d.comb += held_bytes.eq(choose(sizes, piece.code))
        row = piece.row * held_bytes
        same_row = (row ^ held_row)[: len(burst.local)] == 0
        self.claim(m, ~shown | same_row, "a piece lies in its row")
        beat_claims = (piece.beat_byte == held_beat_byte) & (piece.ends_beat == held_ends_beat)
        self.claim(m, ~shown | held_fill | beat_claims, "a piece lies in its beat")
        ends = cutting & ~fill & moves & ends_burst
        if self.fault == "beats":
            self.claim(m, ~ends | (at.beats_left == 1), "a burst has as many beats as requested")
        self.claim(m, ~ends | (at.beats_left == 0), "a burst has as many beats as requested")
        self.goal(m, shown & piece.last & ~piece.ends_burst | (at.beats_left == 2), "three beats")

        # Why: the cutter's state says the same as the definition's.
        self.claim(m, inside["valid"] == cutting, "both cut, or neither")
        common = (inside["code"] == code) & (inside["last"] == last) & (inside["fill"] == fill)
        common &= (inside["to_burst"] == at.left) & (inside["to_row"] == to_row)
        common &= inside["row_end"] == row_bytes - 1
        self.claim(m, ~cutting | common, "both stand at the same byte")
        rows = inside["row"] * row_bytes
        same = (rows ^ (at.local - byte))[: len(burst.local)] == 0
        self.claim(m, ~cutting | same, "both stand in the same row")
        beat = (inside["to_beat"] == to_beat) & (inside["beat_end"] == bus_bytes - 1)
        self.claim(m, ~cutting | fill | beat, "both stand in the same beat")
        endless = inside["to_beat"].all() & inside["beat_end"].all()
        self.claim(m, ~(cutting & fill) | endless, "a fill has no beats")
        left = (at.beat_byte + at.left) // bus_bytes
        self.claim(m, ~cutting | fill | (at.beats_left == left), "beats left hold the bytes left")


@pytest.mark.parametrize("family", [Load, Store])
def test_pieces_cover_their_burst(prover, family):
    prover.proves(PiecesBench(family), induction())


def test_the_proof_of_pieces_can_fail(prover):
    prover.refutes(PiecesBench(Store, fault="beats"), "as many beats as requested", bounded(6))
    prover.refutes(PiecesBench(Load, fault="any length"), "beats left", bounded(6))
    prover.reaches(PiecesBench(Load), "three beats", bounded(8))
