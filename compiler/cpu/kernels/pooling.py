"""Pooling of NHWC arrays: the largest value of each window, or its mean, vectors along channels.

The image is read as it is: rows and tiles at its border have code of their own.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from ... import te
from ...te.declare import FLOAT32_MAX
from ...te.target import REGISTER
from ..target import CpuTarget
from .description import Array, Constants, KernelSchedule, even_blocks
from .epilogue import Epilogue
from .quantised import Requantisation
from .windows import Pair, Windowed

UNROLLED = 64
"""Most reads of a float32 tile whose window is unrolled."""

UNROLLED_BYTES = 9
"""Taps of the largest window of bytes that is unrolled."""

SIDE_BY_SIDE = 4
"""Vectors that are reduced together, of one pixel if it has enough: memory is read in order, and
sums do not wait for each other."""


@dataclass(frozen=True, slots=True)
class PoolingWindow(Windowed):
    """A kernel that reduces the windows of every channel.

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
    dtype = computed = "float32"

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        image = (self.batch, self.height, self.width, self.channels)
        pooled = (self.batch, *self.size_out, self.channels)
        return {"x": Array(self.dtype, image), "out": Array(self.computed, pooled)}

    def read(
        self, pad: int
    ) -> tuple[te.TensorExpression, tuple[te.Index, ...], tuple[te.Index, ...]]:
        """An element under a window, the axes of the output, and those of the window."""
        source = te.tensor("x", self.dtype, self.operands["x"].shape, pad=pad)
        rows, columns = self.size_out
        axes = n, y, x, c = te.axes(n=self.batch, y=rows, x=columns, c=self.channels)
        over = ky, kx = te.reduce_axes(ky=self.kernel[0], kx=self.kernel[1])
        row, column = self.row(y, ky) - self.pads[0], self.column(x, kx) - self.pads[1]
        return source[n, row, column, c], axes, over


