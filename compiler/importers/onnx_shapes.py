"""Operators that move elements or make shapes: Reshape, Transpose, Pad, Slice, Concat and kin."""

import math
from collections.abc import Sequence

import numpy as np

from ..graph import TensorType
from ..graph import operators as ops
from ..graph.operators import Flip, PadByElements, PadByInput
from ..graph.operators.movement import PAD_MODES
from .onnx_node import OnnxNode
from .onnx_scope import Named
from .onnx_tensors import read_sparse


def import_identity(node: OnnxNode) -> list[Named]:
    """Identity -> the operand itself."""
    return [node.value(0)]


def import_dropout(node: OnnxNode) -> list[str]:
    """Dropout, where nothing is dropped -> the operand itself, and, if used, a mask of it all."""
    ratio = node.scalar(1, 0.5) if node.opset >= 12 else node.attribute("ratio", 0.5)
    if node.has(2) and node.constant(2).any() and ratio:
        node.refuse("random numbers", "`training_mode`", "export the model for inference")
    if not node.wants(1):
        return [node.input(0)]
    node.check(TensorType("bool", node.type(0).shape))
    mask = node.array(np.ones(node.type(0).shape, bool), f"{node.label}.mask")
    return [node.input(0), mask]


def import_constant(node: OnnxNode) -> str:
    """Constant -> a constant."""
    if "value_string" in node.attributes or "value_strings" in node.attributes:
        node.refuse("strings", "a constant of strings", "use numbers")
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for key in (name, f"{name}s"):
            if key in node.attributes:
                return node.array(np.array(node.attribute(key, None), dtype=dtype))
    if "sparse_value" in node.attributes:
        sparse = node.attributes["sparse_value"].sparse_tensor
        return node.array(read_sparse(sparse, node.where, node.scope.folder))
    if "value" not in node.attributes:
        node.fail("a tensor or numbers", f"{sorted(node.attributes)}", "export the model again")
    return node.array(node.tensor("value"))


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


def import_depth_to_space(node: OnnxNode) -> str:
    """DepthToSpace -> Reshape, Transpose, Reshape."""
    (n, c, h, w), block, channels_first = _blocks(node)
    if c % block**2:
        node.fail(f"channels divisible by {block**2}", f"{c}", "correct the model")
    c //= block**2
    split = (n, c, block, block, h, w) if channels_first else (n, block, block, c, h, w)
    order = (0, 1, 4, 2, 5, 3) if channels_first else (0, 3, 4, 1, 5, 2)
    return _rearranged(node, split, order, (n, c, h * block, w * block))


def import_space_to_depth(node: OnnxNode) -> str:
    """SpaceToDepth -> Reshape, Transpose, Reshape."""
    (n, c, h, w), block, channels_first = _blocks(node)
    if h % block or w % block:
        node.fail(f"height and width divisible by {block}", f"{h}, {w}", "correct the model")
    h, w = h // block, w // block
    order = (0, 1, 3, 5, 2, 4) if channels_first else (0, 3, 5, 1, 2, 4)
    return _rearranged(node, (n, c, h, block, w, block), order, (n, c * block**2, h, w))


def _blocks(node: OnnxNode) -> tuple[tuple[int, ...], int, bool]:
    """Return an image's shape, the extent of its blocks, and whether channels vary the slowest."""
    shape, block = node.type(0).shape, node.attribute("blocksize", 0)
    mode = node.attribute("mode", "DCR")
    if len(shape) != 4 or block < 1 or mode not in ("DCR", "CRD"):
        got = f"rank {len(shape)}, {block}, `{mode}`"
        node.fail(
            "an image, a `blocksize` of 1 or more, and a known mode", got, "correct the model"
        )
    return shape, block, mode == "CRD"


def _rearranged(
    node: OnnxNode, split: tuple[int, ...], order: tuple[int, ...], joined: tuple[int, ...]
) -> str:
    base = node.proto.output[0]
    blocks = node.emit(ops.Reshape(split), [node.input(0)], f"{base}.blocks")
    moved = node.emit(ops.Transpose(order), [blocks], f"{base}.moved")
    return node.emit(ops.Reshape(joined), [moved])


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
    if len(set(axes)) != count:
        node.fail(f"{count} different axes", f"{list(axes)}", "correct the axes")
    rest = iter(shape)
    result = tuple(1 if axis in axes else next(rest) for axis in range(len(shape) + count))
    return node.emit(ops.Reshape(result), [node.input(0)])


