"""Queues, counters and gates lose nothing, invent nothing and keep the order, for ever."""

import pytest
from amaranth.hdl import Module, Signal

from tilewright.hardware.in_flight import InFlight
from tilewright.hardware.queue import Queue

from .bench import ProofBench
from .watch import watch_order

PAYLOAD_BITS = 2
"""Queues never inspect payloads, so two bits stand for any width."""


class QueueBench(ProofBench):
    """A queue between an arbitrary source and an arbitrary sink."""

    def __init__(self, depth: int, buffered: bool, fault: str = "") -> None:
        super().__init__()
        self.depth, self.buffered, self.fault = depth, buffered, fault

    def world(self, m: Module) -> None:
        m.submodules.queue = queue = Queue(PAYLOAD_BITS, self.depth, buffered=self.buffered)
        m.d.comb += [
            queue.input.valid.eq(self.any(m, "valid")),
            queue.input.payload.eq(self.any(m, "payload", PAYLOAD_BITS)),
            queue.output.ready.eq(self.any(m, "ready")),
        ]
        enters = queue.input.valid & queue.input.ready
        leaves = queue.output.valid & queue.output.ready
        leaving = queue.output.payload
        if self.fault == "swap":
            leaving = leaving[::-1]
        if self.fault == "drop":
            leaves = leaves & ~self.any(m, "drops")
        inside = watch_order(
            self, m, "payload", enters, queue.input.payload, leaves, leaving, self.depth
        )
        # A buffered payload takes two cycles from one end to the other, all others one.
        waits = Signal(range(3))
        m.d.sync += waits.eq(0)
        with m.If((inside != 0) & ~queue.output.valid):
            m.d.sync += waits.eq(waits + 1)
        self.claim(m, waits < 2, "what is inside comes out")
        self.claim(m, queue.level == inside, "the level counts what is inside")
        # Of two places that are buffered, one is the output: a payload moves there in a cycle.
        late = Signal()
        m.d.sync += late.eq(~queue.input.ready & (self.depth == 2) & self.buffered)
        room = inside != self.depth
        self.claim(
            m,
            queue.input.ready == room
            if not self.buffered
            else (queue.input.ready | ~room | (self.depth == 2)) & (room | ~queue.input.ready),
            "room is used",
        )
        self.goal(m, inside == self.depth, "full")


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_queue_hands_out_what_it_took_in_order(prover, depth, buffered):
    prover.proves(QueueBench(depth, buffered))


@pytest.mark.slow
def test_the_proof_of_queues_can_fail(prover):
    prover.refutes(QueueBench(2, False, fault="swap"), "what leaves is what entered")
    prover.refutes(QueueBench(2, True, fault="drop"), "")
    prover.reaches(QueueBench(4, True), "full")


class InFlightBench(ProofBench):
    """Commands that enter while there is room and complete after they entered."""

    def __init__(self, limit: int, careless: bool = False) -> None:
        super().__init__()
        self.limit, self.careless = limit, careless

    def world(self, m: Module) -> None:
        m.submodules.block = block = InFlight(self.limit)
        retires = block.retired.valid & block.retired.ready
        inside = Signal(range(self.limit + 2))
        complete = Signal(range(self.limit + 2))
        accepted = Signal()
        m.d.sync += [
            accepted.eq(block.accept),
            inside.eq(inside + block.accept - retires),
            complete.eq(complete + block.complete - retires),
        ]
        m.d.comb += [
            block.accept.eq(self.any(m, "accepts") & ~accepted & (block.room | self.careless)),
            block.complete.eq(self.any(m, "completes") & (complete != inside)),
            block.freeze.eq(self.any(m, "freezes")),
            block.retired.ready.eq(self.any(m, "ready")),
        ]
        self.claim(m, inside <= self.limit, "no more commands than the limit")
        self.claim(m, block.active == (inside != 0), "active while a command is inside")
        frozen = Signal()
        m.d.sync += frozen.eq(block.freeze)
        self.claim(
            m,
            block.retired.valid == ((complete != 0) & ~frozen),
            "a complete command retires, and no other",
        )
        self.goal(m, complete == self.limit, "all commands complete and none retired")


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_every_command_in_flight_retires_once(prover, limit):
    prover.proves(InFlightBench(limit))


@pytest.mark.slow
def test_the_proof_of_commands_in_flight_can_fail(prover):
    prover.refutes(InFlightBench(2, careless=True), "the limit")
    prover.reaches(InFlightBench(2), "none retired")
