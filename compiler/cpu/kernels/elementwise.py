"""Chains of elementwise operations, computed in one pass over the arrays."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from ....errors import CompileError
from ... import te
from ...formulas import Formula
from ..target import CpuTarget
from .choices import Choice, Choices
from .description import Array, KernelSchedule, Planner, TunableDescription
from .formulas import value_of

_WIDTHS = (32, 16, 64)
"""Elements that are computed side by side, the default first. They fill several vectors: each
operation on a vector waits for the one before it, and the processor works on the others
meanwhile."""

_BLOCKS = (1 << 13, 1 << 11, 1 << 15)
"""Elements of a thread's block, the default first; threads do not pay for fewer."""


@dataclass(frozen=True, slots=True)
class Elementwise(TunableDescription):
    """`out[i, j, ...] = formula`, over arrays that have the output's shape or are broadcast to it.

    Parameters
    ----------
    shape
        Extents of the output.
    inputs
        Name and element type of every operand.
    formula
        `("add", "x", ("mul", "y", 2.0))`; whole numbers are integers, others float32.
    dtype
        Element type of the output; integers are cut to its low bits.
    broadcast
        Shapes of the operands that are broadcast: as many axes, each as long or of one element.
    bound
        Operands that are the same in all calls.
    """

    shape: tuple[int, ...]
    inputs: tuple[tuple[str, str], ...]
    formula: Formula
    dtype: str = "float32"
    broadcast: tuple[tuple[str, tuple[int, ...]], ...] = ()
    bound: tuple[str, ...] = ()
    choice: Choice = ()

    def __post_init__(self) -> None:
        for name, shape in self.broadcast:
            pairs = zip(shape, self.shape, strict=False)
            if len(shape) != len(self.shape) or any(size not in (1, own) for size, own in pairs):
                raise CompileError(
                    f"elementwise: operand `{name}` of {list(shape)} does not broadcast to "
                    f"{list(self.shape)}; give it as many axes, each as long or of one element"
                )

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        others, dtypes = dict(self.broadcast), (*self.inputs, ("out", self.dtype))
        return {name: Array(dtype, others.get(name, self.shape)) for name, dtype in dtypes}

    @property
    def in_place(self) -> tuple[str, ...]:
        """Operands whose memory the output may reuse: each element is read before it is written."""
        wanted = np.dtype(self.dtype).itemsize
        return tuple(
            name
            for name, dtype in self.inputs
            if np.dtype(dtype).itemsize == wanted
            and name not in self.bound
            and self.operands[name].shape == self.shape
        )

    @override
    def method(self, target: CpuTarget, choices: Choices) -> "ElementwisePlanner":
        return ElementwisePlanner(self, target, choices)

    def declared(self) -> te.DeclaredTensor:
        """The kernel with as few axes as possible."""
        shape, places = self.merged()
        names = [f"i{position}" for position in range(len(shape))]
        axes = te.axes(**dict(zip(names, shape, strict=True)))
        read = {}
        for name, dtype in self.inputs:
            sizes = [size if own else 1 for size, own in zip(shape, places[name], strict=True)]
            given = te.tensor(name, dtype, sizes)
            index = tuple(i if own else 0 for i, own in zip(axes, places[name], strict=True))
            read[name] = given[index]
        return te.compute("out", self.dtype, axes, value_of(self.formula, read))

    def merged(self) -> tuple[tuple[int, ...], Mapping[str, tuple[bool, ...]]]:
        """The fewest possible axes, and which of them each operand has.

        Adjacent axes of the same operands are merged; axes of one element are dropped.
        """
        merged: list[tuple[int, tuple[bool, ...]]] = []
        sizes = [array.shape for array in self.operands.values()]
        for axis, size in enumerate(self.shape):
            owners = tuple(shape[axis] == size for shape in sizes)
            if merged and merged[-1][1] == owners and size > 1:
                merged[-1] = (merged[-1][0] * size, owners)
            elif size > 1:
                merged.append((size, owners))
        merged = merged or [(1, (True,) * len(sizes))]
        places = zip(*(owners for _, owners in merged), strict=True)
        return tuple(size for size, _ in merged), dict(zip(self.operands, places, strict=True))


class ElementwisePlanner(Planner):
    """The schedule: vectors side by side, blocks of elements in parallel."""

    def __init__(self, kernel: Elementwise, target: CpuTarget, choices: Choices) -> None:
        self.kernel, self.target = kernel, target
        self.shape, _ = kernel.merged()
        size, last = math.prod(self.shape), self.shape[-1]
        self.width = choices.pick("width", *_sizes(_WIDTHS, last))
        self.block = choices.pick("block", *_sizes(_BLOCKS, size))

    @override
    def plan(self) -> KernelSchedule:
        out = self.kernel.declared()
        s = te.Schedule(te.kernel("elementwise", out), self.target.processor)
        (*outer, last), extent = s.stages[-1].loops, self.shape[-1]
        s.split("out", last, self.width)
        s.vectorise("out", f"{last}.i")
        if outer:
            rows = s.fuse("out", *outer)
            block = min(math.prod(self.shape[:-1]), math.ceil(self.block / extent))
            if block > 1:
                s.split("out", rows, block)
                rows = f"{rows}.o"
            s.parallelise("out", rows)
        elif extent > self.block:
            s.split("out", f"{last}.o", math.ceil(self.block / self.width))
            s.parallelise("out", f"{last}.o.o")
        return KernelSchedule(s)


def _sizes(sizes: tuple[int, ...], extent: int) -> tuple[int, list[int]]:
    """The default of some sizes, and the others, each at most an extent."""
    default, *others = (min(size, extent) for size in sizes)
    return default, others