def import_transpose(node: OnnxNode) -> str:
    """Transpose -> Transpose."""
    permutation = node.attribute("perm", tuple(reversed(range(node.rank(0)))))
    return node.emit(ops.Transpose(permutation), [node.input(0)])


def import_pad(node: OnnxNode) -> str:
    """Pad -> Pad, or PadByElements or PadByInput; negative pads -> Slice before."""
    rank = node.rank(0)
    pads = node.attribute("pads", ()) if node.opset < 11 else node.integers(1)
    axes = tuple(range(rank))
    if node.has(3):
        axes = tuple(node.normalise(axis, rank) for axis in node.integers(3))
    if len(pads) != 2 * len(axes):
        node.fail(f"{2 * len(axes)} pads", f"{len(pads)}", "give two for each axis")
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[position + len(axes)]
    x = _crop(node, node.input(0), before, after)
    grown = [tuple(max(0, pad) for pad in pads) for pads in (before, after)]
    mode = node.attribute("mode", "constant")
    if mode in PAD_MODES:
        return node.emit(PadByElements(grown[0], grown[1], mode), [x])
    if mode != "constant":
        node.fail(f"`mode` constant, {', '.join(PAD_MODES)}", f"`{mode}`", "correct the model")
    if node.opset >= 11 and node.has(2) and node.known(node.input(2)) is None:
        return node.emit(PadByInput(grown[0], grown[1]), [x, node.input(2)])
    value = node.attribute("value", 0.0) if node.opset < 11 else node.scalar(2, 0.0)
    return node.emit(ops.Pad(grown[0], grown[1], value), [x])


def _crop(node: OnnxNode, x: str, before: list[int], after: list[int]) -> str:
    """Emit the Slice that negative pads mean; nothing where there are none."""
    if min(*before, *after, 0) >= 0:
        return x
    shape = node.builder.types[x].shape
    starts = tuple(max(0, -pad) for pad in before)
    stops = tuple(size - max(0, -pad) for size, pad in zip(shape, after, strict=True))
    if any(start > stop for start, stop in zip(starts, stops, strict=True)):
        node.fail("pads that leave something", f"{before} and {after}", "correct the pads")
    return node.emit(ops.Slice(starts, stops, (1,) * len(shape)), [x], f"{x}.cropped")


def import_slice(node: OnnxNode) -> str:
    """Slice -> Slice, with Flip before it for negative steps."""
    shape = node.type(0).shape
    if node.opset < 10:
        starts, ends = node.attribute("starts", ()), node.attribute("ends", ())
        axes, steps = node.attribute("axes", tuple(range(len(starts)))), (1,) * len(starts)
    else:
        starts, ends = node.integers(1), node.integers(2)
        axes = node.integers(3) if node.has(3) else tuple(range(len(starts)))
        steps = node.integers(4) if node.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        node.fail("as many starts, ends, axes and steps", "others", "correct the slice")
    bounds, flipped = [(0, size, 1) for size in shape], []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = node.normalise(axis, len(shape))
        first, stop, _ = slice(start, end, step).indices(shape[axis])
        if step < 0:
            flipped.append(axis)
            first, stop, step = shape[axis] - 1 - first, shape[axis] - 1 - stop, -step
        bounds[axis] = (first, max(first, stop), step)
    columns = [tuple(bound[i] for bound in bounds) for i in range(3)]
    x = node.input(0)
    if flipped:
        x = node.emit(Flip(tuple(flipped)), [x], f"{x}.flipped")
    return node.emit(ops.Slice(columns[0], columns[1], columns[2]), [x])


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
    """Gather -> Gather; known indices are checked and counted from the front."""
    axis = node.axis(0, node.rank(0))
    known = node.known(node.input(1))
    if known is None:
        return node.emit(ops.Gather(axis), [node.input(0), node.input(1)])
    indices = known.astype(np.int64)
    size = node.type(0).shape[axis]
    if indices.size and not -size <= indices.min() <= indices.max() < size:
        node.fail(f"indices below {size}", f"`{indices.max()}`", "correct the indices")
    name = node.builder.constant(indices % max(size, 1), f"{node.proto.output[0]}.indices")
    return node.emit(ops.Gather(axis), [node.input(0), name])
