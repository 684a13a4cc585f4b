"""Matrix products, and sums of products in index notation."""

import numpy as np

from ..operator import Operator, onnx_form, operator
from ..types import NUMBERS, TensorType, Types, wide


@operator("matmul", 2)
class MatMul(Operator):
    """Matrix product of the last two axes; other axes broadcast; narrow floats sum in float32."""

    onnx = onnx_form("MatMul")
    numpy_passes = 2

    def result_type(self, types: Types) -> TensorType:
        a, b = types
        fits = a.dtype == b.dtype and a.dtype in NUMBERS and min(len(a.shape), len(b.shape)) >= 2
        fits = fits and a.shape[-1] == b.shape[-2]
        self.expect(fits, "[..., M, K] and [..., K, N] of one type", types)
        outer = self.broadcast(types, a.shape[:-2], b.shape[:-2])
        return TensorType(a.dtype, (*outer, *a.shape[-2:-1], *b.shape[-1:]))

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.matmul(wide(a), wide(b)).astype(a.dtype)


@operator("integer_matmul", 3)
class IntegerMatMul(Operator):
    """`(a - zero_point) @ b` in int32: bytes `a` [..., M, K] and `b` [K, N], int8 or int16.

    The inputs are `a`, `b`, and the zero point of `a`, one element of its type. Wide weights are
    bytes less their own zero point, -255 to 255.
    """

    def result_type(self, types: Types) -> TensorType:
        a, b, zero = types
        fits = a.dtype in ("int8", "uint8") and zero.dtype == a.dtype and zero.elements == 1
        fits = fits and b.dtype in ("int8", "int16") and len(b.shape) == 2 <= len(a.shape)
        fits = fits and a.shape[-1] == b.shape[0]
        self.expect(fits, "bytes [..., M, K], int8 or int16 [K, N], and one zero point", types)
        return TensorType("int32", (*a.shape[:-1], b.shape[1]))

    def compute(self, a: np.ndarray, b: np.ndarray, zero: np.ndarray) -> np.ndarray:
        total = np.matmul(a.astype(np.float64) - float(zero.reshape(())), b.astype(np.float64))
        return total.astype(np.int64).astype(np.int32)


@operator("einsum", 1, 100)
class Einsum(Operator):
    """Einstein summation; `equation` as in NumPy and ONNX, such as `ij,jk->ik`."""

    onnx = onnx_form("Einsum", "equation")
    equation: str

    def result_type(self, types: Types) -> TensorType:
        first, equation = types[0].dtype, self.equation
        fits = first in NUMBERS and all(t.dtype == first for t in types)
        self.expect(fits, "numbers of one type", types)
        operands, arrow, result = equation.replace(" ", "").partition("->")
        terms = operands.split(",")
        self.expect(len(terms) == len(types), f"{len(terms)} operands for `{equation}`", types)
        extents: dict[str, int] = {}
        spread: tuple[int, ...] = ()
        for term, kind in zip(terms, types, strict=True):
            before, dots, after = term.partition("...")
            rest = len(kind.shape) - len(before) - len(after)
            self.expect(rest >= 0 if dots else rest == 0, f"axes `{term}`", types)
            spread = self.broadcast(types, spread, kind.shape[len(before) : len(before) + rest])
            sizes = kind.shape[: len(before)] + kind.shape[len(before) + rest :]
            for letter, size in zip(before + after, sizes, strict=True):
                same = extents.setdefault(letter, size) == size
                self.expect(same, f"one extent of `{letter}` in `{equation}`", types)
        if not arrow:
            once = sorted(letter for letter in extents if operands.count(letter) == 1)
            result = ("..." if "..." in operands else "") + "".join(once)
        before, dots, after = result.partition("...")
        self.expect(set(before + after) <= set(extents), f"axes for `{result}`", types)
        outer = spread if dots else ()
        return TensorType(
            first, (*(extents[i] for i in before), *outer, *(extents[i] for i in after))
        )

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = np.einsum(self.equation, *map(wide, arrays))
        return np.asarray(result).astype(arrays[0].dtype)
