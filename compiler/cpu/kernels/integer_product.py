"""Matrix products of bytes whose scale, and usually zero point, are known only at run time.

Dynamic quantisation makes such products: it computes the activations' scale and zero point for each
sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from ....errors import InputError
from ... import te
from ..target import CpuTarget
from .convolution import matrix_product
from .description import Array, KernelSchedule, MatrixProduct
from .direct_convolution import DirectPlanner
from .quantised import Requantisation, check_small_pairs


@dataclass(frozen=True, slots=True)
class IntegerProduct(MatrixProduct):
    """`out[m, n] = sum((x[m, k] - zero) * w[k, n]) * factor[n] + addend[n]`.

    Operands are `x` [M, K], `w` [K, N], `zero` [1] like `x`, `factor` float32[1] or [N], and
    `addend` float32[N]; `w`, `addend` and perhaps `zero` are constants. The sum is exact. It
    becomes float32, and each operation on it is rounded by itself. Without a factor, the output is
    the sum, int32[M, N]. Where an instruction takes bytes, larger weights are the sum of two or
    three parts.

    Parameters
    ----------
    rows, inner, columns
        Extents of m, k and n; at most `MAX_INNER` of k.
    dtype
        Type of `x`, `int8` or `uint8`.
    factors
        Number of factors: 0, 1, or that of the columns.
    has_addend
        Whether there is an addend; only with factors.
    parts
        Number of parts: 1 for weights of int8; else `w` is int16, and see `parts_of`.
    small_pairs
        Whether `quantised.has_small_pairs` holds for the weights; only with one part.
    known_zero
        Whether `zero` is a constant.
    """

    rows: int
    inner: int
    columns: int
    dtype: str = "uint8"
    factors: int = 0
    has_addend: bool = False
    parts: int = 1
    small_pairs: bool = False
    known_zero: bool = False

    @property
    @override
    def operands(self) -> Mapping[str, Array]:
        found = {
            "x": Array(self.dtype, (self.rows, self.inner)),
            "w": Array("int8" if self.parts == 1 else "int16", (self.inner, self.columns)),
            "zero": Array(self.dtype, (1,)),
        }
        if self.factors:
            found["factor"] = Array("float32", (self.factors,))
        if self.has_addend:
            found["addend"] = Array("float32", (self.columns,))
        return found

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls; they are packed once."""
        known = {"w": True, "zero": self.known_zero, "addend": self.has_addend}
        return tuple(name for name, holds in known.items() if holds)

    @property
    @override
    def output(self) -> Array:
        return Array("float32" if self.factors else "int32", (self.rows, self.columns))

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        return IntegerPlanner(self, target).plan()

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: CpuTarget
    ) -> Mapping[str, np.ndarray]:
        """Return the declared tensors that are computed from the constants.

        Raises
        ------
        InputError
            When the weights are not as the description says.
        """
        return IntegerPlanner(self, target).prepare(constants)


MAX_INNER = 1 << 15
"""Maximum number of products whose sum always fits int32."""


def parts_of(w: np.ndarray) -> list[np.ndarray]:
    """Return arrays of int8 whose sum is `w`, as few as possible."""
    parts = []
    while not parts or w.any():
        parts.append(np.clip(w, -128, 127).astype(np.int8))
        w = w - parts[-1]
    return parts


class IntegerPlanner(DirectPlanner):
    """The declaration and schedule of one product for one target."""

    def __init__(self, product: IntegerProduct, target: CpuTarget) -> None:
        self.owner = product
        layer = matrix_product(
            *(product.rows, product.inner, product.columns),
            quantised=Requantisation(product.dtype),
            small_pairs=product.small_pairs,
        )
        super().__init__(layer, target)
        self.runs = 1 if self.product.words else product.parts

    @property
    def weights(self) -> str:
        """Element type of the weights."""
        return self.owner.operands["w"].dtype if self.product.words else "int8"

    def row(self, y: te.Index, ky: te.Index) -> te.Index:
        """The row of activations, which is the same for all parts of the weights."""
        return y

    @property
    def dtype(self) -> str:
        """Element type of the output."""
        return self.owner.output.dtype

    @property
    def by_column(self) -> tuple[str, ...]:
        """Constants with one element for each column."""
        owner = self.owner
        used = {"bias": True, "sums": not owner.known_zero, "addend": owner.has_addend}
        return tuple(name for name, holds in used.items() if holds)

    def finished(
        self, total: te.TensorExpression, axes: tuple[te.Index, ...]
    ) -> te.TensorExpression:
        """The result for a sum."""
        owner, o = self.owner, axes[-1]
        total = total + te.tensor("bias", "int32", (self.channels,))[o]
        if not owner.known_zero:
            sums = te.tensor("sums", "int32", (self.channels,))[o]
            total = total - te.tensor("zero", owner.dtype, (1,))[0] * sums
        if not owner.factors:
            return total
        factor = te.tensor("factor", "float32", (owner.factors,))
        value = te.single(te.real(total) * factor[o if owner.factors > 1 else 0])
        if owner.has_addend:
            value = te.single(value + te.tensor("addend", "float32", (self.channels,))[o])
        return value

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Split the weights into parts and sum each column; fold a known zero point."""
        w, parts = constants["w"], parts_of(constants["w"])
        if len(parts) > self.owner.parts:
            raise InputError(
                f"product: expected weights of {self.owner.parts} parts, got {len(parts)}; "
                "describe the product with as many"
            )
        if self.owner.small_pairs:
            check_small_pairs(parts[0][None, None], "product")
        sums = w.sum(axis=0, dtype=np.int32)
        rows = w[None] if self.product.words else np.stack(parts)
        moved = self.product.shift + (int(constants["zero"][0]) if self.owner.known_zero else 0)
        prepared = {**constants, "w": rows, "bias": sums * np.int32(-moved), "sums": sums}
        return {name: prepared[name] for name in ("w", *self.by_column)}
