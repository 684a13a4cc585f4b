"""The program that clears all scratchpads, for machines that keep them between programs.

The simulators clear them by hand. Hardware keeps them, and clearing logic would lie in the paths to
every bank. A driver therefore runs this program before each one.
"""

from .configuration import Configuration, Memory
from .instructions import Instruction, Load, Loop, Vector
from .instructions.load import DESTINATIONS
from .tokens import synthesise_tokens


def clearing_program(configuration: Configuration) -> tuple[Instruction, ...]:
    """Return a program after which every byte of every scratchpad is zero.

    It does not access main memory. LOAD fills all that it reaches; VECTOR writes products with zero
    into ACC.
    """
    program: list[Instruction] = [
        Load(
            destination=memory,
            fill=True,
            length=configuration.size_bytes(memory),
            local=0,
        )
        for memory in DESTINATIONS
        if configuration.size_bytes(memory)
    ]
    slice_bytes = Vector.granule("dst", Memory.ACC, configuration)
    slices = configuration.size_bytes(Memory.ACC) // slice_bytes
    most = 1 << configuration.extent_bits
    for first in range(0, slices, most):
        loop = Loop(min(most, slices - first), (1, 0, 0, 0))
        program.append(Vector(to_acc=True, a_multiplier=0, dst=first, a=0, map_loops=(loop,)))
    return synthesise_tokens(program, configuration)
