"""Convolution in groups of channels, each a direct convolution of its own.

Groups with fewer output channels than a vector has lanes are joined, with zero weights between
them, until they fill one. Each tile of pixels by a panel of a group's channels stays in registers
over the reduction, as in `direct_convolution`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ... import te
from ..codegen.layout import Layout
from ..target import CpuTarget
from .description import KernelSchedule, even_blocks, round_up
from .direct_convolution import narrowed
from .tiles import TILES, Multiplication, panel_of, panels, schedule_tiles

if TYPE_CHECKING:
    from .convolution import Convolution


class GroupedPlanner:
    """The declaration and schedule of one grouped convolution for one target."""

    def __init__(self, conv: "Convolution", target: CpuTarget) -> None:
        self.conv, self.target = conv, target
        self.product = Multiplication.of(conv.quantised, target, conv.small_pairs)
        part = conv.channels_out // conv.groups
        fitting = [n for n in range(1, conv.groups + 1) if conv.groups % n == 0]
        self.joined = next((n for n in fitting if n * part >= target.lanes), conv.groups)
        self.groups = conv.groups // self.joined
        self.depth = round_up(conv.channels_in // self.groups, self.product.taps)
        self.part = conv.channels_out // self.groups
        self.panel = panel_of(self.part, target)
        most = TILES[target.level]
        self.pixels = even_blocks(
            conv.size_out[1], most.rows if self.panel > target.lanes else most.rows_alone
        )
        self.name = "out" if self.part >= target.lanes else "wide"

    def plan(self) -> KernelSchedule:
        """Declaration, schedule and layouts."""
        c, name, lanes = self.conv, self.name, self.target.lanes
        processor = self.product.processor(self.target)
        s = te.Schedule(te.kernel("grouped", self._declared()), processor)
        s.split("padded", "d", min(lanes, self.depth))
        s.vectorise("padded", "d.i")
        s.parallelise("padded", s.fuse("padded", "n", "y"))
        depth, taps = "t", ""
        if self.product.instruction is not None:
            s.split(name, "t", self.product.taps)
            depth, taps = "t.o", "t.i"
        order = ("n", "g", "o.o", "y", "x.o", "ky", "kx", depth)
        sizes = ("x", self.pixels), ("o", self.panel)
        schedule_tiles(s, name, sizes, order, lanes, taps, 1 if taps else self.depth)
        s.parallelise(name, s.fuse(name, s.fuse(name, "g", "o.o"), "y"))
        shape = (*c.kernel, self.depth, self.groups, self.part)
        w = panels(shape, self.panel, self.product.taps, (3, 4, 0, 1, 2), depth=2)
        plain = Layout.plain((self.groups, round_up(self.part, self.panel)))
        return KernelSchedule(
            s, {"w": w, **{n: plain for n in ("bias", "scale") if n in c.operands}}
        )

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Join the weights of groups, and take the zero point out through the bias."""
        c, w, prepared = self.conv, constants["w"], dict(constants)
        if c.quantised is not None:
            bias = c.moved_bias(constants, self.product.shift)
            prepared["bias"] = bias.astype(np.int32)
        groups, joined, part = self.groups, self.joined, c.channels_out // c.groups
        apart = w.reshape(*c.kernel, -1, groups, joined, part)
        depth = apart.shape[2]
        whole = np.zeros((*c.kernel, joined, depth, groups, joined, part), w.dtype)
        for one in range(joined):
            whole[:, :, one, :, :, one] = apart[:, :, :, :, one]
        prepared["w"] = whole.reshape(*c.kernel, joined * depth, groups, joined * part)
        for name in ("bias", "scale"):
            if name in prepared:
                prepared[name] = prepared[name].reshape(groups, -1)
        return prepared

    def _declared(self) -> te.DeclaredTensor:
        c, groups = self.conv, self.groups
        wide = max(self.part, self.target.lanes)
        image = (*c.image[:3], groups, c.channels_in // groups)
        x = te.tensor("x", c.operands["x"].dtype, image, pad=c.pad)
        w = te.tensor("w", c.operands["w"].dtype, (*c.kernel, self.depth, groups, wide))
        bias = te.tensor("bias", c.operands["bias"].dtype, (groups, wide))
        scale = te.tensor("scale", "float32", (groups, wide))
        axes = n, y, xo, g, d = te.axes(n=c.batch, y=c.span[0], x=c.span[1], g=groups, d=self.depth)
        moved = x[n, y - c.pads[0], xo - c.pads[1], g, d]
        padded = self.product.moved("padded", axes, moved, x)
        rows, columns = c.size_out
        axes = n, y, xo, g, o = te.axes(n=c.batch, y=rows, x=columns, g=groups, o=wide)
        ky, kx, t = over = te.reduce_axes(ky=c.kernel[0], kx=c.kernel[1], t=self.depth)
        element = padded[n, c.row(y, ky), c.column(xo, kx), g, t]
        total = te.sum(element * w[ky, kx, t, g, o], over=over) + bias[g, o]
        value = c.finished(total, None if c.quantised is None else scale[g, o])
        computed = te.compute(self.name, c.output.dtype, axes, value)
        return computed if self.name == "out" else narrowed(computed, "nyxgo", self.part)
