"""Bursts fall into pieces that cover them exactly, and pieces into as many beats as requested."""

from dataclasses import dataclass

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from tilewright.hardware.beat_packer import BeatPacker
from tilewright.hardware.bursts import burst_layout
from tilewright.hardware.load import DESTINATIONS
from tilewright.hardware.pieces import PieceCutter, begin_cut
from tilewright.hardware.selection import choose
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Load, Store
from tilewright.isa.instructions.store import SOURCES
from tilewright.isa.pipeline import PACKING_CYCLES, QUEUED_BEATS

from .bench import ProofBench, probe
from .prove import bounded, induction
from .watch import flags_follow_level

TINY = PRESETS["tiny"]
MEMORIES = {Load: DESTINATIONS, Store: SOURCES}


def smallest(first: Value, *others: Value) -> Value:
    for other in others:
        first = Mux(first < other, first, other)
    return first


@dataclass
class Cursor:
    """Progress through a burst in plain arithmetic: the definition of what the cutter does."""

    local: Signal
    beat_byte: Signal
    left: Signal
    beats_left: Signal


class PiecesBench(ProofBench):
    """Bursts as `BurstIssuer` is proved to make them, a sink of any speed."""

    def __init__(self, family, fault: str = "") -> None:
        super().__init__()
        self.family, self.fault = family, fault

    def world(self, m: Module) -> None:
        memories = MEMORIES[self.family]
        cutter = PieceCutter(self.family, TINY, memories)
        inside = probe(m, "cutter", cutter)
        layout = burst_layout(self.family, TINY)
        burst, piece = data.View(layout, self.any(m, "burst", layout.size)), cutter.pieces.payload
        bus_bytes = TINY.bus_bytes
        first = burst.address % bus_bytes
        is_fill = burst.fill if self.family is Load else Const(0)
        m.d.comb += [
            cutter.bursts.valid.eq(self.any(m, "valid")),
            *(
                cutter.bursts.payload[name].eq(value)
                for name, value in begin_cut(burst, self.family, TINY, memories).items()
            ),
            cutter.pieces.ready.eq(self.any(m, "ready")),
        ]
        bus_bits, end_bits = (bus_bytes - 1).bit_length(), len(burst.end_byte)
        burst_end = Cat(burst.end_byte, burst.beats_minus_one)
        bytes_minus_one = Signal(len(burst_end))
        m.d.comb += bytes_minus_one.eq(burst_end)
        with m.If(~is_fill):
            m.d.comb += bytes_minus_one.eq(
                Cat(burst.end_byte[:bus_bits], burst.beats_minus_one) - first
            )
        if self.fault != "any length":
            after = (burst.beats_minus_one != 0) | (burst.end_byte >= first)
            self.assume(m, is_fill | (after & (burst.end_byte < bus_bytes)))

        # The definition: a piece ends with its row, its beat or its burst. What a fill has for a
        # beat is as long as the longest row, from its first byte on.
        at = Cursor(
            local=Signal(len(piece.row) + 6),
            beat_byte=Signal.like(piece.bytes_minus_one),
            left=Signal(len(bytes_minus_one)),
            beats_left=Signal.like(burst.beats_minus_one),
        )
        cutting, fill, last = Signal(), Signal(), Signal()
        code = Signal.like(burst.code)
        row_bytes = Signal(range(65))
        sizes = [Const(TINY.row_bytes(memory)) for memory in MEMORIES[self.family]]
        m.d.comb += row_bytes.eq(choose(sizes, code))

        def row_of(code: Value, local: Value) -> Value:
            shifts = [TINY.row_bytes(memory).bit_length() - 1 for memory in MEMORIES[self.family]]
            rows = choose([local >> shift for shift in shifts], code)
            return Value.cast(rows[: len(piece.row)])

        byte = Signal(6)
        m.d.comb += byte.eq(at.local & (row_bytes - 1))
        beat_end = Mux(fill, (1 << len(at.beat_byte)) - 1, bus_bytes - 1)
        to_row, to_beat = row_bytes - 1 - byte, beat_end & ~at.beat_byte
        length = Signal(len(at.left))
        m.d.comb += length.eq(smallest(at.left, to_row, to_beat))
        ends_burst = length == at.left
        ends_beat = ends_burst | (length == to_beat)

        moves = ~cutter.pieces.valid | cutter.pieces.ready
        expected = {
            "code": code,
            "byte": byte,
            "bytes_minus_one": length,
            "ends_beat": ends_beat & ~fill,
            "ends_burst": ends_burst,
            "last": last & ends_burst,
        }
        if self.family is Load:
            constant = Signal(8)
            expected |= {"fill": fill, "value": constant}
            with m.If(cutter.bursts.valid & cutter.bursts.ready):
                m.d.sync += constant.eq(burst.value)
        held = {name: Signal(len(piece[name]), name=f"expected_{name}") for name in expected}
        held_local = Signal.like(at.local)
        held_fill, held_beat_byte = Signal(), Signal.like(at.beat_byte)
        present = Signal()
        with m.If(moves):
            m.d.sync += [present.eq(cutting), held_local.eq(at.local), held_fill.eq(fill)]
            m.d.sync += held_beat_byte.eq(at.beat_byte)
            m.d.sync += [held[name].eq(value) for name, value in expected.items()]
            m.d.sync += [
                at.local.eq(at.local + length + 1),
                at.beat_byte.eq((at.beat_byte + length + 1) & beat_end),
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
                at.beat_byte.eq(Mux(is_fill, 0, first)),
                at.left.eq(bytes_minus_one),
                at.beats_left.eq(burst.beats_minus_one),
            ]
        shown = cutter.pieces.valid
        self.claim(m, shown == present, "a piece stands for what is cut")
        for name, value in held.items():
            self.claim(m, ~shown | (piece[name] == value), f"a piece has its {name}")
        same_row = piece.row == row_of(piece.code, held_local)
        self.claim(m, ~shown | same_row, "a piece lies in its row")
        same_byte = piece.beat_byte == held_beat_byte
        self.claim(m, ~shown | held_fill | same_byte, "a piece lies in its beat")
        ends = cutting & ~fill & moves & ends_burst
        if self.fault == "beats":
            self.claim(m, ~ends | (at.beats_left == 1), "a burst has as many beats as requested")
        self.claim(m, ~ends | (at.beats_left == 0), "a burst has as many beats as requested")
        self.goal(m, shown & piece.last & ~piece.ends_burst | (at.beats_left == 2), "three beats")

        # Why: the cutter's state says the same as the definition's.
        self.claim(m, inside["valid"] == cutting, "both cut, or neither")
        common = (
            (inside["code"] == code)
            & (inside["last"] == last)
            & (inside.get("fill", Const(0)) == fill)
        )
        common &= (inside["to_row"] == to_row) & (inside["row_end"] == row_bytes - 1)
        if self.family is Load:
            common &= inside["value"] == constant
        self.claim(m, ~cutting | common, "both stand at the same byte")
        same = inside["row"] == row_of(code, at.local)
        self.claim(m, ~cutting | same, "both stand in the same row")
        beat = (inside["to_beat"] == smallest(to_beat, at.left)) & (inside["beat_end"] == beat_end)
        beat &= fill | (inside["beat_byte"] == at.beat_byte)
        self.claim(m, ~cutting | beat, "both stand in the same beat")
        self.claim(m, ~cutting | (at.beat_byte <= beat_end), "no byte lies beyond its beat")
        left = inside["beats_left"]
        same = (left == at.beats_left) & (inside["final"] == (left == 0))
        self.claim(m, ~cutting | same, "both count the beats")
        end = at.beat_byte + at.left
        in_beats = Mux(fill, end >> end_bits, end >> bus_bits) == left
        ends = inside["final"] | (inside["end_byte"] == end & beat_end)
        self.claim(m, ~cutting | (in_beats & ends), "beats left hold the bytes left")


