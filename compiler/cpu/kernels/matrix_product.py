"""Matrix products with constant weights: register tiles over the whole reduction.

`x` may be numbers or bytes; or numbers that become fixed-point numbers of 16 bits, with one step
for each row, to be multiplied with weights of bytes. A kernel of float32 weights would read four
times the bytes, which is what limits a product of few rows.
"""

import math
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from ....aligned import round_up
from ....errors import InputError
from ... import te
from ..target import CpuTarget
from .choices import Choice, Choices
from .description import Array, Constants, KernelSchedule
from .epilogue import WITH_BIAS, Epilogue
from .product import MAX_PARTS, PanelPlanner, Product
from .row_stages import MAX, SUM, columns_at_once, compute_in_row, reduced
from .tiles import MatrixTile, default_rows, panels, pick_multiplication

WAY_BYTES = 4096
"""Distance at which addresses share a set of L1, on all x86-64 so far."""

GAP = 64
"""Elements inserted between rows at such distances."""

SAFE_ROWS = 4
"""Number of rows that may share a set: a cache has eight ways or more."""

TILE_ROWS = 2.5
"""Fixed cost of a tile, in rows."""

MIN_MAGNITUDE = 2.0**-100
"""A row whose magnitudes are all smaller counts as zeros."""

MAX_INNER = 1 << 15
"""Maximum number of products of bytes whose sum always fits int32."""


@dataclass(frozen=True, slots=True)
class MatrixProduct(Product):
    """The epilogue of `sum(x[m, k] * w[k, n])`.

    Operands are `x` [M, K], `w` [K, N], and those of the epilogue. The output is [M, N]. All but
    `x` and what the epilogue says are constants.

    Parameters
    ----------
    rows, inner, columns
        Extents of m, k and n.
    dtype
        Type of `x`.
    weights
        Type of `w`; float32 or int8 by default, as `x` is float32 or bytes.
    epilogue
        The function of each sum.
    small_pairs
        Whether `quantised.has_small_pairs` holds for the weights.
    limit
        If not 0, `x` is float32 and the weights integers. Each `x` is rounded to a whole multiple
        of `step`, its row's largest magnitude divided by `limit`, of which the epilogue makes use.
        `step` is a NaN for a row with a NaN or an infinity. See `limit_of`.
    """

    rows: int
    inner: int
    columns: int
    dtype: str = "float32"
    epilogue: Epilogue = WITH_BIAS
    weights: str = ""
    small_pairs: bool = False
    limit: int = 0
    choice: Choice = ()

    @property
    @override
    def factors(self) -> tuple[Array, Array]:
        weights = self.weights or ("float32" if self.dtype == "float32" else "int8")
        x = Array(self.dtype, (self.rows, self.inner))
        return x, Array(weights, (self.inner, self.columns))

    @property
    @override
    def extents(self) -> tuple[int, ...]:
        return (self.rows, self.columns)

    @override
    def method(self, target: CpuTarget, choices: Choices) -> "MatrixPlanner":
        return MatrixPlanner(self, target, choices)


