"""Softmax, normalisations and reductions of rows, each computed while it is in the cache.

A row is reduced by four vectors at a time, which are then folded in halves. If rows lie side by
side in memory (`inner` above 1), every lane has a row of its own and nothing is folded.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from ....errors import CompileError
from ... import te
from ...te.declare import FLOAT32_MAX
from ...te.target import REGISTER
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule

Change = Callable[[te.TensorExpression], te.TensorExpression]

MAX_SHORT = 1 << 12
"""Maximum columns of a row that is copied where it is read again with a change."""


class RowKernel(Description):
    """A float32 kernel on `x` [rows, columns], or [rows, columns, inner]; fields as below."""

    __slots__ = ()
    rows: int
    columns: int
    inner: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of `x`."""
        return (self.rows, self.columns, self.inner)[: 2 if self.inner == 1 else 3]

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        return {"x": Array("float32", self.shape)}

    @property
    @override
    def output(self) -> Array:
        return Array("float32", self.shape)

    def x(self, pad: int = 0) -> te.DeclaredTensor:
        """The operand."""
        return te.tensor("x", "float32", self.shape, pad=pad)


@dataclass(frozen=True, slots=True)
class RowSoftmax(RowKernel):
    """`out[r, c] = exp(x[r, c] - largest) / sum of that`, along the columns.

    Parameters
    ----------
    rows, columns
        Extents.
    log
        Whether the result is its logarithm, `x[r, c] - largest - log(sum)`.
    inner
        Rows that lie side by side: with more than one, arrays are [rows, columns, inner].
    """

    rows: int
    columns: int
    log: bool = False
    inner: int = 1

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        width, alone = columns_at_once(self.columns, target), self.inner == 1
        r, c, i = te.axes(r=self.rows, c=self.columns, i=self.inner)
        one = te.axes(l=1)[0] if alone else i
        axes, row = ((r, c), (r, 0)) if alone else ((r, c, i), (r, i))
        x = self.x(-FLOAT32_MAX if alone else 0)
        if alone:
            largest = reduced(x, "largest", self.columns, width, te.max, te.maximum)
        else:
            largest = _reduced_across(x, "largest", te.max)
        grown = te.compute("grown", "float32", axes, te.decay(x[axes] - largest[row]))
        if alone:
            total = reduced(
                grown, "total", self.columns, width, te.sum, te.TensorExpression.__add__
            )
        else:
            total = _reduced_across(grown, "total", te.sum)
        whole = total[r, one]
        share = te.compute("share", "float32", (r, one), te.log(whole) if self.log else 1.0 / whole)
        value = x[axes] - largest[row] - share[row] if self.log else grown[axes] * share[row]
        out = te.compute("out", "float32", axes, value)
        if alone:
            return _scheduled("softmax", out, ("grown",), width, target)
        return _scheduled_across("softmax", out, ("largest", "grown", "total", "share"), target)


@dataclass(frozen=True, slots=True)
class LayerNormalisation(RowKernel):
    """`out[r, c] = (x[r, c] - mean) / sqrt(variance + epsilon) * scale[c] + bias[c]`, per row.

    Operands are `x`, `scale` and `bias`; the last two are constants. The variance is that of the
    centred row, in a second pass.

    Parameters
    ----------
    rows, columns
        Extents.
    epsilon
        Number added to the variance.
    centred
        Whether the mean is taken out; if not, it counts as 0 (RMSNorm).
    by_row
        Whether scale and bias are `scale[r]` and `bias[r]` (InstanceNormalization).
    """

    rows: int
    columns: int
    epsilon: float = 1e-5
    centred: bool = True
    by_row: bool = False
    bound = ("scale", "bias")

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        one = Array("float32", (self.rows if self.by_row else self.columns,))
        return {"x": self.output, "scale": one, "bias": one}

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        width = columns_at_once(self.columns, target)
        r, c = te.axes(r=self.rows, c=self.columns)
        x = self.x()
        scale, bias = (te.tensor(n, a.dtype, a.shape) for n, a in list(self.operands.items())[1:])
        r1, one = te.axes(r=self.rows, l=1)
        share = 1.0 / self.columns
        mean, whole, source = None, (), x

        def centred(element: te.TensorExpression) -> te.TensorExpression:
            return element if mean is None or whole else element - mean[r, 0]

        if self.centred:
            total = reduced(x, "total", self.columns, width, te.sum, te.TensorExpression.__add__)
            mean = te.compute("mean", "float32", (r1, one), total[r1, one] * share)
            # Elements beyond the row must be 0, not the negative mean; a short row stays in L1.
            if self.columns % width or self.columns <= MAX_SHORT:
                source = te.compute("centred", "float32", (r, c), centred(x[r, c]))
                whole = ("centred",)
        squares = reduced(
            *(source, "squares", self.columns, width, te.sum, te.TensorExpression.__add__),
            lambda element: _square(centred(element)),
        )
        spread = te.sqrt(squares[r1, one] * share + self.epsilon)
        share = scale[r1] / spread if self.by_row else 1.0 / spread
        factor = te.compute("factor", "float32", (r1, one), share)
        value = centred(source[r, c]) * factor[r, 0]
        value = value + bias[r] if self.by_row else value * scale[c] + bias[c]
        out = te.compute("out", "float32", (r, c), value)
        return _scheduled("layer_normalisation", out, whole, width, target)


