"""LOAD and STORE as a whole follow AXI's rules and respect their limits, for any commands."""

from dataclasses import replace

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data

from tilewright.hardware.axi import BURST_INCR
from tilewright.hardware.load import DESTINATIONS, LoadUnit
from tilewright.hardware.pieces import piece_layout
from tilewright.hardware.queue import Queue
from tilewright.hardware.store import StoreUnit
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Load
from tilewright.isa.registers import Error

from .bench import ProofBench, probe
from .prove import unrolled
from .watch import stays, watch_order

SMALL = replace(PRESETS["tiny"], name="one loop", dma_loops=1, extent_bits=4)
LIMIT = SMALL.outstanding_bursts


class StoreBench(ProofBench):
    """Any commands, scratchpads with any data, a memory of any speed, a host that may stop."""

    def __init__(self, lengths: bool = False, hasty: bool = False) -> None:
        super().__init__()
        self.lengths, self.hasty = lengths, hasty

    def world(self, m: Module) -> None:
        store = StoreUnit(SMALL)
        inside = probe(m, "store", store)
        port = store.memory
        commands = store.commands
        m.d.comb += [
            commands.valid.eq(self.any(m, "valid")),
            commands.payload.eq(self.any(m, "command", commands.payload.shape())),
            store.retired.ready.eq(self.any(m, "retires")),
            store.act.data.eq(self.any(m, "act", len(store.act.data))),
            store.acc.data.eq(self.any(m, "acc", len(store.acc.data))),
            store.data_base.eq(self.some(m, "data_base", SMALL.address_bits)),
            store.data_bytes.eq(self.some(m, "data_bytes", 32)),
            store.stop.eq(self.any(m, "stop")),
            port.awready.eq(self.any(m, "awready")),
            port.wready.eq(self.any(m, "wready")),
            port.bresp.eq(self.any(m, "bresp", 2)),
        ]
        addressed = port.awvalid & port.awready
        sent = port.wvalid & port.wready & port.wlast
        answered = port.bvalid & port.bready
        # Memory answers a burst whose address and whose last beat it has.
        addresses, bursts = (Signal(range(2 * LIMIT + 4), name=n) for n in ("addresses", "bursts"))
        m.d.sync += [
            addresses.eq(addresses + addressed - answered),
            bursts.eq(bursts + sent - answered),
        ]
        may_answer = (addresses != 0) & (bursts != 0)
        m.d.comb += port.bvalid.eq(self.any(m, "bvalid") & (may_answer | self.hasty))

        request = Cat(port.awaddr, port.awlen, port.awsize, port.awburst)
        stays(self, m, "write address", port.awvalid, port.awready, request)
        beat = Cat(port.wdata, port.wstrb, port.wlast)
        stays(self, m, "write beat", port.wvalid, port.wready, beat)
        self.claim(m, ~port.awvalid | (port.awburst == BURST_INCR), "all bursts are INCR")
        beat_bits = (SMALL.bus_bytes - 1).bit_length()
        self.claim(m, port.awsize == beat_bits, "all beats are whole")
        self.claim(m, port.awaddr[:beat_bits] == 0, "addresses are of whole beats")
        halted = store.stop | (store.error != Error.NONE)
        self.claim(m, inside["failed"] == (store.error != Error.NONE), "an error is a failure")
        was_halted, quiet = Signal(), Signal()
        m.d.sync += [
            was_halted.eq(halted),
            quiet.eq(was_halted & (~port.awvalid | port.awready)),
        ]
        self.claim(m, ~quiet | ~port.awvalid, "after a stop or an error it asks for nothing more")
        # Between the packer, which `test_pieces` is about, and the port no beat is lost.
        packed = inside["packer.beats__valid"] & inside["beats__ready"]
        last = inside["packer.beats__payload"][-1]
        taken = port.wvalid & port.wready
        watch_order(self, m, "write beat", packed, last, taken, port.wlast, 1)
        unanswered = inside["unanswered.level"]
        waiting = addresses + port.awvalid
        self.claim(m, unanswered == waiting, "each request waits for a response of its own")
        self.claim(m, unanswered <= LIMIT, "no more bursts in flight than agreed")
        if self.lengths:
            self.watch_lengths(m, port)
        self.goal(m, sent, "a burst is written")

    def watch_lengths(self, m: Module, port) -> None:
        """Claim that a burst has the beats that its address announced; any burst is watched."""
        held = Signal()
        offers = port.awvalid & ~held
        beat = port.wvalid & port.wready
        ahead, behind = Signal(range(2 * LIMIT + 4)), Signal(range(2 * LIMIT + 4))
        watching, length = Signal(), Signal.like(port.awlen)
        index = Signal.like(port.awlen)
        ends = beat & port.wlast
        m.d.sync += [held.eq(port.awvalid & ~port.awready), ahead.eq(ahead + offers - ends)]
        with m.If(beat):
            m.d.sync += index.eq(Mux(port.wlast, 0, index + 1))
        with m.If(~watching & self.any(m, "picks") & offers):
            m.d.sync += [watching.eq(1), length.eq(port.awlen), behind.eq(ahead - ends)]
        with m.Elif(watching & ends & (behind != 0)):
            m.d.sync += behind.eq(behind - 1)
        with m.Elif(watching & ends):
            m.d.sync += watching.eq(0)
        self.claim(m, ~port.wvalid | (ahead != 0), "no beat precedes its address")
        watched = watching & beat & (behind == 0)
        right = port.wlast == (index == length)
        self.claim(m, ~watched | right, "the last beat is the one that the address announced")


