"""Layers that only move bytes: joins, repeated pixels, slices and transpositions."""

import math

import numpy as np

from ..cpu import AffineCopy, ByteJoin
from ..cpu.kernels.movement import MOST_PIECES
from ..graph import Node
from ..graph.operators import Dequantize, QConcat, QResize, QSlice, Quantize, Transpose
from .formulas import dequantize, quantize
from .kernel import HostKernel, Scope

FEWEST_ROWS = 16
"""Below so many rows, joining copies long pieces, as NumPy does best."""


def match_join(scope: Scope, node: Node) -> HostKernel | None:
    """A QConcat whose parts alternate often."""
    layer = node.attributes
    assert isinstance(layer, QConcat)
    shapes = [scope.graph.types[name].shape for name in node.inputs]
    rows = math.prod(shapes[0][: layer.axis])
    described = ByteJoin(rows, tuple(math.prod(shape[layer.axis :]) for shape in shapes))
    pieces = described.pieces(described.widths, scope.target)
    if rows < FEWEST_ROWS or pieces > MOST_PIECES or any(map(scope.graph.is_constant, node.inputs)):
        return None
    inputs = dict(zip(described.operands, node.inputs, strict=True))
    return HostKernel(described, inputs, {}, (node,), exact=True)


def match_copy(scope: Scope, node: Node) -> HostKernel | None:
    """A QResize or QSlice."""
    layer, x = node.attributes, node.inputs[0]
    assert isinstance(layer, QResize | QSlice)
    if scope.graph.is_constant(x):
        return None
    shape = scope.graph.types[x].shape
    if isinstance(layer, QResize):
        samples, rows, columns, channels = shape
        extents = (samples, rows, layer.factors[0], columns, layer.factors[1], channels)
        index = _index(6, (0, 1, 3, 5))
    else:
        extents = node.output.type.shape
        index = _index(4, (0, 1, 2, 3), layer.steps, layer.starts)
    return HostKernel(AffineCopy(shape, extents, index), {"x": x}, {}, (node,), exact=True)


def match_transpose(scope: Scope, node: Node) -> HostKernel | None:
    """A Transpose of int8, with a Quantize before it or a Dequantize behind it."""
    x = node.inputs[0]
    kind = scope.graph.types[x]
    formula, nodes = "x", [node]
    if isinstance(node.attributes, Quantize):
        follower = scope.follower(node)
        if follower is None or kind.dtype != "float32" or node.output.type.dtype != "int8":
            return None
        found = _of_all(node.attributes)
        if found is None:
            return None
        formula = quantize(node.attributes, "x", *found)
        nodes.append(follower)
    elif kind.dtype == "int8":
        follower = scope.follower(node)
        if follower is not None and isinstance(follower.attributes, Dequantize):
            found = _of_all(follower.attributes)
            if found is not None:
                formula = dequantize("x", *found, "int8")
                nodes.append(follower)
    else:
        return None
    moved = next((one for one in nodes if isinstance(one.attributes, Transpose)), None)
    if moved is None or scope.graph.is_constant(x) or not kind.shape:
        return None
    assert isinstance(moved.attributes, Transpose)
    permutation, extents = moved.attributes.permutation, moved.output.type.shape
    places = tuple(permutation.index(axis) for axis in range(len(permutation)))
    described = AffineCopy(
        *(kind.shape, extents, _index(len(extents), places)),
        dtype_in=kind.dtype,
        dtype_out=nodes[-1].output.type.dtype,
        formula=formula,
    )
    return HostKernel(described, {"x": x}, {}, tuple(nodes), exact=True)


def _of_all(layer: Quantize | Dequantize) -> tuple[float, int] | None:
    """Scale and zero point, where they are the same for all elements."""
    if layer.axis is not None:
        return None
    (scale,), (zero_point,) = layer.scales, layer.zero_points
    return float(np.float32(scale)), zero_point


def _index(
    axes: int,
    places: tuple[int, ...],
    steps: tuple[int, ...] = (),
    starts: tuple[int, ...] = (),
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Each dimension of the input moves with one axis of the output."""
    steps, starts = steps or (1,) * len(places), starts or (0,) * len(places)
    return tuple(
        (tuple(step if axis == place else 0 for axis in range(axes)), start)
        for place, step, start in zip(places, steps, starts, strict=True)
    )