REDUCTIONS = ("mean", "sum", "max", "min", "squares", "length")
"""Kinds of `RowReduction`; `squares` is the sum of squares, `length` its root."""


@dataclass(frozen=True, slots=True)
class RowReduction(RowKernel):
    """`out[r] = sum, mean, largest or smallest of x[r, ...]`, in float32.

    Parameters
    ----------
    rows, columns
        Extents.
    kind
        One of `REDUCTIONS`. The largest and smallest of a row with a NaN are NaN.
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
                f"reduction: unknown kind `{self.kind}`; choose {', '.join(REDUCTIONS)}"
            )

    @property
    @override
    def output(self) -> Array:
        return Array("float32", (self.rows, self.inner))

    @property
    def macs(self) -> int:
        """Elements that are read."""
        return math.prod(self.shape)

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        extreme, width = self.kind in ("max", "min"), columns_at_once(self.columns, target)
        r, i = te.axes(**{"r": self.rows, "l" if self.inner == 1 else "i": self.inner})
        if self.inner == 1:
            value = self._extreme(width, r, i) if extreme else self._total(width)[r, i]
        else:
            value = self._extreme_across(r, i) if extreme else self._total(0)[r, i]
        if self.kind == "length":
            value = te.sqrt(value)
        elif not extreme and (self.inner == 1 or self.kind == "mean"):
            value = value * (1.0 / self.columns if self.kind == "mean" else 1.0)
        out = te.compute("out", "float32", (r, i), value)
        if self.inner == 1:
            return _scheduled("reduction", out, (), width, target)
        return _scheduled_across(
            "reduction", out, ("most", "marks") if extreme else ("total",), target
        )

    def _total(self, width: int) -> te.DeclaredTensor:
        """Sums of all rows, `width` elements at once; of rows side by side where that is 0."""
        change = _square if self.kind in ("squares", "length") else _same
        if not width:
            return _reduced_across(self.x(), "total", te.sum, change)
        return reduced(
            self.x(), "total", self.columns, width, te.sum, te.TensorExpression.__add__, change
        )

    def _extreme(self, width: int, r: te.Index, one: te.Index) -> te.TensorExpression:
        """The largest number of a row; for the smallest, that of the negated numbers.

        Maxima drop NaNs, and the padding at the end of a row is finite. A second sum therefore
        becomes NaN if the row has one, and counts infinities that the padding would hide.
        """
        sign = 1 if self.kind == "max" else -1
        x = self.x(-sign * FLOAT32_MAX)
        lowest, none = -sign * math.inf, te.constant(math.nan)

        def signed(value: te.TensorExpression) -> te.TensorExpression:
            return value if sign > 0 else -value

        def mark(value: te.TensorExpression) -> te.TensorExpression:
            lost = te.select(te.equal(value, lowest), te.constant(1.0), te.constant(0.0))
            return te.select(te.equal(value, value), lost, none)

        most = reduced(x, "most", self.columns, width, te.max, te.maximum, signed)
        marks = reduced(x, "marks", self.columns, width, te.sum, te.TensorExpression.__add__, mark)
        found, marked = signed(most[r, one]), marks[r, one]
        found = te.select(te.equal(marked, float(self.columns)), te.constant(lowest), found)
        return te.select(te.equal(marked, marked), found, none)

    def _extreme_across(self, r: te.Index, i: te.Index) -> te.TensorExpression:
        """The same for rows side by side: a second sum is NaN if the row has one."""
        sign = 1.0 if self.kind == "max" else -1.0
        most = _reduced_across(self.x(), "most", te.max, lambda x: x * sign)
        marks = _reduced_across(
            self.x(),
            "marks",
            te.sum,
            lambda x: te.select(te.equal(x, x), te.constant(0.0), te.constant(math.nan)),
        )
        return most[r, i] * sign + marks[r, i]


def _same(value: te.TensorExpression) -> te.TensorExpression:
    return value


def _square(value: te.TensorExpression) -> te.TensorExpression:
    return value * value


def columns_at_once(columns: int, target: CpuTarget) -> int:
    """Elements of a row that are reduced side by side."""
    width = 4 * target.lanes
    while width > target.lanes and width > columns:
        width //= 2
    return width


def reduced(
    source: te.DeclaredTensor,
    name: str,
    columns: int,
    width: int,
    reduce: Callable[..., te.TensorExpression],
    combine: Callable[[te.TensorExpression, te.TensorExpression], te.TensorExpression],
    change: Change = _same,
) -> te.DeclaredTensor:
    """Stages that reduce each row to one element: blocks of `width`, then halves.

    `change` is applied to every element first.
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


