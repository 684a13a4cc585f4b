"""Convolution of an image in planes, [N, C, H, W], to channels last: a network's first layer.

The image has few channels, so interleaving them gains nothing: a border is added to each plane
once. A tile of output pixels by a panel of output channels stays in registers
over the whole reduction.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from ... import te
from ..codegen.layout import Layout
from ..target import CpuTarget
from .convolution import Convolution
from .description import KernelSchedule, even_blocks
from .tiles import panel_of, panels, schedule_tiles


@dataclass(frozen=True, slots=True)
class PlanarConvolution(Convolution):
    """`out[n, y, x, o] = sum(x[n, i, y * s + ky * d - top, ...] * w[ky, kx, i, o]) + bias[o]`.

    Operands are `x` as [N, I, H, W], `w` as [KH, KW, I, O] and `bias` [O], all float32. The output
    is [N, OH, OW, O]. It has one group, and no residual.
    """

    title = "planar convolution"

    @property
    def image(self) -> tuple[int, ...]:
        """Extents of `x`."""
        return (self.batch, self.channels_in, self.height, self.width)

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: CpuTarget
    ) -> Mapping[str, np.ndarray]:
        """Put the weights in the order of the reduction, [I, KH, KW, O]."""
        return {**constants, "w": np.ascontiguousarray(constants["w"].transpose(2, 0, 1, 3))}

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        s = te.Schedule(te.kernel("convolution", self._declared()), target.processor)
        lanes, panel = target.lanes, panel_of(self.channels_out, target)
        pixels = even_blocks(self.size_out[1], target.tile.rows)
        if any(self.pads):
            s.split("padded", "px", lanes)
            s.vectorise("padded", "px.i")
            s.parallelise("padded", s.fuse("padded", s.fuse("padded", "pn", "pi"), "py"))
        order = ("n", "y", "o.o", "x.o", "i", "ky", "kx")
        schedule_tiles(s, "out", (("x", pixels), ("o", panel)), order, lanes)
        s.parallelise("out", s.fuse("out", "n", "y"))
        w = panels((self.channels_in, *self.kernel, self.channels_out), panel)
        return KernelSchedule(s, {"w": w, "bias": Layout.plain(w.shape[-1:])})

    def _bordered(self, image: te.DeclaredTensor) -> te.DeclaredTensor:
        """The image with its border, as far as windows cover it."""
        high, wide = self.span
        axes = n, i, y, x = te.axes(pn=self.batch, pi=self.channels_in, py=high, px=wide)
        element = image[n, i, y - self.pads[0], x - self.pads[1]]
        return te.compute("padded", "float32", axes, element)

    def _declared(self) -> te.DeclaredTensor:
        image = te.tensor("x", "float32", self.image)
        window = (self.channels_in, *self.kernel, self.channels_out)
        w, bias = te.tensor("w", "float32", window), te.tensor("bias", "float32", window[3:])
        rows, columns = self.size_out
        image = self._bordered(image) if any(self.pads) else image
        axes = n, y, x, o = te.axes(n=self.batch, y=rows, x=columns, o=self.channels_out)
        over = i, ky, kx = te.reduce_axes(i=self.channels_in, ky=self.kernel[0], kx=self.kernel[1])
        element = image[n, i, self.row(y, ky), self.column(x, kx)]
        total = te.sum(element * w[i, ky, kx, o], over=over) + bias[o]
        return te.compute("out", "float32", axes, self.finished(total, None))
