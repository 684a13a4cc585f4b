"""Pooling of NHWC arrays: the largest value of each window, or its mean, vectors along channels.

A tile of output pixels by vectors of channels stays in registers. The image is read as it is: rows
and tiles at its border have code of their own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import CompileError
from ... import te
from ...te.declare import FLOAT32_MAX
from ..target import Target
from .description import Array, Plan

UNROLLED = 64
"""Reads of a tile up to which its window is written out."""

SIDE_BY_SIDE = 4
"""Vectors that are reduced together, of one pixel where it has so many: memory is read in order,
and sums do not wait for each other."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """`out[n, y, x, c] = largest or mean of x[n, y * s + ky * d - top, ..., c]` over the window.

    The operand is `x` as [N, H, W, C], float32. Padding is never the largest, unless a window has
    nothing else.

    Parameters
    ----------
    batch, height, width, channels
        Extents.
    kernel, strides, dilations
        Of the window, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    average
        Whether the mean is wanted, not the largest value.
    count_include_pad
        Whether the divisor of a mean counts padding.
    overhang
        Rows and columns that the last windows reach beyond the padding; never counted.
    """

    batch: int
    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    average: bool = False
    count_include_pad: bool = False
    overhang: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if min(self.size_out) < 1:
            raise CompileError(
                f"pooling: the window {self.kernel} does not fit {self.height}x{self.width} with "
                f"pads {self.pads}; enlarge the pads"
            )

    @property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        top, left, bottom, right = self.pads
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]
        padded = (
            self.height + top + bottom + self.overhang[0],
            self.width + left + right + self.overhang[1],
        )
        return (
            (padded[0] - reach[0]) // self.strides[0] + 1,
            (padded[1] - reach[1]) // self.strides[1] + 1,
        )

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given."""
        return {"x": Array("float32", (self.batch, self.height, self.width, self.channels))}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", (self.batch, *self.size_out, self.channels))

    @property
    def macs(self) -> int:
        """Additions or comparisons: what it does in place of multiplications."""
        return self.kernel[0] * self.kernel[1] * math.prod(self.output.shape)

    @property
    def counted(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows that the divisor counts, float32[rows], and columns likewise."""
        found = []
        for axis, extent in enumerate((self.height, self.width)):
            before, after = self.pads[axis], self.pads[axis + 2]
            low, high = (-before, extent + after) if self.count_include_pad else (0, extent)
            starts = np.arange(self.size_out[axis]) * self.strides[axis] - before
            places = starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
            found.append(((places >= low) & (places < high)).sum(axis=1).astype(np.float32))
        return found[0], found[1]

    @property
    def uniform(self) -> bool:
        """Whether all windows have the same divisor."""
        return all((counts == counts[0]).all() for counts in self.counted)

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Divisors, where they differ, as a product of rows and columns."""
        if not self.average or self.uniform:
            return constants
        rows, columns = self.counted
        return {"rows": rows, "columns": columns}

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        schedule = te.Schedule(te.kernel("pooling", self._declared()), processor=target.processor)
        lanes, columns = target.lanes, self.size_out[1]
        vectors = min(SIDE_BY_SIDE, -(-self.channels // lanes))
        pixels = -(-columns // -(-columns // (SIDE_BY_SIDE // vectors)))
        schedule.split("out", "x", pixels)
        schedule.split("out", "c", vectors * lanes)
        schedule.split("out", "c.i", lanes)
        schedule.reorder("out", "n", "y", "x.o", "c.o", "ky", "kx", "x.i", "c.i.o", "c.i.i")
        window = self.kernel[0] * self.kernel[1]
        for loop in ("ky", "kx") if window * pixels * vectors <= UNROLLED else ():
            schedule.unroll("out", loop)
        for loop in ("x.i", "c.i.o"):
            schedule.unroll("out", loop)
        schedule.vectorise("out", "c.i.i")
        schedule.parallelise("out", schedule.fuse("out", "n", "y"))
        return Plan(schedule)

    def _declared(self) -> te.Operand:
        rows, columns = self.size_out
        pad = 0 if self.average else -FLOAT32_MAX
        source = te.tensor("x", "float32", self.operands["x"].shape, pad=pad)
        n, y, x, c = te.axes(n=self.batch, y=rows, x=columns, c=self.channels)
        over = ky, kx = te.reduce_axes(ky=self.kernel[0], kx=self.kernel[1])
        element = source[
            n,
            y * self.strides[0] + ky * self.dilations[0] - self.pads[0],
            x * self.strides[1] + kx * self.dilations[1] - self.pads[1],
            c,
        ]
        if not self.average:
            return te.compute("out", "float32", (n, y, x, c), te.max(element, over=over))
        total = te.sum(element, over=over)
        if self.uniform:
            counts = [float(found[0]) for found in self.counted]
            value = total / (counts[0] * counts[1])
        else:
            counted = te.tensor("rows", "float32", (rows,))[y]
            value = total / (counted * te.tensor("columns", "float32", (columns,))[x])
        return te.compute("out", "float32", (n, y, x, c), value)
