"""Importers of operators that change shapes, repeat elements or produce constants."""

import math
from collections.abc import Sequence

import numpy as np

from ...wording import counted
from ..graph import TensorType
from ..graph.operators import Expand, Where
from ..graph.types import DTYPES, MAX_BYTES
from .onnx_node import OnnxNode
from .onnx_scope import Named
from .onnx_tensors import ELEMENT_TYPES, read_sparse


def import_identity(node: OnnxNode) -> list[Named]:
    """Import Identity as its operand."""
    return [node.value(0)]


def import_dropout(node: OnnxNode) -> list[str]:
    """Import Dropout, at inference, as its operand and, if used, a mask of ones."""
    ratio = node.scalar(1, 0.5) if node.opset >= 12 else node.attribute("ratio", 0.5)
    if node.has(2) and node.constant(2).any() and ratio:
        node.refuse("random numbers", "`training_mode`", "export the model for inference")
    if not node.wants(1):
        return [node.input(0)]
    node.check(TensorType("bool", node.type(0).shape))
    return [node.input(0), node.array(np.ones(node.type(0).shape, bool), f"{node.label}.mask")]


def import_constant(node: OnnxNode) -> str:
    """Import Constant as a constant."""
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


def import_constant_of_shape(node: OnnxNode) -> str:
    """Import ConstantOfShape as a constant."""
    shape = node.integers(0)
    value = node.tensor("value") if "value" in node.attributes else np.zeros(1, np.float32)
    if min(shape, default=0) < 0 or value.size != 1:
        node.fail(
            "a shape and one value",
            f"{list(shape)}, {counted(value.size, 'value')}",
            "correct them",
        )
    node.check(TensorType(str(value.dtype), shape))
    return node.array(np.full(shape, value.ravel()[0], dtype=value.dtype))


