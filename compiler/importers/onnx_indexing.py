"""Operators that pick, place and repeat elements -> those of `graph`, or constants."""

import math

import numpy as np

from ..graph import TensorType
from ..graph import operators as ops
from ..graph.operators import (
    Cumulate,
    Expand,
    GatherElements,
    GatherND,
    ScatterElements,
    ScatterND,
    Tile,
    TopK,
    Where,
)
from ..graph.types import DTYPES
from .onnx_node import OnnxNode
from .onnx_tensors import ELEMENT_TYPES


def import_expand(node: OnnxNode) -> str:
    """Expand -> Expand."""
    wished, shape = node.integers(1), node.type(0).shape
    try:
        result = np.broadcast_shapes(shape, wished)
    except ValueError:
        node.fail(f"a shape to expand {list(shape)} to", f"{list(wished)}", "correct the shape")
    return node.emit(Expand(tuple(result)), [node.input(0)])


def import_tile(node: OnnxNode) -> str:
    """Tile -> Tile."""
    return node.emit(Tile(node.integers(1)), [node.input(0)])


def import_triangle(node: OnnxNode) -> str:
    """Trilu -> Where with a constant mask."""
    kind, base = node.type(0), node.proto.output[0]
    if len(kind.shape) < 2:
        node.fail("matrices", f"rank {len(kind.shape)}", "correct the model")
    kept = np.tri(*kind.shape[-2:], k=int(node.scalar(1, 0)) - node.attribute("upper", 1)) == 1
    mask = node.array(kept != bool(node.attribute("upper", 1)), f"{base}.mask")
    return node.emit(Where(), [mask, node.input(0), node.number(0, kind.dtype)])


def import_gather_elements(node: OnnxNode) -> str:
    """GatherElements -> GatherElements."""
    return node.emit(GatherElements(node.axis(0, node.rank(0))), [node.input(0), node.input(1)])


def import_gather_nd(node: OnnxNode) -> str:
    """GatherND -> GatherND."""
    return node.emit(GatherND(node.attribute("batch_dims", 0)), [node.input(0), node.input(1)])


def import_scatter_elements(node: OnnxNode) -> str:
    """ScatterElements, Scatter -> ScatterElements."""
    axis, reduction = node.axis(0, node.rank(0)), node.attribute("reduction", "none")
    return node.emit(ScatterElements(axis, reduction), node.inputs())


def import_scatter_nd(node: OnnxNode) -> str:
    """ScatterND -> ScatterND."""
    return node.emit(ScatterND(node.attribute("reduction", "none")), node.inputs())


def import_compress(node: OnnxNode) -> str:
    """Compress by a known condition -> Gather."""
    chosen = np.flatnonzero(node.constant(1).ravel())
    x, shape = node.input(0), node.type(0).shape
    if "axis" in node.attributes:
        axis = node.axis(0, len(shape))
    else:
        x, axis = node.emit(ops.Reshape((math.prod(shape),)), [x], f"{x}.flat"), 0
    size = node.builder.types[x].shape[axis]
    if chosen.size and chosen[-1] >= size:
        node.fail(f"a condition of at most {size} elements", f"{chosen[-1] + 1}", "shorten it")
    indices = node.array(chosen.astype(np.int64), f"{node.proto.output[0]}.chosen")
    return node.emit(ops.Gather(axis), [x, indices])


def import_cumulate(node: OnnxNode) -> str:
    """CumSum, CumProd -> Cumulate."""
    axis = node.normalise(int(node.scalar(1, 0)), node.rank(0))
    operator = Cumulate(
        node.proto.op_type,
        axis,
        bool(node.attribute("exclusive", 0)),
        bool(node.attribute("reverse", 0)),
    )
    return node.emit(operator, [node.input(0)])


def import_top_k(node: OnnxNode) -> list[str]:
    """TopK -> TopK."""
    count = node.attribute("k", 0) if node.opset < 10 else int(node.scalar(1, 0))
    axis = node.axis(-1, node.rank(0))
    operator = TopK(axis, count, bool(node.attribute("largest", 1)))
    return node.emit_outputs(operator, [node.input(0)])


def import_constant_of_shape(node: OnnxNode) -> str:
    """ConstantOfShape -> a constant."""
    shape = node.integers(0)
    value = np.zeros(1, np.float32)
    if "value" in node.attributes:
        value = node.tensor("value")
    if min(shape, default=0) < 0 or value.size != 1:
        node.fail("a shape and one value", f"{list(shape)}, {value.size} values", "correct them")
    node.check(TensorType(str(value.dtype), shape))
    return node.array(np.full(shape, value.ravel()[0], dtype=value.dtype))


def import_range(node: OnnxNode) -> str:
    """Range -> a constant."""
    limits = [node.constant(index) for index in range(3)]
    if any(limit.size != 1 for limit in limits):
        node.fail("a start, a limit and a step", "other counts of elements", "make them scalars")
    start, limit, delta = (limit.ravel()[0] for limit in limits)
    dtype = node.type(0).dtype
    whole = "float" not in dtype
    first, stop, step = (int(v) if whole else float(v) for v in (start, limit, delta))
    if not step or not all(map(math.isfinite, (first, stop, step))):
        node.fail("finite limits and a step other than 0", f"{first}, {stop}, {step}", "correct it")
    count = max(0, -((first - stop) // step) if whole else math.ceil((stop - first) / step))
    node.check(TensorType(dtype, (int(count),)))
    steps = np.arange(int(count), dtype=np.int64 if whole else np.float64)
    return node.array((first + steps * step).astype(DTYPES[dtype]))


def import_eye_like(node: OnnxNode) -> str:
    """EyeLike -> a constant."""
    kind = node.type(0)
    wished = node.attribute("dtype", 0)
    dtype = ELEMENT_TYPES.get(wished, "") if wished else kind.dtype
    if len(kind.shape) != 2 or not dtype:
        node.fail("a matrix of numbers", f"rank {len(kind.shape)}", "correct the model")
    node.check(TensorType(dtype, kind.shape))
    ones = np.eye(*kind.shape, k=node.attribute("k", 0), dtype=np.float32)
    return node.array(ones.astype(DTYPES[dtype]))


def import_size(node: OnnxNode) -> str:
    """Size -> a constant, since all shapes are static."""
    return node.array(np.array(node.type(0).elements, dtype=np.int64))
