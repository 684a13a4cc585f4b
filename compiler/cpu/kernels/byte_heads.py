"""Products of two activations of bytes for each head.

The kernel packs the second operand as the processor's vector or matrix instructions read it.
The zero points are taken out with the sums of rows and columns, which are products with ones.
"""

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ....aligned import round_up
from ... import te
from ..target import CpuTarget
from .choices import Choices
from .description import KernelSchedule, Planner, even_blocks
from .product import narrowed
from .tiles import (
    MatrixTile,
    Multiplication,
    panel_of,
    pick_multiplication,
    pick_panel,
    schedule_matrix_tiles,
    schedule_tiles,
)

if TYPE_CHECKING:
    from .head_product import HeadProduct

SUMS = 8
"""Sums of rows or columns that are computed side by side."""

MIN_COPIED_ROWS = 64
"""Minimum number of rows for which matrix instructions pay, since operands are copied for them."""


class ByteHeadPlanner(Planner):
    """A product of two activations of bytes, with sums of rows and columns for zero points."""

    def __init__(self, product: "HeadProduct", target: CpuTarget, choices: Choices) -> None:
        self.product, self.target = product, target
        rows = product.rows if product.rows >= MIN_COPIED_ROWS else 0
        sizes = rows, 1, product.inner
        self.way = pick_multiplication(choices, product.dtype, target, False, sizes)
        self.taps, self.lanes = self.way.taps, target.lanes
        self.inner = round_up(product.inner, self.way.depth)
        self.panel = panel_of(product.columns, target)
        if not self.way.most_rows:
            self.panel = pick_panel(choices, product.columns, target, product.rows, self.way)
        self.columns = round_up(product.columns, self.panel)
        self.matrix: MatrixTile | None = None
        """The tile, if the kernel uses matrix instructions."""
        self.whole_rows = product.rows
        """Rows of whole instructions."""
        if self.way.most_rows:
            self.matrix = MatrixTile.of(product.rows, self.panel, self.way.most_rows)
            self.whole_rows = round_up(product.rows, self.matrix.height)
        else:
            most = target.tile.rows_of_bytes
            others = (even_blocks(product.rows, rows) for rows in range(1, most + 1))
            self.tile = choices.pick("rows", even_blocks(product.rows, most), others)
        self.name = "wide" if product.columns < self.lanes else "out"

    @override
    def plan(self) -> KernelSchedule:
        out, constants = self._declared()
        kernel = te.kernel("product", out, constants)
        s = te.Schedule(kernel, self.target.processor)
        names = [stage.name for stage in s.stages]
        s.nest("left", "(n h) k.i~", k=min(4 * self.lanes, self.inner))
        s.nest("packed", "(n h) t*")
        if "columns" in names:
            s.split("columns", "c", self.lanes)
            s.nest("columns", "(n h) c.o.o g c.o.i* c.i!~ t", **{"c.o": SUMS})
        if "rows" in names and self.matrix:
            tile, columns = MatrixTile(self.matrix.rows, 1), ("c", self.lanes)
            self._tensorise_matrices(s, "rows", "(n h) c.o m.o", tile, columns)
        elif "rows" in names:
            s.nest("rows", "(n h) m.o g m.i* c!~ t", m=SUMS)
        outer, columns = "(n h c.o) m.o", ("c", self.panel)
        if self.matrix:
            self._tensorise_matrices(s, self.name, outer, self.matrix, columns)
        else:
            sizes = ("m", self.tile), columns
            schedule_tiles(s, self.name, sizes, f"{outer} g", self.lanes, "t")
        return KernelSchedule(s)

    def _tensorise_matrices(
        self,
        s: te.Schedule,
        stage: str,
        outer: str,
        tile: MatrixTile,
        columns: tuple[str, int],
    ) -> None:
        """Schedule a stage of products of matrices."""
        s.split(stage, "g", self.way.depth // self.taps)
        sizes, taps = (("m", tile), columns), ("g.i", "t")
        schedule_matrix_tiles(s, stage, sizes, f"{outer} g.o", self.lanes, taps)

    def _declared(self) -> tuple[te.DeclaredTensor, dict[str, np.ndarray]]:
        """The last stage, and tables of ones."""
        p, taps, shift = self.product, self.taps, self.way.shift
        axes = te.axes(n=p.images, h=p.heads, m=self.whole_rows, k=self.inner)
        left = self.way.moved("left", axes, p.left(*axes), p.dtype)
        groups = self.inner // taps
        axes = n, h, g, c, t = te.axes(n=p.images, h=p.heads, g=groups, c=self.columns, t=taps)
        packed = te.compute("packed", "int8", axes, p.right(n, h, g * taps + t, c))

        constants = {}
        g, t = over = te.reduce_axes(g=groups, t=taps)
        columns = self.columns if self.name == "wide" else p.columns
        n, m, h, c = te.axes(n=p.images, m=p.rows, h=p.heads, c=columns)
        total = te.sum(left[n, h, m, g * taps + t] * packed[n, h, g, c, t], over=over)
        za, zb = p.zero_points
        constant = p.inner * za * zb + zb * shift * self.inner
        if za + shift:
            number = Multiplication.of(p.dtype, self.target).operand
            constants["ones"] = np.ones(taps, number)
            ones = te.tensor("ones", number, (taps,))
            total = total + self._column_sums(ones, packed)[n, h, c]
        if zb:
            constants["table"] = np.ones((self.lanes, taps), np.int8)
            table = te.tensor("table", "int8", (self.lanes, taps))
            total = total + self._row_sums(left, table)[n, h, m, 0]
        value = p.epilogue.value(total + constant, (p.heads,), (h,))
        computed = te.compute(self.name, p.epilogue.dtype, p.placed(2, n, h, m, c), value)
        return narrowed(computed, p.columns) if self.name == "wide" else computed, constants

    def _column_sums(self, ones: te.DeclaredTensor, packed: te.DeclaredTensor) -> te.DeclaredTensor:
        """The part of each column's sum that stems from the zero point of `a`."""
        p = self.product
        n, h, c = te.axes(n=p.images, h=p.heads, c=self.columns)
        g, t = over = te.reduce_axes(g=self.inner // self.taps, t=self.taps)
        total = te.sum(ones[t] * packed[n, h, g, c, t], over=over)
        factor = -(p.zero_points[0] + self.way.shift)
        return te.compute("columns", "int32", (n, h, c), total * factor)

    def _row_sums(self, left: te.DeclaredTensor, table: te.DeclaredTensor) -> te.DeclaredTensor:
        """The part of each row's sum that stems from the zero point of `b`, in all lanes."""
        p = self.product
        n, h, m, c = te.axes(n=p.images, h=p.heads, m=self.whole_rows, c=self.lanes)
        g, t = over = te.reduce_axes(g=self.inner // self.taps, t=self.taps)
        total = te.sum(left[n, h, m, g * self.taps + t] * table[c, t], over=over)
        return te.compute("rows", "int32", (n, h, m, c), total * -p.zero_points[1])
