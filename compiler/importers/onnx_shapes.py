"""Operators that move elements or make shapes: Reshape, Transpose, Pad, Slice, Concat and kin."""

import math
from collections.abc import Sequence

import numpy as np
import onnx

from ..graph import operators as ops
from ..graph.ir import DTYPES
from .onnx_node import OnnxNode


def import_identity(node: OnnxNode) -> str:
    """Identity, Dropout (at inference) -> the operand itself."""
    return node.input(0)


def import_constant(node: OnnxNode) -> str:
    """Constant -> a constant."""
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for key in (name, f"{name}s"):
            if key in node.attributes:
                value = node.attribute(key, None)
                return node.builder.constant(np.array(value, dtype=dtype), node.proto.output[0])
    if "value" not in node.attributes:
        node.fail("a tensor or numbers", f"{sorted(node.attributes)}", "export the model again")
    try:
        tensor = onnx.numpy_helper.to_array(node.attributes["value"].t)
    except (ValueError, TypeError):
        node.fail("a tensor whose bytes make its shape", "others", "export the model again")
    if str(tensor.dtype) not in DTYPES:
        node.fail(f"one of {', '.join(DTYPES)}", str(tensor.dtype), "convert the constant")
    return node.builder.constant(tensor, node.proto.output[0])


def import_shape(node: OnnxNode) -> str:
    """Shape -> a constant, since all shapes are static."""
    shape = node.type(0).shape[node.attribute("start", 0) : node.attribute("end", None)]
    return node.builder.constant(np.array(shape, dtype=np.int64), node.proto.output[0])


def import_reshape(node: OnnxNode) -> str:
    """Reshape -> Reshape with the extents worked out."""
    old = node.type(0).shape
    wished = list(node.integers(1))
    if not node.attribute("allowzero", 0):
        wished = [old[i] if size == 0 and i < len(old) else size for i, size in enumerate(wished)]
    if wished.count(-1) == 1:
        known = math.prod(size for size in wished if size != -1)
        wished[wished.index(-1)] = math.prod(old) // known if known else 0
    return node.emit(ops.Reshape(tuple(wished)), [node.input(0)])


def import_flatten(node: OnnxNode) -> str:
    """Flatten -> Reshape to a matrix."""
    shape = node.type(0).shape
    axis = node.attribute("axis", 1)
    axis = axis if axis == len(shape) else node.normalise(axis, len(shape))
    return node.emit(
        ops.Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))), [node.input(0)]
    )


def axes_of(node: OnnxNode, index: int, rank: int, default: Sequence[int]) -> tuple[int, ...]:
    """Return axes from an attribute (older operator sets) or an input, sorted, from the front."""
    axes = node.attribute("axes", ())
    if not axes and node.has(index):
        axes = node.integers(index)
    return tuple(sorted(node.normalise(axis, rank) for axis in axes or default))


def import_squeeze(node: OnnxNode) -> str:
    """Squeeze -> Reshape."""
    shape = node.type(0).shape
    axes = axes_of(node, 1, len(shape), [i for i, size in enumerate(shape) if size == 1])
    if any(shape[axis] != 1 for axis in axes):
        node.fail("axes of extent 1", f"axes {list(axes)} of {list(shape)}", "correct the axes")
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return node.emit(ops.Reshape(kept), [node.input(0)])


def import_unsqueeze(node: OnnxNode) -> str:
    """Unsqueeze -> Reshape."""
    shape = node.type(0).shape
    count = len(node.attribute("axes", ())) or len(node.integers(1))
    axes = axes_of(node, 1, len(shape) + count, ())
    rest = iter(shape)
    result = tuple(1 if axis in axes else next(rest) for axis in range(len(shape) + count))
    return node.emit(ops.Reshape(result), [node.input(0)])


def import_transpose(node: OnnxNode) -> str:
    """Transpose -> Transpose."""
    permutation = node.attribute("perm", tuple(reversed(range(node.rank(0)))))
    return node.emit(ops.Transpose(permutation), [node.input(0)])


