"""What a schedule may ask of a general processor: registers, and dot products on vectors.

Where a schedule is meant for a processor, buffers lie in main memory or in its registers, and
`tensorise` makes two loops, lanes and taps, one of the instructions declared here.
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
        Element types of `a` and `b` for which it is exact.
    """

    mnemonic: str
    lanes: int
    taps: int
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Processor:
    """A general processor, as far as a schedule sees it.

    Parameters
    ----------
    name
        For messages.
    instructions
        What `tensorise` chooses from.
    """

    name: str
    instructions: tuple[DotProduct, ...] = ()
