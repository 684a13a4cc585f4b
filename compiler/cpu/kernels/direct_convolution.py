"""Direct convolution: tiles of the output in registers over the whole reduction.

Activations lie as NHWC; pixel and channel are one dimension, so that a row of a window is one run
of `kernel width * channels` elements and the reduction has two loops: rows of the window, and
elements of the run. The border of the image is added once. Weights are packed in panels of two
vectors of output channels, in the order in which the loops read them; wider ones would not stay in
the second cache while all pixels meet them.

Bytes are multiplied by the processor's vector or matrix instructions
(`tiles.Multiplication`); zero points are taken out again through the bias.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ... import te
from ..codegen.layout import Layout
from ..target import CpuTarget
from .description import KernelSchedule, even_blocks, round_up
from .tiles import (
    MatrixTile,
    Multiplication,
    panel_of,
    panels,
    schedule_matrix_tiles,
    schedule_tiles,
)

if TYPE_CHECKING:
    from .convolution import Convolution

WAY_BYTES = 4096
"""Distance at which addresses share a set of the first cache, on all x86-64 so far."""

GAP = 64
"""Elements inserted between rows at such distances."""

SAFE_ROWS = 4
"""Number of rows that may share a set: a cache has eight ways or more."""

MIN_PARTS, MAX_PARTS = 3, 64
"""Smallest and largest number of parts into which an image is cut for threads."""

MAX_WEIGHTS = 3 << 18
"""Maximum bytes of weights for which an image is cut into parts. Every part reads all weights
again, so they must fit L2."""

TILE_ROWS = 2.5
"""Fixed time of a tile, in units of the time of one row."""

SLACK = 1.0625
"""Factor by which one thread may be slower if the image has more parts."""


class DirectPlanner:
    """The declaration and schedule of one convolution for one target."""

    def __init__(self, conv: "Convolution", target: CpuTarget) -> None:
        self.conv, self.target = conv, target
        self.columns = math.prod(conv.image[:-1]) if self.is_matrix else conv.size_out[1]
        self.merged = conv.dilations[1] == 1
        """Whether a row of the window is one run."""
        self.runs = conv.kernel[0] if self.merged else conv.taps
        """Runs of a window."""
        run = conv.channels_in * (conv.kernel[1] if self.merged else 1)
        self.product = Multiplication.of(
            conv.quantised, target, conv.small_pairs, self.columns, self.runs, run
        )
        self.run = round_up(run, self.product.depth)
        """Elements of a run, for whole instructions."""
        self.most = target.tile.rows
        self.panel = panel_of(conv.channels_out, target)
        self.matrix: MatrixTile | None = None
        """The tile, if the kernel uses matrix instructions."""
        if self.product.most_rows:
            self.matrix = MatrixTile.of(self.columns, self.panel, self.product.most_rows)
        self.lines = self._lines()
        """Lines of the image in a tile."""
        self.parts = self._parts()
        """Parts of the image that threads share; 1 if they share panels and rows instead."""
        self.part = math.ceil(self.columns / self.parts) if self.is_matrix else self.columns
        """Pixels side by side in a part."""
        self.pixels = self.matrix.height if self.matrix else even_blocks(self.part, self.most)
        """Pixels of a tile side by side."""
        if self.matrix:
            self.part = round_up(self.part, self.pixels)
        few = self.product.instruction is not None and conv.channels_out < target.lanes
        self.channels = target.lanes if few else conv.channels_out
        self.name = "wide" if few else "out"

    def _lines(self) -> int:
        """Return 2 if each tile takes two lines, so that it uses its weights twice.

        The last tile of an odd number of lines is cut off. Threads then share only panels, of which
        there must be several.
        """
        height, tile = self.conv.size_out[0], self.matrix
        if tile is None or tile.down > 1 or self.is_matrix or height == 1:
            return 1
        return 2 if height % 2 == 0 or self.conv.channels_out > 2 * self.panel else 1

    def _parts(self) -> int:
        """Return the largest number of parts that hardly slows one thread down.

        Parts must be equal, because a tile that is cut off tests every row. The parts of a matrix
        may also be single tiles, of which only the last is cut off. Matrix instructions test
        nothing; their parts are whole tiles.
        """
        extent, costs = self.columns if self.is_matrix else self.conv.size_out[0], {}
        if extent % self.lines:
            return 1
        if self.matrix:
            extent = math.ceil(extent / (self.matrix.height if self.is_matrix else self.lines))
        for parts in range(1, min(extent, MAX_PARTS) + 1):
            part = math.ceil(extent / parts)
            if self.is_matrix and not self.matrix:
                tiles = math.ceil(part / self.most)
                if extent % parts == 0 or (tiles == 1 and math.ceil(extent / part) == parts):
                    costs[parts] = parts * tiles * (math.ceil(part / tiles) + TILE_ROWS)
            elif extent % parts == 0:
                costs[parts] = 1
        few = math.prod(self.conv.weights) * self.itemsize <= MAX_WEIGHTS
        best = max(parts for parts, cost in costs.items() if cost <= SLACK * min(costs.values()))
        return best if few and best >= MIN_PARTS else 1

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the operands."""
        return 4 if self.conv.quantised is None else 1

    @property
    def dtype(self) -> str:
        """Element type of the output."""
        return self.conv.output.dtype

    @property
    def weights(self) -> str:
        """Element type of the weights."""
        return self.conv.operands["w"].dtype

    def row(self, y: te.Index, ky: te.Index) -> te.Index:
        """The row of the image that row `ky` of the window reads."""
        return self.conv.row(y, ky)

    @property
    def by_column(self) -> tuple[str, ...]:
        """Constants with one element for each output channel."""
        return ("bias",) if self.conv.quantised is None else ("bias", "scale")

    @property
    def is_matrix(self) -> bool:
        """Whether pixels are rows of a matrix: one tap, no border, no stride."""
        c = self.conv
        return c.kernel == (1, 1) and c.strides == (1, 1) and not any(c.pads)

    @property
    def crowded(self) -> bool:
        """Whether the rows of a tile compete for the same set of the cache."""
        size = 2 if self.product.words else self.itemsize
        apart = self.conv.channels_in * size % WAY_BYTES == 0
        return self.is_matrix and apart and self.pixels > SAFE_ROWS

    def plan(self) -> KernelSchedule:
        """Declaration, schedule and layouts."""
        processor = self.product.processor(self.target)
        s = te.Schedule(te.kernel("convolution", self.declared()), processor)
        if any(stage.name == "padded" for stage in s.stages):
            s.split("padded", "px", self.target.lanes * (1 if self.conv.quantised is None else 4))
            s.vectorise("padded", "px.i")
            s.parallelise("padded", "py" if self.is_matrix else s.fuse("padded", "pn", "py"))
        reductions, taps = ["ky", "t"] if self.merged else ["ky", "kx", "t"], ""
        if self.product.instruction is not None:
            s.split(self.name, "t", self.product.depth)
            reductions[-1], taps = "t.o", "t.i"
        pixels, y, order = "x", "y", ["n", "o.o", "y", "x.o"]
        if self.parts > 1 and self.is_matrix:
            s.split(self.name, "x", self.part)
            pixels, order = "x.i", ["n", "x.o", "o.o", "y", "x.i.o"]
        elif self.parts > 1:
            lines = math.ceil(self.conv.size_out[0] / self.lines / self.parts) * self.lines
            s.split(self.name, "y", lines)
            y, order = "y.i", ["n", "y.o", "o.o", "y.i", "x.o"]
        if self.lines > 1:
            s.split(self.name, y, self.lines)
            order[order.index(y)] = f"{y}.o"
        order += reductions
        lanes, columns = self.target.lanes, ("o", self.panel)
        if self.matrix:
            rows, lines = (pixels, self.matrix), [f"{y}.i"] if self.lines > 1 else []
            s.split(self.name, taps, self.product.taps)
            groups = f"{taps}.o", f"{taps}.i"
            schedule_matrix_tiles(s, self.name, (rows, columns), order, lanes, groups, lines)
        else:
            tile, depth = ((pixels, self.pixels), columns), 1 if taps else self.run
            schedule_tiles(s, self.name, tile, order, lanes, taps, depth)
        if self.is_matrix:
            s.parallelise(self.name, order[1])
        else:
            outer = order[:2] if self.parts > 1 else order[1:3]
            cut = self.conv.size_out[0] % self.lines > 0
            s.parallelise(self.name, order[1] if cut else s.fuse(self.name, *outer))
        shape = (self.runs, self.run, self.conv.channels_out)
        plain = Layout.plain((round_up(self.conv.channels_out, self.panel),))
        layouts = dict.fromkeys(self.by_column, plain)
        return KernelSchedule(s, {"w": panels(shape, self.panel, self.product.taps), **layouts})

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Arrange weights as rows of runs, and take the zero point out through the bias."""
        w, c = constants["w"], self.conv
        shape = (w.shape[0], -1, w.shape[3]) if self.merged else (-1, *w.shape[2:])
        prepared = {**constants, "w": w.reshape(shape)}
        if c.quantised is not None:
            bias = c.moved_bias(constants, self.product.shift)
            prepared["bias"] = bias.astype(np.int32)
        return prepared

    def declared(self) -> te.DeclaredTensor:
        """The convolution over rows of runs, with its requantisation or activation."""
        c = self.conv
        images, height, width, channels = c.image
        rows, columns = c.size_out
        if self.is_matrix:
            columns = width = c.batch * c.height * c.width
            images = height = rows = 1
        x = te.tensor("x", c.operands["x"].dtype, (images, height, width * channels), pad=c.pad)
        w = te.tensor("w", self.weights, (self.runs, self.run, self.channels))
        n, y, xo, o = te.axes(n=images, y=rows, x=columns, o=self.channels)
        step, apart = c.strides[1] * channels, c.dilations[1] * channels
        whole = round_up(columns, self.pixels) if self.matrix else columns
        reach = (whole - 1) * step + self.run
        if self.merged:
            ky, t = over = te.reduce_axes(ky=self.runs, t=self.run)
            column, tap = xo * step + t, ky
        else:
            ky, kx, t = over = te.reduce_axes(ky=c.kernel[0], kx=c.kernel[1], t=self.run)
            column, tap = xo * step + kx * apart + t, ky * c.kernel[1] + kx
            reach += (c.kernel[1] - 1) * apart
        row, source = self.row(y, ky), x
        if self.crowded or any(c.pads) or self.product.moves or reach > width * channels:
            if self.crowded:
                axes = pn, py, px = te.axes(pn=1, py=whole, px=channels + GAP)
                moved, row, column = x[pn, 0, py * channels + px], xo, t
            else:
                high = (rows - 1) * c.strides[0] + (c.kernel[0] - 1) * c.dilations[0] + 1
                axes = pn, py, px = te.axes(pn=images, py=high, px=reach)
                moved = x[pn, py - c.pads[0], px - c.pads[1] * channels]
            source = self.product.moved("padded", axes, moved, x)
        total = te.sum(source[n, row, column] * w[tap, t, o], over=over)
        axes = (n, y, xo, o)
        computed = te.compute(self.name, self.dtype, axes, self.finished(total, axes))
        return computed if self.name == "out" else narrowed(computed, "nyxo", c.channels_out)

    def finished(
        self, total: te.TensorExpression, axes: tuple[te.Index, ...]
    ) -> te.TensorExpression:
        """The result for a sum."""
        c, o, real = self.conv, axes[-1], self.conv.quantised is None
        total = total + te.tensor("bias", "float32" if real else "int32", (self.channels,))[o]
        places = (1, 1, c.batch * c.height * c.width) if self.is_matrix else c.output.shape[:-1]
        other = te.tensor("residual", c.output.dtype, (*places, c.channels_out))
        if real:
            return c.finished(total + other[axes] if c.residual else total, None)
        value = c.finished(total, te.tensor("scale", "float32", (self.channels,))[o])
        return c.added.added(value, other[axes]) if c.added else value


def narrowed(computed: te.DeclaredTensor, names: Sequence[str], columns: int) -> te.DeclaredTensor:
    """The first columns of a stage that has whole vectors of them, its axes by their names."""
    extents = (*computed.tensor.shape[:-1], columns)
    axes = te.axes(**dict(zip(names, extents, strict=True)))
    return te.compute("out", computed.tensor.dtype, axes, computed[axes])