def import_pad(node: OnnxNode) -> str:
    """Pad (constant mode) -> Pad."""
    mode = node.attribute("mode", "constant")
    if mode != "constant":
        node.fail("`mode` constant", f"`{mode}`", "pad with a constant")
    rank = node.rank(0)
    if node.opset < 11:
        pads, value = node.attribute("pads", ()), node.attribute("value", 0.0)
    else:
        pads, value = node.integers(1), node.scalar(2, 0.0)
    axes = tuple(range(rank))
    if node.has(3):
        axes = tuple(node.normalise(axis, rank) for axis in node.integers(3))
    if len(pads) != 2 * len(axes):
        node.fail(f"{2 * len(axes)} pads", f"{len(pads)}", "give two for each axis")
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[position + len(axes)]
    return node.emit(ops.Pad(tuple(before), tuple(after), value), [node.input(0)])


def import_slice(node: OnnxNode) -> str:
    """Slice with positive steps -> Slice."""
    shape = node.type(0).shape
    if node.opset < 10:
        starts, ends = node.attribute("starts", ()), node.attribute("ends", ())
        axes, steps = node.attribute("axes", tuple(range(len(starts)))), (1,) * len(starts)
    else:
        starts, ends = node.integers(1), node.integers(2)
        axes = node.integers(3) if node.has(3) else tuple(range(len(starts)))
        steps = node.integers(4) if node.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or min(steps, default=1) < 1:
        node.fail("as many starts, ends, axes and positive steps", "others", "slice forwards")
    bounds = [(0, size, 1) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = node.normalise(axis, len(shape))
        first, stop, _ = slice(start, end, step).indices(shape[axis])
        bounds[axis] = (first, max(first, stop), step)
    columns = [tuple(bound[i] for bound in bounds) for i in range(3)]
    return node.emit(ops.Slice(columns[0], columns[1], columns[2]), [node.input(0)])


def import_split(node: OnnxNode) -> list[str]:
    """Split -> one Slice for each output."""
    shape = node.type(0).shape
    axis = node.axis(0, len(shape))
    count = len(node.proto.output)
    sizes = node.attribute("split", ())
    if not sizes and node.has(1):
        sizes = node.integers(1)
    if not sizes:
        part = -(-shape[axis] // count)
        sizes = tuple(min(part, shape[axis] - i * part) for i in range(count))
    if len(sizes) != count or sum(sizes) != shape[axis] or min(sizes) < 0:
        node.fail(f"parts that add up to {shape[axis]}", f"{list(sizes)}", "correct the split")
    results, first = [], 0
    for name, size in zip(node.proto.output, sizes, strict=True):
        starts = tuple(first if i == axis else 0 for i in range(len(shape)))
        stops = tuple(first + size if i == axis else extent for i, extent in enumerate(shape))
        operator = ops.Slice(starts, stops, (1,) * len(shape))
        results.append(node.emit(operator, [node.input(0)], name))
        first += size
    return results


def import_concat(node: OnnxNode) -> str:
    """Concat -> Concat."""
    return node.emit(ops.Concat(node.axis(0, node.rank(0))), node.inputs())


def import_gather(node: OnnxNode) -> str:
    """Gather with constant indices -> Gather."""
    axis = node.axis(0, node.rank(0))
    indices = node.constant(1).astype(np.int64)
    size = node.type(0).shape[axis]
    if indices.size and not -size <= indices.min() <= indices.max() < size:
        node.fail(f"indices below {size}", f"`{indices.max()}`", "correct the indices")
    name = node.builder.constant(indices % max(size, 1), f"{node.proto.output[0]}.indices")
    return node.emit(ops.Gather(axis), [node.input(0), name])


def import_cast(node: OnnxNode) -> str:
    """Cast -> Cast."""
    target = node.attribute("to", 0)
    names = {onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)): n for n, kind in DTYPES.items()}
    if target not in names:
        node.fail(f"a cast to one of {', '.join(DTYPES)}", f"type {target}", "drop the cast")
    return node.emit(ops.Cast(names[target]), [node.input(0)])