@dataclass(frozen=True, slots=True)
class Pooling(PoolingWindow):
    """`out[n, y, x, c] = largest or mean of x[n, y * s + ky * d - top, ..., c]` over the window.

    The operand is `x` as [N, H, W, C], float32. Padding is never the largest, unless a window has
    nothing else. `PoolingWindow` has the other parameters.

    Parameters
    ----------
    average
        Whether the result is the mean instead of the largest value.
    count_include_pad
        Whether the divisor of a mean counts padding.
    overhang
        Rows and columns that the last windows extend beyond the padding; never counted.
    """

    average: bool = False
    count_include_pad: bool = False
    overhang: Pair = (0, 0)

    @property
    def macs(self) -> int:
        """Additions or comparisons."""
        return self.taps * int(np.prod(self.output.shape))

    @property
    def counted(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows that count in the divisor of each output row, float32[rows]; likewise columns."""
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

    def prepare(self, constants: Constants, target: CpuTarget) -> Constants:
        """The counts of rows and columns, if divisors differ."""
        if not self.average or self.uniform:
            return constants
        rows, columns = self.counted
        return {"rows": rows, "columns": columns}

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: tiles of pixels by vectors of channels stay in registers."""
        s = te.Schedule(te.kernel("pooling", self._declared()), target.processor)
        lanes, columns = target.lanes, self.size_out[1]
        vectors = min(SIDE_BY_SIDE, -(-self.channels // lanes))
        pixels = even_blocks(columns, SIDE_BY_SIDE // vectors)
        window = "ky* kx*" if self.taps * pixels * vectors <= UNROLLED else "ky kx"
        loops = f"(n y) x.o c.o {window} x.i* c.i.o* c.i.i~"
        s.nest("out", loops, x=pixels, c=(vectors * lanes, lanes))
        return KernelSchedule(s)

    def _declared(self) -> te.DeclaredTensor:
        element, axes, over = self.read(0 if self.average else -FLOAT32_MAX)
        if not self.average:
            return te.compute("out", "float32", axes, te.max(element, over=over))
        total, (rows, columns) = te.sum(element, over=over), self.size_out
        if self.uniform:
            counts = [float(found[0]) for found in self.counted]
            value = total / (counts[0] * counts[1])
        else:
            counted = te.tensor("rows", "float32", (rows,))[axes[1]]
            value = total / (counted * te.tensor("columns", "float32", (columns,))[axes[2]])
        return te.compute("out", "float32", axes, value)


@dataclass(frozen=True, slots=True)
class PoolingPlaces(PoolingWindow):
    """The index of the first maximum under each window in `x` as [N, C, H, W], int64.

    The operand is `x` as [N, H, W, C], float32; a NaN is the largest number. Where a window has
    padding and else only numbers below all finite ones, the index is one of the padding.
    """

    computed = "int64"

    @property
    def macs(self) -> int:
        """Number of comparisons."""
        return self.taps * int(np.prod(self.output.shape))

    def prepare(self, constants: Constants, target: CpuTarget) -> Constants:
        """First-tap indices of the windows in a plane, and plane offsets."""
        rows, columns = (
            np.arange(size) * stride - pad
            for size, stride, pad in zip(self.size_out, self.strides, self.pads[:2], strict=True)
        )
        planes = np.arange(self.batch * self.channels) * self.height * self.width
        return {
            "corners": (rows[:, None] * self.width + columns).astype(np.int64),
            "planes": planes.astype(np.int64).reshape(self.batch, self.channels),
        }

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: vectors of channels, the window unrolled."""
        s = te.Schedule(te.kernel("places", self._declared()), target.processor)
        s.nest("out", "(n y) c.o c.i~", c=min(target.lanes, self.channels))
        s.compute_at("most", "out", "c.o")
        s.set_scope("most", REGISTER)
        s.vectorise("most", "c")
        return KernelSchedule(s)

    def _declared(self) -> te.DeclaredTensor:
        source = te.tensor("x", "float32", self.operands["x"].shape, pad=-FLOAT32_MAX)
        corners = te.tensor("corners", "int64", self.size_out)
        planes = te.tensor("planes", "int64", (self.batch, self.channels))
        rows, columns = self.size_out
        axes = n, y, x, c = te.axes(n=self.batch, y=rows, x=columns, c=self.channels)
        steps = list(np.ndindex(*self.kernel))
        places = [(ky * self.dilations[0], kx * self.dilations[1]) for ky, kx in steps]
        top, left = self.pads[:2]
        taps = [
            source[n, y * self.strides[0] + ky - top, x * self.strides[1] + kx - left, c]
            for ky, kx in places
        ]
        most = te.compute("most", "float32", axes, functools.reduce(te.maximum, taps))[axes]
        found = te.constant(0)
        for is_first in (
            lambda tap: te.equal(tap, most),
            lambda tap: te.less(te.equal(tap, tap), 1),
        ):
            for (ky, kx), tap in reversed(list(zip(places, taps, strict=True))):
                found = te.select(is_first(tap), te.constant(ky * self.width + kx), found)
        return te.compute("out", "int64", axes, corners[y, x] + planes[n, c] + found)


@dataclass(frozen=True, slots=True)
class BytePooling(PoolingWindow):
    """`out[n, y, x, c]` of the window at `x[n, y * s - top, x * s - left, c]`, int8[N, H, W, C].

    The largest element, limited to `low`..`high`; or, if there is a scale, the sum of the window
    and `constant`, requantised. `PoolingWindow` has the other parameters.

    Parameters
    ----------
    quantised
        Limits of the output; for sums also its zero point.
    zero_point
        The number of the padding; only for sums.
    constant
        Number added to sums.
    scale
        None for the largest element.
    """

    quantised: Requantisation = field(kw_only=True)
    zero_point: int = 0
    constant: int = 0
    scale: float | None = None
    dtype = computed = "int8"

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: a vector of channels stays in a register over the window."""
        s = te.Schedule(te.kernel("pooling", self._declared()), target.processor)
        lanes = target.lanes * (4 if self.scale is None else 1)
        window = "ky* kx*" if self.taps <= UNROLLED_BYTES else "ky kx"
        s.nest("out", f"(n y) x c.o {window} c.i~", c=min(lanes, self.channels))
        return KernelSchedule(s)

    def _declared(self) -> te.DeclaredTensor:
        q = self.quantised
        read, axes, over = self.read(-128 if self.scale is None else self.zero_point)
        if self.scale is None:
            total, formula = te.max(read, over=over), q.limited("sum")
        else:
            total = te.sum(read, over=over) + self.constant
            formula = q.requantised("sum", self.scale)
        value = Epilogue(formula, q.dtype).value(total)
        return te.compute("out", "int8", axes, value)
