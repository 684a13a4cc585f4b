"""Depthwise convolution: every channel by its own window, vectors along the channels.

A tile of output pixels by a vector of channels stays in registers, and the window is written out,
so that what neighbouring windows share is loaded once. The image is read as it is: rows and tiles
at its border have code of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import CompileError
from .. import te
from .description import Array, Plan, activated
from .quantised import Quantised
from .target import Target
from .windows import check_windows, count_windows

LARGEST = 49
"""Taps of the largest window that is written out; the code of larger ones would take minutes."""


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
        lanes = target.lanes
        many = target.registers == 32
        columns, most = self.size_out[1], 7 if many and self.strides[1] == 1 else 4
        pixels = -(-columns // -(-columns // most))
        schedule.split("out", "y", 2 if many else 1)
        schedule.split("out", "x", pixels)
        schedule.split("out", "c", lanes)
        schedule.reorder("out", "n", "y.o", "x.o", "c.o", "ky", "kx", "y.i", "x.i", "c.i")
        written_out = self.kernel[0] * self.kernel[1] <= LARGEST
        for loop in (*(("ky", "kx") if written_out else ()), "y.i", "x.i"):
            schedule.unroll("out", loop)
        schedule.vectorise("out", "c.i")
        schedule.parallelise("out", "y.o")
        return Plan(schedule)

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
