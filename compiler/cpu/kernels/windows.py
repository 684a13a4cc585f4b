"""Kernels with windows over an image: the number of windows, and their places."""

import math
from typing import ClassVar

from ....errors import CompileError
from ... import te
from .description import Description

Pair = tuple[int, int]


class Windowed(Description):
    """A kernel with windows over NHWC images; subclasses are dataclasses with the fields below."""

    __slots__ = ()
    title: ClassVar[str] = "pooling"
    """The kernel's name in errors."""

    batch: int
    height: int
    width: int
    kernel: Pair
    strides: Pair
    pads: tuple[int, int, int, int]
    dilations: Pair
    overhang: Pair = (0, 0)
    """Rows and columns that the last windows may reach beyond the padding."""

    def __post_init__(self) -> None:
        if min(self.size_out) < 1:
            raise CompileError(
                f"{self.title}: the window {self.kernel} does not fit {self.height}x{self.width} "
                f"with pads {self.pads}; enlarge the pads"
            )

    @property
    def size_out(self) -> Pair:
        """Rows and columns of the output."""
        top, left, bottom, right = self.pads
        high = self.height + top + bottom + self.overhang[0] - self.reach(0)
        wide = self.width + left + right + self.overhang[1] - self.reach(1)
        return high // self.strides[0] + 1, wide // self.strides[1] + 1

    @property
    def taps(self) -> int:
        """Elements of a window in one channel."""
        return math.prod(self.kernel)

    @property
    def span(self) -> Pair:
        """Rows and columns of the image and its padding that windows cover."""
        high, wide = (
            (size - 1) * stride + self.reach(axis)
            for axis, (size, stride) in enumerate(zip(self.size_out, self.strides, strict=True))
        )
        return high, wide

    def row(self, y: te.Index, ky: te.Index | int) -> te.Index:
        """The row of a tap, from the first row of padding on."""
        return y * self.strides[0] + ky * self.dilations[0]

    def column(self, x: te.Index, kx: te.Index | int) -> te.Index:
        """The column of a tap, from the first column of padding on."""
        return x * self.strides[1] + kx * self.dilations[1]

    def reach(self, axis: int) -> int:
        """Rows or columns that one window spans."""
        return self.dilations[axis] * (self.kernel[axis] - 1) + 1
