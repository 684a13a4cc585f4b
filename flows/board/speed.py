"""Expected speed of a network on a board, from the exact timing model."""

from dataclasses import dataclass

from ...compiler.module import Module
from ...isa.clearing import clearing_program
from ...isa.configuration_rules import PAGE_BYTES
from ...runtime.device import LoadedProgram
from ..execution.timed import time_segments
from .design import Design


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected speed of a network on a board.

    Parameters
    ----------
    cycles
        Cycles of one sample on the accelerator.
    needed_bytes
        Main memory that programs and data need.
    fits
        Whether the board has that much.
    per_s
        Samples a second on the accelerator alone, without the host and the link.
    """

    cycles: int
    needed_bytes: int
    fits: bool
    per_s: float


def expected(module: Module, design: Design) -> Expected:
    """Return the expected speed of a compiled network on a board."""
    cycles = sum(timed.timing.cycles for timed in time_segments(module, design.memory))
    configuration = module.configuration
    sizes = [len(LoadedProgram(clearing_program(configuration), configuration).words)]
    for segment in module.segments:
        sizes += [segment.data_bytes, len(LoadedProgram(segment.program, configuration).words)]
    needed = sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)
    return Expected(cycles, needed, needed <= design.memory_bytes, design.clock_hz / cycles)
