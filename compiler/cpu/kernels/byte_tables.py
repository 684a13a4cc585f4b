"""Elementwise kernels on int8: residual additions and lookup tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from ... import te
from ...tensor import Kernel
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule
from .quantised import Residual

_BLOCK = 1 << 15
"""Bytes of a thread's block; threads do not pay for fewer."""


@dataclass(frozen=True, slots=True)
class ByteSum(Description):
    """`out[i] = added(a[i], b[i])`, on int8.

    Parameters
    ----------
    size
        Number of elements.
    added
        The requantised sum of two bytes.
    """

    size: int
    added: Residual

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that the kernel takes, in the order of a call."""
        return dict.fromkeys(("a", "b"), self.output)

    @property
    def output(self) -> Array:
        """The array that the kernel computes."""
        return Array("int8", (self.size,))

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule for a target."""
        (i,) = te.axes(i=self.size)
        a, b = (te.tensor(name, "int8", (self.size,)) for name in ("a", "b"))
        out = te.compute("out", "int8", (i,), self.added.added(a[i], b[i]))
        return _in_blocks(te.kernel("elementwise", out), target, target.lanes)


@dataclass(frozen=True, slots=True)
class ByteTable(Description):
    """`out[i] = table[x[i] + 128]`, on int8; the table of 256 is a constant.

    Parameters
    ----------
    size
        Number of elements.
    """

    size: int

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that the kernel takes, in the order of a call."""
        return {"x": self.output, "table": Array("int8", (256,))}

    @property
    def constants(self) -> tuple[str, ...]:
        """The table."""
        return ("table",)

    @property
    def output(self) -> Array:
        """The array that the kernel computes."""
        return Array("int8", (self.size,))

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: vectors of lookups, or eight single loads in a row."""
        (i,) = te.axes(i=self.size)
        x, table = te.tensor("x", "int8", (self.size,)), te.tensor("table", "int8", (256,))
        kernel = te.kernel("table", te.compute("out", "int8", (i,), te.lookup(table, x[i])))
        if 1 < target.table_lanes <= self.size:
            return _in_blocks(kernel, target, target.table_lanes)
        return _in_blocks(kernel, target, 8, vectors=False)


def _in_blocks(
    kernel: Kernel, target: CpuTarget, step: int, vectors: bool = True
) -> KernelSchedule:
    """A schedule of the loop `i`: `step` elements at once, blocks of them in parallel."""
    size = kernel.output.shape[0]
    s = te.Schedule(kernel, target.processor)
    s.split("out", "i", min(step, size))
    if vectors:
        s.vectorise("out", "i.i")
    else:
        s.unroll("out", "i.i")
    if size > _BLOCK:
        s.split("out", "i.o", -(-_BLOCK // min(step, size)))
        s.parallelise("out", "i.o.o")
    return KernelSchedule(s)
