"""A general processor as a target of schedules: registers, and dot products on vectors.

In a schedule for a processor, buffers are in main memory or in registers. `tensorise` replaces two
loops, over lanes and taps, by one of the instructions declared here.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DotProduct:
    """`sums[lane] += sum over tap of a[tap] * b[lane, tap]` in int32, one instruction.

    Parameters
    ----------
    mnemonic
        Its name in the assembly language.
    lanes, taps
        Extents of the two loops.
    pairs
        Element types of `a` and `b` for which the instruction is exact.
    saturates
        Whether it is exact only if the sums of two neighbouring products fit int16. The kernel that
        schedules it knows this from its constants.
    """

    mnemonic: str
    lanes: int
    taps: int
    pairs: tuple[tuple[str, str], ...]
    saturates: bool = False


@dataclass(frozen=True, slots=True)
class Processor:
    """The properties of a general processor that schedules use.

    Parameters
    ----------
    name
        For messages.
    instructions
        The instructions from which `tensorise` chooses.
    """

    name: str
    instructions: tuple[DotProduct, ...] = ()
