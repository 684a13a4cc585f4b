"""Move elements as integers: Dequantize sinks below movements, Quantize rises above them.

All rules are exact, because Dequantize and Quantize are elementwise and monotone. Afterwards, both
are next to the computing operator, so patterns need not allow for movements in between.
"""

from dataclasses import replace

import numpy as np

from ..graph import Graph, evaluate_operator
from ..graph import operators as ops
from ..rewriting import (
    GraphPattern,
    Site,
    constant,
    each,
    either,
    op,
    repeated,
    rewrite,
    rule,
    rule_of,
    value,
)
from ..rewriting.patterns import NodePattern
from .patterns import dequantised, is_per_tensor

LARGEST = float(np.finfo(np.float32).max)

MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.Gather, ops.Expand, ops.MaxPool)
"""Operators that select elements and compute nothing."""

DEQUANTIZED = op(ops.Dequantize, value("x"), capture="scaling")

INTEGERS = op(ops.Dequantize)
PRODUCT = op((ops.Conv, ops.MatMul), INTEGERS, INTEGERS, ...)
PARTS = op(
    ops.Concat,
    each(either(constant(), repeated(op(ops.Unary, value()), either(INTEGERS, PRODUCT)))),
    capture="concat",
)
"""Parts that are constant, or elementwise functions of integers or of their products."""


def _quantize(inner: GraphPattern) -> NodePattern:
    """Describe a per-tensor Quantize, `target`."""
    return op(ops.Quantize, inner, capture="target", where=is_per_tensor)


@rule(op((ops.Slice, ops.Pad, ops.Concat), value("x")))
def drop_idle(site: Site, x: str) -> str | None:
    """A Slice of all elements, a Pad by none, a Concat of one value -> the value."""
    return x if site.shape_of(x) == site.shape and not _turns(site.root.attributes) else None


def _turns(move: ops.Operator) -> bool:
    """Tell whether a movement that keeps the shape reverses or shifts elements."""
    if isinstance(move, ops.Slice):
        return any(step != 1 for step in move.steps)
    return isinstance(move, ops.Pad) and any((*move.before, *move.after))


@rule(op(MOVES, DEQUANTIZED, ..., capture="move"))
def sink(site: Site, move: ops.Operator, scaling: ops.Dequantize, x: str) -> str | None:
    """move(Dequantize(x)) -> Dequantize(move(x))."""
    axis = scaling.axis
    if axis is not None:
        old, new = site.shape_of(x), site.shape
        if isinstance(move, ops.Transpose):
            scaling = replace(scaling, axis=move.permutation.index(axis))
        elif not isinstance(move, ops.Reshape) or old[: axis + 1] != new[: axis + 1]:
            channels = _moved_channels(site, move, axis, x)
            if channels is None:
                return None
            along, order = channels
            scales, points = np.array(scaling.scales)[order], np.array(scaling.zero_points)[order]
            scaling = ops.Dequantize(tuple(scales.tolist()), tuple(points.tolist()), along)
    moved = site.emit(move, x, *site.root.inputs[1:])
    return site.emit(scaling, moved)


def _moved_channels(
    site: Site, move: ops.Operator, axis: int, x: str
) -> tuple[int, np.ndarray] | None:
    """Return the axis along which the channels of a constant are moved, and the channels there.

    None for other values, and where channels lie along several axes.
    """
    operands = site.root.inputs[1:]
    known = all(map(site.is_constant, (x, *operands)))
    if not known or isinstance(move, ops.MaxPool) or not site.root.output.type.elements:
        return None
    shape = site.shape_of(x)
    places = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    places = np.broadcast_to(places, shape)
    moved = evaluate_operator(move, [places, *map(site.data, operands)])
    for along in range(moved.ndim):
        first = moved[tuple(slice(None) if i == along else slice(1) for i in range(moved.ndim))]
        if (moved == first).all():
            return along, first.ravel()
    return None


@rule(op(ops.Concat, each(op(ops.Dequantize, constant())), capture="concat"))
def join_constants(site: Site, concat: ops.Concat) -> str | None:
    """Concat(Dequantize(constant), ...) -> Dequantize(constant), as of joined weights."""
    scales: list[float] = []
    points: list[int] = []
    parts: list[np.ndarray] = []
    for name in site.root.inputs:
        maker = site.view.producer(name)
        assert maker is not None, "a Dequantize"
        data, scaling = site.data(maker.inputs[0]), maker.attributes
        assert isinstance(scaling, ops.Dequantize), "as matched"
        if scaling.axis not in (None, concat.axis):
            return None
        times = data.shape[concat.axis] if scaling.axis is None else 1
        scales += scaling.scales * times
        points += scaling.zero_points * times
        parts.append(data)
    if len({part.dtype for part in parts}) > 1 or not scales:
        return None
    alike = len({*zip(scales, points, strict=True)}) == 1
    scaling = ops.Dequantize(
        tuple(scales[:1] if alike else scales),
        tuple(points[:1] if alike else points),
        None if alike else concat.axis,
    )
    whole = site.constant(np.concatenate(parts, axis=concat.axis), f"{site.root.name}.joined")
    return site.emit(scaling, whole)


