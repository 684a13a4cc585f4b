"""Matrix products of two activations, with int8 results or with their accumulators."""

from typing import ClassVar

import numpy as np

from ....errors import CompileError
from ..operator import Quad, operator
from ..types import TensorType, Types
from .integer import SUM_BYTES, Accelerated, Requantising


class Multiplying(Accelerated):
    """Base of the matrix products of two activations, one for each image and head.

    Inputs: a int8[N, heads, M, K], and b int8[N, heads, K, L], or int8[N, heads, L, K] if
    `transposed`. The accumulator is `sum((a - zero_point_a) * (b - zero_point_b))`. `joined` has a
    flag for a, for b and for the result. If it is set, the heads lie side by side in the channels:
    a is int8[N, 1, M, heads * K]. Head h of a meets head `h // repeats` of b, as where several
    heads of queries share one of keys.
    """

    __slots__ = ()
    numpy_passes = 10
    heads: int
    zero_point_a: int
    zero_point_b: int
    transposed: bool
    joined: tuple[bool, bool, bool]
    repeats: int

    @property
    def by_head(self) -> bool:
        return False

    def extents_of(self, types: Types) -> Quad:
        """Return [N, heads, M, L].

        Raises
        ------
        CompileError
            If the operands do not fit.
        """
        fits = self.heads >= 1 and all(t.dtype == "int8" and len(t.shape) == 4 for t in types)
        self.expect(fits, "int8, rank 4, and one head or more", types)
        fits = self.repeats >= 1 and self.heads % self.repeats == 0
        self.expect(fits, f"heads that are a multiple of {self.repeats}", types)
        shared = self.heads // self.repeats
        a, b = (
            self._apart(t, heads, joined, types)
            for t, heads, joined in zip(types, (self.heads, shared), self.joined, strict=False)
        )
        depth, columns = (b[3], b[2]) if self.transposed else (b[2], b[3])
        fits = a[0] == b[0] and (a[1], b[1]) == (self.heads, shared) and a[3] == depth
        self.expect(fits, f"[N,{self.heads},M,K] and [N,{shared},K,L]", types)
        return (*a[:3], columns)

    def _apart(self, kind: TensorType, own: int, joined: bool, types: Types) -> Quad:
        """Return the extents [N, heads, rows, channels of a head] of an operand."""
        n, heads, rows, channels = kind.shape
        if not joined:
            return n, heads, rows, channels
        fits = heads == 1 and channels % own == 0
        self.expect(fits, f"channels of {own} heads", types)
        return n, own, rows, channels // own

    def accumulators(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the accumulators, int32[N, heads, M, L].

        Raises
        ------
        CompileError
            If an accumulator overflows int32.
        """
        a, b = (
            _split_heads(x, heads) if joined else x
            for x, heads, joined in zip(
                (a, b), (self.heads, self.heads // self.repeats), self.joined, strict=False
            )
        )
        b = b.repeat(self.repeats, axis=1)
        if self.transposed:
            b = b.swapaxes(2, 3)
        # The sums stay far below 2**53, so binary64 adds them exactly.
        left, right = a.astype(np.float64), b.astype(np.float64)
        totals = (left - self.zero_point_a) @ (right - self.zero_point_b)
        if totals.size and np.abs(totals).max() >= 2**31:
            raise CompileError(
                f"`{self.op}`: expected accumulators within int32, got "
                f"`{np.abs(totals).max():.0f}`; multiply fewer than 33,000 elements at a time"
            )
        return totals.astype(np.int32)


@operator("qmatmul", 2)
class QMatMul(Multiplying, Requantising):
    """Matrix products of two activations, requantised, as in attention: int8[N, heads, M, L]."""

    leads: ClassVar[bool] = True
    heads: int
    scale: float | tuple[float, ...]
    """One for each head if they differ."""
    zero_point_a: int
    zero_point_b: int
    zero_point_y: int
    transposed: bool = False
    joined: tuple[bool, bool, bool] = (False, False, False)
    low: int = -128
    high: int = 127
    repeats: int = 1

    @property
    def by_head(self) -> bool:
        """Whether each head has its own scale."""
        return isinstance(self.scale, tuple)

    def result_type(self, types: Types) -> TensorType:
        n, heads, rows, columns = self.extents_of(types)
        fits = np.size(self.scale) == (self.heads if self.by_head else 1)
        self.expect(fits and not (self.by_head and self.repeats > 1), "one scale or heads", types)
        if self.joined[2]:
            return TensorType("int8", (n, 1, rows, heads * columns))
        return TensorType("int8", (n, heads, rows, columns))

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        scale = np.reshape(self.scale, (-1, 1, 1))
        y = self.requantised(self.accumulators(a, b), scale)
        return _join_heads(y) if self.joined[2] else y


@operator("qmatmul_sums", 2)
class QMatMulSums(Multiplying):
    """Matrix products of two activations whose accumulators are the result; see `QSums`.

    Zero points are left to the reader: they would need products of their own, as nothing follows
    the product on chip.
    """

    result_bytes: ClassVar[int] = SUM_BYTES
    zero_point_a: ClassVar[int] = 0
    zero_point_b: ClassVar[int] = 0
    heads: int
    transposed: bool = False
    joined: tuple[bool, bool, bool] = (False, False, False)
    repeats: int = 1

    def result_type(self, types: Types) -> TensorType:
        self.expect(not self.joined[2], "heads apart in the result", types)
        *outer, columns = self.extents_of(types)
        return TensorType("int8", (*outer, SUM_BYTES * columns))

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.accumulators(a, b).astype("<i4").view(np.int8)


def _split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """Split the heads: [N, 1, M, heads * C] -> [N, heads, M, C]."""
    n, _, rows, channels = x.shape
    return x.reshape(n, rows, heads, channels // heads).swapaxes(1, 2)


def _join_heads(x: np.ndarray) -> np.ndarray:
    """Join the heads: [N, heads, M, C] -> [N, 1, M, heads * C]."""
    n, heads, rows, channels = x.shape
    return x.swapaxes(1, 2).reshape(n, 1, rows, heads * channels)