@pytest.mark.slow
def test_store_keeps_the_rules_of_its_port(prover):
    prover.proves(StoreBench())


@pytest.mark.slow
def test_bursts_of_store_have_the_beats_that_their_address_announced(prover):
    prover.proves(StoreBench(lengths=True), unrolled(18))


@pytest.mark.slow
def test_the_proof_of_store_can_fail(prover):
    prover.refutes(StoreBench(hasty=True), "each request waits for a response of its own")
    prover.reaches(StoreBench(), "a burst is written")


class LoadBench(ProofBench):
    """Any commands and data, a memory of any speed, a host that may stop.

    With `lengths`, memory counts the beats of each request itself. Otherwise a burst ends where
    LOAD expects it, which `test_pieces` proves to be the same.
    """

    def __init__(self, lengths: bool = False, greedy: bool = False) -> None:
        super().__init__()
        self.lengths, self.greedy = lengths, greedy

    def world(self, m: Module) -> None:
        load = LoadUnit(SMALL)
        inside = probe(m, "load", load)
        commands, requests, beats = load.commands, load.requests, load.beats
        m.d.comb += [
            commands.valid.eq(self.any(m, "valid")),
            commands.payload.eq(self.any(m, "command", commands.payload.shape())),
            load.retired.ready.eq(self.any(m, "retires")),
            load.data_base.eq(self.some(m, "data_base", SMALL.address_bits)),
            load.data_bytes.eq(self.some(m, "data_bytes", 32)),
            load.stop.eq(self.any(m, "stop")),
            requests.ready.eq(self.any(m, "request_taken")),
            beats.payload.data.eq(self.any(m, "data", SMALL.bus_bits)),
            beats.payload.failed.eq(self.any(m, "failed")),
        ]
        requested = requests.valid & requests.ready
        arrives = beats.valid & beats.ready
        ended = arrives & beats.payload.last
        open_bursts = Signal(range(2 * LIMIT + 2))
        m.d.sync += open_bursts.eq(open_bursts + requested - ended)
        m.d.comb += beats.valid.eq(self.any(m, "answers") & (open_bursts != 0))
        if self.lengths:
            m.submodules.asked = asked = Queue(len(requests.payload.beats_minus_one), LIMIT)
            sent = Signal.like(requests.payload.beats_minus_one)
            m.d.comb += [
                asked.input.valid.eq(requested),
                asked.input.payload.eq(requests.payload.beats_minus_one),
                asked.output.ready.eq(ended),
                beats.payload.last.eq(sent == asked.output.payload),
            ]
            with m.If(arrives):
                m.d.sync += sent.eq(Mux(beats.payload.last, 0, sent + 1))
        else:
            layout = piece_layout(Load, SMALL, DESTINATIONS)
            piece = data.View(layout, inside["cutter.pieces__payload"])
            m.d.comb += beats.payload.last.eq(piece.ends_burst)

        halted = load.stop | (load.error != Error.NONE)
        self.claim(m, inside["failed"] == (load.error != Error.NONE), "an error is a failure")
        was_halted = Signal()
        m.d.sync += was_halted.eq(halted)
        self.claim(m, ~was_halted | ~requests.valid, "after a stop or an error it asks for nothing")
        self.claim(m, ~was_halted | ~load.retired.valid, "after a stop or an error nothing retires")
        limit = LIMIT - (1 if self.greedy else 0)
        self.claim(m, open_bursts <= limit, "no more bursts in flight than agreed")
        expected = inside["expected.level"]
        self.claim(m, expected <= LIMIT, "every burst is remembered")
        self.goal(m, arrives & beats.payload.last, "a burst arrives")


@pytest.mark.slow
def test_load_keeps_its_limits(prover):
    prover.proves(LoadBench())


@pytest.mark.slow
def test_bursts_of_load_have_the_beats_that_were_requested(prover):
    prover.proves(LoadBench(lengths=True), unrolled(12))


@pytest.mark.slow
def test_the_proof_of_load_can_fail(prover):
    prover.refutes(LoadBench(greedy=True), "no more bursts in flight than agreed")
    prover.reaches(LoadBench(lengths=True), "a burst arrives")
