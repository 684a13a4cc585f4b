"""Operators that pick and place elements by indices: gathers, scatters and their kin."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .ir import TensorType
from .operator import Operator
from .rules import Definition, Types, expect, wide

INDICES = ("int64", "int32")

COMBINE: dict[str, Callable[..., np.ndarray] | None] = {
    "none": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""What a scatter does with an element that is already there: by default it takes its place."""


@dataclass(frozen=True, slots=True)
class GatherElements(Operator):
    """y[i, j] = x[indices[i, j], j] for `axis` 0; negative indices count from the end."""

    op: ClassVar[str] = "gather_elements"
    axis: int


@dataclass(frozen=True, slots=True)
class GatherND(Operator):
    """Pick the slices that index tuples in the last axis name, the first `batch_dims` aside."""

    op: ClassVar[str] = "gather_nd"
    batch_dims: int


@dataclass(frozen=True, slots=True)
class ScatterElements(Operator):
    """The first input with y[indices[i, j], j] combined with updates[i, j] for `axis` 0."""

    op: ClassVar[str] = "scatter_elements"
    axis: int
    reduction: str


@dataclass(frozen=True, slots=True)
class ScatterND(Operator):
    """The first input with the slices that index tuples name combined with those of the third."""

    op: ClassVar[str] = "scatter_nd"
    reduction: str


@dataclass(frozen=True, slots=True)
class OneHot(Operator):
    """values[1] where an index equals the place on the new `axis` of extent `depth`, else [0]."""

    op: ClassVar[str] = "one_hot"
    axis: int
    depth: int


@dataclass(frozen=True, slots=True)
class ReverseSequence(Operator):
    """Reverse the first lengths[b] elements of `time_axis` for each index b of `batch_axis`."""

    op: ClassVar[str] = "reverse_sequence"
    batch_axis: int
    time_axis: int


def _along_axis(axis: int, x: TensorType, indices: TensorType) -> bool:
    """Tell whether indices name elements of `x` along an axis, one for each of their places."""
    return indices.dtype in INDICES and len(x.shape) == len(indices.shape) > axis >= 0


def _combines(reduction: str, x: TensorType, updates: TensorType) -> bool:
    return reduction in COMBINE and x.dtype == updates.dtype


def _gather_elements_type(op: GatherElements, types: Types) -> TensorType:
    x, indices = types
    fits = _along_axis(op.axis, x, indices) and all(
        i <= size or axis == op.axis
        for axis, (i, size) in enumerate(zip(indices.shape, x.shape, strict=False))
    )
    expect(fits, op, f"a tensor and indices within it beside axis {op.axis}", types)
    return TensorType(x.dtype, indices.shape, x.quantisation)


def _gather_nd_type(op: GatherND, types: Types) -> TensorType:
    x, indices = types
    depth = indices.shape[-1] if indices.shape else 0
    fits = (
        indices.dtype in INDICES
        and 0 <= op.batch_dims < len(indices.shape)
        and 1 <= depth <= len(x.shape) - op.batch_dims
        and x.shape[: op.batch_dims] == indices.shape[: op.batch_dims]
    )
    expect(fits, op, f"a tensor and index tuples behind {op.batch_dims} batch axes", types)
    shape = (*indices.shape[:-1], *x.shape[op.batch_dims + depth :])
    return TensorType(x.dtype, shape, x.quantisation)


def _scatter_elements_type(op: ScatterElements, types: Types) -> TensorType:
    x, indices, updates = types
    fits = _along_axis(op.axis, x, indices) and _combines(op.reduction, x, updates)
    fits = fits and indices.shape == updates.shape
    expect(fits, op, f"a tensor, indices and as many updates on axis {op.axis}", types)
    return TensorType(x.dtype, x.shape)


def _scatter_nd_type(op: ScatterND, types: Types) -> TensorType:
    x, indices, updates = types
    depth = indices.shape[-1] if indices.shape else 0
    fits = (
        indices.dtype in INDICES
        and _combines(op.reduction, x, updates)
        and 1 <= depth <= len(x.shape)
        and updates.shape == (*indices.shape[:-1], *x.shape[depth:])
    )
    expect(fits, op, "a tensor, index tuples and a slice for each", types)
    return TensorType(x.dtype, x.shape)


