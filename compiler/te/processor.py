"""A general processor as a target of schedules: registers, and products of vectors and matrices.

In a schedule for a processor, buffers are in main memory or in registers. `tensorise` replaces the
loops of a nest by one of the instructions declared here: two loops, over lanes and taps, or four,
over rows, groups, lanes and taps.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DotProduct:
    """`sums[lane] += sum over tap of a[tap] * b[lane, tap]` in int32, one instruction.

    An instruction with rows multiplies matrices:
    `sums[row, lane] += sum over group and tap of a[row, group, tap] * b[group, lane, tap]`.

    Parameters
    ----------
    mnemonic
        Its name in the assembly language.
    lanes, taps
        Extents of the two inner loops.
    pairs
        Element types of `a` and `b` for which the instruction is exact.
    rows, groups
        The largest extent of the loop over rows and the extent of the loop over groups, for an
        instruction that has them.
    """

    mnemonic: str
    lanes: int
    taps: int
    pairs: tuple[tuple[str, str], ...]
    rows: int = 0
    groups: int = 1


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
