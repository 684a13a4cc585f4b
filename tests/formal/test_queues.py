"""Queues, counters and gates lose nothing, invent nothing and keep the order, for ever."""

import pytest
from amaranth.hdl import Module, Signal

from tilewright.hardware.in_flight import InFlight
from tilewright.hardware.queue import PausingQueue, Queue

from .bench import ProofBench
from .watch import watch_order

PAYLOAD_BITS = 2
"""Queues never inspect payloads, so two bits stand for any width."""


class QueueBench(ProofBench):
    """A queue between an arbitrary source and an arbitrary sink."""

    def __init__(self, depth: int, buffered: bool, pauses: bool = False, fault: str = "") -> None:
        super().__init__()
        self.depth, self.buffered, self.pauses, self.fault = depth, buffered, pauses, fault

    def world(self, m: Module) -> None:
        if self.pauses:
            queue = PausingQueue(PAYLOAD_BITS, self.depth)
        else:
            queue = Queue(PAYLOAD_BITS, self.depth, buffered=self.buffered)
        m.submodules.queue = queue
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
        # A buffered payload takes two cycles from one end to the other, all others one; a pause is
        # another one.
        left = Signal()
        m.d.sync += left.eq(leaves)
        waits = Signal(range(4))
        m.d.sync += waits.eq(0)
        with m.If((inside != 0) & ~queue.output.valid):
            m.d.sync += waits.eq(waits + 1)
        self.claim(m, waits < 2 + self.pauses, "what is inside comes out")
        stays = left & (self.pauses and self.depth != 2)
        self.claim(m, queue.level == inside + stays, "the level counts what is inside")
        room, ready = inside != self.depth, queue.input.ready
        if self.buffered:
            self.claim(m, room | ~ready, "nothing is taken without room")
        else:
            self.claim(m, ready == room, "room is used")
        if self.pauses:
            self.claim(m, ~(left & queue.output.valid), "it pauses after each payload")
            moved = Signal()
            m.d.sync += moved.eq(room & ~ready)
            self.claim(m, ~(moved & room & ~ready), "room is used a cycle later")
        self.goal(m, inside == self.depth, "full")


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_queue_hands_out_what_it_took_in_order(prover, depth, buffered):
    prover.proves(QueueBench(depth, buffered))


@pytest.mark.parametrize("depth", [2, 4])
def test_a_queue_that_pauses_hands_out_what_it_took_in_order(prover, depth):
    prover.proves(QueueBench(depth, True, pauses=True))


@pytest.mark.slow
def test_the_proof_of_queues_can_fail(prover):
    prover.refutes(QueueBench(2, False, fault="swap"), "what leaves is what entered")
    prover.refutes(QueueBench(2, True, fault="drop"), "")
    prover.reaches(QueueBench(4, True), "full")
    prover.reaches(QueueBench(2, True, pauses=True), "full")


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
