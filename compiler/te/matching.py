"""Instruction selection: match an expression against the laws of a target's instructions.

A law is an expression with a `Slot` for each operand, whose lanes say along which loops the operand
moves. Nothing here knows an instruction or a target.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ...isa.expressions import Expression, Match, Read, matches


class Law(Protocol):
    """An instruction as an expression."""

    @property
    def body(self) -> Expression:
        """What it computes, over its lanes."""
        ...


L = TypeVar("L", bound=Law)


def find_law(
    laws: Iterable[L], tree: Expression, fits: Callable[[L, Match], bool]
) -> tuple[L, Match] | None:
    """The first law that an expression matches, if the match also fits the rest of the machine."""
    for law in laws:
        for found in matches(law.body, tree):
            if fits(law, found):
                return law, found
    return None


def steps_along(read: Read, axis: str) -> dict[int, int]:
    """How an axis moves an operand: its step by dimension, counted from the last one, -1."""
    return {
        dimension - len(read.index): step
        for dimension, affine in enumerate(read.index)
        if (step := affine.coefficient(axis))
    }