def _one_hot_type(op: OneHot, types: Types) -> TensorType:
    indices, values = types
    fits = values.shape == (2,) and 0 <= op.axis <= len(indices.shape) and op.depth >= 0
    expect(fits, op, "indices and two values", types)
    return TensorType(
        values.dtype, (*indices.shape[: op.axis], op.depth, *indices.shape[op.axis :])
    )


def _reverse_sequence_type(op: ReverseSequence, types: Types) -> TensorType:
    x, lengths = types
    fits = {op.batch_axis, op.time_axis} == {0, 1} and len(x.shape) >= 2
    fits = fits and lengths.shape == (x.shape[op.batch_axis],) and lengths.dtype in INDICES
    expect(fits, op, "a tensor of rank 2 or more and a length for each batch index", types)
    return TensorType(x.dtype, x.shape, x.quantisation)


def _within(indices: np.ndarray, size: int) -> np.ndarray:
    """Return indices counted from the front, refusing those out of range."""
    if indices.size and not -size <= indices.min() <= indices.max() < size:
        raise IndexError(f"indices {indices.min()} to {indices.max()} of {size} elements")
    return np.where(indices < 0, indices + size, indices)


def _places(axis: int, indices: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the elements of `x` that indices along an axis name, one index array for each axis."""
    places: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    places[axis] = _within(indices, x.shape[axis])
    return tuple(places)


def _gather_elements(op: GatherElements, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return x[_places(op.axis, indices, x)]


def _gather_nd(op: GatherND, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    batch = x.shape[: op.batch_dims]
    count, depth = math.prod(batch), indices.shape[-1]
    flat_x = x.reshape(count, *x.shape[op.batch_dims :])
    flat = indices.reshape(count, -1, depth)
    places = [np.arange(count)[:, None]]
    places += [_within(flat[..., i], flat_x.shape[1 + i]) for i in range(depth)]
    rest = x.shape[op.batch_dims + depth :]
    return flat_x[tuple(places)].reshape(*indices.shape[:-1], *rest)


def _combine(x: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray, how: str):
    function = COMBINE[how]
    if function is None:
        result = x.copy()
        result[places] = updates
        return result
    result = wide(x).copy()
    function.at(result, places, wide(updates))
    return result.astype(x.dtype)


def _scatter_elements(op: ScatterElements, x, indices, updates) -> np.ndarray:
    places = np.broadcast_arrays(*_places(op.axis, indices, x))
    return _combine(x, tuple(places), updates, op.reduction)


def _scatter_nd(op: ScatterND, x, indices, updates) -> np.ndarray:
    depth = indices.shape[-1]
    places = tuple(_within(indices[..., i], x.shape[i]) for i in range(depth))
    return _combine(x, places, updates, op.reduction)


def _one_hot(op: OneHot, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    wanted = np.where(indices < 0, indices + op.depth, indices)
    steps = np.arange(op.depth).reshape(
        [-1 if i == op.axis else 1 for i in range(indices.ndim + 1)]
    )
    return np.where(np.expand_dims(wanted, op.axis) == steps, values[1], values[0])


def _reverse_sequence(op: ReverseSequence, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    rows = np.moveaxis(x, (op.batch_axis, op.time_axis), (0, 1))
    result = rows.copy()
    for row, length in enumerate(lengths):
        result[row, :length] = rows[row, :length][::-1]
    return np.moveaxis(result, (0, 1), (op.batch_axis, op.time_axis))


DEFINITIONS = (
    Definition(GatherElements, (2, 2), _gather_elements_type, _gather_elements),
    Definition(GatherND, (2, 2), _gather_nd_type, _gather_nd),
    Definition(ScatterElements, (3, 3), _scatter_elements_type, _scatter_elements),
    Definition(ScatterND, (3, 3), _scatter_nd_type, _scatter_nd),
    Definition(OneHot, (2, 2), _one_hot_type, _one_hot),
    Definition(ReverseSequence, (2, 2), _reverse_sequence_type, _reverse_sequence),
)
