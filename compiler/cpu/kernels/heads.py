"""Operands of matrix products of two activations, one for each image and head."""

import math
from collections.abc import Mapping

from typing_extensions import override

from .description import Array, Description


class HeadProduct(Description):
    """A product of `a` and `b` for every image and head.

    Subclasses are dataclasses with the fields below. `transposed` says whether `b` lies as
    [N, H, C, K]; `joined`, for `a`, `b` and the output, whether heads lie inside of rows, as
    [N, M, H, K].
    """

    __slots__ = ()
    dtype = "float32"
    images: int
    heads: int
    rows: int
    inner: int
    columns: int
    transposed: bool
    joined: tuple[bool, bool, bool]

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        return {
            name: Array(self.dtype, self.placed(index, self.images, self.heads, *matrix))
            for index, (name, matrix) in enumerate(
                {"a": (self.rows, self.inner), "b": self.second(self.inner, self.columns)}.items()
            )
        }

    @property
    @override
    def output(self) -> Array:
        return Array(self.dtype, self.placed(2, self.images, self.heads, self.rows, self.columns))

    @property
    def macs(self) -> int:
        """Multiplications."""
        return math.prod((self.images, self.heads, self.rows, self.inner, self.columns))

    def placed(self, operand: int, image, head, row, column) -> tuple:
        """Extents or indices in the order in which an operand has them."""
        if self.joined[operand]:
            return image, row, head, column
        return image, head, row, column

    def second(self, inner, column) -> tuple:
        """Row and column of `b`."""
        return (column, inner) if self.transposed else (inner, column)
