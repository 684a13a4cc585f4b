"""Reductions, softmax, running sums, and the largest elements of an axis.

Floats narrower than 32 bits are computed in float32 and rounded once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .ir import TensorType
from .operator import Operator
from .rules import Definition, Types, expect, wide


@dataclass(frozen=True, slots=True)
class Cumulate(Operator):
    """Running sum or product (`kind` CumSum or CumProd) along `axis`.

    `exclusive` leaves the element itself out; `reverse` runs from the end.
    """

    op: ClassVar[str] = "cumulate"
    kind: str
    axis: int
    exclusive: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class TopK(Operator):
    """The `count` largest (or smallest) elements along `axis` in order, and their int64 indices.

    Of equal elements the one of the lower index comes first.
    """

    op: ClassVar[str] = "topk"
    axis: int
    count: int
    largest: bool = True


def _extreme(function: Callable[..., np.ndarray], largest: bool) -> Callable[..., np.ndarray]:
    """Return np.max or np.min; of nothing, it is the type's other end."""

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

POSITIONS = ("ArgMax", "ArgMin", "LastArgMax", "LastArgMin")
"""Reductions to the index of the first, or the last, of the largest or smallest elements."""


def reduce(x: np.ndarray, kind: str, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    """Reduce over `axes`."""
    values = wide(x)
    if kind in POSITIONS:
        find = np.argmax if kind.endswith("ArgMax") else np.argmin
        (axis,) = axes
        if not kind.startswith("Last"):
            return find(values, axis=axis, keepdims=keep).astype(np.int64)
        last = find(np.flip(values, axis), axis=axis, keepdims=keep)
        return (x.shape[axis] - 1 - last).astype(np.int64)
    with np.errstate(all="ignore"):
        return np.asarray(REDUCTIONS[kind](values, axis=axes, keepdims=keep)).astype(x.dtype)


def softmax(x: np.ndarray, axis: int, stop: int, log: bool = False) -> np.ndarray:
    """Softmax over the axes `axis` to `stop` (exclusive) together.

    float16 is rounded after each step, as ONNX's definition by other operators does.
    """
    axes = tuple(range(axis, stop))
    values = x if x.dtype == np.float16 else wide(x)
    with np.errstate(all="ignore"):
        shifted = values - values.max(axis=axes, keepdims=True)
        powers = np.exp(shifted)
        total = powers.sum(axis=axes, keepdims=True)
        return (shifted - np.log(total) if log else powers / total).astype(x.dtype)


def cumulate(op: Cumulate, x: np.ndarray) -> np.ndarray:
    """Return the running sums or products."""
    values = wide(np.flip(x, op.axis) if op.reverse else x)
    run, neutral = (np.cumsum, 0) if op.kind == "CumSum" else (np.cumprod, 1)
    with np.errstate(all="ignore"):
        result = run(values, axis=op.axis, dtype=values.dtype)
    if op.exclusive and x.shape[op.axis]:
        result = np.roll(result, 1, axis=op.axis)
        first = tuple(0 if i == op.axis else slice(None) for i in range(x.ndim))
        result[first] = neutral
    return (np.flip(result, op.axis) if op.reverse else result).astype(x.dtype)


def top_k(op: TopK, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest or smallest elements and their indices."""
    if op.largest:
        order = np.flip(np.argsort(np.flip(wide(x), op.axis), axis=op.axis, kind="stable"), op.axis)
        order = x.shape[op.axis] - 1 - order
    else:
        order = np.argsort(wide(x), axis=op.axis, kind="stable")
    chosen = np.take(order, np.arange(op.count), axis=op.axis)
    return np.take_along_axis(x, chosen, axis=op.axis), chosen.astype(np.int64)


def _cumulate_type(op: Cumulate, types: Types) -> TensorType:
    (x,) = types
    fits = 0 <= op.axis < len(x.shape) and op.kind in ("CumSum", "CumProd") and x.dtype != "bool"
    expect(fits, op, f"numbers and an axis {op.axis}", types)
    return TensorType(x.dtype, x.shape)


def _top_k_type(op: TopK, types: Types) -> tuple[TensorType, TensorType]:
    (x,) = types
    fits = 0 <= op.axis < len(x.shape) and 0 <= op.count <= x.shape[op.axis]
    expect(fits, op, f"at least {op.count} elements on axis {op.axis}", types)
    shape = (*x.shape[: op.axis], op.count, *x.shape[op.axis + 1 :])
    return TensorType(x.dtype, shape), TensorType("int64", shape)


DEFINITIONS = (
    Definition(Cumulate, (1, 1), _cumulate_type, cumulate),
    Definition(TopK, (1, 1), _top_k_type, top_k),
)
