"""What the accelerator's operators make of their inputs' types."""

from . import integer_operators as ops
from .host_types import concat_type, slice_type
from .ir import TensorType
from .operator import Operator
from .rules import TypeRule, Types, expect
from .windows import window_extents


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
    height, width = window_extents(op, x.shape[1:3], (w.shape[0], w.shape[1]), op.dilations)
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
    height, width = window_extents(op, x.shape[1:3], op.kernel, dilations)
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
    return concat_type(op, types)


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
    return slice_type(op, types)


INTEGER_RULES: dict[type[Operator], TypeRule] = {
    ops.QConv: ((4, 4), _qconv),
    ops.QAdd: ((2, 2), _qadd),
    ops.QAvgPool: ((1, 1), _qpool),
    ops.QMaxPool: ((1, 1), _qpool),
    ops.QLut: ((2, 2), _qlut),
    ops.QMatMul: ((2, 2), _qmatmul),
    ops.QConcat: ((1, 1000), _qconcat),
    ops.QResize: ((1, 1), _qresize),
    ops.QSlice: ((1, 1), _qslice),
}
"""Operator -> its rule."""
