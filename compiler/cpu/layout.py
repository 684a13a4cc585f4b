"""How a given tensor lies in memory: row-major, or in blocks so that a kernel reads it in order."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import CompileError
from ...isa.expressions import Affine
from ..te.affine import scaled, total
from .environment import Environment, divided


@dataclass(frozen=True, slots=True)
class Layout:
    """A tensor of `shape` as an array of more dimensions, the blocks of cut ones among them.

    Parameters
    ----------
    shape
        Extents that there is room for, the tensor's own or larger; block sizes divide them.
    blocks
        Per dimension the sizes that cut it, the largest first: `(32, 4)` makes three parts.
    order
        The parts from the outermost, each a dimension and how many cuts stand before it.
    """

    shape: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    order: tuple[tuple[int, int], ...]

    @staticmethod
    def plain(shape: tuple[int, ...]) -> "Layout":
        """Row-major."""
        return Layout(shape, ((),) * len(shape), tuple((d, 0) for d in range(len(shape))))

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Layout":
        """From what `dataclasses.asdict` gives, lists for tuples."""
        return Layout(
            tuple(values["shape"]),
            tuple(tuple(sizes) for sizes in values["blocks"]),
            tuple((dimension, cut) for dimension, cut in values["order"]),
        )

    def _parts(self, dimension: int) -> tuple[int, ...]:
        sizes = (self.shape[dimension], *self.blocks[dimension], 1)
        return tuple(a // b for a, b in itertools.pairwise(sizes))

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """Extents of the parts in their order."""
        return tuple(self._parts(dimension)[cut] for dimension, cut in self.order)

    def pack(self, values: np.ndarray) -> np.ndarray:
        """A tensor's values in this order, as an array of `packed_shape`, zeros in the rest."""
        if values.shape != self.shape:
            rest = [(0, room - size) for room, size in zip(self.shape, values.shape, strict=True)]
            values = np.pad(values, rest)
        if not any(self.blocks) and self.order == Layout.plain(self.shape).order:
            return np.ascontiguousarray(values)
        counts = [self._parts(dimension) for dimension in range(len(self.shape))]
        first = np.cumsum([0, *map(len, counts)])
        axes = [int(first[dimension]) + cut for dimension, cut in self.order]
        split = values.reshape([extent for parts in counts for extent in parts])
        return np.ascontiguousarray(split.transpose(axes))

    def offset(self, index: tuple[Affine, ...], environment: Environment, tensor: str) -> Affine:
        """Where an element lies, in elements from the first.

        Raises
        ------
        CompileError
            When a loop runs across the blocks of a dimension.
        """
        strides = strides_of(self)
        terms = []
        for dimension, affine in enumerate(index):
            rest = affine
            for cut, size in enumerate(self.blocks[dimension]):
                found = divided(rest, size, environment)
                if found is None:
                    raise CompileError(
                        f"tensor `{tensor}`: its layout has blocks of {size} in dimension "
                        f"{dimension}, and `{affine}` runs across them; split the loop by {size}"
                    )
                quotient, rest = found
                terms.append(scaled(quotient, strides[dimension, cut]))
            terms.append(scaled(rest, strides[dimension, len(self.blocks[dimension])]))
        return total(*terms)


@lru_cache(256)
def strides_of(layout: Layout) -> Mapping[tuple[int, int], int]:
    """Elements from one index of every part to the next."""
    strides, stride = {}, 1
    for part, extent in zip(reversed(layout.order), reversed(layout.packed_shape), strict=True):
        strides[part] = stride
        stride *= extent
    return strides