@rule_of(
    ops.Pad,
    op(ops.Dequantize, value("x"), capture="scaling", where=is_per_tensor),
    capture="pad",
    where=lambda pad: pad.value == 0,
)
def sink_below_pad(site: Site, pad: ops.Pad, scaling: ops.Dequantize, x: str) -> str | None:
    """Pad(Dequantize(x), 0) -> Dequantize(Pad(x, zero point))."""
    moved = site.emit(replace(pad, value=float(scaling.zero_points[0])), x)
    return site.emit(scaling, moved)


@rule(_quantize(op(MOVES, value("x"), ..., capture="move")))
def hoist(site: Site, target: ops.Quantize, move: ops.Operator, x: str) -> str | None:
    """Quantize(move(x)) -> move(Quantize(x))."""
    made = site.node("move")
    return site.emit(move, site.emit(target, x), *made.inputs[1:], label=made.name)


@rule_of(
    (ops.Binary("Max"), ops.Binary("Min")),
    *(_quantize(value("x")), constant("limit")),
    capture="bound",
    commutative=True,
)
def hoist_limit(
    site: Site, bound: ops.Binary, target: ops.Quantize, x: str, limit: str
) -> str | None:
    """Max | Min(Quantize(x), limit) -> Quantize(Clip(x)), as narrow types of 2 to 7 bits need."""
    data = site.data(limit)
    if data.size != 1 or site.shape_of(x) != site.shape:
        return None
    step = np.float32(int(data.item()) - target.zero_points[0]) * np.float32(target.scales[0])
    if int(target.compute(np.array(step))) != int(data.item()):
        return None
    limits = (float(step), LARGEST) if bound.kind == "Max" else (-LARGEST, float(step))
    return site.emit(target, site.emit(ops.Unary("Clip", limits), x))


_SPREAD = either(
    op(ops.Expand, value("small"), ...),
    op(ops.Dequantize, op(ops.Expand, value("small"), ...), capture="scaling", where=is_per_tensor),
)


_PAIRED = tuple(ops.Binary(kind) for kind in ("Mul", "Add", "Sub"))


@rule(op(_PAIRED, each(either(_SPREAD, value())), capture="function"))
def drop_spread(
    site: Site,
    function: ops.Binary,
    small: tuple[str | None, ...],
    scaling: tuple[ops.Dequantize | None, ...],
) -> str | None:
    """x * Expand(small) -> x * small, as of gates that PyTorch's `expand_as` repeats; also sums."""
    given = zip(site.root.inputs, small, scaling, strict=True)
    kept = [
        name if inner is None else site.emit(outer, inner) if outer else inner
        for name, inner, outer in given
    ]
    shape = np.broadcast_shapes(*map(site.shape_of, kept))
    return site.emit(function, *kept) if any(small) and shape == site.shape else None


@rule(op(ops.Quantize, dequantised("x"), capture="target"))
def drop_pair(site: Site, target: ops.Quantize, x_scale: ops.Dequantize, x: str) -> str | None:
    """Quantize(Dequantize(x)) in the same scale -> x."""
    own = ops.Quantize(x_scale.scales, x_scale.zero_points, "int8", None)
    every = np.arange(-128, 128).astype(np.int8)
    kept = target == own and np.array_equal(own.compute(x_scale.compute(every)), every)
    return x if kept else None


@rule(_quantize(PARTS), op((ops.Unary, ops.OwnFunction), PARTS, capture="target"))
def hoist_above_concat(site: Site, target: ops.Operator, concat: ops.Concat) -> str | None:
    """f(Concat(Dequantize(x), ...)) -> Concat(f(Dequantize(x)), ...), also for Quantize as f."""
    made = site.node("concat")
    parts = [site.emit(target, name) for name in made.inputs]
    return site.emit(concat, *parts, label=made.name)


def sink_dequantize(graph: Graph) -> Graph:
    """Swap Dequantize with moves below it, and Quantize with moves above it."""
    return rewrite(
        *(graph, drop_idle, sink, sink_below_pad, hoist, hoist_limit, drop_pair),
        *(hoist_above_concat, drop_spread),
    )
