"""Operators that read and write elements at given indices; negative indices count from the end."""

import math
from collections.abc import Callable

import numpy as np

from ..operator import Operator, onnx_form, operator
from ..types import FLOATS, INTEGERS, TensorType, Types, wide

INDICES = ("int64", "int32")

COMBINE: dict[str, Callable[..., np.ndarray] | None] = {
    "none": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""Reduction -> function of the element already there and an update; None replaces the element."""


@operator("gather", 2)
class Gather(Operator):
    """Elements of the first input along `axis` at the indices in the second input."""

    onnx = onnx_form("Gather", "axis")
    moved = slice(1)
    axis: int = 0

    def result_type(self, types: Types) -> TensorType:
        x, indices = types
        fits = indices.dtype in INDICES and self.axis < len(x.shape)
        self.expect(fits, f"an axis {self.axis} and integer indices", types)
        return x.reshaped(x.shape[: self.axis] + indices.shape + x.shape[self.axis + 1 :])

    def compute(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        try:
            return x.take(indices, self.axis)
        except IndexError:
            within(indices, x.shape[self.axis])  # its error names the index
            raise


@operator("gather_elements", 2)
class GatherElements(Operator):
    """y[i, j] = x[indices[i, j], j] for `axis` 0."""

    onnx = onnx_form("GatherElements", "axis")
    moved = slice(1)
    axis: int = 0

    def result_type(self, types: Types) -> TensorType:
        x, indices = types
        fits = _along_axis(self.axis, x, indices) and all(
            i <= size or axis == self.axis
            for axis, (i, size) in enumerate(zip(indices.shape, x.shape, strict=False))
        )
        self.expect(
            fits, f"a tensor and indices within its shape on all axes but {self.axis}", types
        )
        return x.reshaped(indices.shape)

    def compute(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return _taken(x, _places(self.axis, indices))


@operator("gather_nd", 2)
class GatherND(Operator):
    """Slices of x at the index tuples in the last axis; the first `batch_dims` axes are batches."""

    onnx = onnx_form("GatherND", "batch_dims")
    moved = slice(1)
    batch_dims: int = 0

    def result_type(self, types: Types) -> TensorType:
        x, indices = types
        depth, batch = _depth(indices), self.batch_dims
        fits = (
            indices.dtype in INDICES
            and 0 <= batch < len(indices.shape)
            and 1 <= depth <= len(x.shape) - batch
            and x.shape[:batch] == indices.shape[:batch]
        )
        self.expect(fits, f"a tensor and index tuples behind {batch} batch axes", types)
        return x.reshaped((*indices.shape[:-1], *x.shape[batch + depth :]))

    def compute(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        batch, depth = self.batch_dims, indices.shape[-1]
        if not batch:
            return _taken(x, tuple(indices[..., i] for i in range(depth)))
        count = math.prod(x.shape[:batch])
        flat_x = x.reshape(count, *x.shape[batch:])
        flat = indices.reshape(count, -1, depth)
        places = [np.arange(count)[:, None]]
        places += [flat[..., i] for i in range(depth)]
        return _taken(flat_x, tuple(places)).reshape(*indices.shape[:-1], *x.shape[batch + depth :])


@operator("scatter_elements", 3)
class ScatterElements(Operator):
    """The first input with each y[indices[i, j], j] combined with updates[i, j], for `axis` 0."""

    onnx = onnx_form("ScatterElements", "axis", "reduction")
    moved = slice(0, 3, 2)
    axis: int = 0
    reduction: str = "none"

    def result_type(self, types: Types) -> TensorType:
        x, indices, updates = types
        fits = _along_axis(self.axis, x, indices) and _combines(self.reduction, x, updates)
        fits = fits and indices.shape == updates.shape
        self.expect(fits, f"a tensor, indices and as many updates on axis {self.axis}", types)
        return TensorType(x.dtype, x.shape)

    def compute(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        places = _places(self.axis, within(indices, x.shape[self.axis]))
        return _combine(x, places, updates, self.reduction)


@operator("scatter_nd", 3)
class ScatterND(Operator):
    """The first input with the slices at the index tuples combined with those of the third."""

    onnx = onnx_form("ScatterND", "reduction")
    moved = slice(0, 3, 2)
    reduction: str = "none"

    def result_type(self, types: Types) -> TensorType:
        x, indices, updates = types
        depth = _depth(indices)
        fits = (
            indices.dtype in INDICES
            and _combines(self.reduction, x, updates)
            and 1 <= depth <= len(x.shape)
            and updates.shape == (*indices.shape[:-1], *x.shape[depth:])
        )
        self.expect(fits, "a tensor, index tuples and a slice for each", types)
        return TensorType(x.dtype, x.shape)

    def compute(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        places = (within(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
        return _combine(x, tuple(places), updates, self.reduction)


@operator("interpolate", 3)
class Interpolate(Operator):
    """Weighted sum along `axis`: y[i] = sum over t of x[places[i, t]] * weights[i, t].

    Inputs: x of any number type, places int64[extent, taps] within x, and weights
    float32[extent, taps].
    """

    axis: int

    def result_type(self, types: Types) -> TensorType:
        x, places, weights = types
        fits = (
            x.dtype in (*FLOATS, *INTEGERS)
            and (places.dtype, weights.dtype) == ("int64", "float32")
            and len(places.shape) == 2
            and places.shape[1] >= 1
            and places.shape == weights.shape
            and 0 <= self.axis < len(x.shape)
        )
        expected = f"numbers with an axis {self.axis}, places and weights [extent, taps]"
        self.expect(fits, expected, types)
        shape = (*x.shape[: self.axis], places.shape[0], *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape)

    def compute(self, x: np.ndarray, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
        values = real(x)
        spread = [-1 if i == self.axis else 1 for i in range(x.ndim)]
        total = np.zeros((), dtype=values.dtype)
        for tap in range(places.shape[1]):
            part = np.take(values, places[:, tap], axis=self.axis)
            total = total + part * weights[:, tap].astype(values.dtype).reshape(spread)
        return from_real(total, x.dtype)


def real(x: np.ndarray) -> np.ndarray:
    """Convert numbers to floats to interpolate: integers to float64, narrow floats to float32."""
    return wide(x) if x.dtype.kind not in "iu" else x.astype(np.float64)


def from_real(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert interpolated floats to `dtype`; integers round to the nearest and saturate."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = np.clip(np.rint(x), limits.min, limits.max)
    return x.astype(dtype, copy=False)


def _along_axis(axis: int, x: TensorType, indices: TensorType) -> bool:
    """Tell whether indices are integers of the same rank as `x`, and `axis` exists."""
    return indices.dtype in INDICES and len(x.shape) == len(indices.shape) > axis >= 0


def _depth(indices: TensorType) -> int:
    """Return the number of indices in a tuple."""
    return indices.shape[-1] if indices.shape else 0


def _combines(reduction: str, x: TensorType, updates: TensorType) -> bool:
    return reduction in COMBINE and x.dtype == updates.dtype


def within(indices: np.ndarray, size: int) -> np.ndarray:
    """Convert indices to non-negative ones, and reject those out of range."""
    if not indices.size:
        return indices
    least = indices.min()
    if least < -size or indices.max() >= size:
        beyond = indices[(indices < -size) | (indices >= size)]
        raise IndexError(f"index {beyond.flat[0]} of {size} elements")
    return indices if least >= 0 else np.where(indices < 0, indices + size, indices)


def _taken(x: np.ndarray, places: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the elements at one index array for each of the first axes."""
    try:
        return x[places]
    except IndexError:
        for indices, size in zip(places, x.shape, strict=False):
            within(indices, size)  # its error names the index
        raise


def _places(axis: int, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return one index array for each axis: the elements at indices along one of them."""
    last = indices.ndim - 1
    return tuple(
        indices if i == axis else np.arange(size).reshape(size, *[1] * (last - i))
        for i, size in enumerate(indices.shape)
    )


def _combine(x: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray, how: str):
    function = COMBINE[how]
    if function is None:
        result = x.copy()
        result[places] = updates
        return result
    result = wide(x).copy()
    function.at(result, places, wide(updates))
    return result.astype(x.dtype)
