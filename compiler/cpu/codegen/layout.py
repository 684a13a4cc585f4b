"""How a given tensor lies in memory: row-major, or in blocks so that a kernel reads it in order."""

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

    @property
    def size(self) -> int:
        """Elements that there is room for."""
        return math.prod(self.shape)

    def conditions(self, index: tuple[Affine, ...]) -> tuple[Condition, ...]:
        """What holds for elements that exist: nothing that loops do not see to."""
        return ()

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


@dataclass(frozen=True, slots=True)
class Tiles:
    """A tensor of tiles as an array without them, whose end may cut the last ones off.

    Parameters
    ----------
    extents
        Of the array.
    digits
        Per dimension of the array the extents of the tensor's dimensions that are its digits, the
        highest first: `(4, 4)` for 4 tiles of 4. What lies beyond the extent does not exist.
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
        """Of the tensor."""
        return tuple(extent for part in self.digits for extent in part)

    @property
    def size(self) -> int:
        """Elements of the array."""
        return math.prod(self.extents)

    def offset(self, index: tuple[Affine, ...], environment: Environment, tensor: str) -> Affine:
        """Where an element lies, in elements from the first."""
        strides = [math.prod(self.extents[place + 1 :]) for place in range(len(self.extents))]
        joined = zip(self._joined(index), strides, strict=True)
        return total(*(scaled(affine, stride) for affine, stride in joined))

    def conditions(self, index: tuple[Affine, ...]) -> tuple[Condition, ...]:
        """What holds for elements that exist."""
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
    """Elements from one index of every part to the next."""
    strides, stride = {}, 1
    for part, extent in zip(reversed(layout.order), reversed(layout.packed_shape), strict=True):
        strides[part] = stride
        stride *= extent
    return strides
