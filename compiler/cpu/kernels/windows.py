"""Kernels with windows over an image: how many there are, where they lie, and their weights."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....errors import CompileError
from ... import te
from .description import Array, Description, activated
from .quantised import Requantisation

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

    def row(self, y: te.Index, ky: te.Index) -> te.Index:
        """The row of a tap, from the first row of padding on."""
        return y * self.strides[0] + ky * self.dilations[0]

    def column(self, x: te.Index, kx: te.Index) -> te.Index:
        """The column of a tap, from the first column of padding on."""
        return x * self.strides[1] + kx * self.dilations[1]

    def reach(self, axis: int) -> int:
        """Rows or columns that one window spans."""
        return self.dilations[axis] * (self.kernel[axis] - 1) + 1


@dataclass(frozen=True, slots=True)
class ChannelWindows(Windowed):
    """Windows that stay within their channel.

    Parameters
    ----------
    batch, height, width, channels
        Extents of the image.
    kernel, strides, dilations
        Extents of the window and its steps, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: Pair
    strides: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: Pair = (1, 1)


class WeightedWindows(Windowed):
    """Windows with weights: float32, or bytes that are requantised.

    Operands are `x`, `w`, `bias` (float32[O], or int32[O] for bytes) and, for bytes, `scale`
    float32[O]. All but `x` are constants.
    """

    __slots__ = ()
    channels_in: int
    channels_out: int
    activation: str
    quantised: Requantisation | None = None

    @property
    def weights(self) -> tuple[int, ...]:
        """Extents of the weights, output channels last."""
        return (*self.kernel, self.channels_in, self.channels_out)

    @property
    def image(self) -> tuple[int, ...]:
        """Extents of `x`."""
        return (self.batch, self.height, self.width, self.channels_in)

    @property
    def pad(self) -> int:
        """The number that stands for zero in the padding."""
        return 0 if self.quantised is None else self.quantised.zero_point_in

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that the kernel takes, in the order of a call."""
        q = self.quantised
        number, weight, total = ("float32",) * 3 if q is None else (q.dtype_in, "int8", "int32")
        channels = (self.channels_out,)
        found = {
            "x": Array(number, self.image),
            "w": Array(weight, self.weights),
            "bias": Array(total, channels),
        }
        return found if q is None else {**found, "scale": Array("float32", channels)}

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls; they are packed once."""
        return ("w", "bias") if self.quantised is None else ("w", "bias", "scale")

    @property
    def output(self) -> Array:
        """The array that the kernel computes."""
        number = "float32" if self.quantised is None else self.quantised.dtype_out
        return Array(number, (self.batch, *self.size_out, self.channels_out))

    @property
    def macs(self) -> int:
        """Multiplications."""
        return math.prod((*self.weights[:-1], *self.output.shape))

    def finished(
        self, total: te.TensorExpression, scale: te.TensorExpression | None
    ) -> te.TensorExpression:
        """The result for a sum: a byte, or a number with its activation."""
        if self.quantised is None:
            return activated(total, self.activation, self.title)
        assert scale is not None
        return self.quantised.requantised(total, scale)

    def moved_bias(self, constants: Mapping[str, np.ndarray], shift: int = 0) -> np.ndarray:
        """The bias with the zero point, and what was added to activations, taken out: int64[O]."""
        assert self.quantised is not None
        w = constants["w"].astype(np.int64)
        moved = self.quantised.moved + shift
        return constants["bias"] - moved * w.sum(axis=tuple(range(w.ndim - 1)))


@dataclass(frozen=True, slots=True)
class DenseWindows(WeightedWindows):
    """Weighted windows over all channels.

    Parameters
    ----------
    batch, height, width, channels_in, channels_out
        Extents.
    kernel, strides, dilations
        Extents of the window and its steps, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    activation
        Follows a float32 kernel, one of `ACTIVATIONS`.
    """

    batch: int
    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    activation: str = ""
