"""Lookup tables on int8."""

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ...tensor import Kernel
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule

_BLOCK = 1 << 15
"""Bytes of a thread's block; threads do not pay for fewer."""


@dataclass(frozen=True, slots=True)
class ByteTable(Description):
    """`out[i] = table[x[i] + 128]`, on int8; the table of 256 is a constant.

    Parameters
    ----------
    size
        Number of elements.
    """

    size: int
    bound = ("table",)

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        whole = Array("int8", (self.size,))
        return {"x": whole, "table": Array("int8", (256,)), "out": whole}

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule: vectors of lookups, or eight single loads in a row."""
        (i,) = te.axes(i=self.size)
        x, table = te.tensor("x", "int8", (self.size,)), te.tensor("table", "int8", (256,))
        kernel = te.kernel("table", te.compute("out", "int8", (i,), te.lookup(table, x[i])))
        if target.lookup and target.lookup.lanes <= self.size:
            return _in_blocks(kernel, target, target.lookup.lanes)
        return _in_blocks(kernel, target, 8, vectors=False)


def _in_blocks(
    kernel: Kernel, target: CpuTarget, step: int, vectors: bool = True
) -> KernelSchedule:
    """A schedule of the loop `i`: `step` elements at once, blocks of them in parallel."""
    size = kernel.output.shape[0]
    s = te.Schedule(kernel, target.processor)
    s.nest("out", "i.i~" if vectors else "i.i*", i=min(step, size))
    if size > _BLOCK:
        s.split("out", "i.o", -(-_BLOCK // min(step, size)))
        s.parallelise("out", "i.o.o")
    return KernelSchedule(s)
