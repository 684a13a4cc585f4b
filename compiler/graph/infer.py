"""Type inference: what an operator makes of its inputs' types, or why it cannot.

The builder and the verifier use it, so that a node's type can never disagree with its attributes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import CompileError
from . import operators as ops
from .ir import Quantisation, TensorType

Types = Sequence[TensorType]


def infer(operator: ops.Operator, types: Types) -> TensorType:
    """Return the output type of an operator.

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
        If the inputs do not fit the operator.
    """
    arity, rule = RULES[type(operator)]
    low, high = arity
    if not low <= len(types) <= high:
        expected = str(low) if low == high else f"{low} to {high}"
        raise CompileError(
            f"`{operator.op}`: expected {expected} inputs, got {len(types)}; give the missing "
            "ones or drop those that are too many"
        )
    return rule(operator, types)


def window_extent(
    size: int, kernel: int, stride: int, padding: int, dilation: int, overhang: int = 0
) -> int:
    """Return how many windows fit on an axis.

    Parameters
    ----------
    size, kernel, stride, dilation : int
        Elements on the axis, taps, steps between windows and between taps.
    padding, overhang : int
        Padding of both sides together; reach of the last window beyond it.

    Raises
    ------
    CompileError
        If not even one window fits.
    """
    span = (kernel - 1) * dilation + 1
    free = size + padding + overhang - span
    if free < 0 or min(size, kernel, stride, dilation) < 1:
        raise CompileError(
            f"window: expected it to fit the padded input of {size + padding} elements, got a "
            f"span of {span} (kernel {kernel}, stride {stride}, dilation {dilation}); correct the "
            "model's kernel or padding"
        )
    return free // stride + 1


def _expect(condition: bool, operator: ops.Operator, expected: str, types: Types) -> None:
    if not condition:
        got = ", ".join(f"{t.dtype}{list(t.shape)}" for t in types)
        raise CompileError(f"`{operator.op}`: expected {expected}, got {got}; correct the operands")


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
    _expect(fits, op, "int8 [N,H,W,Ci], int8 [KH,KW,Ci/groups,Co], int32 and float32 [Co]", types)
    height, width = _windows(op, x.shape[1:3], (w.shape[0], w.shape[1]), op.dilations)
    return TensorType("int8", (x.shape[0], height, width, channels))


def _qadd(op: ops.QAdd, types: Types) -> TensorType:
    a, b = types
    fits = a.dtype == b.dtype == "int8" and a.shape == b.shape and len(a.shape) == 4
    _expect(fits, op, "two int8 tensors of one shape and rank 4", types)
    return TensorType("int8", a.shape)


def _qpool(op: ops.QAvgPool | ops.QMaxPool, types: Types) -> TensorType:
    (x,) = types
    _expect(x.dtype == "int8" and len(x.shape) == 4, op, "int8 [N,H,W,C]", types)
    dilations = op.dilations if isinstance(op, ops.QMaxPool) else (1, 1)
    height, width = _windows(op, x.shape[1:3], op.kernel, dilations)
    kept = x.quantisation if isinstance(op, ops.QMaxPool) else None
    return TensorType("int8", (x.shape[0], height, width, x.shape[3]), kept)


def _qlut(op: ops.QLut, types: Types) -> TensorType:
    x, table = types
    fits = x.dtype == table.dtype == "int8" and table.shape == (256,)
    _expect(fits, op, "int8 [...] and a table int8 [256]", types)
    return TensorType("int8", x.shape)


def _channels(op: ops.Quantize | ops.Dequantize, x: TensorType, types: Types) -> None:
    count = 1 if op.axis is None else x.shape[op.axis] if op.axis < len(x.shape) else -1
    fits = len(op.scales) == len(op.zero_points) == count
    _expect(fits, op, f"{len(op.scales)} channels on axis {op.axis}", types)


def _quantize(op: ops.Quantize, types: Types) -> TensorType:
    (x,) = types
    _expect(x.dtype == "float32", op, "float32", types)
    _channels(op, x, types)
    per_tensor = Quantisation(op.scales[0], op.zero_points[0]) if op.axis is None else None
    return TensorType(op.dtype, x.shape, per_tensor)


def _dequantize(op: ops.Dequantize, types: Types) -> TensorType:
    (x,) = types
    _expect(x.dtype in ("int8", "uint8", "int32"), op, "int8, uint8 or int32", types)
    _channels(op, x, types)
    return TensorType("float32", x.shape)


def _shift(op: ops.Shift, types: Types) -> TensorType:
    (x,) = types
    _expect(x.dtype in ("int8", "uint8"), op, "int8 or uint8", types)
    dtype, offset = ("uint8", 128) if x.dtype == "int8" else ("int8", -128)
    old = x.quantisation
    new = None if old is None else Quantisation(old.scale, old.zero_point + offset)
    return TensorType(dtype, x.shape, new)


def _reshape(op: ops.Reshape, types: Types) -> TensorType:
    (x,) = types
    result = TensorType(x.dtype, op.shape, x.quantisation)
    fits = min(op.shape, default=1) >= 0 and result.elements == x.elements
    _expect(fits, op, f"the {result.elements} elements of {list(op.shape)}", types)
    return result


def _transpose(op: ops.Transpose, types: Types) -> TensorType:
    (x,) = types
    fits = sorted(op.permutation) == list(range(len(x.shape)))
    _expect(fits, op, f"rank {len(op.permutation)} for permutation {list(op.permutation)}", types)
    return TensorType(x.dtype, tuple(x.shape[axis] for axis in op.permutation), x.quantisation)


def _pad(op: ops.Pad, types: Types) -> TensorType:
    (x,) = types
    fits = len(op.before) == len(op.after) == len(x.shape) and min(op.before + op.after) >= 0
    _expect(fits, op, f"rank {len(op.before)} and no negative pads", types)
    shape = tuple(a + n + b for a, n, b in zip(op.before, x.shape, op.after, strict=True))
    return TensorType(x.dtype, shape, x.quantisation)


def _slice(op: ops.Slice, types: Types) -> TensorType:
    (x,) = types
    bounds = list(zip(op.starts, op.stops, op.steps, strict=True))
    fits = len(bounds) == len(x.shape) and all(
        0 <= start <= stop <= size and step > 0
        for (start, stop, step), size in zip(bounds, x.shape, strict=False)
    )
    _expect(fits, op, "starts and stops within the shape and positive steps", types)
    shape = tuple(len(range(*bound)) for bound in bounds)
    return TensorType(x.dtype, shape, x.quantisation)


def _concat(op: ops.Concat, types: Types) -> TensorType:
    first = types[0]
    rest = [t.shape[: op.axis] + t.shape[op.axis + 1 :] for t in types]
    fits = op.axis < len(first.shape) and all(
        t.dtype == first.dtype and len(t.shape) == len(first.shape) and other == rest[0]
        for t, other in zip(types, rest, strict=True)
    )
    _expect(fits, op, f"one type, and shapes that differ on axis {op.axis} only", types)
    size = sum(t.shape[op.axis] for t in types)
    shape = (*first.shape[: op.axis], size, *first.shape[op.axis + 1 :])
    kept = first.quantisation if len({t.quantisation for t in types}) == 1 else None
    return TensorType(first.dtype, shape, kept)


def _gather(op: ops.Gather, types: Types) -> TensorType:
    x, indices = types
    fits = indices.dtype in ("int64", "int32") and op.axis < len(x.shape)
    _expect(fits, op, f"an axis {op.axis} and integer indices", types)
    shape = x.shape[: op.axis] + indices.shape + x.shape[op.axis + 1 :]
    return TensorType(x.dtype, shape, x.quantisation)


def _cast(op: ops.Cast, types: Types) -> TensorType:
    return TensorType(op.dtype, types[0].shape)


def _conv(op: ops.Conv, types: Types) -> TensorType:
    x, w = types[:2]
    fits = (
        all(t.dtype == "float32" for t in types)
        and len(x.shape) == len(w.shape) == 4
        and x.shape[1] == w.shape[1] * op.groups
        and w.shape[0] % op.groups == 0
        and all(bias.shape == w.shape[:1] for bias in types[2:])
    )
    _expect(fits, op, "float32 [N,Ci,H,W], [Co,Ci/groups,KH,KW] and [Co]", types)
    height, width = _windows(op, x.shape[2:], (w.shape[2], w.shape[3]), op.dilations)
    return TensorType("float32", (x.shape[0], w.shape[0], height, width))


def _matmul(op: ops.MatMul, types: Types) -> TensorType:
    a, b = types
    fits = (
        a.dtype == b.dtype == "float32"
        and len(a.shape) >= 2
        and len(b.shape) >= 2
        and a.shape[-1] == b.shape[-2]
    )
    _expect(fits, op, "float32 [..., M, K] and [..., K, N]", types)
    outer = _broadcast(op, types, a.shape[:-2], b.shape[:-2])
    return TensorType("float32", (*outer, *a.shape[-2:-1], *b.shape[-1:]))


def _broadcast(op: ops.Operator, types: Types, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    extents = []
    for sizes in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        other = {size for size in sizes if size != 1}
        _expect(len(other) <= 1, op, "shapes that broadcast", types)
        extents.append(other.pop() if other else 1)
    return tuple(extents)


def _pool(op: ops.MaxPool | ops.AveragePool, types: Types) -> TensorType:
    (x,) = types
    average = isinstance(op, ops.AveragePool)
    fits = len(x.shape) == 4 and (x.dtype == "float32" or not average)
    _expect(fits, op, "[N,C,H,W], float32 for an average", types)
    dilations = op.dilations if isinstance(op, ops.MaxPool) else (1, 1)
    extents = _windows(op, x.shape[2:], op.kernel, dilations)
    return TensorType(x.dtype, (*x.shape[:2], *extents), None if average else x.quantisation)


def _unary(op: ops.Unary, types: Types) -> TensorType:
    _expect(types[0].dtype == "float32", op, "float32", types)
    return TensorType("float32", types[0].shape)


def _binary(op: ops.Binary, types: Types) -> TensorType:
    a, b = types
    _expect(a.dtype == b.dtype, op, "one element type", types)
    return TensorType(a.dtype, _broadcast(op, types, a.shape, b.shape))


def _softmax(op: ops.Softmax, types: Types) -> TensorType:
    (x,) = types
    fits = x.dtype == "float32" and 0 <= op.axis <= op.stop <= len(x.shape)
    _expect(fits, op, f"float32 with axes {op.axis} to {op.stop}", types)
    return TensorType("float32", x.shape)


def _reduce(op: ops.Reduce, types: Types) -> TensorType:
    (x,) = types
    _expect(all(0 <= axis < len(x.shape) for axis in op.axes), op, f"axes {op.axes}", types)
    if op.keep:
        shape = tuple(1 if axis in op.axes else size for axis, size in enumerate(x.shape))
    else:
        shape = tuple(size for axis, size in enumerate(x.shape) if axis not in op.axes)
    return TensorType("int64" if op.kind == "ArgMax" else x.dtype, shape)


RULES: dict[type[ops.Operator], tuple[tuple[int, int], Callable[[Any, Types], TensorType]]] = {
    ops.QConv: ((4, 4), _qconv),
    ops.QAdd: ((2, 2), _qadd),
    ops.QAvgPool: ((1, 1), _qpool),
    ops.QMaxPool: ((1, 1), _qpool),
    ops.QLut: ((2, 2), _qlut),
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
