"""Weighted sums of neighbours along one axis, for resizing by interpolation.

The output is cut into blocks. All elements of a block read the same window of the operand, which
advances by a whole number of elements from block to block. So the kernel needs no indices; an
element of the window that an output does not use has the weight 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ..codegen.layout import Tiles
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule, even_blocks

SIDE_BY_SIDE = 8
"""Most sums in registers."""


@dataclass(frozen=True, slots=True)
class Interpolation(Description):
    """`out[o, i, r] = sum over t of x[o, i // block * advance + first + t, r] * weights[t, i]`.

    Operands are `x` float32[outer, size, inner] and the constant `weights` float32[taps, blocks *
    block], whose last columns may be unused. Elements beyond the ends of `x`, and those with the
    weight 0, do not count.

    Parameters
    ----------
    outer, size, extent, inner
        Elements before the axis, along it in the operand and the output, and after it.
    block
        Elements of the output that share a window; the last block may have fewer.
    advance
        Elements from one window to the next.
    first
        Place of the first window; may be negative.
    taps
        Elements of a window.
    """

    outer: int
    size: int
    extent: int
    inner: int
    block: int
    advance: int
    first: int
    taps: int
    bound = ("weights",)

    @property
    def blocks(self) -> int:
        """Blocks that cover the output."""
        return -(-self.extent // self.block)

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        return {
            "x": Array("float32", (self.outer, self.size, self.inner)),
            "weights": Array("float32", (self.taps, self.blocks * self.block)),
            "out": Array("float32", (self.outer, self.extent, self.inner)),
        }

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: vectors of neighbours in memory, sums in registers."""
        o, b, i, r = te.axes(o=self.outer, b=self.blocks, i=self.block, r=self.inner)
        (t,) = te.reduce_axes(t=self.taps)
        x = te.tensor("x", "float32", (self.outer, self.size, self.inner))
        weights = te.tensor("weights", "float32", (self.taps, self.blocks, self.block))
        weight = weights[t, b, i]
        part = x[o, b * self.advance + t + self.first, r] * weight
        total = te.sum(te.select(te.equal(weight, 0.0), te.constant(0.0), part), over=t)
        out = te.compute("out", "float32", (o, b, i, r), total)
        s = te.Schedule(te.kernel("interpolation", out), target.processor)
        if self.inner == 1:
            outer = "(o.o) b" if self.outer > SIDE_BY_SIDE else "o.o (b)"
            rows, lanes = even_blocks(self.outer, SIDE_BY_SIDE), min(target.lanes, self.block)
            s.nest("out", f"{outer} r i.o t o.i* i.i~", o=rows, i=lanes)
        else:
            rows, lanes = even_blocks(self.block, SIDE_BY_SIDE), min(target.lanes, self.inner)
            s.nest("out", "(o b) i.o r.o t i.i* r.i~", i=rows, r=lanes)
        digits = ((self.outer,), (self.blocks, self.block), (self.inner,))
        return KernelSchedule(s, tiles={"out": Tiles(self.output.shape, digits)})
