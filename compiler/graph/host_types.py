"""What the host's operators make of their inputs' types.

Operators that only move elements pass quantisation on; Quantize and Shift set it.
"""

from . import host_operators as ops
from .elementwise import binary_type, unary_type
from .integer_operators import QConcat, QSlice
from .ir import Quantisation, TensorType
from .operator import Operator
from .reductions import POSITIONS, REDUCTIONS
from .rules import FLOATS, INTEGERS, TypeRule, Types, broadcast, expect, padded_shape
from .windows import window_extents


def _channels(op: ops.Quantize | ops.Dequantize, x: TensorType, types: Types) -> None:
    count = 1 if op.axis is None else x.shape[op.axis] if op.axis < len(x.shape) else -1
    fits = len(op.scales) == len(op.zero_points) == count
    expect(fits, op, f"{len(op.scales)} channels on axis {op.axis}", types)


def _quantize(op: ops.Quantize, types: Types) -> TensorType:
    (x,) = types
    expect(x.dtype == "float32", op, "float32", types)
    _channels(op, x, types)
    per_tensor = Quantisation(op.scales[0], op.zero_points[0]) if op.axis is None else None
    return TensorType(op.dtype, x.shape, per_tensor)


def _dequantize(op: ops.Dequantize, types: Types) -> TensorType:
    (x,) = types
    expect(x.dtype in ("int8", "uint8", "int32"), op, "int8, uint8 or int32", types)
    _channels(op, x, types)
    return TensorType("float32", x.shape)


def _shift(op: ops.Shift, types: Types) -> TensorType:
    (x,) = types
    expect(x.dtype in ("int8", "uint8"), op, "int8 or uint8", types)
    dtype, offset = ("uint8", 128) if x.dtype == "int8" else ("int8", -128)
    old = x.quantisation
    new = None if old is None else Quantisation(old.scale, old.zero_point + offset)
    return TensorType(dtype, x.shape, new)


def _reshape(op: ops.Reshape, types: Types) -> TensorType:
    (x,) = types
    result = TensorType(x.dtype, op.shape, x.quantisation)
    fits = min(op.shape, default=1) >= 0 and result.elements == x.elements
    expect(fits, op, f"the {result.elements} elements of {list(op.shape)}", types)
    return result


def _transpose(op: ops.Transpose, types: Types) -> TensorType:
    (x,) = types
    fits = sorted(op.permutation) == list(range(len(x.shape)))
    expect(fits, op, f"rank {len(op.permutation)} for permutation {list(op.permutation)}", types)
    return TensorType(x.dtype, tuple(x.shape[axis] for axis in op.permutation), x.quantisation)


def _pad(op: ops.Pad, types: Types) -> TensorType:
    (x,) = types
    return TensorType(x.dtype, padded_shape(op, types), x.quantisation)


def slice_type(op: ops.Slice | QSlice, types: Types) -> TensorType:
    """Return the type of what a slice keeps."""
    (x,) = types
    bounds = list(zip(op.starts, op.stops, op.steps, strict=True))
    fits = len(bounds) == len(x.shape) and all(
        0 <= start <= stop <= size and step > 0
        for (start, stop, step), size in zip(bounds, x.shape, strict=False)
    )
    expect(fits, op, "starts and stops within the shape and positive steps", types)
    shape = tuple(len(range(*bound)) for bound in bounds)
    return TensorType(x.dtype, shape, x.quantisation)


def concat_type(op: ops.Concat | QConcat, types: Types) -> TensorType:
    """Return the type of tensors joined along an axis."""
    first = types[0]
    rest = [t.shape[: op.axis] + t.shape[op.axis + 1 :] for t in types]
    fits = op.axis < len(first.shape) and all(
        t.dtype == first.dtype and len(t.shape) == len(first.shape) and other == rest[0]
        for t, other in zip(types, rest, strict=True)
    )
    expect(fits, op, f"one type, and shapes that differ on axis {op.axis} only", types)
    size = sum(t.shape[op.axis] for t in types)
    shape = (*first.shape[: op.axis], size, *first.shape[op.axis + 1 :])
    kept = first.quantisation if len({t.quantisation for t in types}) == 1 else None
    return TensorType(first.dtype, shape, kept)


def _gather(op: ops.Gather, types: Types) -> TensorType:
    x, indices = types
    fits = indices.dtype in ("int64", "int32") and op.axis < len(x.shape)
    expect(fits, op, f"an axis {op.axis} and integer indices", types)
    shape = x.shape[: op.axis] + indices.shape + x.shape[op.axis + 1 :]
    return TensorType(x.dtype, shape, x.quantisation)


def _cast(op: ops.Cast, types: Types) -> TensorType:
    return TensorType(op.dtype, types[0].shape)


def _image(op: ops.Conv | ops.MaxPool | ops.AveragePool, x: TensorType) -> tuple[int, ...]:
    """Return images, channels, height and width."""
    if op.channels_last:
        n, height, width, channels = x.shape
        return n, channels, height, width
    return x.shape


