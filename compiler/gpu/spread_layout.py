"""Positions of a spread buffer's elements among those that one thread keeps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import CompileError
from ...isa.expressions import Affine
from ..cpu.codegen.environment import Environment, divided
from ..te.affine import scaled, total
from ..te.nodes import Condition
from .blocks import Spread


@dataclass(frozen=True, slots=True)
class SpreadLayout:
    """The elements of a spread buffer that one thread keeps, in row-major order.

    Parameters
    ----------
    extents
        Extents of the buffer.
    spread
        The owners of its elements.
    """

    extents: tuple[int, ...]
    spread: Spread

    def _sizes(self, dimension: int) -> tuple[int, ...]:
        """Elements of a thread between two digits of its number, the highest first."""
        sizes, above = [], self.extents[dimension]
        for owner in self.spread.owners[dimension]:
            sizes.append(-(-above // (owner.stride * owner.count)))
            above = owner.stride
        return (*sizes, above)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements, as a vector."""
        sizes = [self._sizes(dimension) for dimension in range(len(self.extents))]
        return (math.prod(size for part in sizes for size in part),)

    @property
    def size(self) -> int:
        return self.shape[0]

    def conditions(self, index: tuple[Affine, ...]) -> tuple[Condition, ...]:
        """Conditions for an element to exist: none beyond those of the loops."""
        return ()

    def offset(self, index: Sequence[Affine], environment: Environment, tensor: str) -> Affine:
        """Position of an element among those of its thread.

        Raises
        ------
        CompileError
            When a serial loop crosses from one thread's elements to another's.
        """
        found = Affine()
        for dimension, affine in enumerate(index):
            rest = affine
            parts: list[Affine] = []
            for owner in self.spread.owners[dimension]:
                high, rest = _cut(rest, owner.stride * owner.count, environment, tensor)
                _, rest = _cut(rest, owner.stride, environment, tensor)
                parts.append(high)
            for size, part in zip(self._sizes(dimension), (*parts, rest), strict=True):
                found = total(scaled(found, size), part)
        return found


def _cut(
    affine: Affine, divisor: int, environment: Environment, tensor: str
) -> tuple[Affine, Affine]:
    found = divided(affine, divisor, environment)
    if found is None:
        raise CompileError(
            f"`{tensor}` is kept in registers, and `{affine}` crosses the {divisor} elements "
            "of a thread; split the loop by them"
        )
    return found