def import_range(node: OnnxNode) -> str:
    """Import Range as a constant."""
    limits = [node.constant(index) for index in range(3)]
    if any(limit.size != 1 for limit in limits):
        node.fail("a start, a limit and a step", "other counts of elements", "make them scalars")
    dtype = node.type(0).dtype
    whole = "float" not in dtype
    first, stop, step = ((int if whole else float)(limit.ravel()[0]) for limit in limits)
    if not step or not all(map(math.isfinite, (first, stop, step))):
        node.fail("finite limits and a step other than 0", f"{first}, {stop}, {step}", "correct it")
    count = max(0, -((first - stop) // step) if whole else math.ceil((stop - first) / step))
    node.check(TensorType(dtype, (int(count),)))
    steps = np.arange(int(count), dtype=np.int64 if whole else np.float64)
    return node.array((first + steps * step).astype(DTYPES[dtype]))


def import_eye_like(node: OnnxNode) -> str:
    """Import EyeLike as a constant."""
    kind = node.type(0)
    requested = node.attribute("dtype", 0)
    dtype = ELEMENT_TYPES.get(requested, "") if requested else kind.dtype
    if len(kind.shape) != 2 or not dtype:
        node.fail("a matrix of numbers", f"rank {len(kind.shape)}", "correct the model")
    node.check(TensorType(dtype, kind.shape))
    return node.array(np.eye(*kind.shape, k=node.attribute("k", 0)).astype(DTYPES[dtype]))


def import_one_hot(node: OnnxNode) -> str:
    """Import OneHot as Where the indices, counted from the front, are equal to the positions.

    Fractions are cut off the indices, as in ONNX Runtime; in ONNX's reference evaluator, an index
    with a fraction is none.
    """
    shape, depth, values = node.type(0).shape, int(node.scalar(1, 0)), node.input(2)
    if depth < 0 or node.type(2).shape != (2,):
        got = f"{depth}, {list(node.type(2).shape)}"
        node.fail("a `depth` of 0 or more and two values", got, "correct the model")
    axis, base = node.axis(-1, len(shape) + 1), node.result
    node.check(TensorType(node.type(2).dtype, (*shape, depth)), MAX_BYTES)
    indices = node.cast(node.input(0), "int64", f"{base}.indices")
    below = node.binary("Less", indices, node.number(0, "int64"), f"{base}.below")
    raised = node.binary("Add", indices, node.number(depth, "int64"), f"{base}.raised")
    indices = node.emit(Where(), [below, raised, indices], f"{base}.positive")
    indices = node.reshape(indices, (*shape[:axis], 1, *shape[axis:]), f"{base}.spread")
    positions = np.arange(depth).reshape(-1, *(1,) * (len(shape) - axis))
    hot = node.binary("Equal", indices, node.array(positions, f"{base}.positions"), f"{base}.hot")
    off, on = (node.part(values, 0, i, i + 1, f"{base}.{i}") for i in range(2))
    return node.emit(Where(), [hot, on, off])


def import_shape(node: OnnxNode) -> str:
    """Import Shape as a constant; all shapes are static."""
    shape = node.type(0).shape[node.attribute("start", 0) : node.attribute("end", None)]
    return node.array(np.array(shape, dtype=np.int64))


def import_size(node: OnnxNode) -> str:
    """Import Size as a constant; all shapes are static."""
    return node.array(np.array(node.type(0).elements, dtype=np.int64))


def import_reshape(node: OnnxNode) -> str:
    """Import Reshape with its extents resolved."""
    old = node.type(0).shape
    requested = list(node.integers(1))
    if not node.attribute("allowzero", 0):
        requested = [
            old[i] if size == 0 and i < len(old) else size for i, size in enumerate(requested)
        ]
    if requested.count(-1) == 1:
        known = math.prod(size for size in requested if size != -1)
        requested[requested.index(-1)] = math.prod(old) // known if known else 0
    return node.reshape(node.input(0), requested)


def import_flatten(node: OnnxNode) -> str:
    """Import Flatten as Reshape to a matrix."""
    shape, axis = node.type(0).shape, node.attribute("axis", 1)
    axis = axis if axis == len(shape) else node.normalise(axis, len(shape))
    return node.reshape(node.input(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _axes_of(node: OnnxNode, rank: int, default: Sequence[int]) -> tuple[int, ...]:
    """Return axes from an attribute (older operator sets) or input 1, sorted, from the front."""
    return tuple(sorted(node.normalise(axis, rank) for axis in node.listed("axes", 1) or default))


def import_squeeze(node: OnnxNode) -> str:
    """Import Squeeze as Reshape."""
    shape = node.type(0).shape
    axes = _axes_of(node, len(shape), [i for i, size in enumerate(shape) if size == 1])
    if any(shape[axis] != 1 for axis in axes):
        node.fail("axes of extent 1", f"axes {list(axes)} of {list(shape)}", "correct the axes")
    return node.reshape(node.input(0), [n for i, n in enumerate(shape) if i not in axes])


def import_unsqueeze(node: OnnxNode) -> str:
    """Import Unsqueeze as Reshape."""
    shape = node.type(0).shape
    rank = len(shape) + (len(node.attribute("axes", ())) or len(node.integers(1)))
    axes = _axes_of(node, rank, ())
    if len(set(axes)) != rank - len(shape):
        node.fail(f"{rank - len(shape)} different axes", f"{list(axes)}", "correct the axes")
    rest = iter(shape)
    return node.reshape(node.input(0), [1 if i in axes else next(rest) for i in range(rank)])


def import_expand(node: OnnxNode) -> str:
    """Import Expand as Expand."""
    requested, shape = node.integers(1), node.type(0).shape
    try:
        result = np.broadcast_shapes(shape, requested)
    except ValueError:
        node.fail(f"a shape to expand {list(shape)} to", f"{list(requested)}", "correct the shape")
    return node.emit(Expand(tuple(result)), [node.input(0)])


def import_triangle(node: OnnxNode) -> str:
    """Import Trilu as Where with a constant mask."""
    kind, upper, diagonal = node.type(0), node.attribute("upper", 1), int(node.scalar(1, 0))
    if len(kind.shape) < 2:
        node.fail("matrices", f"rank {len(kind.shape)}", "correct the model")
    rows, columns = np.ogrid[: kind.shape[-2], : kind.shape[-1]]
    kept = columns - rows >= diagonal if upper else columns - rows <= diagonal
    operands = [node.array(kept, f"{node.result}.mask"), node.input(0), node.number(0, kind.dtype)]
    return node.emit(Where(), operands)


def import_blocks(node: OnnxNode) -> str:
    """Import DepthToSpace and SpaceToDepth as Reshape, Transpose, Reshape."""
    shape, block = node.type(0).shape, node.attribute("blocksize", 0)
    mode, deeper = node.attribute("mode", "DCR"), node.proto.op_type == "SpaceToDepth"
    if len(shape) != 4 or block < 1 or mode not in ("DCR", "CRD"):
        got = f"rank {len(shape)}, {block}, `{mode}`"
        expected = "an image, a `blocksize` of 1 or more, and a known mode"
        node.fail(expected, got, "correct the model")
    n, c, h, w = shape
    if deeper and (h % block or w % block):
        node.fail(f"height and width divisible by {block}", f"{h}, {w}", "correct the model")
    if not deeper and c % block**2:
        node.fail(f"channels divisible by {block**2}", f"{c}", "correct the model")
    if deeper:
        h, w = h // block, w // block
        split, joined = (n, c, h, block, w, block), (n, c * block**2, h, w)
        order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    else:
        c, joined = c // block**2, (n, c // block**2, h * block, w * block)
        split = (n, c, block, block, h, w) if mode == "CRD" else (n, block, block, c, h, w)
        order = (0, 1, 4, 2, 5, 3) if mode == "CRD" else (0, 3, 4, 1, 5, 2)
    blocks = node.reshape(node.input(0), split, f"{node.result}.blocks")
    return node.reshape(node.transpose(blocks, order, f"{node.result}.moved"), joined)
