"""Kernels that move elements, and may convert them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ...formulas import Formula
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule
from .formulas import value_of

MAX_PIECES = 16
"""Maximum number of vectors of a joined row, each with its own code."""


SQUARE = 16
"""Bytes of a row that is read as one vector, and rows that are turned into columns at once."""


@dataclass(frozen=True, slots=True)
class AffineCopy(Description):
    """`out[i, j, ...] = x[...]`, where each index of `x` is a sum of those of `out`.

    Parameters
    ----------
    shape
        Extents of `x`.
    extents
        Extents of `out`, split into as many dimensions as the indices need to be sums.
    index
        For each dimension of `x`, the factor of each axis of `out` and the constant.
    dtype_in, dtype_out
        Element types.
    formula
        Conversion of an element `x`, as in `Elementwise`.
    """

    shape: tuple[int, ...]
    extents: tuple[int, ...]
    index: tuple[tuple[tuple[int, ...], int], ...]
    dtype_in: str = "int8"
    dtype_out: str = "int8"
    formula: Formula = "x"

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        return {"x": Array(self.dtype_in, self.shape)}

    @property
    @override
    def output(self) -> Array:
        return Array(self.dtype_out, self.extents)

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: vectors along neighbours in `x`, or squares of bytes."""
        names = [f"i{axis}" for axis in range(len(self.extents))]
        axes = te.axes(**dict(zip(names, self.extents, strict=True)))
        x = te.tensor("x", self.dtype_in, self.shape)
        places = []
        for factors, constant in self.index:
            terms = [axis * factor for axis, factor in zip(axes, factors, strict=True) if factor]
            places.append(sum(terms[1:], terms[0]) + constant if terms else constant)
        value = value_of(self.formula, {"x": x[tuple(places)]})
        out = te.compute("out", self.dtype_out, axes, value)
        s = te.Schedule(te.kernel("copy", out), target.processor)
        near = [i for i, factor in enumerate(self.index[-1][0]) if factor == 1] or [-1]
        inner = names[max(near, key=lambda i: self.extents[i])]
        width, last = self.extents[names.index(inner)], names[-1]
        if self.formula == "x" and inner != last and min(width, self.extents[-1]) >= SQUARE:
            _in_squares(s, names, inner)
            return KernelSchedule(s)
        lanes = target.lanes * (4 if self.formula == "x" else 1)
        s.split("out", inner, min(lanes, width))
        others = [name for name in names if name != inner]
        s.reorder("out", *others, f"{inner}.o", f"{inner}.i")
        s.vectorise("out", f"{inner}.i")
        if len(others) > 1:
            s.parallelise("out", s.fuse("out", *others[:2]))
        return KernelSchedule(s)


def _in_squares(s: te.Schedule, names: list[str], near: str) -> None:
    """Schedule a copy whose neighbours in `x` and in `out` are along different axes."""
    *others, last = (name for name in names if name != near)
    for name in (near, last):
        s.split("out", name, SQUARE)
    outer = [*others, f"{near}.o"]
    s.reorder("out", *outer, f"{last}.o", f"{near}.i", f"{last}.i")
    s.unroll("out", f"{near}.i")
    s.vectorise("out", f"{last}.i")
    s.parallelise("out", s.fuse("out", *outer[:2]) if others else outer[0])


@dataclass(frozen=True, slots=True)
class ByteJoin(Description):
    """`out[r] = parts[0][r], parts[1][r], ...`: concatenated rows of int8.

    Parameters
    ----------
    rows
        Rows of each part.
    widths
        Columns of each part; the operands are `x0`, `x1`, ...
    """

    rows: int
    widths: tuple[int, ...]

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        sizes = enumerate(self.widths)
        return {f"x{part}": Array("int8", (self.rows, width)) for part, width in sizes}

    @property
    @override
    def output(self) -> Array:
        return Array("int8", (self.rows, sum(self.widths)))

    @staticmethod
    def pieces(widths: tuple[int, ...], target: CpuTarget) -> int:
        """Vectors of a joined row."""
        return math.ceil(sum(widths) / (4 * target.lanes))

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: a part is 0 outside its columns, so that the sum joins them."""
        r, c = te.axes(r=self.rows, c=sum(self.widths))
        value, start = None, 0
        for part, width in enumerate(self.widths):
            read = te.tensor(f"x{part}", "int8", (self.rows, width))[r, c - start]
            value = read if value is None else value + read
            start += width
        assert value is not None
        out = te.compute("out", "int8", (r, c), value)
        s = te.Schedule(te.kernel("join", out), target.processor)
        s.split("out", "c", min(4 * target.lanes, start))
        s.unroll("out", "c.o")
        s.vectorise("out", "c.i")
        s.parallelise("out", "r")
        return KernelSchedule(s)
