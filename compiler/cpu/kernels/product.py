"""Products of activations with constant weights: what their descriptions and planners share."""

import math
from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from ....aligned import round_up
from ....errors import CompileError
from ... import te
from ...te.values import bare_axis
from ..codegen.layout import Layout
from ..target import CpuTarget
from .choices import Choices
from .description import Array, Constants, Planner, TunableDescription
from .epilogue import BIASED, Epilogue, occurs_only_in
from .quantised import check_small_pairs
from .tiles import (
    MatrixTile,
    Multiplication,
    panel_of,
    pick_panel,
    pick_rows,
    pick_steps,
    schedule_matrix_tiles,
    schedule_tiles,
)

MIN_PARTS, MAX_PARTS = 3, 64
"""Smallest and largest number of parts into which rows are cut for threads."""

MAX_WEIGHTS = 3 << 18
"""Maximum bytes of weights for which rows are cut into parts. Every part reads all weights again,
so they must fit L2."""

SLACK = 1.0625
"""Factor by which one thread may be slower if there are more parts."""


class Product(TunableDescription):
    """A product of `x` with constant weights `w`, then an epilogue, whose operands follow.

    Subclasses are dataclasses with the fields below.
    """

    __slots__ = ()
    title = "product"
    """The kernel's name in errors."""

    dtype: str
    """Element type of `x`."""
    epilogue: Epilogue
    computed = False
    """True if the weights are an operand of each call, as they lie."""
    small_pairs: bool
    """True if `has_small_pairs` holds for the weights, so that instructions may be used whose sums
    of two products saturate."""

    def __post_init__(self) -> None:
        if self.dtype != "float32" and not occurs_only_in("sum", BIASED, self.epilogue.formula):
            raise CompileError(
                f"{self.title}: an epilogue of integers reads `sum` other than as `sum + bias`; "
                "give it a bias"
            )

    @property
    @abstractmethod
    def factors(self) -> tuple[Array, Array]:
        """The arrays `x` and `w`, with the columns of `w` last."""

    @property
    @abstractmethod
    def extents(self) -> tuple[int, ...]:
        """Extents of the output, columns last."""

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        x, w = self.factors
        return {"x": x, "w": w, **self.epilogue.arrays(self.extents)}

    @property
    @override
    def constants(self) -> tuple[str, ...]:
        return (*(() if self.computed else ("w",)), *self.epilogue.constants)

    @property
    @override
    def macs(self) -> int:
        return math.prod((*self.factors[1].shape[:-1], *self.extents))

    @override
    def prepare(self, constants: Constants, target: CpuTarget) -> Constants:
        if self.small_pairs:
            check_small_pairs(constants["w"], self.title)
        return super().prepare(constants, target)


