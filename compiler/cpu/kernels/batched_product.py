"""Matrix products of two activations, one for each image and head, as attention has them.

Panels of the second operand are copied inside of the loop over panels, each once and by the thread
that reads it. Tiles of rows by one panel then stay in registers over the whole sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import te
from ..codegen.buffers import STACK_BYTES
from ..target import Target
from .description import Array, Plan
from .direct_convolution import GAP, SAFE_ROWS, WAY_BYTES

FEW_ROWS = 4
"""Rows up to which a copy of the second operand costs more than reading it as it lies."""


@dataclass(frozen=True, slots=True)
class BatchedProduct:
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
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        sizes = (self.inner, self.columns)
        return {
            "a": Array("float32", self._shape(0, self.rows, self.inner)),
            "b": Array("float32", self._shape(1, *(sizes[::-1] if self.transposed else sizes))),
        }

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls."""
        return self.bound

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", self._shape(2, self.rows, self.columns))

    @property
    def macs(self) -> int:
        """Multiplications."""
        return self.images * self.heads * self.rows * self.inner * self.columns

    def _shape(self, operand: int, rows: int, columns: int) -> tuple[int, ...]:
        return self._placed(operand, self.images, self.heads, rows, columns)

    def _placed(self, operand: int, image, head, row, column) -> tuple:
        """Extents or indices in the order in which an operand has them."""
        if self.joined[operand]:
            return image, row, head, column
        return image, head, row, column

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        pixels, vectors = self._tile(target)
        panel = vectors * target.lanes
        packed, moved = self.transposed or self.rows > FEW_ROWS, self._crowded(pixels)
        out = self._declared(packed, moved)
        s = te.Schedule(te.kernel("batched_product", out), processor=target.processor)
        s.split("out", "x", pixels)
        s.split("out", "o", panel)
        s.split("out", "o.i", target.lanes)
        s.reorder("out", "n", "h", "o.o", "x.o", "t", "x.i", "o.i.o", "o.i.i")
        place = parallel = "o.o"
        if self.images * self.heads > 1:
            parallel = s.fuse("out", "n", "h")
            if self.columns % panel == 0:  # else the last panel is cut apart in a loop of its own
                place = parallel = s.fuse("out", parallel, "o.o")
        if packed:
            if self.inner * panel * 4 <= STACK_BYTES:
                s.compute_at("packed", "out", place)
            else:
                s.parallelise("packed", s.fuse("packed", "n", "h"))
            if self.transposed and self.inner % target.lanes == self.columns % target.lanes == 0:
                s.split("packed", "t", target.lanes)
                s.split("packed", "o", target.lanes)
                s.reorder("packed", "t.o", "o.o", "t.i", "o.i")
                s.unroll("packed", "t.i")
                s.vectorise("packed", "o.i")
            elif self.transposed:
                s.reorder("packed", "o", "t")
                s.split("packed", "t", target.lanes)
                s.unroll("packed", "t.i")
            else:
                s.split("packed", "o", panel)
                s.vectorise("packed", "o.i")
        if moved:
            s.split("moved", "t", target.lanes)
            s.vectorise("moved", "t.i")
            s.parallelise("moved", s.fuse("moved", s.fuse("moved", "n", "h"), "x"))
        s.unroll("out", "x.i")
        s.unroll("out", "o.i.o")
        s.vectorise("out", "o.i.i")
        s.parallelise("out", parallel)
        return Plan(s)

    def _declared(self, packed: bool, moved: bool) -> te.Operand:
        """The product, of copies of its operands where it reads those."""
        images, heads = self.images, self.heads
        a, b = (te.tensor(name, one.dtype, one.shape) for name, one in self.operands.items())
        n, h, x, o = te.axes(n=images, h=heads, x=self.rows, o=self.columns)
        (t,) = te.reduce_axes(t=self.inner)

        def second(n, h, t, o) -> te.Value:
            row, column = (o, t) if self.transposed else (t, o)
            return b[self._placed(1, n, h, row, column)]

        left, right = a[self._placed(0, n, h, x, t)], second(n, h, t, o)
        if packed:
            axes = te.axes(n=images, h=heads, t=self.inner, o=self.columns)
            right = te.compute("packed", "float32", axes, second(*axes))[n, h, t, o]
        if moved:
            axes = te.axes(n=images, h=heads, x=self.rows, t=self.inner + GAP)
            left = te.compute("moved", "float32", axes, a[self._placed(0, *axes)])[n, h, x, t]
        total = te.sum(left * right, over=t)
        return te.compute("out", "float32", self._placed(2, n, h, x, o), total * self.scale)

    def _tile(self, target: Target) -> tuple[int, int]:
        """Rows and vectors of columns that are computed together; see `tile_of`."""
        most = {"avx512vnni": 14, "avx2": 6, "sse2": 4}[target.level]
        pixels = -(-self.rows // -(-self.rows // most))
        return pixels, 1 if self.columns <= target.lanes else 2

    def _crowded(self, pixels: int) -> bool:
        """Whether rows of `a` lie so that all of a tile fall on the same few cache lines."""
        apart = self.inner * (self.heads if self.joined[0] else 1) * 4
        return apart % WAY_BYTES == 0 and pixels > SAFE_ROWS
