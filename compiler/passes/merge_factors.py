"""Move constant factors of the operands of a product behind it, where its scale absorbs them.

Attention multiplies its scores by the inverse root of the head's size. PyTorch multiplies both
operands by the root of that instead, which would quantise them twice.
"""

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import GraphPattern, Site, number, op, rewrite, rule, value
from .moved_elements import TURNS
from .patterns import is_float32

MUL = ops.Binary("Mul")
X = value("x", constant=False, where=is_float32)


def _scaled(x: GraphPattern, factor: str) -> GraphPattern:
    return op(MUL, x, number(factor), commutative=True)


def _times(site: Site, x: str, factor: float) -> str | None:
    """Emit a product with a number; None for numbers that a scale cannot absorb."""
    if not 0 < factor < np.inf:
        return None
    name = f"{site.root.name}.factor"
    return site.emit(MUL, x, site.constant(np.array(factor, np.float32), name))


@rule(op(MUL, _scaled(X, "inner"), number("factor"), commutative=True))
def merge(site: Site, x: str, inner: float, factor: float) -> str | None:
    """(x * inner) * factor -> x * (inner * factor)."""
    return _times(site, x, inner * factor) if site.shape == site.shape_of(x) else None


@rule(op(TURNS, _scaled(X, "factor"), capture="turn"))
def sink_below_turn(site: Site, turn: ops.Operator, x: str, factor: float) -> str | None:
    """turn(x * factor) -> turn(x) * factor."""
    scaled = site.shape_of(site.root.inputs[0]) == site.shape_of(x)
    return _times(site, site.emit(turn, x), factor) if scaled else None


@rule(op(ops.MatMul, _scaled(X, "factor"), value("b", constant=False)))
def sink_below_product(site: Site, x: str, factor: float, b: str) -> str | None:
    """MatMul(x * factor, b) -> MatMul(x, b) * factor."""
    return _times(site, site.emit(ops.MatMul(), x, b), factor)


@rule(op(ops.MatMul, value("a", constant=False), _scaled(X, "factor")))
def sink_second(site: Site, a: str, x: str, factor: float) -> str | None:
    """MatMul(a, x * factor) -> MatMul(a, x) * factor."""
    return _times(site, site.emit(ops.MatMul(), a, x), factor)


def merge_factors(graph: Graph) -> Graph:
    """Let the products of two activations multiply by constants once, behind them."""
    return rewrite(graph, merge, sink_below_turn, sink_below_product, sink_second)
