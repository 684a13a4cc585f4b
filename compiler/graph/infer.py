"""Type inference: what an operator makes of its inputs' types, or why it cannot.

The builder and the verifier use it, so that a node's type can never disagree with its attributes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import CompileError
from . import operators as ops
from .elementwise import binary_type, unary_type
from .families import FAMILIES
from .ir import Quantisation, TensorType
from .reductions import POSITIONS, REDUCTIONS
from .rules import FLOATS, INTEGERS, Types, broadcast, check_size, expect, window_extent


def infer(operator: ops.Operator, types: Types) -> tuple[TensorType, ...]:
    """Return the types of an operator's outputs.

    Quantisation is passed on by operators that only move elements, and set by Quantize and Shift;
    the integer operators leave it to their creator.

    Parameters
    ----------
    operator : Operator
        With its attributes.
    types : sequence of TensorType
        Of the inputs.

    Raises
    ------
    CompileError
        If the inputs do not fit the operator, or an output would be absurdly large.
    """
    family = FAMILIES.get(type(operator))
    (low, high), rule = (family.arity, family.rule) if family else RULES[type(operator)]
    if not low <= len(types) <= high:
        expected = str(low) if low == high else f"{low} to {high}"
        raise CompileError(
            f"`{operator.op}`: expected {expected} inputs, got {len(types)}; give the missing "
            "ones or drop those that are too many"
        )
    found = rule(operator, types)
    return tuple(check_size(kind) for kind in (found if isinstance(found, tuple) else (found,)))


def _windows(
    operator: Any, shape: Sequence[int], kernel: ops.Pair, dilations: ops.Pair
) -> tuple[int, int]:
    """Output height and width for an input of `shape` (H, W)."""
    pads, overhang = operator.pads, getattr(operator, "overhang", (0, 0))
    extents = [
        window_extent(
            shape[i],
            kernel[i],
            operator.strides[i],
            pads[i] + pads[i + 2],
            dilations[i],
            overhang[i],
        )
        for i in range(2)
    ]
    return extents[0], extents[1]


def _qconv(op: ops.QConv, types: Types) -> TensorType:
    x, w, bias, scale = types
    channels = w.shape[-1] if len(w.shape) == 4 else -1
    fits = (
        (x.dtype, w.dtype, bias.dtype, scale.dtype) == ("int8", "int8", "int32", "float32")
        and len(x.shape) == len(w.shape) == 4
        and x.shape[3] == w.shape[2] * op.groups
        and channels % op.groups == 0
        and bias.shape == scale.shape == (channels,)
    )
    expect(fits, op, "int8 [N,H,W,Ci], int8 [KH,KW,Ci/groups,Co], int32 and float32 [Co]", types)
    height, width = _windows(op, x.shape[1:3], (w.shape[0], w.shape[1]), op.dilations)
    return TensorType("int8", (x.shape[0], height, width, channels))


def _qadd(op: ops.QAdd, types: Types) -> TensorType:
    a, b = types
    fits = a.dtype == b.dtype == "int8" and a.shape == b.shape and len(a.shape) == 4
    expect(fits, op, "two int8 tensors of one shape and rank 4", types)
    return TensorType("int8", a.shape)


def _qpool(op: ops.QAvgPool | ops.QMaxPool, types: Types) -> TensorType:
    (x,) = types
    expect(x.dtype == "int8" and len(x.shape) == 4, op, "int8 [N,H,W,C]", types)
    dilations = op.dilations if isinstance(op, ops.QMaxPool) else (1, 1)
    height, width = _windows(op, x.shape[1:3], op.kernel, dilations)
    kept = x.quantisation if isinstance(op, ops.QMaxPool) else None
    return TensorType("int8", (x.shape[0], height, width, x.shape[3]), kept)


def _qlut(op: ops.QLut, types: Types) -> TensorType:
    x, table = types
    fits = x.dtype == table.dtype == "int8" and table.shape == (256,)
    expect(fits, op, "int8 [...] and a table int8 [256]", types)
    return TensorType("int8", x.shape)


def _qconcat(op: ops.QConcat, types: Types) -> TensorType:
    fits = all(t.dtype == "int8" and len(t.shape) == 4 for t in types) and 0 <= op.axis < 4
    expect(fits, op, "int8 tensors of rank 4 and an axis from 0 to 3", types)
    return _concat(op, types)


def _qresize(op: ops.QResize, types: Types) -> TensorType:
    (x,) = types
    fits = x.dtype == "int8" and len(x.shape) == 4 and min(op.factors) >= 1
    expect(fits, op, "int8 [N,H,W,C] and factors of 1 or more", types)
    n, height, width, channels = x.shape
    shape = (n, height * op.factors[0], width * op.factors[1], channels)
    return TensorType("int8", shape, x.quantisation)


def _qmatmul(op: ops.QMatMul, types: Types) -> TensorType:
    fits = op.heads >= 1 and all(t.dtype == "int8" and len(t.shape) == 4 for t in types)
    expect(fits, op, "int8, rank 4, and one head or more", types)
    a, b = (_heads_apart(op, t, joined, types) for t, joined in zip(types, op.joined, strict=False))
    depth, columns = (b[3], b[2]) if op.transposed else (b[2], b[3])
    fits = a[:2] == b[:2] and a[1] == op.heads and a[3] == depth
    expect(fits, op, f"[N,{op.heads},M,K] and [N,{op.heads},K,L]", types)
    if op.joined[2]:
        return TensorType("int8", (a[0], 1, a[2], op.heads * columns))
    return TensorType("int8", (*a[:3], columns))


def _heads_apart(
    op: ops.QMatMul, kind: TensorType, joined: bool, types: Types
) -> tuple[int, int, int, int]:
    """Return [N, heads, rows, channels of a head] of an operand."""
    n, heads, rows, channels = kind.shape
    if not joined:
        return n, heads, rows, channels
    expect(heads == 1 and channels % op.heads == 0, op, f"channels of {op.heads} heads", types)
    return n, op.heads, rows, channels // op.heads


def _qslice(op: ops.QSlice, types: Types) -> TensorType:
    (x,) = types
    fits = x.dtype == "int8" and len(x.shape) == 4 and op.steps[-1] == 1
    expect(fits, op, "int8 [N,H,W,C] and a step of 1 along channels", types)
    return _slice(op, types)


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
    fits = len(op.before) == len(op.after) == len(x.shape) and min(op.before + op.after) >= 0
    expect(fits, op, f"rank {len(op.before)} and no negative pads", types)
    shape = tuple(a + n + b for a, n, b in zip(op.before, x.shape, op.after, strict=True))
    return TensorType(x.dtype, shape, x.quantisation)


def _slice(op: ops.Slice | ops.QSlice, types: Types) -> TensorType:
    (x,) = types
    bounds = list(zip(op.starts, op.stops, op.steps, strict=True))
    fits = len(bounds) == len(x.shape) and all(
        0 <= start <= stop <= size and step > 0
        for (start, stop, step), size in zip(bounds, x.shape, strict=False)
    )
    expect(fits, op, "starts and stops within the shape and positive steps", types)
    shape = tuple(len(range(*bound)) for bound in bounds)
    return TensorType(x.dtype, shape, x.quantisation)


def _concat(op: ops.Concat | ops.QConcat, types: Types) -> TensorType:
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
    op: ops.Conv | ops.MaxPool | ops.AveragePool, n: int, channels: int, extents: ops.Pair
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
    extents = _windows(op, (height, width), (kernel[0], kernel[1]), op.dilations)
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
    extents = _windows(op, (height, width), op.kernel, dilations)
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


RULES: dict[type[ops.Operator], tuple[tuple[int, int], Callable[[Any, Types], TensorType]]] = {
    ops.QConv: ((4, 4), _qconv),
    ops.QAdd: ((2, 2), _qadd),
    ops.QAvgPool: ((1, 1), _qpool),
    ops.QMaxPool: ((1, 1), _qpool),
    ops.QLut: ((2, 2), _qlut),
    ops.QMatMul: ((2, 2), _qmatmul),
    ops.QConcat: ((1, 1000), _qconcat),
    ops.QResize: ((1, 1), _qresize),
    ops.QSlice: ((1, 1), _qslice),
    ops.Quantize: ((1, 1), _quantize),
    ops.Dequantize: ((1, 1), _dequantize),
    ops.Shift: ((1, 1), _shift),
    ops.Reshape: ((1, 1), _reshape),
    ops.Transpose: ((1, 1), _transpose),
    ops.Pad: ((1, 1), _pad),
    ops.Slice: ((1, 1), _slice),
    ops.Concat: ((1, 1000), _concat),
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
"""Operator -> number of inputs (fewest, most) and the rule for the output's type."""
