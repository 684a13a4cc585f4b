"""No damaged frame is accepted, each flag begins anew, and memory requests keep their promises."""

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal, Value

from tilewright.hardware.soc.executor import CommandExecutor
from tilewright.hardware.soc.frame_receiver import FrameReceiver
from tilewright.isa.configuration import PRESETS
from tilewright.isa.link import (
    CHECK_BYTES,
    CHECK_INITIAL,
    CHECK_POLYNOMIAL,
    CHECK_RESIDUE,
    ESCAPE,
    ESCAPE_FLIP,
    FLAG,
    REQUEST,
)

from .bench import ProofBench, probe
from .prove import bounded, induction
from .watch import stays

PAYLOAD_BYTES, MEMORY_BYTES = 4, 4096
"""A payload of a word, which no rule depends on."""


def bit_by_bit(check: Value, byte: Value) -> Value:
    """The check after one more byte, as IEEE 802.3 defines it: a shift for each bit."""
    for bit in range(8):
        feedback = check[0] ^ byte[bit]
        check = (check >> 1) ^ Mux(feedback, CHECK_POLYNOMIAL, 0)
    return check


class ReceiverBench(ProofBench):
    """Any bytes, and a reader that takes requests at any time.

    Beside the block, a definition of the link counts and checks the bytes since the last flag.
    """

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def world(self, m: Module) -> None:
        block = FrameReceiver(4, PAYLOAD_BYTES)
        inside = probe(m, "block", block)
        byte = self.any(m, "byte", 8)
        m.d.comb += [
            block.bytes.valid.eq(self.any(m, "valid")),
            block.bytes.payload.eq(byte),
            block.requests.ready.eq(self.any(m, "ready")),
            block.read_enable.eq(self.any(m, "reads")),
        ]
        taken = block.bytes.valid & block.bytes.ready
        longest = REQUEST.size + PAYLOAD_BYTES + CHECK_BYTES
        check = Signal(32, init=CHECK_INITIAL)
        count = Signal(range(longest + 2))
        escaped = Signal()
        ends = taken & (byte == FLAG)
        if self.fault == "forgets":
            ends = ends & ~escaped
        with m.If(ends):
            m.d.sync += [check.eq(CHECK_INITIAL), count.eq(0), escaped.eq(0)]
        with m.Elif(taken & (byte == ESCAPE)):
            m.d.sync += escaped.eq(1)
        with m.Elif(taken):
            plain = byte ^ Mux(escaped, ESCAPE_FLIP, 0)
            m.d.sync += [
                check.eq(bit_by_bit(check, plain)),
                count.eq(Mux(count > longest, count, count + 1)),
                escaped.eq(0),
            ]
        right = (check == CHECK_RESIDUE) & ~escaped & (count <= longest)
        right &= count >= REQUEST.size + CHECK_BYTES
        if self.fault == "trusts":
            right = ~escaped
        accepts, length, offered = Signal(), Signal(range(longest + 2)), Signal()
        m.d.sync += [accepts.eq(ends & right), offered.eq(block.requests.valid)]
        m.d.sync += length.eq(count - REQUEST.size - CHECK_BYTES)
        begins = block.requests.valid & ~offered
        self.claim(
            m, begins == accepts, "a request begins when a whole frame has ended, and only then"
        )
        self.claim(m, ~begins | (block.payload_bytes == length), "its payload has its length")
        same = (inside["check"] == check) & (inside["count"] == count)
        same &= inside["escaped"] == escaped
        self.claim(m, same, "the receiver knows the bytes since the last flag, and no others")
        self.claim(m, ~offered | ~accepts, "no frame ends while a request is offered")
        head = block.requests.payload.as_value()
        stays(self, m, "request", block.requests.valid, block.requests.ready, head)
        self.goal(m, count == 3, "a frame begins")


@pytest.mark.slow
def test_a_frame_is_accepted_if_and_only_if_its_check_is_right(prover):
    prover.proves(ReceiverBench(), induction(2))


@pytest.mark.slow
def test_the_proof_of_frames_can_fail(prover):
    prover.refutes(ReceiverBench("trusts"), "a request begins", bounded(4))
    prover.refutes(ReceiverBench("forgets"), "since the last flag", bounded(4))
    prover.reaches(ReceiverBench(), "a frame begins", bounded(6))


