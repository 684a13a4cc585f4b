"""Masks: one bit per lane. Masks known at compile time need no code."""

from collections.abc import Sequence
from functools import lru_cache

from llvmlite import ir

from .emitter import BIT, Emitter, LlvmValue


def all_of(emitter: Emitter, bits: Sequence[LlvmValue]) -> LlvmValue:
    """The conjunction of masks."""
    found = bits[0]
    for more in bits[1:]:
        first, second = known_bits(found), known_bits(more)
        if first and second:
            found = constant_bits(tuple(a and b for a, b in zip(first, second, strict=True)))
        else:
            found = emitter.builder.and_(*emitter.matched(found, more))
    return found


# Unrolled loops ask for the same few masks again and again, each of them an object per lane.
@lru_cache(1024)
def constant_bits(bits: tuple[bool, ...]) -> LlvmValue:
    """A mask."""
    return ir.Constant(ir.VectorType(BIT, len(bits)), [BIT(int(bit)) for bit in bits])


def known_bits(mask: LlvmValue) -> list[bool]:
    """The bits of a constant mask; an empty list for any other."""
    if not isinstance(mask, ir.Constant) or not isinstance(mask.type, ir.VectorType):
        return []
    return [bool(bit.constant) for bit in mask.constant]
