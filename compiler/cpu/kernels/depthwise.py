"""Depthwise convolution: every channel by its own window, vectors along the channels.

A tile of output pixels by a vector of channels stays in registers, and the window is written out,
so that what neighbouring windows share is loaded once. The image is read as it is: rows at its
border have code of their own, and so have tiles where there are few or vectors are small. Every
such variant holds a whole window for a whole tile, which is most of what compiling takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import CompileError
from ... import te
from ..target import Target
from .description import Array, Plan, activated
from .quantised import Quantised
from .windows import check_windows, count_windows

LARGEST = 49
"""Taps of the largest window that is written out; the code of larger ones would take minutes."""

SMALL = 9
"""Taps up to which a window is written out wherever it is used."""

SPAN = 15
"""Columns of the image under a wide tile: with more, vectors no longer stay in 32 registers."""

MANY = 3
"""Tiles of a row from which they share code: with fewer, most would be slower at the border."""

SEVERAL = 5
"""Large tiles of float32 that a row has at least."""


@dataclass(frozen=True, slots=True)
class DepthwiseConvolution:
    """`out[n, y, x, c] = sum(x[n, y * s + ky * d - top, ..., c] * w[ky, kx, c]) + bias[c]`.

    Operands are `x` as [N, H, W, C], `w` as [KH, KW, C], `bias` [C] and, for bytes, `scale` [C].

    Parameters
    ----------
    batch, height, width, channels
        Extents.
    kernel, strides, dilations
        Of the window, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    activation
        What follows a float32 kernel.
    quantised
        None for float32.
    narrow
        Whether sums of bytes are known to stay below 2**24. They are then made in float32, which is
        exact and takes half the instructions: no vector multiplies and adds int32 in one.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilations: tuple[int, int] = (1, 1)
    activation: str = ""
    quantised: Quantised | None = None
    narrow: bool = False

    def __post_init__(self) -> None:
        check_windows(self, "depthwise convolution")
        if self.quantised and self.activation:
            raise CompileError(
                "depthwise convolution: a quantised kernel has no activation; give its limits "
                "`low` and `high`"
            )

    @property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        return count_windows(self)

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        q = self.quantised
        number, weight, total = ("float32",) * 3 if q is None else (q.dtype_in, "int8", "int32")
        found = {
            "x": Array(number, (self.batch, self.height, self.width, self.channels)),
            "w": Array(weight, (*self.kernel, self.channels)),
            "bias": Array(total, (self.channels,)),
        }
        return found if q is None else {**found, "scale": Array("float32", (self.channels,))}

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls."""
        return ("w", "bias") if self.quantised is None else ("w", "bias", "scale")

    @property
    def output(self) -> Array:
        """What it gives."""
        number = "float32" if self.quantised is None else self.quantised.dtype_out
        return Array(number, (self.batch, *self.size_out, self.channels))

    @property
    def macs(self) -> int:
        """Multiplications."""
        return self.kernel[0] * self.kernel[1] * int(np.prod(self.output.shape))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """The zero point taken out through the bias."""
        if self.quantised is None:
            return constants
        w = constants["w"]
        bias = constants["bias"] - self.quantised.moved * w.astype(np.int64).sum(axis=(0, 1))
        if self.narrow:
            return {**constants, "w": w.astype(np.float32), "bias": bias.astype(np.float32)}
        return {**constants, "bias": bias.astype(np.int32)}

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        schedule = te.Schedule(te.kernel("depthwise", self._declared()), processor=target.processor)
        lanes, (rows, pixels) = target.lanes, self._tile(target)
        schedule.split("out", "y", rows)
        schedule.split("out", "x", pixels)
        schedule.split("out", "c", lanes)
        schedule.reorder("out", "n", "y.o", "x.o", "c.o", "ky", "kx", "y.i", "x.i", "c.i")
        if self._shares_code(target):
            schedule.fuse("out", "x.o", "c.o")
        if self.kernel[0] * self.kernel[1] <= LARGEST:
            for loop in ("kx",) if self._loops_rows(target) else ("ky", "kx"):
                schedule.unroll("out", loop)
        for loop in ("y.i", "x.i"):
            schedule.unroll("out", loop)
        schedule.vectorise("out", "c.i")
        schedule.parallelise("out", "y.o")
        return Plan(schedule)

    def _tile(self, target: Target) -> tuple[int, int]:
        """Rows and columns of the output that are computed together.

        Tiles that fill a row need no tail. Of these, large ones read less of the image twice. Small
        ones suffice for float32 with strides, where neighbours share less, and in narrow images,
        where few of them then lie at the border.
        """
        columns, stride = self.size_out[1], self.strides[1]
        if target.registers < 32:
            return 1, -(-columns // -(-columns // 4))
        reach = (self.kernel[1] - 1) * self.dilations[1] + 1
        whole = [p for p in range(4, 8) if columns % p == 0 and (p - 1) * stride + reach <= SPAN]
        if whole:
            if self.quantised is None and (stride > 1 or columns < SEVERAL * max(whole)):
                return 2, min(whole)
            return 2, max(whole)
        return 2, -(-columns // -(-columns // (7 if stride == 1 else 4)))

    def _shares_code(self, target: Target) -> bool:
        """Whether one body does for all tiles of a row.

        Columns and vectors are then one loop, of which no iteration is known to lie at the border.
        Those two or three columns of a tile that may are read under a mask, which costs next to
        nothing on vectors of 16 elements; narrower ones would be read element by element. Where
        channels are no whole vectors, everything would be read so.
        """
        pixels, columns = self._tile(target)[1], self.size_out[1]
        whole = columns % pixels == 0 and self.channels % target.lanes == 0
        return target.lanes == 16 and whole and columns >= MANY * pixels

    def _loops_rows(self, target: Target) -> bool:
        """Whether rows of a large window are a loop: a fifth of the code, where borders are few."""
        if self.kernel[0] * self.kernel[1] <= SMALL or self._shares_code(target):
            return False
        return target.registers == 32 and self.size_out[1] >= (14 if self.quantised is None else 28)

    def _declared(self) -> te.Operand:
        q, operands = self.quantised, self.operands
        pad = 0 if q is None else q.zero_point_in
        x = te.tensor("x", operands["x"].dtype, operands["x"].shape, pad=pad)
        real = q is None or self.narrow
        w = te.tensor("w", "float32" if real else "int8", operands["w"].shape)
        bias = te.tensor("bias", "float32" if real else "int32", operands["bias"].shape)
        rows, columns = self.size_out
        n, y, xo, c = te.axes(n=self.batch, y=rows, x=columns, c=self.channels)
        ky, kx = te.reduce_axes(ky=self.kernel[0], kx=self.kernel[1])
        row = y * self.strides[0] + ky * self.dilations[0] - self.pads[0]
        column = xo * self.strides[1] + kx * self.dilations[1] - self.pads[1]
        read = x[n, row, column, c]
        read = te.real(read) if self.narrow else read
        total = te.sum(read * w[ky, kx, c], over=(ky, kx)) + bias[c]
        if q is None:
            value = activated(total, self.activation, "depthwise convolution")
            return te.compute("out", "float32", (n, y, xo, c), value)
        scale = te.tensor("scale", "float32", (self.channels,))
        return te.compute("out", q.dtype_out, (n, y, xo, c), q.requantised(total, scale[c]))