def _in_layout(
    op: ops.Conv | ops.MaxPool | ops.AveragePool, n: int, channels: int, extents: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape of images in an operator's layout."""
    return (n, *extents, channels) if op.channels_last else (n, channels, *extents)


def _conv(op: ops.Conv, types: Types) -> TensorType:
    x, w = types[:2]
    first = "[N,Ci,H,W], [Co,Ci/groups,KH,KW]"
    wanted = "[N,H,W,Ci], [KH,KW,Ci/groups,Co]" if op.channels_last else first
    ranked = len(x.shape) == len(w.shape) == 4 and all(t.dtype == "float32" for t in types)
    expect(ranked, op, f"float32 {wanted} and [Co]", types)
    n, channels, height, width = _image(op, x)
    if op.channels_last:
        *kernel, depth, out = w.shape
    else:
        out, depth, *kernel = w.shape
    fits = (
        channels == depth * op.groups
        and out % op.groups == 0
        and all(bias.shape == (out,) for bias in types[2:])
    )
    expect(fits, op, f"float32 {wanted} and [Co]", types)
    extents = window_extents(op, (height, width), (kernel[0], kernel[1]), op.dilations)
    return TensorType("float32", _in_layout(op, n, out, extents))


def _matmul(op: ops.MatMul, types: Types) -> TensorType:
    a, b = types
    fits = (
        a.dtype == b.dtype
        and a.dtype in (*FLOATS, *INTEGERS)
        and len(a.shape) >= 2
        and len(b.shape) >= 2
        and a.shape[-1] == b.shape[-2]
    )
    expect(fits, op, "[..., M, K] and [..., K, N] of one type", types)
    outer = broadcast(op, types, a.shape[:-2], b.shape[:-2])
    return TensorType(a.dtype, (*outer, *a.shape[-2:-1], *b.shape[-1:]))


def _pool(op: ops.MaxPool | ops.AveragePool, types: Types) -> TensorType:
    (x,) = types
    average = isinstance(op, ops.AveragePool)
    fits = len(x.shape) == 4 and (x.dtype == "float32" or not average)
    layout = "[N,H,W,C]" if op.channels_last else "[N,C,H,W]"
    expect(fits, op, f"{layout}, float32 for an average", types)
    n, channels, height, width = _image(op, x)
    dilations = op.dilations if isinstance(op, ops.MaxPool) else (1, 1)
    extents = window_extents(op, (height, width), op.kernel, dilations)
    shape = _in_layout(op, n, channels, extents)
    return TensorType(x.dtype, shape, None if average else x.quantisation)


def _unary(op: ops.Unary, types: Types) -> TensorType:
    return unary_type(op, op.kind, types)


def _binary(op: ops.Binary, types: Types) -> TensorType:
    return binary_type(op, op.kind, types)


def _softmax(op: ops.Softmax, types: Types) -> TensorType:
    (x,) = types
    fits = x.dtype in FLOATS and 0 <= op.axis <= op.stop <= len(x.shape)
    expect(fits, op, f"floats with axes {op.axis} to {op.stop}", types)
    return TensorType(x.dtype, x.shape)


def _reduce(op: ops.Reduce, types: Types) -> TensorType:
    (x,) = types
    known = op.kind in REDUCTIONS or (op.kind in POSITIONS and len(op.axes) == 1)
    known = known and x.dtype in (*FLOATS, *INTEGERS)
    fits = known and all(0 <= axis < len(x.shape) for axis in op.axes)
    expect(fits, op, f"numbers with axes {op.axes} for {op.kind}", types)
    if op.keep:
        shape = tuple(1 if axis in op.axes else size for axis, size in enumerate(x.shape))
    else:
        shape = tuple(size for axis, size in enumerate(x.shape) if axis not in op.axes)
    return TensorType("int64" if op.kind in POSITIONS else x.dtype, shape)


HOST_RULES: dict[type[Operator], TypeRule] = {
    ops.Quantize: ((1, 1), _quantize),
    ops.Dequantize: ((1, 1), _dequantize),
    ops.Shift: ((1, 1), _shift),
    ops.Reshape: ((1, 1), _reshape),
    ops.Transpose: ((1, 1), _transpose),
    ops.Pad: ((1, 1), _pad),
    ops.Slice: ((1, 1), slice_type),
    ops.Concat: ((1, 1000), concat_type),
    ops.Gather: ((2, 2), _gather),
    ops.Cast: ((1, 1), _cast),
    ops.Conv: ((2, 3), _conv),
    ops.MatMul: ((2, 2), _matmul),
    ops.MaxPool: ((1, 1), _pool),
    ops.AveragePool: ((1, 1), _pool),
    ops.Unary: ((1, 1), _unary),
    ops.Binary: ((2, 2), _binary),
    ops.Softmax: ((1, 1), _softmax),
    ops.Reduce: ((1, 1), _reduce),
}
"""Operator -> its rule."""
