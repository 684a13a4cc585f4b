"""The read path follows AXI's rules and returns every beat to the client that asked for it."""

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal

from tilewright.hardware.axi import BURST_INCR
from tilewright.hardware.read_arbiter import ReadArbiter
from tilewright.hardware.read_buffer import ReadBuffer
from tilewright.isa.configuration import PRESETS
from tilewright.isa.pipeline import FETCH_BURSTS, READ_BUFFER_BEATS, REQUEST_REGISTERS

from .bench import ProofBench
from .watch import stays, watch_order

TINY = PRESETS["tiny"]
LOAD_BURSTS = TINY.outstanding_bursts
ALL_BURSTS = LOAD_BURSTS + FETCH_BURSTS


class ArbiterBench(ProofBench):
    """Two clients that respect their limits of bursts, and a memory of any speed."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def world(self, m: Module) -> None:
        m.submodules.arbiter = arbiter = ReadArbiter(TINY)
        memory = arbiter.memory
        clients = {
            "load": (arbiter.load_requests, arbiter.load_beats, LOAD_BURSTS),
            "fetch": (arbiter.fetch_requests, arbiter.fetch_beats, FETCH_BURSTS),
        }
        accepted, received = {}, {}
        for name, (requests, beats, most) in clients.items():
            limit = most + (1 if self.fault == "greedy" else 0)
            open_bursts = Signal(range(limit + 2), name=f"{name}_open")
            accepted[name] = requests.valid & requests.ready
            received[name] = beats.valid & beats.ready
            ends = received[name] & beats.payload.last
            m.d.comb += [
                requests.valid.eq(self.any(m, f"{name}_asks") & (open_bursts < limit)),
                requests.payload.eq(self.any(m, f"{name}_request", requests.payload.shape())),
                beats.ready.eq(self.any(m, f"{name}_ready")),
            ]
            m.d.sync += open_bursts.eq(open_bursts + accepted[name] - ends)

        # Memory answers what it was asked, and no more.
        asked = memory.arvalid & memory.arready
        answered = memory.rvalid & memory.rready & memory.rlast
        unanswered = Signal(range(ALL_BURSTS + 3))
        m.d.sync += unanswered.eq(unanswered + asked - answered)
        m.d.comb += [
            memory.arready.eq(self.any(m, "arready")),
            memory.rvalid.eq(self.any(m, "rvalid") & (unanswered != 0)),
            memory.rlast.eq(self.any(m, "rlast")),
            memory.rdata.eq(self.any(m, "rdata", TINY.bus_bits)),
            memory.rresp.eq(self.any(m, "rresp", 2)),
        ]

        address = Cat(memory.araddr, memory.arlen, memory.arsize, memory.arburst)
        stays(self, m, "read address", memory.arvalid, memory.arready, address)
        self.claim(m, ~memory.arvalid | (memory.arburst == BURST_INCR), "all bursts are INCR")
        whole = memory.arsize == (TINY.bus_bytes - 1).bit_length()
        self.claim(m, ~memory.arvalid | whole, "all beats are whole")
        self.claim(m, ~(accepted["load"] & accepted["fetch"]), "one request at a time")
        entering = Mux(
            accepted["fetch"],
            arbiter.fetch_requests.payload.as_value(),
            arbiter.load_requests.payload.as_value(),
        )
        beat_bits = (TINY.bus_bytes - 1).bit_length()
        watch_order(
            self,
            m,
            "request",
            accepted["load"] | accepted["fetch"],
            Cat(entering[beat_bits : TINY.address_bits], entering[TINY.address_bits :]),
            asked,
            Cat(memory.araddr[beat_bits:], memory.arlen),
            REQUEST_REGISTERS,
        )
        self.claim(m, memory.araddr[:beat_bits] == 0, "addresses are of whole beats")

        # Bursts come back in the order of requests, all beats of one to the same client.
        passes = memory.rvalid & memory.rready
        owner = received["fetch"] if self.fault != "owner" else received["load"]
        watch_order(
            self,
            m,
            "burst",
            accepted["load"] | accepted["fetch"],
            accepted["fetch"],
            answered,
            owner,
            ALL_BURSTS,
        )
        inside, first = Signal(), Signal()
        with m.If(passes):
            m.d.sync += [inside.eq(~memory.rlast), first.eq(received["fetch"])]
        same = received["fetch"] == first
        self.claim(m, ~(passes & inside) | same, "the beats of a burst go to one client")
        one = received["load"] ^ received["fetch"]
        self.claim(m, passes == one, "a beat goes to one client exactly")
        for name, (_, beats, _) in clients.items():
            right = (beats.payload.data == memory.rdata) & (beats.payload.last == memory.rlast)
            right &= beats.payload.failed == (memory.rresp != 0)
            self.claim(m, ~beats.valid | right, f"{name}: a beat is what memory sent")
        self.goal(m, unanswered == ALL_BURSTS, "all bursts in flight")


@pytest.mark.slow
def test_requests_and_beats_find_their_way(prover):
    prover.proves(ArbiterBench())


@pytest.mark.slow
def test_the_proof_of_the_arbiter_can_fail(prover):
    prover.refutes(ArbiterBench(fault="greedy"), "burst")
    prover.refutes(ArbiterBench(fault="owner"), "burst: what leaves is what entered")
    prover.reaches(ArbiterBench(), "all bursts in flight")


class ReadBufferBench(ProofBench):
    """A master inside and a memory outside that may do anything."""

    def world(self, m: Module) -> None:
        m.submodules.buffer = buffer = ReadBuffer(TINY)
        core, memory = buffer.core, buffer.memory
        beat = ("data", "resp", "last")
        m.d.comb += [
            *(
                getattr(core, f"ar{name}").eq(
                    self.any(m, f"ar{name}", len(getattr(core, f"ar{name}")))
                )
                for name in ("addr", "len", "size", "burst", "valid")
            ),
            *(
                getattr(memory, f"r{name}").eq(
                    self.any(m, f"r{name}", len(getattr(memory, f"r{name}")))
                )
                for name in (*beat, "valid")
            ),
            memory.arready.eq(self.any(m, "arready")),
            core.rready.eq(self.any(m, "rready")),
        ]
        for name in ("addr", "len", "size", "burst", "valid"):
            same = getattr(core, f"ar{name}") == getattr(memory, f"ar{name}")
            self.claim(m, same, f"requests pass: {name}")
        self.claim(m, core.arready == memory.arready, "requests pass: ready")
        inside = watch_order(
            self,
            m,
            "beat",
            memory.rvalid & memory.rready,
            Cat(getattr(memory, f"r{name}") for name in beat),
            core.rvalid & core.rready,
            Cat(getattr(core, f"r{name}") for name in beat),
            READ_BUFFER_BEATS,
        )
        kept = Cat(getattr(core, f"r{name}") for name in beat)
        stays(self, m, "beat for the core", core.rvalid, core.rready, kept)
        self.goal(m, inside == READ_BUFFER_BEATS, "two beats inside")


@pytest.mark.slow
def test_the_read_buffer_passes_every_beat(prover):
    prover.proves(ReadBufferBench())
    prover.reaches(ReadBufferBench(), "two beats inside")
