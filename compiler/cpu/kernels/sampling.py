"""Samples of images at positions that the network computes, between their four neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule


@dataclass(frozen=True, slots=True)
class LinearSamples(Description):
    """`out[n, c, p]`, linear between the elements of `x[n, c]` around the position `grid[n, p]`.

    Operands are `x` as [N, C, H, W] and `grid` as [N, P, 2], with the column first; -1 and 1 are
    the edges of the image. A NaN in the grid gives NaN.

    Parameters
    ----------
    batch, channels, height, width
        Extents of the image.
    places
        Positions in each image.
    border
        Whether positions outside are moved to the border; otherwise, zeros surround the image.
    align_corners
        Whether -1 and 1 are the centres of the outermost elements.
    """

    batch: int
    channels: int
    height: int
    width: int
    places: int
    border: bool = False
    align_corners: bool = False

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        planes = (self.batch, self.channels)
        return {
            "x": Array("float32", (*planes, self.height, self.width)),
            "grid": Array("float32", (self.batch, self.places, 2)),
            "out": Array("float32", (*planes, self.places)),
        }

    @property
    @override
    def macs(self) -> int:
        return 4 * self.batch * self.channels * self.places

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: vectors of positions, which all channels share."""
        s = te.Schedule(te.kernel("samples", self._declared()), target.processor)
        outer = s.nest("out", "(n p.o) c p.i~", p=min(target.lanes, self.places))
        for stage in reversed(s.stages):
            if stage.name != "out":
                s.compute_at(stage.name, "out", outer)
                s.vectorise(stage.name, "p")
        return KernelSchedule(s)

    def _declared(self) -> te.DeclaredTensor:
        x, grid = (te.tensor(name, one.dtype, one.shape) for name, one in self.operands.items())
        n, c, p = te.axes(n=self.batch, c=self.channels, p=self.places)
        axes = [
            self._taps(name, grid[n, p, 1 - axis], (n, p), size)
            for axis, (name, size) in enumerate((("row", self.height), ("column", self.width)))
        ]
        total: te.TensorExpression | None = None
        for row, high, row_exists in axes[0]:
            for column, wide, column_exists in axes[1]:
                element = te.element(x[n, c, 0, 0], row * self.width + column)
                if not self.border:
                    element = te.select(row_exists * column_exists, element, te.constant(0.0))
                part = element * (high * wide)
                total = part if total is None else total + part
        assert total is not None
        return te.compute("out", "float32", (n, c, p), total)

    def _taps(
        self, name: str, given: te.TensorExpression, axes: tuple[te.Index, ...], size: int
    ) -> list[tuple[te.TensorExpression, ...]]:
        """The two elements around a position on an axis, their weights, and whether they exist."""
        if self.align_corners:
            place = (given + 1.0) * (0.5 * (size - 1))
        else:
            place = te.single((given + 1.0) * float(size)) * 0.5 + -0.5
        low, high = (0.0, size - 1.0) if self.border else (-2.0, size + 1.0)
        place = te.minimum(te.maximum(place, low), high)
        place = te.compute(f"{name}_place", "float32", axes, place)[axes]
        known = te.select(te.equal(place, place), place, te.constant(0.0))
        near = te.compute(f"{name}_near", "int32", axes, te.rounded(known))[axes]
        first = near - te.less(known, te.real(near))
        first = te.compute(f"{name}_first", "int32", axes, first)[axes]
        share = te.compute(f"{name}_share", "float32", axes, place - te.real(first))[axes]
        found = []
        for step, weight in ((0, 1.0 - share), (1, share)):
            index = te.minimum(te.maximum(first + step, 0), size - 1)
            index = te.compute(f"{name}_{step}", "int32", axes, index)[axes]
            found.append((index, weight, te.equal(index, first + step)))
        return found
