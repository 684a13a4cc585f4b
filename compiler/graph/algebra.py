"""Sums of products in index notation, and determinants."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .ir import TensorType
from .operator import Operator
from .rules import FLOATS, INTEGERS, Definition, Types, broadcast, expect, wide


@dataclass(frozen=True, slots=True)
class Einsum(Operator):
    """Einstein's sum; `equation` as NumPy and ONNX write it, such as `ij,jk->ik`."""

    op: ClassVar[str] = "einsum"
    equation: str


@dataclass(frozen=True, slots=True)
class Determinant(Operator):
    """Determinant of the last two axes."""

    op: ClassVar[str] = "determinant"


def _einsum(op: Einsum, *arrays: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        result = np.einsum(op.equation, *map(wide, arrays))
    return np.asarray(result).astype(arrays[0].dtype)


def _einsum_type(op: Einsum, types: Types) -> TensorType:
    first = types[0].dtype
    fits = first in (*FLOATS, *INTEGERS) and all(t.dtype == first for t in types)
    expect(fits, op, "numbers of one type", types)
    operands, arrow, result = op.equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    expect(len(terms) == len(types), op, f"{len(terms)} operands for `{op.equation}`", types)
    extents: dict[str, int] = {}
    spread: tuple[int, ...] = ()
    for term, kind in zip(terms, types, strict=True):
        before, dots, after = term.partition("...")
        rest = len(kind.shape) - len(before) - len(after)
        expect(rest >= 0 if dots else rest == 0, op, f"axes `{term}`", types)
        spread = broadcast(op, types, spread, kind.shape[len(before) : len(before) + rest])
        sizes = kind.shape[: len(before)] + kind.shape[len(before) + rest :]
        for letter, size in zip(before + after, sizes, strict=True):
            same = extents.setdefault(letter, size) == size
            expect(same, op, f"one extent of `{letter}` in `{op.equation}`", types)
    if not arrow:
        once = sorted(letter for letter in extents if operands.count(letter) == 1)
        result = ("..." if "..." in operands else "") + "".join(once)
    before, dots, after = result.partition("...")
    expect(set(before + after) <= set(extents), op, f"axes for `{result}`", types)
    shape = (*(extents[i] for i in before), *(spread if dots else ()), *(extents[i] for i in after))
    return TensorType(first, shape)


def _determinant(op: Determinant, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.det(wide(x))).astype(x.dtype)


def _determinant_type(op: Determinant, types: Types) -> TensorType:
    (x,) = types
    fits = x.dtype in FLOATS and len(x.shape) >= 2 and x.shape[-1] == x.shape[-2]
    expect(fits, op, "square matrices of floats", types)
    return TensorType(x.dtype, x.shape[:-2])


DEFINITIONS = (
    Definition(Einsum, (1, 100), _einsum_type, _einsum),
    Definition(Determinant, (1, 1), _determinant_type, _determinant),
)
