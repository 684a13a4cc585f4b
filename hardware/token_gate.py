"""A unit's token gate: instructions wait for their tokens in it, and signal when they retire."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.instructions import Instruction
from .layouts import MASK_BITS, command_layout
from .queue import PausingQueue, Queue


def queued_layout(family: type[Instruction], configuration: Configuration) -> data.StructLayout:
    """One instruction in a unit's queue; the command of a SYNC is meaningless."""
    return data.StructLayout(
        {
            "is_sync": 1,
            "wait": MASK_BITS,
            "signal": MASK_BITS,
            "command": command_layout(family, configuration),
        }
    )


def state_signature(configuration: Configuration) -> wiring.Signature:
    """Activity of a unit in one cycle, for the host's registers and counters."""
    return wiring.Signature(
        {
            "working": Out(1),
            "waiting": Out(MASK_BITS),
            "waiting_to_signal": Out(1),
            "starved": Out(1),
            "queued": Out(range(configuration.queue_depth + 1)),
        }
    )


class TokenGate(wiring.Component):
    """Hold a unit's instructions until their tokens are available; signal in program order.

    An instruction can start three cycles after it entered, two cycles after its last token was
    given, and `START_CYCLES` after the instruction before it. At most one instruction retires per
    cycle. A SYNC completes when it starts. Like every instruction, it retires and signals after all
    instructions before it.

    Parameters
    ----------
    family : type[Instruction]
        The unit's instructions.
    configuration : Configuration
    in_flight : int
        Greatest number of instructions between start and retirement; the others wait in the queue.

    Members
    -------
    instructions : In(stream of queued_layout)
    commands : Out(stream of command_layout)
        Valid when all tokens are available; the transfer consumes them.
    retired : In(stream)
        Once per command, in order.
    available, room : In(mask)
    consume, produce : Out(mask)
        Connected to the token counters.
    busy, starved : In(1)
        Status of the unit.
    started, ended : Out(1)
        An instruction starts, or retires, in this cycle.
    dry : Out(1)
        Nothing is queued or in flight.
    state : Out(state_signature)
        `waiting` tells of the cycle before; it is set only if the unit had nothing else to do.
    """

    def __init__(self, family: type[Instruction], configuration: Configuration, in_flight: int):
        self.depth, self.in_flight = configuration.queue_depth, in_flight
        self.layout = queued_layout(family, configuration)
        super().__init__(
            {
                "instructions": In(stream.Signature(self.layout)),
                "commands": Out(stream.Signature(command_layout(family, configuration))),
                "retired": In(stream.Signature(0)),
                "available": In(MASK_BITS),
                "room": In(MASK_BITS),
                "consume": Out(MASK_BITS),
                "produce": Out(MASK_BITS),
                "busy": In(1),
                "starved": In(1),
                "started": Out(1),
                "ended": Out(1),
                "dry": Out(1),
                "state": Out(state_signature(configuration)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = PausingQueue(self.layout, self.depth)
        entry = data.StructLayout({"is_sync": 1, "signal": MASK_BITS})
        m.submodules.started_queue = begun = Queue(entry, self.in_flight)
        wiring.connect(m, wiring.flipped(self.instructions), queue.input)

        # An instruction is `startable` in the cycle after its tokens are available: nothing but
        # its start takes them away. Gate and unit may lie far apart, so each has its own register
        # for it and needs no answer from the other to recognise a start.
        head, missing, startable = queue.output.payload, Signal(MASK_BITS), Signal()
        allowed = queue.output.valid & ~missing.any() & begun.input.ready & ~self.started
        m.d.sync += [
            startable.eq(allowed),
            self.commands.valid.eq(allowed & ~head.is_sync),
        ]
        m.d.comb += [
            missing.eq(head.wait & ~self.available),
            self.commands.payload.eq(head.command),
            self.started.eq(startable & (head.is_sync | self.commands.ready)),
            queue.output.ready.eq(self.started),
            self.consume.eq(Mux(self.started, head.wait, 0)),
            begun.input.valid.eq(self.started),
            begun.input.payload.is_sync.eq(head.is_sync),
            begun.input.payload.signal.eq(head.signal),
        ]

        oldest, fits, complete = begun.output.payload, Signal(), Signal()
        m.d.comb += [
            fits.eq(~(oldest.signal & ~self.room).any()),
            complete.eq(begun.output.valid & (oldest.is_sync | self.retired.valid)),
            self.ended.eq(complete & fits),
            self.retired.ready.eq(begun.output.valid & ~oldest.is_sync & fits),
            begun.output.ready.eq(self.ended),
            self.produce.eq(Mux(self.ended, oldest.signal, 0)),
        ]

        # The counters may be far away on the chip. A wait never ends a run, so it may count late.
        waits = queue.output.valid & ~begun.output.valid & ~self.busy
        m.d.sync += self.state.waiting.eq(Mux(waits, missing, 0))
        m.d.comb += [
            self.dry.eq(~queue.output.valid & ~begun.output.valid),
            self.state.working.eq(self.busy),
            self.state.waiting_to_signal.eq(complete & ~fits),
            self.state.starved.eq(self.starved),
            self.state.queued.eq(queue.level),
        ]
        return m
