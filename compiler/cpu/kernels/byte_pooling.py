"""Pooling of NHWC arrays of int8, vectors along the channels."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import te
from ..target import Target
from .description import Array, Plan
from .quantised import Quantised
from .windows import check_windows, count_windows

UNROLLED = 9
"""Elements of the largest window that is written out."""


@dataclass(frozen=True, slots=True)
class BytePooling:
    """`out[n, y, x, c]` of the window at `x[n, y * s - top, x * s - left, c]`, int8[N, H, W, C].

    The largest element, limited to `low`..`high`; or, where there is a scale, the sum of the window
    and `constant`, requantised.

    Parameters
    ----------
    batch, height, width, channels
        Extents.
    kernel, strides
        Of the window, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    quantised
        Limits of the output; for sums also the zero points.
    dilations
        Of the window, vertical first.
    constant
        Added to sums.
    scale
        None for the largest element.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    quantised: Quantised
    dilations: tuple[int, int] = (1, 1)
    constant: int = 0
    scale: float | None = None

    def __post_init__(self) -> None:
        check_windows(self, "pooling")

    @property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        return count_windows(self)

    @property
    def operands(self) -> Mapping[str, Array]:
        """The image."""
        return {"x": Array("int8", (self.batch, self.height, self.width, self.channels))}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("int8", (self.batch, *self.size_out, self.channels))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule: a vector of channels stays in a register over the window."""
        schedule = te.Schedule(te.kernel("pooling", self._declared()), processor=target.processor)
        lanes = target.lanes * (4 if self.scale is None else 1)
        schedule.split("out", "c", min(lanes, self.channels))
        schedule.reorder("out", "n", "y", "x", "c.o", "ky", "kx", "c.i")
        if self.kernel[0] * self.kernel[1] <= UNROLLED:
            schedule.unroll("out", "ky")
            schedule.unroll("out", "kx")
        schedule.vectorise("out", "c.i")
        schedule.parallelise("out", schedule.fuse("out", "n", "y"))
        return Plan(schedule)

    def _declared(self) -> te.Operand:
        q = self.quantised
        pad = -128 if self.scale is None else q.zero_point_in
        x = te.tensor("x", "int8", self.operands["x"].shape, pad=pad)
        rows, columns = self.size_out
        n, y, xo, c = te.axes(n=self.batch, y=rows, x=columns, c=self.channels)
        ky, kx = over = te.reduce_axes(ky=self.kernel[0], kx=self.kernel[1])
        row = y * self.strides[0] + ky * self.dilations[0] - self.pads[0]
        column = xo * self.strides[1] + kx * self.dilations[1] - self.pads[1]
        read = x[n, row, column, c]
        if self.scale is None:
            value = q.limited(te.max(read, over=over))
        else:
            total = te.sum(read, over=over) + self.constant
            value = q.requantised(total, te.constant(self.scale))
        return te.compute("out", "int8", (n, y, xo, c), value)