@pytest.mark.slow
@pytest.mark.parametrize("family", [Load, Store])
def test_pieces_cover_their_burst(prover, family):
    prover.proves(PiecesBench(family), induction())


@pytest.mark.slow
def test_the_proof_of_pieces_can_fail(prover):
    prover.refutes(PiecesBench(Store, fault="beats"), "as many beats as requested", bounded(6))
    prover.refutes(PiecesBench(Load, fault="any length"), "beat", bounded(6))
    prover.reaches(PiecesBench(Load), "three beats", bounded(8))


class PackerBench(ProofBench):
    """Pieces inside their beats, scratchpads with any data, a port of any speed."""

    def world(self, m: Module) -> None:
        packer = BeatPacker(TINY)
        inside = probe(m, "packer", packer)
        piece = packer.pieces.payload
        bus_bytes = TINY.bus_bytes
        m.d.comb += [
            packer.pieces.valid.eq(self.any(m, "valid")),
            packer.pieces.payload.eq(self.any(m, "piece", piece.shape())),
            packer.act.data.eq(self.any(m, "act", len(packer.act.data))),
            packer.acc.data.eq(self.any(m, "acc", len(packer.acc.data))),
            packer.beats.ready.eq(self.any(m, "ready")),
        ]
        end = piece.beat_byte + piece.bytes_minus_one
        self.assume(m, end < bus_bytes)
        self.assume(m, ~piece.ends_burst | piece.ends_beat)
        self.assume(m, ~piece.ends_beat | packer.pieces.valid)

        takes = packer.pieces.valid & packer.pieces.ready
        mask = Cat((piece.beat_byte <= byte) & (end >= byte) for byte in range(bus_bytes))
        leaves = packer.beats.valid & packer.beats.ready

        # At the end stand the queue, which is proved elsewhere, and in front of it a delay.
        travels = Cat(takes & piece.ends_beat, takes, piece.ends_burst, mask)
        travelling = Const(0)
        for stage in range(PACKING_CYCLES - 1):
            later = Signal(len(travels), name=f"piece_after_{stage + 1}")
            m.d.sync += later.eq(travels)
            travels = later
            travelling = travelling + later[0]
        ends_beat, arrives, ends_burst, bytes_of_piece = *travels[:3], travels[3:]
        strobes = Signal(bus_bytes)
        covered = strobes | bytes_of_piece
        with m.If(arrives):
            m.d.sync += strobes.eq(Mux(ends_beat, 0, covered))
        layout = data.StructLayout({"strobe": bus_bytes, "last": 1})
        beat = data.View(layout, inside["input__payload"])
        enters = inside["input__valid"]
        self.claim(m, enters == ends_beat, "a beat follows the piece that ends it")
        right = (beat.last == ends_burst) & (beat.strobe == covered)
        self.claim(m, ~enters | right, "a beat has the strobes of its pieces")
        self.claim(m, inside["merged_strobe"] == strobes, "both merge the same pieces")
        reserved = Signal(range(QUEUED_BEATS + 2))
        m.d.sync += reserved.eq(reserved + (takes & piece.ends_beat) - leaves)
        level = inside["queue.level"]
        flags_follow_level(self, m, inside, "queue", QUEUED_BEATS)
        self.claim(m, level + travelling == reserved, "beats inside have a place")
        held = reserved + inside["returned"]
        self.claim(m, inside["slots"] + held == QUEUED_BEATS, "places are counted")
        self.claim(m, inside["free"] == (inside["slots"] != 0), "a place is free")
        self.claim(m, reserved <= QUEUED_BEATS, "no more beats than places")
        self.goal(m, level == QUEUED_BEATS, "as many beats as there is room for")


@pytest.mark.slow
def test_every_beat_has_the_strobes_of_its_pieces(prover):
    prover.proves(PackerBench(), induction(PACKING_CYCLES))
    prover.reaches(PackerBench(), "as many beats as there is room for", bounded(18))
