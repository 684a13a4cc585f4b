"""Convolution in groups of channels, each a direct convolution of its own.

Groups with fewer output channels than a vector has lanes are joined, with zero weights between
them, where that fills lanes. Each tile of pixels by a panel of a group's channels stays in
registers over the reduction, as in `direct_convolution`.
"""

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ....aligned import round_up
from ... import te
from ..target import CpuTarget
from .choices import Choices
from .description import Constants, KernelSchedule, even_blocks
from .product import PanelPlanner
from .tiles import Multiplication, panels

if TYPE_CHECKING:
    from .convolution import Convolution


class GroupedPlanner(PanelPlanner):
    """The declaration and schedule of one grouped convolution for one target."""

    def __init__(self, conv: "Convolution", target: CpuTarget, choices: Choices) -> None:
        self.conv, part, given = conv, conv.channels_out // conv.groups, conv.weights[2]
        way = Multiplication.of(conv.dtype, target, conv.small_pairs)

        def products(joined: int) -> int:
            """Vectors that are multiplied for `conv.groups` groups, in a tap of a pixel."""
            depth = round_up(joined * given, way.taps)
            return depth * -(-joined * part // target.lanes) * (conv.groups // joined)

        fitting = [n for n in range(conv.groups, 0, -1) if conv.groups % n == 0]
        self.joined = min(fitting, key=products)
        """Groups in one product, the most of those that take equally many instructions."""
        self.groups = conv.groups // self.joined
        super().__init__(conv, target, way, conv.channels_out // self.groups, choices)
        self.is_wide = self.columns < target.lanes
        self.depth = round_up(conv.channels_in // self.groups, way.taps)
        most = target.tile
        self.tile_rows = even_blocks(
            conv.size_out[1], most.rows if self.panel > target.lanes else most.rows_alone
        )
        self.pick_steps()

    @override
    def plan(self) -> KernelSchedule:
        s = te.Schedule(te.kernel("grouped", self._declared()), self.way.processor(self.target))
        s.nest("padded", "(n y) d.i~", d=min(self.target.lanes, self.depth))
        self.cut(s, "x", "n (g o.o y) x.o ky kx t")
        shape = (*self.conv.kernel, self.depth, self.groups, self.columns)
        w = panels(shape, self.panel, self.way.taps, (3, 4, 0, 1, 2), depth=2)
        return KernelSchedule(s, self.layouts(w, self.groups))

    @override
    def prepare(self, constants: Constants) -> Constants:
        """Join the weights of groups."""
        c, w, prepared = self.conv, constants["w"], self.shifted(constants)
        groups, joined, part = self.groups, self.joined, c.channels_out // c.groups
        apart = w.reshape(*c.kernel, -1, groups, joined, part)
        depth = apart.shape[2]
        whole = np.zeros((*c.kernel, joined, depth, groups, joined, part), w.dtype)
        for one in range(joined):
            whole[:, :, one, :, :, one] = apart[:, :, :, :, one]
        by_group = {name: prepared[name].reshape(groups, -1) for name in self.epilogue.constants}
        return {**by_group, "w": whole.reshape(*c.kernel, joined * depth, groups, joined * part)}

    def _declared(self) -> te.DeclaredTensor:
        c, groups, wide = self.conv, self.groups, self.computed_columns
        given, weights = c.factors
        image = (*c.image[:3], groups, c.channels_in // groups)
        x = te.tensor("x", given.dtype, image, pad=c.zero_point)
        w = te.tensor("w", weights.dtype, (*c.kernel, self.depth, groups, wide))
        axes = n, y, xo, g, d = te.axes(n=c.batch, y=c.span[0], x=c.span[1], g=groups, d=self.depth)
        moved = x[n, y - c.pads[0], xo - c.pads[1], g, d]
        padded = self.way.moved("padded", axes, moved, given.dtype)
        rows, columns = c.size_out
        axes = n, y, xo, g, o = te.axes(n=c.batch, y=rows, x=columns, g=groups, o=wide)
        ky, kx, t = over = te.reduce_axes(ky=c.kernel[0], kx=c.kernel[1], t=self.depth)
        element = padded[n, c.row(y, ky), c.column(xo, kx), g, t]
        return self.output(te.sum(element * w[ky, kx, t, g, o], over=over), axes, groups=1)
