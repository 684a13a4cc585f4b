"""Softmax and layer normalisation: rows of numbers, each done while it lies in the cache.

A row is reduced in four vectors at a time, side by side, which are then folded in halves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .. import te
from ..te.declare import FLOAT32_MAX
from ..te.stages import REGISTER
from .description import Array, Plan
from .target import Target


@dataclass(frozen=True, slots=True)
class Softmax:
    """`out[r, c] = exp(x[r, c] - largest) / sum of that`, along the last of two dimensions.

    Parameters
    ----------
    rows, columns
        Extents.
    """

    rows: int
    columns: int

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given."""
        return {"x": Array("float32", (self.rows, self.columns))}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", (self.rows, self.columns))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        width = _width(self.columns, target)
        r, c = te.axes(r=self.rows, c=self.columns)
        x = te.tensor("x", "float32", (self.rows, self.columns), pad=-FLOAT32_MAX)
        largest = _reduced(x, "largest", self.columns, width, te.max, te.maximum)
        grown = te.compute("grown", "float32", (r, c), te.exp(x[r, c] - largest[r, 0]))
        total = _reduced(grown, "total", self.columns, width, te.sum, te.Value.__add__)
        r1, one = te.axes(r=self.rows, l=1)
        inverse = te.compute("inverse", "float32", (r1, one), 1.0 / total[r1, one])
        out = te.compute("out", "float32", (r, c), grown[r, c] * inverse[r, 0])
        return _scheduled("softmax", out, ("grown",), width, target)


@dataclass(frozen=True, slots=True)
class LayerNormalisation:
    """`out[r, c] = (x[r, c] - mean) / sqrt(variance + epsilon) * scale[c] + bias[c]`, per row.

    Operands are `x`, `scale` and `bias`; the last two are constants. The variance is that of the
    centred row, in a second pass.

    Parameters
    ----------
    rows, columns
        Extents.
    epsilon
        Added to the variance.
    """

    rows: int
    columns: int
    epsilon: float = 1e-5

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given."""
        row = Array("float32", (self.columns,))
        return {"x": self.output, "scale": row, "bias": row}

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls."""
        return ("scale", "bias")

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", (self.rows, self.columns))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        width = _width(self.columns, target)
        r, c = te.axes(r=self.rows, c=self.columns)
        x = te.tensor("x", "float32", (self.rows, self.columns))
        scale, bias = (te.tensor(name, "float32", (self.columns,)) for name in ("scale", "bias"))
        total = _reduced(x, "total", self.columns, width, te.sum, te.Value.__add__)
        r1, one = te.axes(r=self.rows, l=1)
        share = 1.0 / self.columns
        mean = te.compute("mean", "float32", (r1, one), total[r1, one] * share)
        centred = te.compute("centred", "float32", (r, c), x[r, c] - mean[r, 0])
        squares = _reduced(
            centred, "squares", self.columns, width, te.sum, te.Value.__add__, square=True
        )
        spread = te.sqrt(squares[r1, one] * share + self.epsilon)
        factor = te.compute("factor", "float32", (r1, one), 1.0 / spread)
        value = centred[r, c] * factor[r, 0] * scale[c] + bias[c]
        out = te.compute("out", "float32", (r, c), value)
        return _scheduled("layer_normalisation", out, ("centred",), width, target)


def _width(columns: int, target: Target) -> int:
    """Elements of a row that are reduced side by side."""
    width = 4 * target.lanes
    while width > target.lanes and width > columns:
        width //= 2
    return width


def _reduced(
    source: te.Operand,
    name: str,
    columns: int,
    width: int,
    reduce: Callable[..., te.Value],
    combine: Callable[[te.Value, te.Value], te.Value],
    square: bool = False,
) -> te.Operand:
    """Stages that reduce every row to one element: blocks of `width`, then halves of that."""
    rows = source.tensor.shape[0]
    r, lane = te.axes(r=rows, l=width)
    (block,) = te.reduce_axes(b=-(-columns // width))
    element = source[r, block * width + lane]
    value = reduce(element * element if square else element, over=block)
    stage = te.compute(f"{name}_{width}", "float32", (r, lane), value)
    while width > 1:
        width //= 2
        r, lane = te.axes(r=rows, l=width)
        value = combine(stage[r, lane], stage[r, lane + width])
        stage = te.compute(f"{name}_{width}", "float32", (r, lane), value)
    return stage


def _scheduled(
    name: str, out: te.Operand, rows: tuple[str, ...], width: int, target: Target
) -> Plan:
    """All stages inside the loop over rows; whole rows in memory, the rest in registers."""
    schedule = te.Schedule(te.kernel(name, out), processor=target.processor)
    inner = [stage.name for stage in schedule.stages if stage.name != "out"]
    for stage in reversed(inner):
        schedule.compute_at(stage, "out", "r")
    for stage in (*rows, "out"):
        schedule.split(stage, "c", width)
        schedule.vectorise(stage, "c.i")
    for stage in reversed(inner):
        if stage not in rows:
            schedule.set_scope(stage, REGISTER)
            if "b" in dict.fromkeys(next(s for s in schedule.stages if s.name == stage).loops):
                schedule.reorder(stage, "b", "l")
            schedule.vectorise(stage, "l")
    schedule.parallelise("out", "r")
    return Plan(schedule)
