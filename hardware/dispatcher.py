"""Dispatch of instructions from FETCH to the queues of their units, in program order."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.instructions import FAMILIES, Instruction, Unit
from .layouts import command_fields, dispatch_layout
from .token_gate import queued_layout

FAMILY_OF: dict[Unit, type[Instruction]] = {
    family.unit: family for family in FAMILIES if family.unit is not None
}
"""The one family that each unit executes."""


class Dispatcher(wiring.Component):
    """Forward instructions combinationally; a full queue stalls all later instructions.

    Members
    -------
    instructions : In(stream of dispatch_layout)
    load, gemm, vector, store : Out(stream of queued_layout)
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        members = {"instructions": In(stream.Signature(dispatch_layout(configuration)))}
        for unit, family in FAMILY_OF.items():
            layout = queued_layout(family, configuration)
            members[unit.name.lower()] = Out(stream.Signature(layout))
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        instruction = self.instructions.payload
        for unit, family in FAMILY_OF.items():
            queue = getattr(self, unit.name.lower())
            chosen = instruction.units[unit]
            m.d.comb += [
                queue.valid.eq(self.instructions.valid & chosen),
                queue.payload.is_sync.eq(instruction.is_sync),
                queue.payload.wait.eq(instruction.wait),
                queue.payload.signal.eq(instruction.signal),
                queue.payload.command.eq(
                    command_fields(instruction.word, family, self.configuration)
                ),
            ]
            with m.If(chosen):
                m.d.comb += self.instructions.ready.eq(queue.ready)
        return m
