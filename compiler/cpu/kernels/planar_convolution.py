"""Convolution of an image in planes, [N, C, H, W], to channels last: a network's first layer.

The image has few channels, so interleaving them gains nothing: a border is added to each plane
once. A tile of output pixels by a panel of output channels stays in registers
over the whole reduction.
"""

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ... import te
from ..target import CpuTarget
from .choices import Choices
from .description import Constants, KernelSchedule
from .product import PanelPlanner
from .tiles import Multiplication, panels

if TYPE_CHECKING:
    from .convolution import Convolution


class PlanarPlanner(PanelPlanner):
    """The declaration and schedule of one convolution for one target."""

    depth = 1

    def __init__(self, conv: "Convolution", target: CpuTarget, choices: Choices) -> None:
        way = Multiplication.of(conv.dtype, target)
        super().__init__(conv, target, way, conv.channels_out, choices)
        self.pick_panel(conv.size_out[1])
        self.conv = conv
        self.tile_rows = self.pick_rows(conv.size_out[1])
        self.window = (conv.channels_in, *conv.kernel, conv.channels_out)
        """Extents of the weights in the order of the reduction, [I, KH, KW, O]."""

    @override
    def prepare(self, constants: Constants) -> Constants:
        """Put the weights in the order of the reduction."""
        return {**constants, "w": np.ascontiguousarray(constants["w"].transpose(2, 0, 1, 3))}

    @override
    def plan(self) -> KernelSchedule:
        s = te.Schedule(te.kernel("convolution", self.declared()), self.target.processor)
        if any(self.conv.pads):
            s.nest("padded", "(pn pi py) px.i~", px=self.target.lanes)
        self.cut(s, "x", "(n y) o.o x.o i ky kx")
        return KernelSchedule(s, self.layouts(panels(self.window, self.panel)))

    def declared(self) -> te.DeclaredTensor:
        """The convolution of the image with its border, as far as windows cover it."""
        c, (rows, columns) = self.conv, self.conv.size_out
        image, w = te.tensor("x", c.dtype, c.image), te.tensor("w", c.dtype, self.window)
        if any(c.pads):
            high, wide = c.span
            axes = n, i, y, x = te.axes(pn=c.batch, pi=c.channels_in, py=high, px=wide)
            element = image[n, i, y - c.pads[0], x - c.pads[1]]
            image = te.compute("padded", c.dtype, axes, element)
        axes = n, y, x, o = te.axes(n=c.batch, y=rows, x=columns, o=c.channels_out)
        over = i, ky, kx = te.reduce_axes(i=c.channels_in, ky=c.kernel[0], kx=c.kernel[1])
        element = image[n, i, c.row(y, ky), c.column(x, kx)]
        return self.output(te.sum(element * w[i, ky, kx, o], over=over), axes)
