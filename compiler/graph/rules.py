"""What all type rules share: complaints, broadcasting, and an operator's definition.

A family of operators is one file: its dataclasses, their type rules, their kernels, and a tuple of
`Definition`s that puts the three together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import CompileError
from .ir import DTYPES, TensorType
from .operator import Operator

Types = Sequence[TensorType]

TypeRule = tuple[tuple[int, int], Callable[[Any, Types], TensorType]]
"""Fewest and most inputs, and (operator, types of the inputs) -> type of the output."""

LARGEST_BYTES = 1 << 31
"""Largest tensor: what one tensor of a protobuf file can hold."""

LARGEST_MADE_BYTES = 1 << 28
"""Largest constant that is not in the model's file but made at import."""

NARROW_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
                 "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn")  # fmt: skip
"""Floats that are computed in float32 and rounded once."""

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator: fewest and most inputs, the rule for its outputs' types, its kernel.

    Attributes
    ----------
    operator : type
        Its dataclass.
    arity : (int, int)
        Number of inputs.
    rule : callable
        (operator, types of the inputs) -> type of the output, or a tuple of them.
    kernel : callable
        (operator, *arrays) -> array, or a tuple of them.
    """

    operator: type[Operator]
    arity: tuple[int, int]
    rule: Callable[[Any, Types], TensorType | tuple[TensorType, ...]]
    kernel: Callable[..., np.ndarray | tuple[np.ndarray, ...]]


def expect(condition: bool, operator: Operator, expected: str, types: Types) -> None:
    """Refuse operands.

    Raises
    ------
    CompileError
        If the condition does not hold.
    """
    if not condition:
        got = ", ".join(f"{t.dtype}{list(t.shape)}" for t in types)
        raise CompileError(f"`{operator.op}`: expected {expected}, got {got}; correct the operands")


def broadcast(operator: Operator, types: Types, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to.

    Raises
    ------
    CompileError
        If they do not.
    """
    rank = max(len(shape) for shape in shapes)
    extents = []
    for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        other = {size for size in sizes if size != 1}
        expect(len(other) <= 1, operator, "shapes that broadcast", types)
        extents.append(other.pop() if other else 1)
    return tuple(extents)


def padded_shape(operator: Any, types: Types) -> tuple[int, ...]:
    """Return the shape of the first operand with an operator's `before` and `after` around it.

    Raises
    ------
    CompileError
        If they do not fit its rank, or some are negative.
    """
    before, after, shape = operator.before, operator.after, types[0].shape
    fits = len(before) == len(after) == len(shape) and min(before + after) >= 0
    expect(fits, operator, f"rank {len(before)} and no negative pads", types)
    return tuple(a + n + b for a, n, b in zip(before, shape, after, strict=True))


def check_size(kind: TensorType, most: int = LARGEST_BYTES) -> TensorType:
    """Return a type whose tensor takes at most `most` bytes.

    Raises
    ------
    CompileError
        If it takes more.
    """
    size = kind.elements * np.dtype(DTYPES.get(kind.dtype, np.float64)).itemsize
    if size > most:
        raise CompileError(
            f"a tensor of {kind.dtype}{list(kind.shape)} takes {size:,} bytes, expected at most "
            f"{most:,}; split it, or correct the shape"
        )
    return kind


def wide(x: np.ndarray) -> np.ndarray:
    """Return narrow floats as float32, anything else as it is."""
    return x.astype(np.float32) if str(x.dtype) in NARROW_FLOATS else x
