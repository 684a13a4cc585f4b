"""Matrix products of two activations, one for each image and head, as in attention.

Each panel of the second operand is copied once, by the thread that reads it. Tiles of rows by one
panel then stay in registers over the whole sum.
"""

from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ..codegen.buffers import STACK_BYTES
from ..target import CpuTarget
from .description import KernelSchedule, even_blocks, round_up
from .direct_convolution import GAP, SAFE_ROWS, WAY_BYTES
from .heads import HeadProduct
from .tiles import panel_of, schedule_tiles

FEW_ROWS = 4
"""With so few rows, copying the second operand costs more than reading it in place."""


@dataclass(frozen=True, slots=True)
class BatchedProduct(HeadProduct):
    """`out[n, h, m, c] = sum over k of (a[n, h, m, k] * b[n, h, k, c]) * scale`, in float32.

    Operands are `a` and `b`.

    Parameters
    ----------
    images, heads
        Products.
    rows, inner, columns
        Extents of each.
    transposed
        Whether `b` lies as [N, H, C, K].
    scale
        A factor of the sums.
    joined
        For `a`, `b` and the output, whether heads lie inside of rows, as [N, M, H, K] and so on.
    bound
        Operands that are the same in all calls.
    """

    images: int
    heads: int
    rows: int
    inner: int
    columns: int
    transposed: bool = False
    scale: float = 1.0
    joined: tuple[bool, bool, bool] = (False, False, False)
    bound: tuple[str, ...] = ()

    @property
    @override
    def constants(self) -> tuple[str, ...]:
        return self.bound

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule."""
        lanes, panel = target.lanes, panel_of(self.columns, target)
        pixels = even_blocks(self.rows, target.tile.rows)
        packed, moved = self.transposed or self.rows > FEW_ROWS, self._crowded(pixels)
        out = self._declared(packed, moved, panel)
        s = te.Schedule(te.kernel("batched_product", out), target.processor)
        order = ("n", "h", "o.o", "x.o", "t")
        schedule_tiles(s, "out", (("x", pixels), ("o", panel)), order, lanes, depth=self.inner)
        place = parallel = "o.o"
        if self.images * self.heads > 1:
            parallel = s.fuse("out", "n", "h")
            if self.columns % panel == 0:  # else the last panel has a loop of its own
                place = parallel = s.fuse("out", parallel, "o.o")
        if packed:
            if self.inner * panel * 4 <= STACK_BYTES:
                s.compute_at("packed", "out", place)
            else:
                s.parallelise("packed", s.fuse("packed", "n", "h"))
            if self.transposed and self.inner % lanes == self.columns % lanes == 0:
                s.split("packed", "t", lanes)
                s.split("packed", "o", lanes)
                s.reorder("packed", "t.o", "o.o", "t.i", "o.i")
                s.unroll("packed", "t.i")
                s.vectorise("packed", "o.i")
            elif self.transposed:
                s.reorder("packed", "o", "t")
                s.split("packed", "t", lanes)
                s.unroll("packed", "t.i")
            else:
                s.split("packed", "o", panel)
                s.vectorise("packed", "o.i")
        if moved:
            s.split("moved", "t", lanes)
            s.vectorise("moved", "t.i")
            s.parallelise("moved", s.fuse("moved", s.fuse("moved", "n", "h"), "x"))
        s.parallelise("out", parallel)
        return KernelSchedule(s)

    def _declared(self, packed: bool, moved: bool, panel: int) -> te.DeclaredTensor:
        """The product, with copies of the operands that need them."""
        images, heads = self.images, self.heads
        a, b = (te.tensor(name, one.dtype, one.shape) for name, one in self.operands.items())
        n, h, x, o = te.axes(n=images, h=heads, x=self.rows, o=self.columns)
        (t,) = te.reduce_axes(t=self.inner)

        def right_of(n, h, t, o) -> te.TensorExpression:
            return b[self.placed(1, n, h, *self.second(t, o))]

        left, right = a[self.placed(0, n, h, x, t)], right_of(n, h, t, o)
        if packed:
            axes = te.axes(n=images, h=heads, t=self.inner, o=round_up(self.columns, panel))
            right = te.compute("packed", "float32", axes, right_of(*axes))[n, h, t, o]
        if moved:
            axes = te.axes(n=images, h=heads, x=self.rows, t=self.inner + GAP)
            left = te.compute("moved", "float32", axes, a[self.placed(0, *axes)])[n, h, x, t]
        total = te.sum(left * right, over=t)
        return te.compute("out", "float32", self.placed(2, n, h, x, o), total * self.scale)

    def _crowded(self, pixels: int) -> bool:
        """Whether the rows of a tile of `a` compete for the same set of the cache."""
        apart = self.inner * (self.heads if self.joined[0] else 1) * 4
        return apart % WAY_BYTES == 0 and pixels > SAFE_ROWS
