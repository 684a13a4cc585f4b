"""Operators that move, repeat, join and pad elements; the elements keep their quantisation.

The passes recognise `Pad`, `Slice`, `Concat`, `Reshape`, `Transpose` and `Shift`.
"""

import numpy as np

from ..operator import Operator, onnx_form, operator
from ..types import Quantisation, TensorType, Types


@operator("shift")
class Shift(Operator):
    """Exact shift by 128: uint8 -> int8 subtracts it, int8 -> uint8 adds it."""

    numpy_passes = 1

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        self.expect(x.dtype in ("int8", "uint8"), "int8 or uint8", types)
        dtype, offset = ("uint8", 128) if x.dtype == "int8" else ("int8", -128)
        old = x.quantisation
        new = None if old is None else Quantisation(old.scale, old.zero_point + offset)
        return TensorType(dtype, x.shape, new)

    def compute(self, x: np.ndarray) -> np.ndarray:
        other = np.int8 if x.dtype == np.uint8 else np.uint8
        return (x.view(np.uint8) ^ np.uint8(0x80)).view(other)


@operator("reshape")
class Reshape(Operator):
    """The same elements in the same order, with another shape."""

    moved = slice(None)
    shape: tuple[int, ...]

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        result = x.reshaped(self.shape)
        fits = min(self.shape, default=1) >= 0 and result.elements == x.elements
        self.expect(fits, f"the {result.elements} elements of {list(self.shape)}", types)
        return result

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.shape)


@operator("transpose")
class Transpose(Operator):
    """Permutation of axes: axis i of the output is axis `permutation[i]` of the input."""

    onnx = onnx_form("Transpose", perm="permutation")
    moved = slice(None)
    numpy_passes = 1
    permutation: tuple[int, ...]

    def result_type(self, types: Types) -> TensorType:
        (x,), order = types, self.permutation
        fits = sorted(order) == list(range(len(x.shape)))
        self.expect(fits, f"rank {len(order)} for permutation {list(order)}", types)
        return x.reshaped(tuple(x.shape[axis] for axis in order))

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(self.permutation)


@operator("slice")
class Slice(Operator):
    """Slice `x[starts[i]:stops[i]:steps[i]]` on each axis i, all in range, with positive steps."""

    moved = slice(None)
    numpy_passes = 1
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]

    def result_type(self, types: Types) -> TensorType:
        return slice_type(self, self.starts, self.stops, self.steps, types)

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x[tuple(map(slice, self.starts, self.stops, self.steps))]


def slice_type(
    op: Operator,
    starts: tuple[int, ...],
    stops: tuple[int, ...],
    steps: tuple[int, ...],
    types: Types,
) -> TensorType:
    """Return the type of a slice."""
    (x,) = types
    bounds = list(zip(starts, stops, steps, strict=True))
    fits = len(bounds) == len(x.shape) and all(
        0 <= start <= stop <= size and step > 0
        for (start, stop, step), size in zip(bounds, x.shape, strict=False)
    )
    op.expect(fits, "starts and stops within the shape and positive steps", types)
    return x.reshaped(tuple(len(range(*bound)) for bound in bounds))


@operator("concat", 1, 1000)
class Concat(Operator):
    """Concatenation along `axis`."""

    onnx = onnx_form("Concat", "axis")
    moved = slice(None)
    numpy_passes = 1
    axis: int = 0

    def result_type(self, types: Types) -> TensorType:
        return concat_type(self, self.axis, types)

    def compute(self, *parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts, axis=self.axis)


def concat_type(op: Operator, axis: int, types: Types) -> TensorType:
    """Return the type of tensors concatenated along an axis."""
    first = types[0]
    rest = [t.shape[:axis] + t.shape[axis + 1 :] for t in types]
    fits = axis < len(first.shape) and all(
        t.dtype == first.dtype and len(t.shape) == len(first.shape) and other == rest[0]
        for t, other in zip(types, rest, strict=True)
    )
    op.expect(fits, f"one type, and shapes that differ on axis {axis} only", types)
    size = sum(t.shape[axis] for t in types)
    kept = first.quantisation if len({t.quantisation for t in types}) == 1 else None
    return TensorType(first.dtype, (*first.shape[:axis], size, *first.shape[axis + 1 :]), kept)


@operator("expand")
class Expand(Operator):
    """Broadcast to `shape`."""

    moved = slice(None)
    shape: tuple[int, ...]

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        shape = self.broadcast(types, x.shape, self.shape)
        fits = shape == self.shape
        self.expect(fits, f"a shape that broadcasts to {list(self.shape)}", types)
        return x.reshaped(shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, self.shape)


@operator("pad")
class Pad(Operator):
    """Padding with `value`: `before[i]` and `after[i]` elements on axis i (not negative)."""

    moved = slice(None)
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float

    def result_type(self, types: Types) -> TensorType:
        (x,), before, after = types, self.before, self.after
        fits = len(before) == len(after) == len(x.shape) and min(before + after) >= 0
        self.expect(fits, f"rank {len(before)} and no negative pads", types)
        return x.reshaped(tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True)))

    def compute(self, x: np.ndarray) -> np.ndarray:
        widths = tuple(zip(self.before, self.after, strict=True))
        return np.pad(x, widths, constant_values=x.dtype.type(self.value))
