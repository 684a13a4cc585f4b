"""Matrix products of two activations, one for each image and head, as in attention."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from ....errors import CompileError
from ... import te
from ..target import CpuTarget
from .byte_heads import ByteHeadPlanner
from .choices import Choice, Choices
from .description import Array, Planner, TunableDescription
from .epilogue import Epilogue, Extent
from .float_heads import FloatHeadPlanner

SUMS = Epilogue("sum", "float32")
"""The epilogue that leaves float32 sums as they are."""


@dataclass(frozen=True, slots=True)
class HeadProduct(TunableDescription):
    """The epilogue of `sum((a[n, h, m, k] - za) * (b[n, h, k, c] - zb))`.

    Operands are `a` and `b`, and those of the epilogue, constants of each head.

    Parameters
    ----------
    images, heads, rows, inner, columns
        Extents of n, h, m, k and c.
    transposed
        Whether `b` lies as [N, H, C, K].
    joined
        For `a`, `b` and the output, whether heads lie inside of rows, as [N, M, H, K] and so on.
    dtype
        Type of `a` and `b`: float32 or int8.
    zero_points
        `za` and `zb`; zeros for float32.
    epilogue
        The function of each sum; its operands are constants, one for each head.
    once
        For `a` and `b`, whether all images, and whether all heads, share one; only for float32.
    bound
        Operands that are the same in all calls; only for float32.
    """

    images: int
    heads: int
    rows: int
    inner: int
    columns: int
    transposed: bool = False
    joined: tuple[bool, bool, bool] = (False, False, False)
    dtype: str = "float32"
    zero_points: tuple[int, int] = (0, 0)
    epilogue: Epilogue = SUMS
    once: tuple[tuple[bool, bool], tuple[bool, bool]] = ((False, False), (False, False))
    bound: tuple[str, ...] = ()
    choice: Choice = ()

    def __post_init__(self) -> None:
        for one in self.epilogue.operands:
            if one.extent is not Extent.HEADS:
                raise CompileError(
                    "product of heads: expected an epilogue of `sum` and of numbers of heads, got "
                    f"one that reads `{one.name}`; compute it in a kernel of its own"
                )

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        matrices = {"a": (self.rows, self.inner), "b": self.second(self.inner, self.columns)}
        found = {}
        for index, (name, matrix) in enumerate(matrices.items()):
            lead = self.own(index, self.images, self.heads, 1)
            found[name] = Array(self.dtype, self.placed(index, *lead, *matrix))
        product = self.placed(2, self.images, self.heads, self.rows, self.columns)
        numbers = {one.name: Array(one.dtype, (self.heads,)) for one in self.epilogue.operands}
        return {**found, **numbers, "out": Array(self.epilogue.dtype, product)}

    @property
    @override
    def constants(self) -> tuple[str, ...]:
        return (*self.bound, *self.epilogue.constants)

    @property
    @override
    def macs(self) -> int:
        return math.prod((self.images, self.heads, self.rows, self.inner, self.columns))

    def own(self, operand: int, image: Any, head: Any, alone: int = 0) -> tuple[Any, Any]:
        """Extents or indices of image and head in `a` or `b`; `alone` where all share one."""
        shared = self.once[operand]
        return alone if shared[0] else image, alone if shared[1] else head

    def placed(self, operand: int, image, head, row, column) -> tuple:
        """Extents or indices in the order in which an operand has them."""
        if self.joined[operand]:
            return image, row, head, column
        return image, head, row, column

    def second(self, inner, column) -> tuple:
        """Row and column of `b`."""
        return (column, inner) if self.transposed else (inner, column)

    @property
    def factors(self) -> tuple[te.DeclaredTensor, ...]:
        """The declared operands."""
        return tuple(te.tensor(name, self.dtype, self.operands[name].shape) for name in "ab")

    def left(self, n, h, m, k) -> te.TensorExpression:
        """An element of `a`."""
        return self.factors[0][self.placed(0, *self.own(0, n, h), m, k)]

    def right(self, n, h, k, c) -> te.TensorExpression:
        """An element of `b`."""
        return self.factors[1][self.placed(1, *self.own(1, n, h), *self.second(k, c))]

    @override
    def method(self, target: CpuTarget, choices: Choices) -> Planner:
        planner = FloatHeadPlanner if self.dtype == "float32" else ByteHeadPlanner
        return planner(self, target, choices)