class ExecutorBench(ProofBench):
    """Any requests, and a memory and registers that answer at any time, what was asked alone.

    `prompt`: everything answers in the next cycle, and the sender takes a byte in each.
    """

    SLOWEST_CYCLES = 30

    def __init__(self, *, prompt: bool = False, fault: str = "") -> None:
        super().__init__()
        self.prompt, self.fault = prompt, fault

    def may(self, m: Module, name: str) -> Value:
        return Signal(name=name, init=1) if self.prompt else self.any(m, name)

    def world(self, m: Module) -> None:
        board = {"MEMORY_BYTES": MEMORY_BYTES, "MEMORY_LATENCY": 1, "CLOCK_HZ": 1}
        m.submodules.block = block = CommandExecutor(PRESETS["tiny"], board, PAYLOAD_BYTES)
        requests, body = block.requests, block.body
        head = self.any(m, "head", len(requests.payload.as_value()))
        offers, was_offered = self.any(m, "offers"), Signal()
        held = Signal.like(head)
        m.d.comb += [
            requests.valid.eq(offers | was_offered),
            requests.payload.eq(Mux(was_offered, held, head)),
            block.payload_bytes.eq(PAYLOAD_BYTES),
            block.payload.eq(self.any(m, "payload", 32) if self.fault == "drifts" else 0x1234),
            body.ready.eq(self.may(m, "sends")),
        ]
        m.d.sync += [
            was_offered.eq(requests.valid & ~requests.ready),
            held.eq(requests.payload.as_value()),
        ]
        self._surroundings(m, block)
        read, write, registers = block.read, block.write, block.registers
        for name, valid, ready, payload in (
            ("AR", read.arvalid, read.arready, read.araddr),
            ("AW", write.awvalid, write.awready, write.awaddr),
            ("W", write.wvalid, write.wready, Cat(write.wdata, write.wstrb, write.wlast)),
            ("register AR", registers.arvalid, registers.arready, registers.araddr),
            ("register AW", registers.awvalid, registers.awready, registers.awaddr),
            ("register W", registers.wvalid, registers.wready, registers.wdata),
            ("answer", body.valid, body.ready, body.payload.as_value()),
        ):
            stays(self, m, name, valid, ready, payload)
        within = requests.payload.address + requests.payload.length <= MEMORY_BYTES
        self.claim(m, ~(read.arvalid | write.awvalid) | within, "no access leaves the memory")
        some = write.wstrb.any() | ~write.wvalid
        self.claim(m, some, "every beat writes a byte")
        if self.prompt:
            age = Signal(range(self.SLOWEST_CYCLES + 2))
            m.d.sync += age.eq(Mux(block.busy & ~requests.ready, age + 1, 0))
            most = 9 if self.fault == "sooner" else self.SLOWEST_CYCLES
            self.claim(m, age <= most, "the executor waits for the next request again")
        self.goal(m, requests.ready & (requests.payload.command == 2), "a write is answered")

    def _surroundings(self, m: Module, block) -> None:
        """Answer reads and writes that were requested, in any later cycle."""
        for name, port, address, others, answer in (
            ("reads", block.read, "ar", (), "r"),
            ("writes", block.write, "aw", ("w",), "b"),
            ("register_reads", block.registers, "ar", (), "r"),
            ("register_writes", block.registers, "aw", ("w",), "b"),
        ):
            open_parts = []
            for channel in (address, *others):
                waiting = Signal(range(4), name=f"{name}_{channel}_open")
                ready = getattr(port, f"{channel}ready")
                m.d.comb += ready.eq(self.may(m, f"{name}_{channel}_ready"))
                passes = getattr(port, f"{channel}valid") & ready
                taken = getattr(port, f"{answer}valid") & getattr(port, f"{answer}ready")
                m.d.sync += waiting.eq(waiting + passes - taken)
                open_parts.append(waiting)
                self.claim(m, waiting <= 2, f"{name}: few are open")
            offered, kept = Signal(name=f"{name}_offered"), Signal(name=f"{name}_kept")
            there = Cat(part != 0 for part in open_parts).all()
            m.d.comb += offered.eq(there & (self.may(m, f"{name}_answer") | kept))
            m.d.sync += kept.eq(offered & ~getattr(port, f"{answer}ready"))
            m.d.comb += getattr(port, f"{answer}valid").eq(offered)


def test_accesses_obey_the_handshake_and_stay_inside(prover):
    prover.proves(ExecutorBench())


def test_every_request_ends_if_its_accesses_do(prover):
    prover.proves(ExecutorBench(prompt=True))


@pytest.mark.slow
def test_the_proof_of_accesses_can_fail(prover):
    prover.refutes(ExecutorBench(fault="drifts"), "W: what is offered does not change", bounded(20))
    prover.refutes(ExecutorBench(prompt=True, fault="sooner"), "waits for the next", bounded(20))
    prover.reaches(ExecutorBench(), "a write is answered", bounded(20))
