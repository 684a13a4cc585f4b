"""Normalise clamps to a Relu or one Clip, directly after the layer that they can join.

A clamp next to its layer costs nothing on the accelerator. It also shows the quantiser which part
of the layer's range matters.
"""

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, computed, number, op, rewrite, rule, rule_of, value
from .patterns import Clamp, clamp_limits, clamp_of, clamped, is_clamp, is_float32

MAX_FLOAT32 = 3.4028234663852886e38
"""Maximum finite binary32 number; as a Clip's limit it has no effect."""

MOVES = (ops.MaxPool, ops.Reshape, ops.Transpose, ops.Slice)
"""Operators that select elements by order or position, so that clamps commute with them."""


def _clamp(low: float, high: float) -> ops.Unary:
    """Return the operator for two limits; infinite limits become the largest numbers."""
    if low == 0 and high >= MAX_FLOAT32:
        return ops.Unary("Relu")
    return ops.Unary("Clip", (max(low, -MAX_FLOAT32), min(high, MAX_FLOAT32)))


@rule_of(
    (ops.Binary("Max"), ops.Binary("Min")),
    *(computed("x"), number("limit")),
    capture="bound",
    result=is_float32,
    commutative=True,
)
def name_limits(site: Site, bound: ops.Binary, x: str, limit: float) -> str | None:
    """Max(x, scalar) or Min(x, scalar) -> Clip or Relu."""
    if site.shape_of(x) != site.shape:
        return None
    limits = (limit, MAX_FLOAT32) if bound.kind == "Max" else (-MAX_FLOAT32, limit)
    return site.emit(_clamp(*limits), x)


@rule(op(ops.Unary, clamped(value("x")), capture="outer", where=is_clamp, result=is_float32))
def merge_clamps(site: Site, outer: ops.Unary, clamps: tuple[ops.Unary, ...], x: str) -> str | None:
    """Consecutive clamps -> one clamp; clamps without effect -> none."""
    inner = clamp_of(clamps)
    both = Clamp(*clamp_limits(outer)).after((inner.low, inner.high))
    if both.low <= -MAX_FLOAT32 and both.high >= MAX_FLOAT32:
        return x
    merged = _clamp(both.low, both.high)
    return None if merged == outer and not clamps else site.emit(merged, x)


@rule_of(
    ops.Unary,
    op(MOVES, value("x", private=True), capture="move", private=True),
    capture="clamp",
    where=is_clamp,
    result=is_float32,
)
def hoist_clamp(site: Site, clamp: ops.Unary, move: ops.Operator, x: str) -> str | None:
    """clamp(move(x)) -> move(clamp(x)), if nothing else reads x or the moved x."""
    return site.emit(move, site.emit(clamp, x), label=site.node("move").name)


def clean_activations(graph: Graph) -> Graph:
    """Merge clamps and move them above pools and changes of shape."""
    return rewrite(graph, name_limits, merge_clamps, hoist_clamp)
