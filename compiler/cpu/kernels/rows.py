"""Softmax, normalisations and reductions of rows, each computed while it is in the cache.

A row is reduced by four vectors at a time, which are then folded in halves. If rows lie side by
side in memory (`inner` above 1), every lane has a row of its own and nothing is folded.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ....errors import CompileError
from ... import te
from ...te.declare import FLOAT32_MAX
from ..target import CpuTarget
from .choices import Choice, Choices
from .description import Array, TunableDescription
from .row_stages import MAX, SUM, RowPlanner, RowStages, reduced, same, square

MAX_SHORT = 1 << 12
"""Maximum columns of a row that is copied where it is read again with a change."""


class RowKernel(TunableDescription):
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
    def arrays(self) -> Mapping[str, Array]:
        return dict.fromkeys(("x", "out"), Array("float32", self.shape))

    @override
    def method(self, target: CpuTarget, choices: Choices) -> RowPlanner:
        return RowPlanner(self, target, choices)

    @abstractmethod
    def declared(self, width: int) -> RowStages:
        """Declare it, with `width` elements of a row reduced side by side."""

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
    choice: Choice = ()

    @override
    def declared(self, width: int) -> RowStages:
        alone = self.inner == 1
        r, c, i = te.axes(r=self.rows, c=self.columns, i=self.inner)
        one = te.axes(l=1)[0] if alone else i
        axes, row = ((r, c), (r, 0)) if alone else ((r, c, i), (r, i))
        x = self.x(-FLOAT32_MAX if alone else 0)
        largest = reduced(x, "largest", MAX, width)
        grown = te.compute("grown", "float32", axes, te.decay(x[axes] - largest[row]))
        whole = reduced(grown, "total", SUM, width)[r, one]
        share = te.compute("share", "float32", (r, one), te.log(whole) if self.log else 1.0 / whole)
        value = x[axes] - largest[row] - share[row] if self.log else grown[axes] * share[row]
        out = te.compute("out", "float32", axes, value)
        stages = ("grown",) if alone else ("largest", "grown", "total", "share")
        return RowStages("softmax", out, stages)


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
    choice: Choice = ()
    bound = ("scale", "bias")

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        one = Array("float32", (self.rows if self.by_row else self.columns,))
        whole = Array("float32", self.shape)
        return {"x": whole, "scale": one, "bias": one, "out": whole}

    @override
    def declared(self, width: int) -> RowStages:
        r, c = te.axes(r=self.rows, c=self.columns)
        x = self.x()
        scale, bias = (te.tensor(n, a.dtype, a.shape) for n, a in list(self.operands.items())[1:])
        r1, one = te.axes(r=self.rows, l=1)
        share = 1.0 / self.columns
        mean, whole, source = None, (), x

        def centred(element: te.TensorExpression) -> te.TensorExpression:
            return element if mean is None or whole else element - mean[r, 0]

        if self.centred:
            total = reduced(x, "total", SUM, width)
            mean = te.compute("mean", "float32", (r1, one), total[r1, one] * share)
            # Elements beyond the row must be 0, not the negative mean; a short row stays in L1.
            if self.columns % width or self.columns <= MAX_SHORT:
                source = te.compute("centred", "float32", (r, c), centred(x[r, c]))
                whole = ("centred",)
        squares = reduced(source, "squares", SUM, width, lambda one: square(centred(one)))
        spread = te.sqrt(squares[r1, one] * share + self.epsilon)
        share = scale[r1] / spread if self.by_row else 1.0 / spread
        factor = te.compute("factor", "float32", (r1, one), share)
        value = centred(source[r, c]) * factor[r, 0]
        value = value + bias[r] if self.by_row else value * scale[c] + bias[c]
        out = te.compute("out", "float32", (r, c), value)
        return RowStages("layer_normalisation", out, whole)


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
    choice: Choice = ()

    def __post_init__(self) -> None:
        if self.kind not in REDUCTIONS:
            raise CompileError(
                f"reduction: unknown kind `{self.kind}`; choose {', '.join(REDUCTIONS)}"
            )

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        reduced = Array("float32", (self.rows, self.inner))
        return {"x": Array("float32", self.shape), "out": reduced}

    @property
    def macs(self) -> int:
        """Elements that are read."""
        return math.prod(self.shape)

    @override
    def declared(self, width: int) -> RowStages:
        extreme = self.kind in ("max", "min")
        r, i = te.axes(**{"r": self.rows, "l" if self.inner == 1 else "i": self.inner})
        if extreme:
            find = self._extreme if self.inner == 1 else self._extreme_across
            value = find(width, r, i)
        else:
            change = square if self.kind in ("squares", "length") else same
            value = reduced(self.x(), "total", SUM, width, change)[r, i]
        if self.kind == "length":
            value = te.sqrt(value)
        elif not extreme and (self.inner == 1 or self.kind == "mean"):
            value = value * (1.0 / self.columns if self.kind == "mean" else 1.0)
        out = te.compute("out", "float32", (r, i), value)
        across = ("most", "marks") if extreme else ("total",)
        return RowStages("reduction", out, () if self.inner == 1 else across)

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

        most = reduced(x, "most", MAX, width, signed)
        marks = reduced(x, "marks", SUM, width, mark)
        found, marked = signed(most[r, one]), marks[r, one]
        found = te.select(te.equal(marked, float(self.columns)), te.constant(lowest), found)
        return te.select(te.equal(marked, marked), found, none)

    def _extreme_across(self, width: int, r: te.Index, i: te.Index) -> te.TensorExpression:
        """The same for rows side by side: a second sum is NaN if the row has one."""
        sign = 1.0 if self.kind == "max" else -1.0
        zero, none = te.constant(0.0), te.constant(math.nan)
        most = reduced(self.x(), "most", MAX, width, lambda x: x * sign)
        marks = reduced(
            self.x(), "marks", SUM, width, lambda x: te.select(te.equal(x, x), zero, none)
        )
        return most[r, i] * sign + marks[r, i]
