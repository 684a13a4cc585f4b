"""Direct convolution: tiles of the output in registers over the whole reduction.

Activations lie as NHWC; pixel and channel are one dimension, so that a row of a window is one run
of `kernel width * channels` elements and the reduction has two loops: rows of the window, and
elements of the run. The border of the image is added once. Weights are packed in panels of two
vectors of output channels, in the order in which the loops read them; wider panels would be evicted
from L2 before every pixel has used them.

Bytes are multiplied by the processor's vector or matrix instructions
(`tiles.Multiplication`).
"""

import math
from typing import TYPE_CHECKING

from typing_extensions import override

from ....aligned import round_up
from ... import te
from ..target import CpuTarget
from .choices import Choices
from .description import Constants, KernelSchedule
from .product import MAX_PARTS, PanelPlanner
from .tiles import MatrixTile, panels, pick_multiplication

if TYPE_CHECKING:
    from .convolution import Convolution


class DirectPlanner(PanelPlanner):
    """The declaration and schedule of one convolution for one target."""

    def __init__(self, conv: "Convolution", target: CpuTarget, choices: Choices) -> None:
        self.conv, width = conv, conv.size_out[1]
        self.merged = conv.dilations[1] == 1
        """True if a row of the window is one run."""
        self.runs = conv.kernel[0] if self.merged else conv.taps
        """Runs of a window."""
        run = conv.channels_in * (conv.kernel[1] if self.merged else 1)
        sizes = width, self.runs, run
        way = pick_multiplication(choices, conv.dtype, target, conv.small_pairs, sizes)
        super().__init__(conv, target, way, conv.channels_out, choices)
        self.pick_panel(width)
        self.depth = round_up(run, way.depth)
        """Elements of a run, for whole instructions."""
        if way.most_rows:
            self.matrix = MatrixTile.of(width, self.panel, way.most_rows)
        self.lines = self._lines()
        """Lines of the image in a tile."""
        self.parts = self._parts()
        """Parts of the image that threads share; 1 if they share panels and lines instead."""
        self.tile_rows = self.matrix.height if self.matrix else self.pick_rows(width)
        self.pick_steps()

    def _lines(self) -> int:
        """Return 2 if each tile takes two lines, so that it uses its weights twice.

        The last tile of an odd number of lines is cut off. Threads then share only panels, of which
        there must be several.
        """
        height, tile = self.conv.size_out[0], self.matrix
        if tile is None or tile.down > 1 or height == 1:
            return 1
        default = 2 if height % 2 == 0 or self.columns > 2 * self.panel else 1
        return self.choices.pick("lines", default, (1, 2))

    def _parts(self) -> int:
        """Return the parts of the image: equal ones, because a tile that is cut off tests rows."""
        lines, odd = divmod(self.conv.size_out[0], self.lines)
        if odd:
            return 1
        equal = [parts for parts in range(1, min(lines, MAX_PARTS) + 1) if lines % parts == 0]
        return self.pick_parts(dict.fromkeys(equal, 1), math.prod(self.conv.weights))

    @override
    def plan(self) -> KernelSchedule:
        kernel = te.kernel("convolution", self.declared())
        s = te.Schedule(kernel, self.way.processor(self.target))
        if any(stage.name == "padded" for stage in s.stages):
            width = self.target.lanes * (1 if self.way.instruction is None else 4)
            s.nest("padded", "(pn py) px.i~", px=width)
        height, y, line = self.conv.size_out[0], "y", ""
        if self.parts > 1:
            _, y = s.split(self.name, y, height // self.parts)
        if self.lines > 1:
            y, line = s.split(self.name, y, self.lines)
        if self.parts > 1:
            outer = f"(n y.o) o.o {y}"
        else:
            outer = f"n (o.o) {y}" if height % self.lines else f"n (o.o {y})"
        self.cut(s, "x", f"{outer} x.o {'ky t' if self.merged else 'ky kx t'}", line)
        w = panels((self.runs, self.depth, self.columns), self.panel, self.way.taps)
        layouts = self.layouts(w)
        return KernelSchedule(s, {n: layouts[n] for n in self.conv.constants})

    @override
    def prepare(self, constants: Constants) -> Constants:
        """Arrange weights as rows of runs."""
        if self.conv.computed:
            return constants
        w = constants["w"]
        shape = (w.shape[0], -1, w.shape[3]) if self.merged else (-1, *w.shape[2:])
        return {**self.shifted(constants), "w": w.reshape(shape)}

    def declared(self) -> te.DeclaredTensor:
        """The convolution over rows of runs, with its epilogue."""
        c, (rows, columns) = self.conv, self.conv.size_out
        images, height, width, channels = c.image
        given, weights = c.factors
        x = te.tensor("x", given.dtype, (images, height, width * channels), pad=c.zero_point)
        w = te.tensor("w", weights.dtype, (self.runs, self.depth, self.computed_columns))
        n, y, xo, o = axes = te.axes(n=images, y=rows, x=columns, o=self.computed_columns)
        step, apart = c.strides[1] * channels, c.dilations[1] * channels
        whole = round_up(columns, self.tile_rows) if self.matrix else columns
        reach = (whole - 1) * step + self.depth
        if self.merged:
            ky, t = over = te.reduce_axes(ky=self.runs, t=self.depth)
            column, tap = xo * step + t, ky
        else:
            ky, kx, t = over = te.reduce_axes(ky=c.kernel[0], kx=c.kernel[1], t=self.depth)
            column, tap = xo * step + kx * apart + t, ky * c.kernel[1] + kx
            reach += (c.kernel[1] - 1) * apart
        source = x
        if any(c.pads) or self.way.moves or reach > width * channels:
            pn, py, px = te.axes(pn=images, py=c.span[0], px=reach)
            moved = x[pn, py - c.pads[0], px - c.pads[1] * channels]
            source = self.way.moved("padded", (pn, py, px), moved, given.dtype)
        total = te.sum(source[n, c.row(y, ky), column] * w[tap, t, o], over=over)
        return self.output(total, axes)
