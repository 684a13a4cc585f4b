"""Stages that reduce rows, and their schedules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from ... import te
from ...te.target import REGISTER
from ..target import CpuTarget
from .choices import Choices
from .description import KernelSchedule, Planner

if TYPE_CHECKING:
    from .rows import RowKernel

Change = Callable[[te.TensorExpression], te.TensorExpression]

Fold = tuple[Callable[..., te.TensorExpression], Callable[..., te.TensorExpression]]
"""A reduction, and the operation that combines two of its results."""

SUM: Fold = te.sum, te.TensorExpression.__add__
MAX: Fold = te.max, te.maximum

VECTORS = (1, 2, 4, 8)
"""Vectors that may be computed side by side."""


@dataclass(frozen=True, slots=True)
class RowStages:
    """A declaration.

    Parameters
    ----------
    stages
        Stages with whole rows; or, where rows lie side by side, all but the last one.
    """

    name: str
    out: te.DeclaredTensor
    stages: Sequence[str]


def same(value: te.TensorExpression) -> te.TensorExpression:
    """The change that changes nothing."""
    return value


def square(value: te.TensorExpression) -> te.TensorExpression:
    """The change of sums of squares."""
    return value * value


def columns_at_once(columns: int, target: CpuTarget) -> int:
    """Elements of a row that are reduced side by side."""
    width = 4 * target.lanes
    while width > target.lanes and width > columns:
        width //= 2
    return width


def reduced(
    source: te.DeclaredTensor, name: str, fold: Fold, width: int, change: Change = same
) -> te.DeclaredTensor:
    """Stages that reduce each row to one element, after `change` of every element.

    A row of [rows, columns] is reduced in blocks of `width`, then in halves. Rows of [rows,
    columns, inner] lie side by side and take one stage.
    """
    reduce, combine = fold
    rows, columns, *inner = source.shape
    if inner:
        r, i = te.axes(r=rows, i=inner[0])
        (k,) = te.reduce_axes(k=columns)
        return te.compute(name, "float32", (r, i), reduce(change(source[r, k, i]), over=k))
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


class RowPlanner(Planner):
    """The schedule of a row kernel."""

    def __init__(self, kernel: "RowKernel", target: CpuTarget, choices: Choices) -> None:
        self.kernel, self.target, lanes = kernel, target, target.lanes
        alone = kernel.inner == 1
        default = columns_at_once(kernel.columns, target) // lanes if alone else 2
        extent = kernel.columns if alone else kernel.inner
        others = (count for count in VECTORS if (count - 1) * lanes < extent)
        self.width = lanes * choices.pick("vectors", default, others)
        """Elements of a row, or neighbouring rows, that are computed side by side."""

    @override
    def plan(self) -> KernelSchedule:
        declared = self.kernel.declared(self.width)
        s = te.Schedule(te.kernel(declared.name, declared.out), self.target.processor)
        plan = self._along if self.kernel.inner == 1 else self._across
        plan(s, declared.stages)
        return KernelSchedule(s)

    def _along(self, s: te.Schedule, rows: Sequence[str]) -> None:
        """Compute stages inside the loop over rows; whole rows in memory, others in registers."""
        loops = {stage.name: stage.loops for stage in s.stages}
        for stage in reversed(loops):
            if stage in rows:
                s.compute_at(stage, "out", "r")
            elif stage != "out":
                compute_in_row(s, stage, "out")
            if "c" in loops[stage]:
                s.nest(stage, "c.i~", c=self.width)
        s.parallelise("out", "r")

    def _across(self, s: te.Schedule, stages: Sequence[str]) -> None:
        """Compute stages inside a loop over blocks of neighbours; whole rows in memory."""
        loops = {stage.name: stage.loops for stage in s.stages}
        outer = "(r) i.o" if self.kernel.rows > 1 else "r (i.o)"
        whole = "c" if "c" in loops["out"] else ""
        s.nest("out", f"{outer} {whole} i.i~", i=min(self.kernel.inner, self.width))
        for stage in reversed(stages):
            s.compute_at(stage, "out", "i.o")
            s.nest(stage, "r k i~" if "k" in loops[stage] else "i~")
            if "c" not in loops[stage]:
                s.set_scope(stage, REGISTER)


def compute_in_row(s: te.Schedule, name: str, consumer: str) -> None:
    """Compute a stage of `reduced` in registers, inside the loop over rows of its consumer."""
    s.compute_at(name, consumer, "r")
    s.set_scope(name, REGISTER)
    (loops,) = (stage.loops for stage in s.stages if stage.name == name)
    s.nest(name, "b l~" if "b" in loops else "l~")
