"""What all type rules share: complaints, broadcasting, window counts, and an operator's definition.

A family of operators is one file: its dataclasses, their type rules, their kernels, and a tuple of
`Definition`s that puts the three together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import CompileError
from .ir import DTYPES, TensorType
from .operators import Operator

Types = Sequence[TensorType]

LARGEST_BYTES = 1 << 31
"""Largest tensor: what one tensor of a protobuf file can hold."""

LARGEST_MADE_BYTES = 1 << 28
"""Largest constant that is not in the model's file but made at import."""

LARGEST_PADDING = 1 << 20
"""Most padding of a window on one axis, both sides together."""

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


def window_extent(
    size: int, kernel: int, stride: int, padding: int, dilation: int, overhang: int = 0
) -> int:
    """Return how many windows fit on an axis.

    Parameters
    ----------
    size, kernel, stride, dilation : int
        Elements on the axis, taps, steps between windows and between taps.
    padding, overhang : int
        Padding of both sides together; reach of the last window beyond it.

    Raises
    ------
    CompileError
        If not even one window fits, or the padding is absurdly large.
    """
    span = (kernel - 1) * dilation + 1
    free = size + padding + overhang - span
    if padding > LARGEST_PADDING:
        raise CompileError(
            f"window: expected padding of at most {LARGEST_PADDING:,} elements on an axis, got "
            f"{padding:,}; correct the model's padding"
        )
    if free < 0 or min(size, kernel, stride, dilation) < 1:
        raise CompileError(
            f"window: expected it to fit the padded input of {size + padding} elements, got a "
            f"span of {span} (kernel {kernel}, stride {stride}, dilation {dilation}); correct the "
            "model's kernel or padding"
        )
    return free // stride + 1


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
