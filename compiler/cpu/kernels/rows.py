"""Softmax, normalisations and reductions: rows of numbers, each done while it lies in the cache.

A row is reduced in four vectors at a time, side by side, which are then folded in halves.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import CompileError
from ... import te
from ...te.declare import FLOAT32_MAX
from ...te.stages import REGISTER
from ..target import Target
from .across import reduction_across, softmax_across
from .description import Array, Plan


@dataclass(frozen=True, slots=True)
class Softmax:
    """`out[r, c] = exp(x[r, c] - largest) / sum of that`, along the columns.

    Parameters
    ----------
    rows, columns
        Extents.
    log
        Whether it is the logarithm of that: `x[r, c] - largest - log(sum)`.
    inner
        Rows that lie side by side: with more than one, arrays are [rows, columns, inner].
    """

    rows: int
    columns: int
    log: bool = False
    inner: int = 1

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given."""
        return {"x": self.output}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", _shape(self.rows, self.columns, self.inner))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        if self.inner > 1:
            return softmax_across(self.rows, self.columns, self.inner, self.log, target)
        width = _width(self.columns, target)
        r, c = te.axes(r=self.rows, c=self.columns)
        x = te.tensor("x", "float32", (self.rows, self.columns), pad=-FLOAT32_MAX)
        largest = _reduced(x, "largest", self.columns, width, te.max, te.maximum)
        grown = te.compute("grown", "float32", (r, c), te.exp(x[r, c] - largest[r, 0]))
        total = _reduced(grown, "total", self.columns, width, te.sum, te.Value.__add__)
        r1, one = te.axes(r=self.rows, l=1)
        if self.log:
            share = te.compute("share", "float32", (r1, one), te.log(total[r1, one]))
            value = x[r, c] - largest[r, 0] - share[r, 0]
        else:
            share = te.compute("share", "float32", (r1, one), 1.0 / total[r1, one])
            value = grown[r, c] * share[r, 0]
        out = te.compute("out", "float32", (r, c), value)
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
    centred
        Whether the mean is taken out; without, it is 0 (RMSNorm).
    """

    rows: int
    columns: int
    epsilon: float = 1e-5
    centred: bool = True

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
        r1, one = te.axes(r=self.rows, l=1)
        share = 1.0 / self.columns
        centred, whole = x, ()
        if self.centred:
            total = _reduced(x, "total", self.columns, width, te.sum, te.Value.__add__)
            mean = te.compute("mean", "float32", (r1, one), total[r1, one] * share)
            centred = te.compute("centred", "float32", (r, c), x[r, c] - mean[r, 0])
            whole = ("centred",)
        squares = _reduced(
            centred, "squares", self.columns, width, te.sum, te.Value.__add__, _square
        )
        spread = te.sqrt(squares[r1, one] * share + self.epsilon)
        factor = te.compute("factor", "float32", (r1, one), 1.0 / spread)
        value = centred[r, c] * factor[r, 0] * scale[c] + bias[c]
        out = te.compute("out", "float32", (r, c), value)
        return _scheduled("layer_normalisation", out, whole, width, target)


REDUCTIONS = ("mean", "sum", "max", "min", "squares", "length")
"""What `Reduction` does with a row; `squares` sums those, and `length` is the root of that."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """`out[r] = sum, mean, largest or least of x[r, ...]`, in float32.

    Parameters
    ----------
    rows, columns
        Extents.
    kind
        One of `REDUCTIONS`. Where a row has a NaN, its largest and least are NaN too.
    inner
        Rows that lie side by side: with more than one, `x` is [rows, columns, inner].
    """

    rows: int
    columns: int
    kind: str
    inner: int = 1

    def __post_init__(self) -> None:
        if self.kind not in REDUCTIONS:
            raise CompileError(
                f"reduction: there is no `{self.kind}`; choose {', '.join(REDUCTIONS)}"
            )

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given."""
        return {"x": Array("float32", _shape(self.rows, self.columns, self.inner))}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("float32", (self.rows, self.inner))

    @property
    def macs(self) -> int:
        """Elements that are read."""
        return self.rows * self.columns * self.inner

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        if self.inner > 1:
            return reduction_across(self.rows, self.columns, self.inner, self.kind, target)
        width = _width(self.columns, target)
        value = self._extreme(width) if self.kind in ("max", "min") else self._total(width)
        r, one = te.axes(r=self.rows, l=1)
        out = te.compute("out", "float32", (r, one), value(r, one))
        return _scheduled("reduction", out, (), width, target)

    def _total(self, width: int) -> Callable[..., te.Value]:
        x = te.tensor("x", "float32", (self.rows, self.columns))
        change = _square if self.kind in ("squares", "length") else _same
        total = _reduced(x, "total", self.columns, width, te.sum, te.Value.__add__, change)
        if self.kind == "length":
            return lambda r, one: te.sqrt(total[r, one])
        share = 1.0 / self.columns if self.kind == "mean" else 1.0
        return lambda r, one: total[r, one] * share

    def _extreme(self, width: int) -> Callable[..., te.Value]:
        """The largest number of a row, of negative ones for the least.

        Maxima drop NaNs, and the pad of a row's end is finite: a sum beside them is NaN where a row
        has one, and counts the infinities that are no larger than the pad.
        """
        sign = 1 if self.kind == "max" else -1
        shape = (self.rows, self.columns)
        x = te.tensor("x", "float32", shape, pad=-sign * FLOAT32_MAX)
        lowest, none = -sign * math.inf, te.constant(math.nan)

        def signed(value: te.Value) -> te.Value:
            return value if sign > 0 else -value

        def mark(value: te.Value) -> te.Value:
            lost = te.select(te.equal(value, lowest), te.constant(1.0), te.constant(0.0))
            return te.select(te.equal(value, value), lost, none)

        most = _reduced(x, "most", self.columns, width, te.max, te.maximum, signed)
        marks = _reduced(x, "marks", self.columns, width, te.sum, te.Value.__add__, mark)

        def value(r: te.Index, one: te.Index) -> te.Value:
            found, marked = signed(most[r, one]), marks[r, one]
            found = te.select(te.equal(marked, float(self.columns)), te.constant(lowest), found)
            return te.select(te.equal(marked, marked), found, none)

        return value


def _shape(rows: int, columns: int, inner: int) -> tuple[int, ...]:
    """Of an array of rows, or of rows that lie side by side."""
    return (rows, columns) if inner == 1 else (rows, columns, inner)


def _same(value: te.Value) -> te.Value:
    return value


def _square(value: te.Value) -> te.Value:
    return value * value


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
    change: Callable[[te.Value], te.Value] = _same,
) -> te.Operand:
    """Stages that reduce every row to one element: blocks of `width`, then halves of that.

    `change` is done to every element before.
    """
    rows = source.tensor.shape[0]
    r, lane = te.axes(r=rows, l=width)
    (block,) = te.reduce_axes(b=-(-columns // width))
    element = source[r, block * width + lane]
    value = reduce(change(element), over=block)
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
    for stage in schedule.stages:
        if "c" in stage.loops:
            schedule.split(stage.name, "c", width)
            schedule.vectorise(stage.name, "c.i")
    for stage in reversed(inner):
        if stage not in rows:
            schedule.set_scope(stage, REGISTER)
            if "b" in dict.fromkeys(next(s for s in schedule.stages if s.name == stage).loops):
                schedule.reorder(stage, "b", "l")
            schedule.vectorise(stage, "l")
    schedule.parallelise("out", "r")
    return Plan(schedule)
