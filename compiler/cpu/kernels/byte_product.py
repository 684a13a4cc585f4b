"""Matrix products of two activations of bytes, one for each image and head.

The second operand is packed in the kernel, as the processor's dot products read it. They multiply
bytes as they are; the zero points are taken out again with the sums of rows and columns, which are
dot products with ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import te
from ..target import Target
from .description import Array, Plan, round_up
from .quantised import Quantised

SUMS = 8
"""Sums of rows or of columns that are made side by side."""


@dataclass(frozen=True, slots=True)
class ByteProduct:
    """`out[n, h, m, c]` of `sum((a[n, h, m, k] - za) * (b[n, h, k, c] - zb))`, all int8.

    Parameters
    ----------
    batch, heads, rows, inner, columns
        Extents of n, h, m, k and c.
    zero_points
        `za` and `zb`.
    scale
        Of the sums, before they become bytes.
    quantised
        What becomes of them.
    transposed
        Whether `b` is [n, h, c, k].
    joined
        For `a`, `b` and the output, whether heads lie side by side: [n, m, h, k] instead of
        [n, h, m, k].
    """

    batch: int
    heads: int
    rows: int
    inner: int
    columns: int
    zero_points: tuple[int, int]
    scale: float
    quantised: Quantised
    transposed: bool = False
    joined: tuple[bool, bool, bool] = (False, False, False)

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        last = (self.columns, self.inner) if self.transposed else (self.inner, self.columns)
        return {
            "a": Array("int8", self._shape((self.rows, self.inner), self.joined[0])),
            "b": Array("int8", self._shape(last, self.joined[1])),
        }

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("int8", self._shape((self.rows, self.columns), self.joined[2]))

    @property
    def macs(self) -> int:
        """Multiplications."""
        return self.batch * self.heads * self.rows * self.inner * self.columns

    def _shape(self, matrix: tuple[int, int], joined: bool) -> tuple[int, ...]:
        first, second = matrix
        between = (first, self.heads) if joined else (self.heads, first)
        return (self.batch, *between, second)

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        return ByteProductPlanner(self, target).plan()


class ByteProductPlanner:
    """Declares and schedules one product for one target.

    Parameters
    ----------
    product
        What is multiplied.
    target
        What it is compiled for.
    """

    def __init__(self, product: ByteProduct, target: Target) -> None:
        self.product, self.target = product, target
        self.instruction = target.processor.instructions[0]
        self.shift = 0 if ("int8", "int8") in self.instruction.pairs else 128
        self.taps, self.lanes = self.instruction.taps, target.lanes
        self.inner = round_up(product.inner, self.taps)
        vectors = 1 if product.columns <= self.lanes else 2
        self.panel = vectors * self.lanes
        self.columns = round_up(product.columns, self.panel)
        most = {"avx512vnni": 14, "avx2": 4, "sse2": 4}[target.level]
        self.tile = -(-product.rows // -(-product.rows // most))
        few = product.columns < self.lanes
        self.name = "wide" if few else "out"

    def plan(self) -> Plan:
        """Declaration and schedule."""
        out, constants = self._declared()
        kernel = te.kernel("product", out, constants)
        s = te.Schedule(kernel, processor=self.target.processor)
        names = [stage.name for stage in s.stages]
        s.split("left", "k", min(4 * self.lanes, self.inner))
        s.vectorise("left", "k.i")
        s.parallelise("left", s.fuse("left", "n", "h"))
        s.unroll("packed", "t")
        s.parallelise("packed", s.fuse("packed", "n", "h"))
        if "columns" in names:
            s.split("columns", "c", self.lanes)
            s.split("columns", "c.o", SUMS)
            self._tensorise(s, "columns", "n", "h", "c.o.o", "g", "c.o.i", "c.i", "t")
        if "rows" in names:
            s.split("rows", "m", SUMS)
            self._tensorise(s, "rows", "n", "h", "m.o", "g", "m.i", "c", "t")
        s.split(self.name, "m", self.tile)
        s.split(self.name, "c", self.panel)
        s.split(self.name, "c.i", self.lanes)
        inner = ("m.i", "c.i.o", "c.i.i", "t")
        s.reorder(self.name, "n", "h", "c.o", "m.o", "g", *inner)
        s.unroll(self.name, "m.i")
        s.unroll(self.name, "c.i.o")
        s.tensorise(self.name, "c.i.i")
        s.vectorise(self.name, "c.i.i")
        s.parallelise(self.name, s.fuse(self.name, s.fuse(self.name, "n", "h"), "c.o"))
        return Plan(s)

    def _tensorise(self, s: te.Schedule, stage: str, *loops: str) -> None:
        """Sums of rows or columns, some at a time, so that none waits for the one before."""
        *_, several, lanes, _ = loops
        s.reorder(stage, *loops)
        s.unroll(stage, several)
        s.tensorise(stage, lanes)
        s.vectorise(stage, lanes)
        s.parallelise(stage, s.fuse(stage, "n", "h"))

    def _declared(self) -> tuple[te.Operand, dict[str, np.ndarray]]:
        """The last stage, and tables of ones."""
        p, taps = self.product, self.taps
        names = ("a", "b")
        a, b = (te.tensor(name, "int8", p.operands[name].shape) for name in names)
        n, h, m, k = te.axes(n=p.batch, h=p.heads, m=p.rows, k=self.inner)
        number = "uint8" if self.shift else "int8"
        read = a[n, m, h, k] if p.joined[0] else a[n, h, m, k]
        left = te.compute("left", number, (n, h, m, k), read + self.shift if self.shift else read)
        groups = self.inner // taps
        n, h, g, c, t = te.axes(n=p.batch, h=p.heads, g=groups, c=self.columns, t=taps)
        place = (c, g * taps + t) if p.transposed else (g * taps + t, c)
        read = b[n, place[0], h, place[1]] if p.joined[1] else b[n, h, *place]
        packed = te.compute("packed", "int8", (n, h, g, c, t), read)

        constants = {}
        g, t = over = te.reduce_axes(g=groups, t=taps)
        columns = self.columns if self.name == "wide" else p.columns
        n, m, h, c = te.axes(n=p.batch, m=p.rows, h=p.heads, c=columns)
        total = te.sum(left[n, h, m, g * taps + t] * packed[n, h, g, c, t], over=over)
        za, zb = p.zero_points
        constant = p.inner * za * zb + zb * self.shift * self.inner
        if za + self.shift:
            constants["ones"] = np.ones(taps, number)
            ones = te.tensor("ones", number, (taps,))
            sums = self._column_sums(ones, packed)
            total = total + sums[n, h, c]
        if zb:
            constants["table"] = np.ones((self.lanes, taps), np.int8)
            table = te.tensor("table", "int8", (self.lanes, taps))
            total = total + self._row_sums(left, table)[n, h, m, 0]
        value = p.quantised.requantised(total + constant, te.constant(p.scale))
        order = (n, m, h, c) if p.joined[2] else (n, h, m, c)
        computed = te.compute(self.name, "int8", order, value)
        if self.name == "wide":
            n, m, h, c = te.axes(n=p.batch, m=p.rows, h=p.heads, c=p.columns)
            order = (n, m, h, c) if p.joined[2] else (n, h, m, c)
            computed = te.compute("out", "int8", order, computed[order])
        return computed, constants

    def _column_sums(self, ones: te.Operand, packed: te.Operand) -> te.Operand:
        """What the zero point of the first operand takes from each column."""
        p = self.product
        n, h, c = te.axes(n=p.batch, h=p.heads, c=self.columns)
        g, t = over = te.reduce_axes(g=self.inner // self.taps, t=self.taps)
        total = te.sum(ones[t] * packed[n, h, g, c, t], over=over)
        factor = -(p.zero_points[0] + self.shift)
        return te.compute("columns", "int32", (n, h, c), total * factor)

    def _row_sums(self, left: te.Operand, table: te.Operand) -> te.Operand:
        """What the zero point of the second operand takes from each row, the same in all lanes."""
        p = self.product
        n, h, m, c = te.axes(n=p.batch, h=p.heads, m=p.rows, c=self.lanes)
        g, t = over = te.reduce_axes(g=self.inner // self.taps, t=self.taps)
        total = te.sum(left[n, h, m, g * self.taps + t] * table[c, t], over=over)
        return te.compute("rows", "int32", (n, h, m, c), total * -p.zero_points[1])
