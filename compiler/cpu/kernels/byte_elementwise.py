"""Kernels that go through arrays of int8 element by element, in one pass."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import te
from ..target import Target
from .description import Array, Plan
from .quantised import Residual

_BLOCK = 1 << 15
"""Bytes that one thread takes at a time; fewer are not worth starting threads."""


@dataclass(frozen=True, slots=True)
class ByteSum:
    """`out[i] = added(a[i], b[i])`, on int8.

    Parameters
    ----------
    size
        Elements.
    added
        How two bytes become one.
    """

    size: int
    added: Residual

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        return {name: Array("int8", (self.size,)) for name in ("a", "b")}

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("int8", (self.size,))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        (i,) = te.axes(i=self.size)
        a, b = (te.tensor(name, "int8", (self.size,)) for name in ("a", "b"))
        out = te.compute("out", "int8", (i,), self.added.added(a[i], b[i]))
        return elementwise_plan(out, target, target.lanes)


@dataclass(frozen=True, slots=True)
class ByteTable:
    """`out[i] = table[x[i] + 128]`, on int8; the table of 256 is a constant.

    Parameters
    ----------
    size
        Elements.
    """

    size: int

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        return {"x": Array("int8", (self.size,)), "table": Array("int8", (256,))}

    @property
    def constants(self) -> tuple[str, ...]:
        """The table."""
        return ("table",)

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array("int8", (self.size,))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule; vectors of places, or loads of single ones, eight in a row."""
        (i,) = te.axes(i=self.size)
        x, table = te.tensor("x", "int8", (self.size,)), te.tensor("table", "int8", (256,))
        out = te.compute("out", "int8", (i,), te.lookup(table, x[i]))
        if 1 < target.table_lanes <= self.size:
            return elementwise_plan(out, target, target.table_lanes)
        schedule = te.Schedule(te.kernel("table", out), processor=target.processor)
        schedule.split("out", "i", min(8, self.size))
        schedule.unroll("out", "i.i")
        _share(schedule, self.size, 8)
        return Plan(schedule)


def elementwise_plan(out: te.Operand, target: Target, lanes: int) -> Plan:
    """A schedule of one loop `i`: vectors side by side, blocks in parallel."""
    size = out.tensor.shape[0]
    lanes = min(lanes, size)
    schedule = te.Schedule(te.kernel("elementwise", out), processor=target.processor)
    schedule.split("out", "i", lanes)
    schedule.vectorise("out", "i.i")
    _share(schedule, size, lanes)
    return Plan(schedule)


def _share(schedule: te.Schedule, size: int, step: int) -> None:
    """Blocks of the outer loop for threads, where there are several."""
    if size > _BLOCK:
        schedule.split("out", "i.o", math.ceil(_BLOCK / step))
        schedule.parallelise("out", "i.o.o")
