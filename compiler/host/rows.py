"""Operators on rows: softmax, normalisations and reductions.

Importers and exporters write a normalisation as several nodes.
"""

import itertools
import math

from ..cpu import LayerNormalisation, RowReduction, RowSoftmax
from ..graph import Node
from ..graph import operators as ops
from ..graph.operators import AveragePool, Cast, Reduce, Reshape
from ..passes.normalisations import (
    ROWS,
    channels_last,
    extents_of,
    normalisation_of,
    normalisations,
    square,
)
from ..passes.patterns import is_float32
from ..rewriting import GraphMatch, computed, op, value
from .graph_queries import in_order
from .kernel import HostKernel, HostScope, matcher
from .pools import has_floats

MAX_COLUMNS = 1 << 15
"""Maximum number of elements of a row that a kernel keeps together with its source row."""

MAX_ACROSS = 1 << 11
"""The same limit for interleaved rows, of which a kernel keeps one vector of rows."""

MAX_NODES = 32
"""Number of nodes after a row among which to look for the last one of its normalisation."""

MAX_POOL_AHEAD = 8
"""Number of nodes after a row among which to look for the pool that computes its mean."""


KINDS = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceSumSquare": "squares",
    "ReduceL2": "length",
}
"""Reductions of rows, with their names in `compiler.cpu`."""


@matcher(op(ops.Softmax, computed("x", where=has_floats), capture="softmax"))
def softmax(scope: HostScope, node: Node, softmax: ops.Softmax, x: str) -> HostKernel | None:
    """Match a Softmax over adjacent axes."""
    shape = scope.shape(x)
    inner = math.prod(shape[softmax.stop :])
    columns = math.prod(shape[softmax.axis : softmax.stop])
    if columns > (MAX_COLUMNS if inner == 1 else MAX_ACROSS):
        return None
    rows = math.prod(shape) // (columns * inner)
    return HostKernel(RowSoftmax(rows, columns, softmax.log, inner), {"x": x}, nodes=(node,))


@matcher(op(Reduce, computed("x"), capture="reduce", where=lambda r: r.kind in KINDS))
def reduction(scope: HostScope, node: Node, reduce: Reduce, x: str) -> HostKernel | None:
    """Match a Reduce over adjacent axes."""
    rows, columns, inner = extents_of(scope, node)
    if not columns:
        return None
    description = RowReduction(rows, columns, KINDS[reduce.kind], inner)
    return HostKernel(description, {"x": x}, nodes=(node,))


# Normalisations ----------------------------------------------------------------------------------


RESULT = normalisations(ROWS, channels_last)

READERS = (op(Reduce, value("x")), *square(value("x")), op(Reshape, value("x", where=is_float32)))
"""Nodes at which a normalisation of `x` may begin, other than conversions."""


@matcher(*READERS, op((Cast, Reshape), value(where=is_float32), value="x"))
def normalisation(scope: HostScope, node: Node, x: str) -> HostKernel | None:
    """Match the nodes of LayerNormalization or RMSNormalization, and a constant scale and bias."""
    ahead = () if node.inputs[0] == x else (node,)
    reached = tuple(itertools.islice(scope.readers(x, MAX_NODES), MAX_NODES))
    pooled = isinstance(node.attributes, Reshape) and not ahead
    ways = reached[: MAX_POOL_AHEAD if pooled else None]
    if not any(isinstance(one.attributes, AveragePool if pooled else Reduce) for one in ways):
        return None
    for last in reversed(in_order(scope.graph, reached)):
        for match in RESULT.matches(scope, last.outputs[0].name, GraphMatch({"x": x})):
            nodes = in_order(scope.graph, (*ahead, *match.nodes))
            kernel = _normalised(scope, nodes, match) if node in nodes else None
            if kernel is not None:
                return kernel
    return None


def _normalised(scope: HostScope, nodes: tuple[Node, ...], match: GraphMatch) -> HostKernel | None:
    """Make the kernel of a normalisation's nodes, if they work on the same rows."""
    x, elements = nodes[0].inputs[0], nodes[-1].output.type.elements
    found = normalisation_of(scope, nodes, match, elements)
    if found is None or found.columns > MAX_COLUMNS or scope.types[x].elements != elements:
        return None
    if not scope.is_closed(nodes) or any(n.output.type.dtype != "float32" for n in nodes):
        return None
    layer = LayerNormalisation(
        found.rows, found.columns, found.epsilon, found.centred, found.by_row
    )
    return HostKernel(layer, {"x": x}, {"scale": found.scale, "bias": found.bias}, nodes)


MATCHERS = (softmax, normalisation, reduction)
