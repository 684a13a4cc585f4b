"""Reductions, softmax, and the largest elements along an axis.

Floats narrower than 32 bits are computed in float32 and rounded once.
"""

import math
from collections.abc import Callable

import numpy as np

from ..functions import OnnxVariant
from ..operator import Operator, operator
from ..types import FLOATS, NUMBERS, TensorType, Types, wide


def _extreme(function: Callable[..., np.ndarray], largest: bool) -> Callable[..., np.ndarray]:
    """Return np.max or np.min; the result over no elements is a limit of the type."""

    def reduce_(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        if x.dtype.kind == "f":
            start = -math.inf if largest else math.inf
        elif x.dtype.kind == "b":
            start = not largest
        else:
            limits = np.iinfo(x.dtype)
            start = limits.min if largest else limits.max
        return function(x, axis=axis, keepdims=keepdims, initial=start)

    return reduce_


def _log_sum_exp(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    if not x.size:
        return np.log(np.sum(x, axis=axis, keepdims=keepdims))
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis=axis)


REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(np.square(x), **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(np.max, largest=True),
    "ReduceMean": np.mean,
    "ReduceMin": _extreme(np.min, largest=False),
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **k: np.sum(np.square(x), **k),
}

POSITIONS = {
    "ArgMax": None,
    "ArgMin": None,
    "LastArgMax": OnnxVariant("ArgMax", "select_last_index", 1, 0),
    "LastArgMin": OnnxVariant("ArgMin", "select_last_index", 1, 0),
}
"""Reductions to an index, of the first or the last of the largest or smallest elements, in ONNX."""


def _position(x: np.ndarray, axis: int, largest: bool) -> np.ndarray:
    """Return int64 indices of the first of the largest or smallest elements; the axis is kept.

    NumPy first copies the elements of each column together. For large planes, such as those of
    classes, the planes before the first extreme are counted instead.
    """
    if math.prod(x.shape[axis + 1 :]) >= LINE and x.size >= PLANE * x.shape[axis] > 0:
        planes = np.moveaxis(x, axis, 0)
        extreme = np.max(x, axis) if largest else np.min(x, axis)
        if not (extreme != extreme).any():  # NaN, which no element equals
            index = np.zeros(extreme.shape, np.min_scalar_type(len(planes)))
            ahead = np.ones(extreme.shape, bool)
            for plane in planes[:-1]:
                ahead &= plane != extreme
                index += ahead
            return np.expand_dims(index, axis).astype(np.int64)
    find = np.argmax if largest else np.argmin
    return find(x, axis=axis, keepdims=True).astype(np.int64, copy=False)


LINE, PLANE = 1 << 8, 1 << 12
"""Elements behind an axis, and of a whole plane across it, from which on planes are compared."""

LONG = 1 << 10
"""Elements of a row from which on a partition is faster than a whole sort."""


@operator("reduce")
class Reduce(Operator):
    """Reduction over `axes`; `kind` as in ONNX, or LastArgMax and LastArgMin: last among equals."""

    kind: str
    axes: tuple[int, ...]
    keep: bool

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        known = self.kind in REDUCTIONS or (self.kind in POSITIONS and len(self.axes) == 1)
        fits = known and x.dtype in NUMBERS and all(0 <= axis < len(x.shape) for axis in self.axes)
        self.expect(fits, f"numbers with axes {self.axes} for {self.kind}", types)
        sizes = enumerate(x.shape)
        if self.keep:
            shape = tuple(1 if axis in self.axes else size for axis, size in sizes)
        else:
            shape = tuple(size for axis, size in sizes if axis not in self.axes)
        return TensorType("int64" if self.kind in POSITIONS else x.dtype, shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        values = wide(x)
        if self.kind in POSITIONS:
            (axis,), largest = self.axes, self.kind.endswith("ArgMax")
            if self.kind.startswith("Last"):
                place = x.shape[axis] - 1 - _position(np.flip(values, axis), axis, largest)
            else:
                place = _position(values, axis, largest)
            return place if self.keep else np.squeeze(place, axis)
        with np.errstate(all="ignore"):
            result = REDUCTIONS[self.kind](values, axis=self.axes, keepdims=self.keep)
            return np.asarray(result).astype(x.dtype)


@operator("cumsum")
class CumSum(Operator):
    """Running sums along `axis`: each element with all before it, or behind it if `reverse`.

    `exclusive` leaves the element itself out. Integers wrap.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = x.dtype in NUMBERS and 0 <= self.axis < len(x.shape)
        self.expect(fits, f"numbers with an axis {self.axis}", types)
        return TensorType(x.dtype, x.shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        values = wide(np.flip(x, self.axis) if self.reverse else x)
        with np.errstate(all="ignore"):
            sums = values.cumsum(self.axis, values.dtype)
        if self.exclusive:
            sums = np.roll(sums, 1, self.axis)
            sums[(slice(None),) * self.axis + (slice(0, 1),)] = 0
        return (np.flip(sums, self.axis) if self.reverse else sums).astype(x.dtype, copy=False)


@operator("softmax")
class Softmax(Operator):
    """Softmax over the axes from `axis` to `stop` (exclusive) together; its logarithm if `log`.

    Each step rounds float16, as in ONNX's definition of Softmax by other operators.
    """

    axis: int
    stop: int
    log: bool = False

    def result_type(self, types: Types) -> TensorType:
        (x,) = types
        fits = x.dtype in FLOATS and 0 <= self.axis <= self.stop <= len(x.shape)
        self.expect(fits, f"floats with axes {self.axis} to {self.stop}", types)
        return TensorType(x.dtype, x.shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        axes = tuple(range(self.axis, self.stop))
        values = x if x.dtype == np.float16 else wide(x)
        with np.errstate(all="ignore"):
            shifted = values - values.max(axis=axes, keepdims=True)
            powers = np.exp(shifted)
            total = powers.sum(axis=axes, keepdims=True)
            return (shifted - np.log(total) if self.log else powers / total).astype(x.dtype)


@operator("topk")
class TopK(Operator):
    """The `count` largest (or smallest) elements along `axis` in order, and their int64 indices.

    Among equal elements, the one with the lower index comes first.
    """

    axis: int
    count: int
    largest: bool = True

    def result_type(self, types: Types) -> tuple[TensorType, TensorType]:
        (x,) = types
        fits = 0 <= self.axis < len(x.shape) and 0 <= self.count <= x.shape[self.axis]
        self.expect(fits, f"at least {self.count} elements on axis {self.axis}", types)
        shape = (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape), TensorType("int64", shape)

    def compute(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.moveaxis(wide(x), self.axis, -1)
        places = self._candidates(rows) if self.count > 0 and rows.shape[-1] >= LONG else None
        if places is None:
            order = self._order(rows)[..., : self.count]
        else:
            chosen = self._order(np.take_along_axis(rows, places, axis=-1))
            order = np.take_along_axis(places, chosen, axis=-1)
        indices = np.moveaxis(order, -1, self.axis).astype(np.int64)
        return np.take_along_axis(x, indices, axis=self.axis), indices

    def _order(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices that sort rows; NaN counts as the largest element."""
        if not self.largest:
            return np.argsort(rows, axis=-1, kind="stable")
        order = np.argsort(np.flip(rows, -1), axis=-1, kind="stable")
        return rows.shape[-1] - 1 - np.flip(order, -1)

    def _candidates(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the indices of the elements to sort, ascending; None if NaN is the last of them.

        The last of them is found by partition. Those equal to it are taken from the front.
        """
        size = rows.shape[-1]
        rank = size - self.count if self.largest else self.count - 1
        last = np.partition(rows, rank, axis=-1)[..., rank, None]
        if (last != last).any():
            return None
        taken = ~(rows < last) if self.largest else rows <= last
        surplus = np.count_nonzero(taken, axis=-1, keepdims=True) - self.count
        if surplus.any():
            equal = rows == last
            places = np.cumsum(equal, axis=-1)
            taken &= ~equal | (places <= places[..., -1:] - surplus)
        return np.nonzero(taken)[-1].reshape(*rows.shape[:-1], self.count)