def _reduced_across(
    source: te.DeclaredTensor,
    name: str,
    reduce: Callable[..., te.TensorExpression],
    change: Change = _same,
) -> te.DeclaredTensor:
    """A stage that reduces the middle axis of [rows, columns, inner]."""
    rows, columns, inner = source.tensor.shape
    r, i = te.axes(r=rows, i=inner)
    (k,) = te.reduce_axes(k=columns)
    return te.compute(name, "float32", (r, i), reduce(change(source[r, k, i]), over=k))


def _scheduled(
    name: str, out: te.DeclaredTensor, rows: Sequence[str], width: int, target: CpuTarget
) -> KernelSchedule:
    """Compute all stages inside the loop over rows; whole rows in memory, the rest in registers."""
    s = te.Schedule(te.kernel(name, out), target.processor)
    loops = {stage.name: stage.loops for stage in s.stages}
    for stage in reversed(loops):
        if stage in rows:
            s.compute_at(stage, "out", "r")
        elif stage != "out":
            compute_in_row(s, stage, "out")
        if "c" in loops[stage]:
            s.split(stage, "c", width)
            s.vectorise(stage, "c.i")
    s.parallelise("out", "r")
    return KernelSchedule(s)


def compute_in_row(s: te.Schedule, name: str, consumer: str) -> None:
    """Compute a stage of `reduced` in registers, inside the loop over rows of its consumer."""
    s.compute_at(name, consumer, "r")
    s.set_scope(name, REGISTER)
    (loops,) = (stage.loops for stage in s.stages if stage.name == name)
    if "b" in loops:
        s.reorder(name, "b", "l")
    s.vectorise(name, "l")


def _scheduled_across(
    name: str, out: te.DeclaredTensor, stages: Sequence[str], target: CpuTarget
) -> KernelSchedule:
    """Compute all stages inside a loop over blocks of neighbours; whole rows in memory."""
    s = te.Schedule(te.kernel(name, out), target.processor)
    s.split("out", "i", min(out.tensor.shape[-1], 2 * target.lanes))
    loops = {stage.name: stage.loops for stage in s.stages}
    if "c" in loops["out"]:
        s.reorder("out", "r", "i.o", "c", "i.i")
    for stage in reversed(stages):
        s.compute_at(stage, "out", "i.o")
        if "k" in loops[stage]:
            s.reorder(stage, "r", "k", "i")
        if "c" not in loops[stage]:
            s.set_scope(stage, REGISTER)
        s.vectorise(stage, "i")
    s.vectorise("out", "i.i")
    s.parallelise("out", "r" if out.tensor.shape[0] > 1 else "i.o")
    return KernelSchedule(s)