class PanelPlanner(Planner):
    """A product in register tiles, each of several rows of the output and a panel of columns.

    Parameters
    ----------
    product
        The product.
    target
        The processor that it is compiled for.
    way
        How elements are multiplied.
    columns
        Columns of the output, or of one group of them.
    choices
        The free decisions; by default, the planner makes all of them.
    """

    tile_rows: int
    """Rows of a tile."""
    depth: int
    """Elements of the innermost loop of the reduction."""
    steps = 1
    """Iterations of that loop between two branches."""

    def __init__(
        self,
        product: Product,
        target: CpuTarget,
        way: Multiplication,
        columns: int,
        choices: Choices | None = None,
    ) -> None:
        self.target, self.way, self.epilogue = target, way, product.epilogue
        self.columns, self.panel = columns, panel_of(columns, target)
        self.choices = choices or Choices()
        self.matrix: MatrixTile | None = None
        """The tile, if the kernel uses matrix instructions."""
        self.is_wide = way.instruction is not None and columns < target.lanes
        """True if a whole vector of columns is computed, and the output cut from it."""

    def pick_panel(self, rows: int) -> None:
        """Choose how many vectors wide a panel is, for tiles that cover `rows` rows."""
        self.panel = pick_panel(self.choices, self.columns, self.target, rows, self.way)

    def pick_rows(self, extent: int, last: int = 0) -> int:
        """Choose the rows of a tile; see `tiles.pick_rows`."""
        polynomials = self.epilogue.has_polynomials
        return pick_rows(
            self.choices, extent, self.panel, self.target, has_polynomials=polynomials, last=last
        )

    def pick_steps(self) -> None:
        """Choose how far the reduction is unrolled."""
        depth = self.depth // self.way.depth
        if not self.matrix:
            self.steps = pick_steps(self.choices, depth, is_full=self.way.instruction is not None)

    def pick_parts(self, costs: Mapping[int, float], weights: int) -> int:
        """Choose the parts of the rows that threads share, each of which reads all weights.

        Of those that are legal, which `costs` has, it offers about one for each octave.
        """
        itemsize = 4 if self.way.instruction is None else 1
        default = parts_for_threads(costs, weights * itemsize)
        scale = (2**power for power in range(MAX_PARTS.bit_length()))
        near = (min(costs, key=lambda parts: abs(parts - size)) for size in scale)
        return self.choices.pick("parts", default, near)

    @property
    def name(self) -> str:
        """The stage that has the sums."""
        return "wide" if self.is_wide else "out"

    @property
    def computed_columns(self) -> int:
        return self.target.lanes if self.is_wide else self.columns

    def output(
        self,
        total: te.TensorExpression,
        axes: tuple[te.Index, ...],
        groups: int = 0,
        **more: te.TensorExpression,
    ) -> te.DeclaredTensor:
        """The output for a sum, of which the last axes are `groups` of columns and columns."""
        extents = tuple(bare_axis(axis, "output")[1].extent for axis in axes)
        first = -1 - groups
        value = self.epilogue.value(
            total,
            *(extents[first:], axes[first:]),
            *((*extents[:-1], self.columns), axes),
            **more,
        )
        computed = te.compute(self.name, self.epilogue.dtype, axes, value)
        return narrowed(computed, self.columns) if self.is_wide else computed

    def cut(self, s: te.Schedule, rows: str, outer: str, lines: str = "") -> None:
        """Cut the sums into tiles.

        Parameters
        ----------
        s
            The schedule.
        rows
            The loop over rows.
        outer
            Loops around those of a tile, as in `Schedule.nest`; the last one reduces a run.
        lines
            The loop over further rows of a tile; only for matrix instructions.
        """
        taps, columns, lanes = "", ("o", self.panel), self.target.lanes
        if self.way.instruction is not None:
            _, taps = s.split(self.name, outer.split()[-1], self.way.depth)
            outer += ".o"
        if self.matrix:
            sizes, groups = ((rows, self.matrix), columns), s.split(self.name, taps, self.way.taps)
            schedule_matrix_tiles(s, self.name, sizes, outer, lanes, groups, lines)
        else:
            sizes = (rows, self.tile_rows), columns
            schedule_tiles(s, self.name, sizes, outer, lanes, taps, self.steps)

    def layouts(self, w: Layout, *groups: int) -> dict[str, Layout]:
        """Layouts of the weights, and of constants with one number for each column."""
        plain = Layout.plain((*groups, round_up(self.columns, self.panel)))
        return {"w": w, **dict.fromkeys(self.epilogue.constants, plain)}

    def shifted(self, constants: Constants) -> dict[str, np.ndarray]:
        """Take the part of sums that stems from the shift of signed bytes out through the bias."""
        if not self.way.shift:
            return dict(constants)
        w = constants["w"]
        sums = w.sum(axis=tuple(range(w.ndim - 1)), dtype=np.int64)
        return {**constants, "bias": (constants["bias"] - self.way.shift * sums).astype(np.int32)}


def parts_for_threads(costs: Mapping[int, float], weight_bytes: int) -> int:
    """Return the largest number of parts that hardly slows one thread down; 1 if too few fit.

    Parameters
    ----------
    costs
        Times of one thread by the number of parts.
    weight_bytes
        Bytes of weights that each part reads.
    """
    best = max(parts for parts, cost in costs.items() if cost <= SLACK * min(costs.values()))
    return best if weight_bytes <= MAX_WEIGHTS and best >= MIN_PARTS else 1


def narrowed(computed: te.DeclaredTensor, columns: int) -> te.DeclaredTensor:
    """The first columns of a stage that has whole vectors of them, last."""
    assert computed.stage is not None
    names = [axis.name for axis in computed.stage.axes]
    axes = te.axes(**dict(zip(names, (*computed.shape[:-1], columns), strict=True)))
    return te.compute("out", computed.tensor.dtype, axes, computed[axes])
