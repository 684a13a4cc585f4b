"""Convolution of an image in planes, [N, C, H, W], to channels last: a network's first layer.

The image has few channels, so that nothing is gained by laying them side by side: a border is put
around each plane, once. A tile of output pixels by a panel of output channels stays in registers
over the whole reduction.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import CompileError
from ... import te
from ..codegen.layout import Layout
from ..target import Target
from .description import Array, Plan, activated, round_up


@dataclass(frozen=True, slots=True)
class PlanarConvolution:
    """`out[n, y, x, o] = sum(x[n, i, y * s + ky * d - top, ...] * w[ky, kx, i, o]) + bias[o]`.

    Operands are `x` as [N, I, H, W], `w` as [KH, KW, I, O] and `bias` [O], all float32. The output
    is [N, OH, OW, O].

    Parameters
    ----------
    batch, height, width, channels_in, channels_out
        Extents.
    kernel, strides, dilations
        Of the window, vertical first.
    pads
        Pixels at the top, left, bottom and right.
    activation
        What follows, one of `ACTIVATIONS`.
    """

    batch: int
    height: int
    width: int
    channels_in: int
    channels_out: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    activation: str = ""

    def __post_init__(self) -> None:
        if min(self.size_out) < 1:
            raise CompileError(
                f"planar convolution: the window {self.kernel} does not fit "
                f"{self.height}x{self.width} with pads {self.pads}; enlarge the pads"
            )

    @property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        top, left, bottom, right = self.pads
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]
        return (
            (self.height + top + bottom - reach[0]) // self.strides[0] + 1,
            (self.width + left + right - reach[1]) // self.strides[1] + 1,
        )

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        image = (self.batch, self.channels_in, self.height, self.width)
        window = (*self.kernel, self.channels_in, self.channels_out)
        return {
            "x": Array("float32", image),
            "w": Array("float32", window),
            "bias": Array("float32", (self.channels_out,)),
        }

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are packed once."""
        return ("w", "bias")

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", (self.batch, *self.size_out, self.channels_out))

    @property
    def macs(self) -> int:
        """Multiplications."""
        return math.prod((*self.kernel, self.channels_in, *self.output.shape))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Weights in the order of the reduction, [I, KH, KW, O]."""
        return {**constants, "w": np.ascontiguousarray(constants["w"].transpose(2, 0, 1, 3))}

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        s = te.Schedule(te.kernel("convolution", self._declared()), processor=target.processor)
        columns, lanes = self.size_out[1], target.lanes
        most = {"avx512vnni": 14, "avx2": 6, "sse2": 4}[target.level]
        pixels = math.ceil(columns / math.ceil(columns / most))
        panel = (1 if self.channels_out <= lanes else 2) * lanes
        if any(self.pads):
            s.split("padded", "px", lanes)
            s.vectorise("padded", "px.i")
            s.parallelise("padded", s.fuse("padded", s.fuse("padded", "pn", "pi"), "py"))
        s.split("out", "x", pixels)
        s.split("out", "o", panel)
        s.split("out", "o.i", lanes)
        s.reorder("out", "n", "y", "o.o", "x.o", "i", "ky", "kx", "x.i", "o.i.o", "o.i.i")
        for loop in ("x.i", "o.i.o"):
            s.unroll("out", loop)
        s.vectorise("out", "o.i.i")
        s.parallelise("out", s.fuse("out", "n", "y"))
        room = round_up(self.channels_out, panel)
        order = ((3, 0), (0, 0), (1, 0), (2, 0), (3, 1))
        packed = Layout((self.channels_in, *self.kernel, room), ((), (), (), (panel,)), order)
        return Plan(s, {"w": packed, "bias": Layout.plain((room,))})

    def _bordered(self, image: te.Operand) -> te.Operand:
        """The image with its border, as far as windows reach."""
        high, wide = (
            (size - 1) * stride + (extent - 1) * dilation + 1
            for size, stride, extent, dilation in zip(
                self.size_out, self.strides, self.kernel, self.dilations, strict=True
            )
        )
        n, i, y, x = te.axes(pn=self.batch, pi=self.channels_in, py=high, px=wide)
        element = image[n, i, y - self.pads[0], x - self.pads[1]]
        return te.compute("padded", "float32", (n, i, y, x), element)

    def _declared(self) -> te.Operand:
        operands = self.operands
        given = te.tensor("x", "float32", operands["x"].shape)
        window = (self.channels_in, *self.kernel, self.channels_out)
        w, bias = te.tensor("w", "float32", window), te.tensor("bias", "float32", window[3:])
        rows, columns = self.size_out
        image = self._bordered(given) if any(self.pads) else given
        n, y, x, o = te.axes(n=self.batch, y=rows, x=columns, o=self.channels_out)
        over = i, ky, kx = te.reduce_axes(i=self.channels_in, ky=self.kernel[0], kx=self.kernel[1])
        element = image[
            n,
            i,
            y * self.strides[0] + ky * self.dilations[0],
            x * self.strides[1] + kx * self.dilations[1],
        ]
        total = te.sum(element * w[i, ky, kx, o], over=over) + bias[o]
        value = activated(total, self.activation, "planar convolution")
        return te.compute("out", "float32", (n, y, x, o), value)
