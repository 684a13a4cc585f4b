"""Quantised layers that only move bytes: joins, repeated pixels, slices and transposes."""

import math

import numpy as np

from ..cpu import AffineCopy, ByteJoin
from ..cpu.kernels.movement import MAX_PIECES
from ..graph import Node
from ..graph.operators import Dequantize, QConcat, QResize, QSlice, Quantize, Transpose
from ..rewriting import each, op, value
from .formulas import dequantize, quantize
from .kernel import HERE, HostKernel, HostScope, matcher

MIN_ROWS = 16
"""With fewer rows, a join copies long pieces, and NumPy is fastest."""

X = value("x", constant=False)


@matcher(op(QConcat, each(value("parts", constant=False)), capture="layer"))
def match_join(
    scope: HostScope, node: Node, layer: QConcat, parts: tuple[str, ...]
) -> HostKernel | None:
    """Match a QConcat whose parts alternate often."""
    shapes = [scope.shape(name) for name in parts]
    rows = math.prod(shapes[0][: layer.axis])
    described = ByteJoin(rows, tuple(math.prod(shape[layer.axis :]) for shape in shapes))
    pieces = described.pieces(described.widths, scope.target)
    if rows < MIN_ROWS or pieces > MAX_PIECES:
        return None
    inputs = dict(zip(described.operands, parts, strict=True))
    return HostKernel(described, inputs, {}, (node,), exact=True)


@matcher(op((QResize, QSlice), X, capture="layer"))
def match_copy(scope: HostScope, node: Node, layer: QResize | QSlice, x: str) -> HostKernel | None:
    """Match a QResize or QSlice."""
    shape = scope.shape(x)
    if isinstance(layer, QResize):
        samples, rows, columns, channels = shape
        extents = (samples, rows, layer.factors[0], columns, layer.factors[1], channels)
        index = _index(6, (0, 1, 3, 5))
    else:
        extents = node.output.type.shape
        index = _index(4, (0, 1, 2, 3), layer.steps, layer.starts)
    return HostKernel(AffineCopy(shape, extents, index), {"x": x}, {}, (node,), exact=True)


def _is_bytes(layer: Quantize | Dequantize) -> bool:
    return layer.axis is None and getattr(layer, "dtype", "int8") == "int8"


TURNED = op(Transpose, HERE, capture="turn")
DEQUANTIZED = op(Dequantize, HERE, capture="scaling", where=_is_bytes)


@matcher(
    op(Quantize, X, capture="scaling", where=_is_bytes),
    op(Transpose, X, capture="turn", result=lambda kind: kind.dtype == "int8"),
)
def match_transpose(
    scope: HostScope, node: Node, x: str, scaling: Quantize | None, turn: Transpose | None
) -> HostKernel | None:
    """Match a Transpose of int8, with a Quantize before it or a Dequantize after it."""
    kind = scope.types[x]
    formula, nodes, moved = "x", (node,), node.output.type.shape
    found = scope.behind(node, DEQUANTIZED if turn else TURNED)
    if found is not None:
        nodes = (node, *found.nodes)
        moved = moved if turn else found.nodes[0].output.type.shape
    if scaling is not None:
        if found is None or kind.dtype != "float32":
            return None
        formula, turn = quantize(scaling, "x", *_of_all(scaling)), found["turn"]
    elif found is not None:
        formula = dequantize("x", *_of_all(found["scaling"]), "int8")
    if turn is None or not kind.shape:
        return None
    places = tuple(turn.permutation.index(axis) for axis in range(len(turn.permutation)))
    described = AffineCopy(
        *(kind.shape, moved, _index(len(moved), places)),
        dtype_in=kind.dtype,
        dtype_out=nodes[-1].output.type.dtype,
        formula=formula,
    )
    return HostKernel(described, {"x": x}, {}, nodes, exact=True)


def _of_all(layer: Quantize | Dequantize) -> tuple[float, int]:
    """Return the scale and zero point that all elements share."""
    (scale,), (zero_point,) = layer.scales, layer.zero_points
    return float(np.float32(scale)), zero_point


def _index(
    axes: int,
    places: tuple[int, ...],
    steps: tuple[int, ...] = (),
    starts: tuple[int, ...] = (),
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Index the input so that each of its dimensions follows one axis of the output."""
    steps, starts = steps or (1,) * len(places), starts or (0,) * len(places)
    return tuple(
        (tuple(step if axis == place else 0 for axis in range(axes)), start)
        for place, step, start in zip(places, steps, starts, strict=True)
    )


MATCHERS = (match_join, match_copy, match_transpose)