def limit_of(w: np.ndarray) -> int:
    """Return the largest `limit` of 16 bits with which no sum exceeds int32."""
    most = int(np.abs(w.astype(np.int64)).sum(axis=0).max(initial=1))
    return min((1 << 15) - 1, ((1 << 31) - 1) // most)


class MatrixPlanner(PanelPlanner):
    """A product of a matrix with constant weights, in register tiles."""

    def __init__(self, product: MatrixProduct, target: CpuTarget, choices: Choices) -> None:
        dtype = "int16" if product.limit else product.dtype
        pairs, sizes = product.small_pairs, (product.rows, 1, product.inner)
        way = pick_multiplication(choices, dtype, target, pairs, sizes)
        super().__init__(product, target, way, product.columns, choices)
        self.pick_panel(product.rows)
        self.product = product
        self.depth = round_up(product.inner, way.depth)
        """Elements of a row, for whole instructions."""
        if way.most_rows:
            self.matrix = MatrixTile.of(product.rows, self.panel, way.most_rows)
        self.parts = self._parts()
        """Parts of the rows that threads share; 1 if they share panels instead."""
        self.part = math.ceil(product.rows / self.parts)
        if self.matrix:
            self.tile_rows = self.matrix.height
            self.part = round_up(self.part, self.tile_rows)
        else:
            tested = way.instruction is None
            last = 0 if tested else product.rows - (self.parts - 1) * self.part
            self.tile_rows = self.pick_rows(self.part, last)
        self.rows_outside = self.parts > 1 or choices.pick("rows_outside", 0, (1,)) > 0
        """True if all columns are computed for some rows, then for the next rows."""
        self.apart = not product.limit and self._pick_apart()
        """True if rows are copied to addresses that compete less for the sets of L1."""
        self.pick_steps()

    def _pick_apart(self) -> bool:
        p = self.product
        size = 2 if self.way.words else np.dtype(p.dtype).itemsize
        # else the rows of a tile would compete for the same set of L1
        default = p.inner * size % WAY_BYTES == 0 and self.tile_rows > SAFE_ROWS
        return self.choices.pick("apart", int(default), (0, 1)) > 0

    def _parts(self) -> int:
        """Return the parts of the rows that threads share.

        Parts must be equal, because a tile that is cut off tests every row; or single tiles, of
        which only the last is cut off. Matrix instructions test nothing; their parts are whole
        tiles.
        """
        p, most, costs = self.product, self.target.tile.rows, {}
        polynomials, single = self.epilogue.has_polynomials, most
        if self.way.instruction is not None:  # the default has to be a single tile
            single = default_rows(self.panel, self.target, has_polynomials=polynomials)
        extent = math.ceil(p.rows / self.matrix.height) if self.matrix else p.rows
        for parts in range(1, min(extent, MAX_PARTS) + 1):
            part = math.ceil(extent / parts)
            tiles = 1 if self.matrix else math.ceil(part / most)
            last = part <= single and math.ceil(extent / part) == parts
            if extent % parts == 0 or (last and not self.matrix):
                fixed = math.ceil(part / tiles) + TILE_ROWS
                costs[parts] = 1 if self.matrix else parts * tiles * fixed
        return self.pick_parts(costs, p.inner * p.columns)

    @override
    def plan(self) -> KernelSchedule:
        p, way, lanes = self.product, self.way, self.target.lanes
        kernel = te.kernel("product", self.declared())
        s = te.Schedule(kernel, way.processor(self.target))
        stages = [stage.name for stage in s.stages]
        if "padded" in stages:
            s.nest("padded", "(py) px.i~", px=lanes * (1 if way.instruction is None else 4))
        outer, rows = "(x.o) o.o" if self.rows_outside else "(o.o) x.o", "x"
        if self.parts > 1:
            _, rows = s.split(self.name, "x", self.part)
            outer = "(x.o) o.o x.i.o"
        self.cut(s, rows, f"{outer} t")
        if p.limit:
            for name in reversed(stages[: stages.index("step")]):
                compute_in_row(s, name, "step")
        w = panels((self.depth, p.columns), self.panel, way.taps)
        return KernelSchedule(s, self.layouts(w))

    def declared(self) -> te.DeclaredTensor:
        """The product, behind a copy of `x` where its rows or numbers have to be others."""
        p, kind = self.product, self.product.factors[1].dtype
        x, o = te.axes(x=p.rows, o=self.computed_columns)
        (t,) = over = te.reduce_axes(t=self.depth)
        w = te.tensor("w", kind, (self.depth, self.computed_columns))[t, o]
        if p.limit:
            given = te.tensor("x", "float32", (p.rows, p.inner))
            step = self._step(given)
            py, px = te.axes(py=p.rows, px=self.depth)
            multiple = te.rounded(given[py, px] * (1.0 / step[py, 0]))
            multiples = te.compute("padded", "int16", (py, px), multiple)
            total = te.sum(multiples[x, t] * w, over=over)
            return self.output(total, (x, o), step=step[x, 0])
        return self.output(te.sum(self._source(x, t) * w, over=over), (x, o))

    def _source(self, x: te.Index, t: te.Index) -> te.TensorExpression:
        """An element of `x` as it is multiplied.

        Instructions may reach into the next row, where weights are zeros, but not beyond the last.
        """
        p, way = self.product, self.way
        source = te.tensor("x", p.dtype, (p.rows * p.inner,))
        whole = round_up(p.rows, self.tile_rows) if self.matrix else p.rows
        if self.apart:
            py, px = axes = te.axes(py=whole, px=p.inner + GAP)
            return way.moved("padded", axes, source[py * p.inner + px], p.dtype)[x, t]
        place, reach = x * p.inner + t, (whole - 1) * p.inner + self.depth
        if way.moves or reach > p.rows * p.inner:
            _, px = axes = te.axes(py=1, px=reach)
            return way.moved("padded", axes, source[px], p.dtype)[0, place]
        return source[place]

    def _step(self, x: te.DeclaredTensor) -> te.DeclaredTensor:
        """The step of each row, [M, 1]; NaN if a number of the row is not finite."""
        p, width = self.product, columns_at_once(self.product.inner, self.target)
        largest = reduced(x, "largest", MAX, width, lambda value: te.maximum(value, -value))
        marks = reduced(x, "marks", SUM, width, lambda value: te.single(value * 0.0))
        r, one = te.axes(r=p.rows, l=1)
        value = te.maximum(largest[r, one], MIN_MAGNITUDE) * (1.0 / p.limit)
        return te.compute("step", "float32", (r, one), value + marks[r, one])

    @override
    def prepare(self, constants: Constants) -> Constants:
        """Check that sums fit int32.

        Raises
        ------
        InputError
            When they may not.
        """
        p, w = self.product, constants["w"].reshape(self.product.inner, self.product.columns)
        if p.limit and p.limit > (most := limit_of(w)):
            raise InputError(
                f"product: with these weights, the limit is at most {most}, not {p.limit}; "
                "describe the product with less"
            )
        return {**self.shifted(constants), "w": w}
