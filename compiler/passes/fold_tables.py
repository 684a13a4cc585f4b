"""Fold tables: a table that only clamps joins its producer's clamp; two tables become one."""

from dataclasses import replace

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, constant, op, rewrite, rule_of, value


@rule_of(ops.QLut, op(ops.QLut, value("x"), constant("inner"), private=True), constant("outer"))
def compose(site: Site, x: str, inner: str, outer: str) -> str | None:
    """QLut(QLut(x, f), g) -> QLut(x, g(f))."""
    table = site.data(outer)[site.data(inner).astype(np.int16) + 128]
    return site.become(ops.QLut(), x, site.constant(table, f"{site.root.name}.table"))


@rule_of(ops.QLut, op(ops.Clamping, capture="layer", value="x", private=True), constant("table"))
def clamp(site: Site, layer: ops.QConv | ops.QAdd | ops.QMul, x: str, table: str) -> str | None:
    """QLut(op(x), a clamp) -> op(x) with narrower bounds; the scale may differ, if only in name."""
    values = np.arange(layer.low, layer.high + 1)
    results = site.data(table)[values + 128]
    low, high = int(results.min()), int(results.max())
    kinds = site.quantisation_of(x), site.root.output.type.quantisation
    points = {kind and kind.zero_point for kind in kinds}
    if len(points) > 1 or not np.array_equal(results, np.clip(values, low, high)):
        return None
    made = site.node("layer")
    return site.become(replace(layer, low=low, high=high), *made.inputs, label=made.name)


def fold_tables(graph: Graph) -> Graph:
    """Fold QLut into its producer, if it is the only reader and the result is exact."""
    return rewrite(graph, compose, clamp)
