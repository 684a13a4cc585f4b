"""Kernels that bring elements to other places, and may convert them on the way."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import te
from ..target import Target
from .description import Array, Plan
from .formulas import Formula, value_of

MOST_PIECES = 16
"""Vectors of a joined row that have code of their own."""


@dataclass(frozen=True, slots=True)
class AffineCopy:
    """`out[i, j, ...] = x[...]`, where each index of `x` is a sum of those of `out`.

    Parameters
    ----------
    shape
        Of `x`.
    extents
        Of `out`, as many dimensions as make indices sums.
    index
        For each dimension of `x` the factor of each axis of `out`, and what is added.
    dtype_in, dtype_out
        Element types.
    formula
        What becomes of an element `x`, as in `Elementwise`.
    """

    shape: tuple[int, ...]
    extents: tuple[int, ...]
    index: tuple[tuple[tuple[int, ...], int], ...]
    dtype_in: str = "int8"
    dtype_out: str = "int8"
    formula: Formula = "x"

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given."""
        return {"x": Array(self.dtype_in, self.shape)}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array(self.dtype_out, self.extents)

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule: vectors along what lies side by side in `x`."""
        names = [f"i{axis}" for axis in range(len(self.extents))]
        axes = te.axes(**dict(zip(names, self.extents, strict=True)))
        x = te.tensor("x", self.dtype_in, self.shape)
        places = []
        for factors, constant in self.index:
            terms = [axis * factor for axis, factor in zip(axes, factors, strict=True) if factor]
            places.append(sum(terms[1:], terms[0]) + constant if terms else constant)
        value = value_of(self.formula, {"x": x[tuple(places)]})
        out = te.compute("out", self.dtype_out, axes, value)
        s = te.Schedule(te.kernel("copy", out), processor=target.processor)
        near = [i for i, factor in enumerate(self.index[-1][0]) if factor == 1] or [-1]
        inner = names[max(near, key=lambda i: self.extents[i])]
        lanes = target.lanes * (4 if self.formula == "x" else 1)
        s.split("out", inner, min(lanes, self.extents[names.index(inner)]))
        others = [name for name in names if name != inner]
        s.reorder("out", *others, f"{inner}.o", f"{inner}.i")
        s.vectorise("out", f"{inner}.i")
        if len(others) > 1:
            s.parallelise("out", s.fuse("out", *others[:2]))
        return Plan(s)


@dataclass(frozen=True, slots=True)
class ByteJoin:
    """`out[r] = parts[0][r], parts[1][r], ...`: rows of int8, one behind the other.

    Parameters
    ----------
    rows
        Of each part.
    widths
        Elements of a row, part by part; the operands are `x0`, `x1`, ...
    """

    rows: int
    widths: tuple[int, ...]

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        sizes = enumerate(self.widths)
        return {f"x{part}": Array("int8", (self.rows, width)) for part, width in sizes}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("int8", (self.rows, sum(self.widths)))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    @staticmethod
    def pieces(widths: tuple[int, ...], target: Target) -> int:
        """Vectors of a joined row."""
        return math.ceil(sum(widths) / (4 * target.lanes))

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule: outside of a part its elements are 0, so that a sum joins."""
        r, c = te.axes(r=self.rows, c=sum(self.widths))
        value, start = None, 0
        for part, width in enumerate(self.widths):
            read = te.tensor(f"x{part}", "int8", (self.rows, width))[r, c - start]
            value = read if value is None else value + read
            start += width
        assert value is not None
        out = te.compute("out", "int8", (r, c), value)
        s = te.Schedule(te.kernel("join", out), processor=target.processor)
        s.split("out", "c", min(4 * target.lanes, start))
        s.unroll("out", "c.o")
        s.vectorise("out", "c.i")
        s.parallelise("out", "r")
        return Plan(s)
