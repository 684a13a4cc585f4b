"""Operators that reverse, repeat and surround a tensor's elements, or keep a triangle of them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .ir import TensorType
from .operator import Operator
from .rules import Definition, Types, broadcast, expect, padded_shape

PAD_MODES = ("reflect", "edge", "wrap")


@dataclass(frozen=True, slots=True)
class Flip(Operator):
    """Reverse the order of elements along `axes`."""

    op: ClassVar[str] = "flip"
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expand(Operator):
    """Broadcast to `shape`."""

    op: ClassVar[str] = "expand"
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tile(Operator):
    """Repeat the whole tensor `repeats` times along each axis."""

    op: ClassVar[str] = "tile"
    repeats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PadByElements(Operator):
    """Surround a tensor with its own elements; `mode` is reflect, edge or wrap, as in ONNX."""

    op: ClassVar[str] = "pad_by_elements"
    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: str


@dataclass(frozen=True, slots=True)
class PadByInput(Operator):
    """Surround the first input with the second, a scalar."""

    op: ClassVar[str] = "pad_by_input"
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Triangle(Operator):
    """Keep the upper or lower triangle of the last two axes, from diagonal `diagonal` on."""

    op: ClassVar[str] = "triangle"
    upper: bool
    diagonal: int


def _flip_type(op: Flip, types: Types) -> TensorType:
    (x,) = types
    expect(all(0 <= axis < len(x.shape) for axis in op.axes), op, f"axes {op.axes}", types)
    return TensorType(x.dtype, x.shape, x.quantisation)


def _expand_type(op: Expand, types: Types) -> TensorType:
    (x,) = types
    shape = broadcast(op, types, x.shape, op.shape)
    expect(shape == op.shape, op, f"a shape that broadcasts to {list(op.shape)}", types)
    return TensorType(x.dtype, shape, x.quantisation)


def _tile_type(op: Tile, types: Types) -> TensorType:
    (x,) = types
    fits = len(op.repeats) == len(x.shape) and min(op.repeats, default=0) >= 0
    expect(fits, op, f"rank {len(op.repeats)} and no negative repeats", types)
    shape = tuple(size * count for size, count in zip(x.shape, op.repeats, strict=True))
    return TensorType(x.dtype, shape, x.quantisation)


def _pad_type(op: PadByElements | PadByInput, types: Types) -> TensorType:
    x, shape = types[0], padded_shape(op, types)
    if isinstance(op, PadByElements):
        pairs = zip(x.shape, op.before, op.after, strict=True)
        fits = op.mode in PAD_MODES and all(size or not a + b for size, a, b in pairs)
        expect(fits, op, f"elements to pad with by `{op.mode}`", types)
    else:
        value = types[1]
        expect(value.elements == 1 and value.dtype == x.dtype, op, "one value of its type", types)
    return TensorType(x.dtype, shape, x.quantisation)


def _triangle_type(op: Triangle, types: Types) -> TensorType:
    (x,) = types
    expect(len(x.shape) >= 2, op, "matrices", types)
    return TensorType(x.dtype, x.shape, x.quantisation)


def _pad_by_elements(op: PadByElements, x: np.ndarray) -> np.ndarray:
    mode: Any = op.mode
    return np.pad(x, tuple(zip(op.before, op.after, strict=True)), mode=mode)


def _pad_by_input(op: PadByInput, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    shape = [a + n + b for a, n, b in zip(op.before, x.shape, op.after, strict=True)]
    result = np.full(shape, value.ravel()[0], dtype=x.dtype)
    result[tuple(slice(a, a + n) for a, n in zip(op.before, x.shape, strict=True))] = x
    return result


def _triangle(op: Triangle, x: np.ndarray) -> np.ndarray:
    rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
    behind = columns - rows - op.diagonal
    return np.where(behind >= 0 if op.upper else behind <= 0, x, x.dtype.type(0))


DEFINITIONS = (
    Definition(Flip, (1, 1), _flip_type, lambda op, x: np.flip(x, op.axes)),
    Definition(Expand, (1, 1), _expand_type, lambda op, x: np.broadcast_to(x, op.shape)),
    Definition(Tile, (1, 1), _tile_type, lambda op, x: np.tile(x, op.repeats)),
    Definition(PadByElements, (1, 1), _pad_type, _pad_by_elements),
    Definition(PadByInput, (2, 2), _pad_type, _pad_by_input),
    Definition(Triangle, (1, 1), _triangle_type, _triangle),
)
