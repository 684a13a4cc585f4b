"""Fold tables away: one that only clamps joins its producer's clamp, two in a row become one."""

from dataclasses import replace

import numpy as np

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from .patterns import private


def fold_tables(graph: Graph) -> Graph:
    """Fold QLut into the only operator above it where that is exact."""
    return rewrite(graph, _compose, _clamp)


def _compose(builder: Builder, node: Node, graph: Graph) -> str | None:
    """QLut(QLut(x, f), g) -> QLut(x, g(f))."""
    inner = builder.producer(node.inputs[0])
    if not isinstance(node.attributes, ops.QLut) or inner is None:
        return None
    if not isinstance(inner.attributes, ops.QLut) or not private(graph, node.inputs[0]):
        return None
    first, second = builder.data(inner.inputs[1]), builder.data(node.inputs[1])
    table = builder.constant(second[first.astype(np.int16) + 128], f"{node.name}.table")
    quantisation = node.output.type.quantisation
    return builder.emit(ops.QLut(), [inner.inputs[0], table], node.name, quantisation=quantisation)


def _clamp(builder: Builder, node: Node, graph: Graph) -> str | None:
    """QLut(op(x), a clamp) -> op(x) with narrower bounds."""
    inner = builder.producer(node.inputs[0])
    if not isinstance(node.attributes, ops.QLut) or inner is None:
        return None
    operator = inner.attributes
    if not isinstance(operator, ops.Clamping):
        return None
    kind = inner.output.type
    if kind.quantisation != node.output.type.quantisation or not private(graph, node.inputs[0]):
        return None
    values = np.arange(operator.low, operator.high + 1)
    results = builder.data(node.inputs[1])[values + 128]
    low, high = int(results.min()), int(results.max())
    if not np.array_equal(results, np.clip(values, low, high)):
        return None
    clamped = replace(operator, low=low, high=high)
    return builder.emit(clamped, inner.inputs, inner.name, quantisation=kind.quantisation)
