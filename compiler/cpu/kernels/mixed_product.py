"""Matrix products of float32 activations with weights of bytes.

Activations become fixed-point numbers of 16 bits, with one step for each row; the processor
multiplies those with the weights in pairs and sums in int32. A kernel of float32 weights would read
four times the bytes, which is what limits a product of few rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from ....errors import InputError
from ... import te
from ..target import CpuTarget
from .convolution import matrix_product
from .description import Array, KernelSchedule, MatrixProduct
from .direct_convolution import DirectPlanner, narrowed
from .quantised import Requantisation
from .rows import columns_at_once, compute_in_row, reduced

MIN_MAGNITUDE = 2.0**-100
"""A row whose magnitudes are all smaller counts as zeros."""


@dataclass(frozen=True, slots=True)
class MixedProduct(MatrixProduct):
    """`out[m, n] = sum(x[m, k] * w[k, n]) * factor[n] + bias[n]`, plus `residual[m, n]` if given.

    Operands are `x` float32[M, K], `w` [K, N], `factor` and `bias` float32[N], and `residual`
    float32[M, N]; `w`, `factor` and `bias` are constants. Each `x` is rounded to a whole multiple
    of its row's largest magnitude divided by `limit`. A row with a NaN or an infinity gives NaNs.

    Parameters
    ----------
    rows, inner, columns
        Extents of m, k and n.
    dtype
        Type of `w`, `int8` or `int16`.
    limit
        Largest multiple; see `limit_of`.
    residual
        Whether an array is added.
    """

    rows: int
    inner: int
    columns: int
    dtype: str = "int8"
    limit: int = 1
    residual: bool = False

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        found = {
            "x": Array("float32", (self.rows, self.inner)),
            "w": Array(self.dtype, (self.inner, self.columns)),
            "factor": Array("float32", (self.columns,)),
            "bias": Array("float32", (self.columns,)),
        }
        return {**found, "residual": self.output} if self.residual else found

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls; they are packed once."""
        return ("w", "factor", "bias")

    @property
    @override
    def output(self) -> Array:
        return Array("float32", (self.rows, self.columns))

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        return MixedPlanner(self, target).plan()

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: CpuTarget
    ) -> Mapping[str, np.ndarray]:
        """Return the declared tensors that are computed from the weights.

        Raises
        ------
        InputError
            When sums may exceed int32.
        """
        most = limit_of(constants["w"])
        if self.limit > most:
            raise InputError(
                f"product: with these weights, the limit is at most {most}, not {self.limit}; "
                "describe the product with less"
            )
        return {**constants, "w": constants["w"][None]}


def limit_of(w: np.ndarray) -> int:
    """Return the largest `limit` of 16 bits with which no sum exceeds int32."""
    most = int(np.abs(w.astype(np.int64)).sum(axis=0).max(initial=1))
    return min((1 << 15) - 1, ((1 << 31) - 1) // most)


class MixedPlanner(DirectPlanner):
    """The declaration and schedule of one product for one target."""

    def __init__(self, product: MixedProduct, target: CpuTarget) -> None:
        self.owner = product
        extents = product.rows, product.inner, product.columns
        super().__init__(matrix_product(*extents, quantised=Requantisation("int16")), target)

    @property
    def dtype(self) -> str:
        """Element type of the output."""
        return self.owner.output.dtype

    @property
    def by_column(self) -> tuple[str, ...]:
        """Constants with one element for each column."""
        return ("factor", "bias")

    def plan(self) -> KernelSchedule:
        """Declaration, schedule and layouts; the steps of all rows are computed first."""
        planned = super().plan()
        names = [stage.name for stage in planned.schedule.stages]
        for name in reversed(names[: names.index("step")]):
            compute_in_row(planned.schedule, name, "step")
        return planned

    def declared(self) -> te.DeclaredTensor:
        """The steps of all rows, the multiples, and their product with the weights."""
        owner = self.owner
        x = te.tensor("x", "float32", (owner.rows, owner.inner))
        step = self._step(x)
        pn, py, px = te.axes(pn=1, py=owner.rows, px=self.run)
        multiple = te.rounded(x[py, px] * (1.0 / step[py, 0]))
        multiples = te.compute("padded", "int16", (pn, py, px), multiple)
        w = te.tensor("w", owner.dtype, (1, self.run, self.channels))
        n, _, xo, o = axes = te.axes(n=1, y=1, x=owner.rows, o=self.channels)
        ky, t = over = te.reduce_axes(ky=1, t=self.run)
        total = te.sum(multiples[n, xo, t] * w[ky, t, o], over=over)
        factor, bias = (te.tensor(name, "float32", (self.channels,))[o] for name in self.by_column)
        value = te.real(total) * (step[xo, 0] * factor) + bias
        if owner.residual:
            value = value + te.tensor("residual", "float32", (owner.rows, owner.columns))[xo, o]
        computed = te.compute(self.name, self.dtype, axes, value)
        return computed if self.name == "out" else narrowed(computed, "nyxo", owner.columns)

    def _step(self, x: te.DeclaredTensor) -> te.DeclaredTensor:
        """The step of each row, [M, 1]; NaN if a number of the row is not finite."""
        columns, width = self.owner.inner, columns_at_once(self.owner.inner, self.target)
        largest = reduced(
            *(x, "largest", columns, width, te.max, te.maximum),
            lambda value: te.maximum(value, -value),
        )
        marks = reduced(
            *(x, "marks", columns, width, te.sum, te.TensorExpression.__add__),
            lambda value: te.single(value * 0.0),
        )
        r, one = te.axes(r=self.owner.rows, l=1)
        value = te.maximum(largest[r, one], MIN_MAGNITUDE) * (1.0 / self.owner.limit)
        return te.compute("step", "float32", (r, one), value + marks[r, one])
