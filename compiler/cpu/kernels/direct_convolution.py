"""Direct convolution: tiles of the output in registers over the whole reduction.

Activations lie as NHWC; pixel and channel are one dimension, so that a row of a window is one run
of `kernel width * channels` elements and the reduction has two loops: rows of the window, and
elements of the run. Borders are put around the image once. Weights are packed in panels of two
vectors of output channels, in the order in which the loops read them; wider ones would not stay in
the second cache while all pixels meet them. A tile of output pixels by one panel stays in registers
over the whole reduction, and what follows is done on it there.

Bytes are multiplied by the processor's dot products. Where that takes unsigned activations alone,
signed ones are moved up by 128; zero points are taken out again through the bias.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ... import te
from ..codegen.layout import Layout
from ..target import Target
from .description import Plan, activated, round_up

if TYPE_CHECKING:
    from .convolution import Convolution

WAY_BYTES = 4096
"""Distance at which addresses share a set of the first cache, on all x86-64 so far."""

GAP = 64
"""Elements between rows that would lie so."""

SAFE_ROWS = 4
"""Rows that may share a set: a cache has eight ways or more."""


class DirectPlanner:
    """Declares and schedules one convolution for one target.

    Parameters
    ----------
    conv
        The convolution.
    target
        What it is compiled for.
    """

    def __init__(self, conv: "Convolution", target: Target) -> None:
        self.conv, self.target = conv, target
        self.instruction = None if conv.quantised is None else target.processor.instructions[0]
        self.taps = self.instruction.taps if self.instruction else 1
        self.pixels, self.vectors = tile_of(conv, target)
        self.panel = self.vectors * target.lanes
        few = self.instruction is not None and conv.channels_out < target.lanes
        self.channels = target.lanes if few else conv.channels_out
        self.name = "wide" if few else "out"

    @property
    def shift(self) -> int:
        """What is added to signed bytes."""
        q = self.conv.quantised
        if q is None or self.instruction is None or q.dtype_in == "uint8":
            return 0
        return 0 if (q.dtype_in, "int8") in self.instruction.pairs else 128

    @property
    def rows(self) -> bool:
        """Whether pixels are rows of a matrix: one tap, no border, no stride."""
        c = self.conv
        return c.kernel == (1, 1) and c.strides == (1, 1) and not any(c.pads)

    def plan(self) -> Plan:
        """Declaration, schedule and layouts."""
        c = self.conv
        out = self.declared()
        schedule = te.Schedule(te.kernel("convolution", out), processor=self.target.processor)
        if any(stage.name == "padded" for stage in schedule.stages):
            self.schedule_border(schedule)
        self.schedule_tiles(schedule)
        room = round_up(c.channels_out, self.panel)
        order = [(2, 0), (0, 0), (1, 0), (2, 1)]
        blocks: tuple[tuple[int, ...], ...] = ((), (), (self.panel,))
        run = self.run
        if self.taps > 1:
            blocks, order = ((), (self.taps,), (self.panel,)), [*order, (1, 1)]
        first = c.kernel[0] if self.merged else c.kernel[0] * c.kernel[1]
        layouts = {"w": Layout((first, run, room), blocks, tuple(order))}
        for name in ("bias", "scale"):
            if name in c.operands:
                layouts[name] = Layout.plain((room,))
        return Plan(schedule, layouts)

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Weights as rows of runs, and the zero point taken out through the bias."""
        w, q = constants["w"], self.conv.quantised
        prepared = dict(constants)
        if q is not None:
            sums = w.astype(np.int64).sum(axis=(0, 1, 2))
            bias = constants["bias"] - (q.moved + self.shift) * sums
            prepared["bias"] = bias.astype(np.int32)
        shape = (w.shape[0], -1, w.shape[3]) if self.merged else (-1, *w.shape[2:])
        prepared["w"] = w.reshape(shape)
        return prepared

    @property
    def merged(self) -> bool:
        """Whether a row of the window is one run."""
        return self.conv.dilations[1] == 1

    @property
    def run(self) -> int:
        """Elements of a run, whole groups of taps."""
        c = self.conv
        return round_up(c.channels_in * (c.kernel[1] if self.merged else 1), self.taps)

    @property
    def crowded(self) -> bool:
        """Whether rows of a matrix lie so that all of a tile fall on the same few cache lines."""
        size = 4 if self.conv.quantised is None else 1
        apart = self.conv.channels_in * size % WAY_BYTES == 0
        return self.rows and apart and self.pixels > SAFE_ROWS

    # Declaration ---------------------------------------------------------------------------------

    def declared(self) -> te.Operand:
        """The convolution over rows of runs, and what follows."""
        c = self.conv
        (rows, columns), channels = c.size_out, c.channels_in
        images, width = c.batch, c.width
        if self.rows:
            images, rows, columns, width = (
                1,
                1,
                c.batch * rows * columns,
                c.batch * c.height * width,
            )
        number = c.operands["x"].dtype
        pad = 0 if c.quantised is None else c.quantised.zero_point_in
        height = 1 if self.rows else c.height
        x = te.tensor("x", number, (images, height, width * channels), pad=pad)
        first = c.kernel[0] if self.merged else c.kernel[0] * c.kernel[1]
        w = te.tensor("w", c.operands["w"].dtype, (first, self.run, self.channels))
        n, y, xo, o = te.axes(n=images, y=rows, x=columns, o=self.channels)
        stride, step = c.strides[0], c.strides[1] * channels
        reach = (columns - 1) * step + self.run
        if self.merged:
            ky, t = over = te.reduce_axes(ky=c.kernel[0], t=self.run)
            row, column, tap = y * stride + ky * c.dilations[0], xo * step + t, ky
        else:
            ky, kx, t = over = te.reduce_axes(ky=c.kernel[0], kx=c.kernel[1], t=self.run)
            row = y * stride + ky * c.dilations[0]
            column = xo * step + kx * (c.dilations[1] * channels) + t
            tap, reach = (
                ky * c.kernel[1] + kx,
                reach + (c.kernel[1] - 1) * c.dilations[1] * channels,
            )
        source = x
        last = (rows - 1) * stride + (c.kernel[0] - 1) * c.dilations[0] + 1
        if self.crowded or any(c.pads) or self.shift or reach > width * channels:
            if self.crowded:
                pn, py, px = te.axes(pn=1, py=columns, px=channels + GAP)
                moved, row, column = x[pn, 0, py * channels + px], xo, t
            else:
                pn, py, px = te.axes(pn=images, py=last, px=reach)
                moved = x[pn, py - c.pads[0], px - c.pads[1] * channels]
            moved = moved + self.shift if self.shift else moved
            kind = "uint8" if self.shift else number
            source = te.compute("padded", kind, (pn, py, px), moved)
        total = te.sum(source[n, row, column] * w[tap, t, o], over=over)
        finished = self.finished(total, n, y, xo, o)
        computed = te.compute(self.name, c.output.dtype, (n, y, xo, o), finished)
        if self.name == "out":
            return computed
        n, y, xo, o = te.axes(n=images, y=rows, x=columns, o=c.channels_out)
        return te.compute("out", c.output.dtype, (n, y, xo, o), computed[n, y, xo, o])

    def finished(self, total: te.Value, n, y, x, o) -> te.Value:
        """What becomes of a sum."""
        c, q = self.conv, self.conv.quantised
        kind = "float32" if q is None else "int32"
        total = total + te.tensor("bias", kind, (self.channels,))[o]
        if q is None:
            if c.residual:
                total = total + self.residual[n, y, x, o]
            return activated(total, c.activation, "convolution")
        scale = te.tensor("scale", "float32", (self.channels,))
        value = q.requantised(total, scale[o])
        return c.added.added(value, self.residual[n, y, x, o]) if c.added else value

    @property
    def residual(self) -> te.Operand:
        """What is added, in the shape of the sums."""
        c = self.conv
        places = (1, 1, c.batch * c.height * c.width) if self.rows else (c.batch, *c.size_out)
        return te.tensor("residual", c.output.dtype, (*places, c.channels_out))

    # Schedule ------------------------------------------------------------------------------------

    def schedule_border(self, s: te.Schedule) -> None:
        """Rows of the image with their border, whole vectors at a time."""
        lanes = self.target.lanes * (1 if self.conv.quantised is None else 4)
        s.split("padded", "px", lanes)
        s.vectorise("padded", "px.i")
        s.parallelise("padded", "py" if self.rows else s.fuse("padded", "pn", "py"))

    def schedule_tiles(self, s: te.Schedule) -> None:
        """A tile in registers over the whole reduction; panels outside of rows."""
        s.split(self.name, "x", self.pixels)
        s.split(self.name, "o", self.panel)
        s.split(self.name, "o.i", self.target.lanes)
        inner = ["x.i", "o.i.o", "o.i.i"]
        reductions = ["ky", "t"] if self.merged else ["ky", "kx", "t"]
        if self.instruction is not None:
            s.split(self.name, "t", self.taps)
            reductions[-1:] = ["t.o"]
            inner.append("t.i")
        s.reorder(self.name, "n", "o.o", "y", "x.o", *reductions, *inner)
        s.unroll(self.name, "x.i")
        s.unroll(self.name, "o.i.o")
        if self.instruction is not None:
            s.tensorise(self.name, "o.i.i")
        s.vectorise(self.name, "o.i.i")
        parallel = s.fuse(self.name, "o.o", "x.o" if self.rows else "y") if not self.rows else "o.o"
        s.parallelise(self.name, parallel)


def tile_of(conv: "Convolution", target: Target) -> tuple[int, int]:
    """Output pixels and vectors of output channels that are computed together.

    Sums, one vector of weights per column and a broadcast activation must fit the registers.
    """
    rows = conv.kernel == (1, 1) and conv.strides == (1, 1) and not any(conv.pads)
    columns = conv.batch * conv.height * conv.width if rows else conv.size_out[1]
    most = {"avx512vnni": 14, "avx2": 6, "sse2": 4}[target.level]
    blocks = -(-columns // most)
    pixels = -(-columns // blocks)
    return pixels, 1 if conv.channels_out <= target.lanes else 2
