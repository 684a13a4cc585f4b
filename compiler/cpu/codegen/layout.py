"""Layouts of tensors in memory: row-major, or in blocks that a kernel reads in order."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ....errors import CompileError
from ....isa.expressions import Affine
from ...te.affine import scaled, total
from ...te.nodes import Condition
from .environment import Environment, divided


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of a tensor's elements in memory, with dimensions split into blocks.

    Parameters
    ----------
    shape
        Extents of the memory, at least the tensor's own; block sizes divide them.
    blocks
        Per dimension, the block sizes, the largest first: `(32, 4)` makes three parts.
    order
        The parts, the outermost first: each a dimension and its level of blocking.
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
        """The inverse of `dataclasses.asdict`, with lists for tuples."""
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
        """A tensor's values in this layout, an array of `packed_shape` padded with zeros."""
        if values.shape != self.shape:
            rest = [
                (0, stored - size) for stored, size in zip(self.shape, values.shape, strict=True)
            ]
            values = np.pad(values, rest)
        if not any(self.blocks) and self.order == Layout.plain(self.shape).order:
            return np.ascontiguousarray(values)
        counts = [self._parts(dimension) for dimension in range(len(self.shape))]
        first = np.cumsum([0, *map(len, counts)])
        axes = [int(first[dimension]) + cut for dimension, cut in self.order]
        split = values.reshape([extent for parts in counts for extent in parts])
        return np.ascontiguousarray(split.transpose(axes))

    @property
    def size(self) -> int:
        """Number of elements of the array, padding included."""
        return math.prod(self.shape)

    def conditions(self, index: tuple[Affine, ...]) -> tuple[Condition, ...]:
        """Conditions for an element to exist: none beyond those of the loops."""
        return ()

    def offset(self, index: tuple[Affine, ...], environment: Environment, tensor: str) -> Affine:
        """Offset of an element, in elements.

        Raises
        ------
        CompileError
            When a loop crosses the blocks of a dimension.
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
                        f"{dimension}, and `{affine}` crosses them; split the loop by {size}"
                    )
                quotient, rest = found
                terms.append(scaled(quotient, strides[dimension, cut]))
            terms.append(scaled(rest, strides[dimension, len(self.blocks[dimension])]))
        return total(*terms)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A tensor of tiles, stored as an array without tiles, whose end may clip the last ones.

    Parameters
    ----------
    extents
        Extents of the array.
    digits
        Per dimension of the array, the extents of the tensor's dimensions that form it, the highest
        first: `(4, 4)` for 4 tiles of 4. Elements beyond the extent do not exist.
    """

    extents: tuple[int, ...]
    digits: tuple[tuple[int, ...], ...]

    @staticmethod
    def of_image(extents: tuple[int, ...], size: int) -> "Tiles":
        """Square tiles of an array [N, H, W, C]: shape [N, rows, size, columns, size, C]."""
        images, height, width, channels = extents
        rows, columns = math.ceil(height / size), math.ceil(width / size)
        return Tiles(extents, ((images,), (rows, size), (columns, size), (channels,)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return tuple(extent for part in self.digits for extent in part)

    @property
    def size(self) -> int:
        """Number of elements of the array."""
        return math.prod(self.extents)

    def offset(self, index: tuple[Affine, ...], environment: Environment, tensor: str) -> Affine:
        """Offset of an element, in elements."""
        strides = [math.prod(self.extents[place + 1 :]) for place in range(len(self.extents))]
        joined = zip(self._joined(index), strides, strict=True)
        return total(*(scaled(affine, stride) for affine, stride in joined))

    def conditions(self, index: tuple[Affine, ...]) -> tuple[Condition, ...]:
        """Conditions for an element to exist."""
        return tuple(
            Condition(affine, None, extent)
            for affine, part, extent in zip(
                self._joined(index), self.digits, self.extents, strict=True
            )
            if math.prod(part) > extent
        )

    def _joined(self, index: tuple[Affine, ...]) -> Iterator[Affine]:
        """An index of the tensor as one of the array."""
        places = iter(index)
        for part in self.digits:
            found = Affine()
            for extent in part:
                found = total(scaled(found, extent), next(places))
            yield found


@lru_cache(256)
def strides_of(layout: Layout) -> Mapping[tuple[int, int], int]:
    """Stride of each part, in elements."""
    strides, stride = {}, 1
    for part, extent in zip(reversed(layout.order), reversed(layout.packed_shape), strict=True):
        strides[part] = stride
        stride *= extent
    return strides
