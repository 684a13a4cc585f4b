"""Quantised constants as exporters leave them: integers with a scale, moved or computed with.

Position and class embeddings are constants of this kind. A static quantiser writes Q/DQ around
every operator, also where all operands are constant.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Protocol

import numpy as np

Shape = tuple[int, ...]


class Growing(Protocol):
    """A model under construction, see `random_models`."""

    numbers: np.random.Generator

    def hold(self, array: np.ndarray, kind: str) -> str:
        """Add a constant and return its name."""
        ...

    def node(
        self, operator: str, inputs: list[str], shape: Shape, results: int = 1, **attributes: Any
    ) -> str:
        """Add a node and return the name of its first result, which has this shape."""
        ...


def held(model: Growing, shape: Shape) -> str:
    """A DequantizeLinear of stored integers."""
    integers = model.hold(model.numbers.integers(-99, 100, shape).astype(np.int8), "table")
    scale, zero = model.hold(np.array(0.03, np.float32), "s"), model.hold(np.array(3, np.int8), "z")
    return model.node("DequantizeLinear", [integers, scale, zero], shape)


def _number(model: Growing, value: float) -> str:
    return model.hold(np.array(value, np.float32), "number")


def _integers(model: Growing, values: object) -> str:
    return model.hold(np.array(values, np.int64), "integers")


def _transposed(model: Growing, shape: Shape) -> str:
    order = list(range(len(shape)))[::-1]
    return model.node("Transpose", [held(model, shape[::-1])], shape, perm=order)


def _reshaped(model: Growing, shape: Shape) -> str:
    return model.node("Reshape", [held(model, (prod(shape),)), _integers(model, shape)], shape)


def _flattened(model: Growing, shape: Shape) -> str:
    flat = model.node("Flatten", [held(model, shape)], (shape[0], prod(shape[1:])))
    return model.node("Reshape", [flat, _integers(model, shape)], shape)


def _squeezed(model: Growing, shape: Shape) -> str:
    return model.node("Squeeze", [held(model, (1, *shape)), _integers(model, [0])], shape)


def _unsqueezed(model: Growing, shape: Shape) -> str:
    flat = held(model, (prod(shape),))
    added = model.node("Unsqueeze", [flat, _integers(model, [0])], (1, prod(shape)))
    return model.node("Reshape", [added, _integers(model, shape)], shape)


def _gathered(model: Growing, shape: Shape) -> str:
    table, rows = held(model, (7, *shape[1:])), model.numbers.integers(0, 7, shape[0])
    return model.node("Gather", [table, _integers(model, rows)], shape, axis=0)


def _gathered_elements(model: Growing, shape: Shape) -> str:
    rows = model.numbers.integers(0, 7, shape)
    table = held(model, (7, *shape[1:]))
    return model.node("GatherElements", [table, _integers(model, rows)], shape, axis=0)


def _sliced(model: Growing, shape: Shape) -> str:
    table, ends = held(model, (shape[0] + 3, *shape[1:])), ([2], [2 + shape[0]], [0])
    return model.node("Slice", [table, *(_integers(model, end) for end in ends)], shape)


def _split(model: Growing, shape: Shape) -> str:
    table = held(model, (2 * shape[0], *shape[1:]))
    return model.node("Split", [table], shape, results=2, axis=0, num_outputs=2)


def _padded(model: Growing, shape: Shape) -> str:
    table = held(model, (*shape[:-1], shape[-1] - 1) if shape[-1] > 1 else shape)
    widths = [0] * (2 * len(shape))
    widths[-1] = int(shape[-1] > 1)
    return model.node("Pad", [table, _integers(model, widths)], shape)


def _joined(model: Growing, shape: Shape) -> str:
    if shape[-1] == 1:
        return model.node("Concat", [held(model, shape)], shape, axis=0)
    parts = [held(model, (*shape[:-1], size)) for size in (1, shape[-1] - 1)]
    return model.node("Concat", parts, shape, axis=len(shape) - 1)


def _expanded(model: Growing, shape: Shape) -> str:
    return model.node("Expand", [held(model, (1, *shape[1:])), _integers(model, shape)], shape)


def _tiled(model: Growing, shape: Shape) -> str:
    times = [shape[0]] + [1] * (len(shape) - 1)
    return model.node("Tile", [held(model, (1, *shape[1:])), _integers(model, times)], shape)


def _averaged(model: Growing, shape: Shape) -> str:
    table = held(model, (3, *shape))
    return model.node("ReduceMean", [table, _integers(model, [0])], shape, keepdims=0)


def _clipped(model: Growing, shape: Shape) -> str:
    ends = [_number(model, -1.0), _number(model, 1.5)]
    return model.node("Clip", [held(model, shape), *ends], shape)


def _chosen(model: Growing, shape: Shape) -> str:
    choice = model.hold(model.numbers.random(shape) < 0.5, "choice")
    return model.node("Where", [choice, held(model, shape), _number(model, 0.5)], shape)


def _multiplied(model: Growing, shape: Shape) -> str:
    square = model.hold(model.numbers.random((shape[-1],) * 2).astype(np.float32), "square")
    return model.node("MatMul", [held(model, shape), square], shape)


def _function(operator: str) -> "Producer":
    return lambda model, shape: model.node(operator, [held(model, shape)], shape)


def _with_number(operator: str) -> "Producer":
    return lambda model, shape: model.node(
        operator, [held(model, shape), _number(model, 0.7)], shape
    )


Producer = Callable[[Growing, Shape], str]

PRODUCERS: Mapping[str, Producer] = {
    "held": held,
    "Transpose": _transposed,
    "Reshape": _reshaped,
    "Flatten": _flattened,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Gather": _gathered,
    "GatherElements": _gathered_elements,
    "Slice": _sliced,
    "Split": _split,
    "Pad": _padded,
    "Concat": _joined,
    "Expand": _expanded,
    "Tile": _tiled,
    "ReduceMean": _averaged,
    "Clip": _clipped,
    "Where": _chosen,
    "MatMul": _multiplied,
    **{name: _function(name) for name in ("Identity", "Relu", "Neg", "Abs", "Sigmoid", "Softmax")},
    **{name: _with_number(name) for name in ("Add", "Sub", "Mul", "Div", "Max")},
}
"""The operator behind DequantizeLinear -> a float constant of a shape, still to be quantised."""
