"""Operators on rows: softmax, normalisations and reductions.

Importers and exporters write a normalisation as several nodes.
"""

import math

import numpy as np

from ..cpu import LayerNormalisation, RowReduction, RowSoftmax
from ..graph import Node, TensorType
from ..graph import operators as ops
from ..graph.operators import AveragePool, Binary, Cast, Reduce, Reshape, Transpose, Unary
from ..rewriting import (
    GraphMatch,
    GraphPattern,
    either,
    number,
    op,
    repeated,
    value,
)
from ..rewriting.patterns import NodePattern
from .graph_queries import in_order, per_column, per_row
from .kernel import HostKernel, HostScope, matcher
from .pools import has_floats

MAX_COLUMNS = 1 << 15
"""Maximum number of elements of a row that a kernel keeps together with its source row."""

MAX_ACROSS = 1 << 11
"""The same limit for interleaved rows, of which a kernel keeps one vector of rows."""

MAX_NODES = 24
"""Maximum number of nodes that one normalisation may have."""

MAX_POOL_AHEAD = 8
"""Number of nodes after a row among which to look for the pool that computes its mean."""


def is_float32(kind: TensorType) -> bool:
    """Whether elements are float32."""
    return kind.dtype == "float32"


KINDS = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceSumSquare": "squares",
    "ReduceL2": "length",
}
"""Reductions of rows, with their names in `compiler.cpu`."""


@matcher(op(ops.Softmax, value("x", constant=False, where=has_floats), capture="softmax"))
def softmax(scope: HostScope, node: Node, softmax: ops.Softmax, x: str) -> HostKernel | None:
    """Match a Softmax over adjacent axes."""
    shape = scope.shape(x)
    inner = math.prod(shape[softmax.stop :])
    columns = math.prod(shape[softmax.axis : softmax.stop])
    if columns > (MAX_COLUMNS if inner == 1 else MAX_ACROSS):
        return None
    rows = math.prod(shape) // (columns * inner)
    return HostKernel(RowSoftmax(rows, columns, softmax.log, inner), {"x": x}, nodes=(node,))


@matcher(op(Reduce, value("x", constant=False), capture="reduce", where=lambda r: r.kind in KINDS))
def reduction(scope: HostScope, node: Node, reduce: Reduce, x: str) -> HostKernel | None:
    """Match a Reduce over adjacent axes."""
    rows, columns, inner = _extents(scope, node)
    if not columns:
        return None
    description = RowReduction(rows, columns, KINDS[reduce.kind], inner)
    return HostKernel(description, {"x": x}, nodes=(node,))


def _extents(scope: HostScope, node: Node) -> tuple[int, int, int]:
    """Count the elements before, along and after the axes of a Reduce; 0 if not adjacent.

    A pool of whole images, channels last, counts along the rows of the image before its transpose.
    """
    operator, kind = node.attributes, scope.graph.types[node.inputs[0]]
    if isinstance(operator, AveragePool) and operator.kernel == kind.shape[1:3]:
        columns = math.prod(operator.kernel)
        return kind.elements // columns, columns, 1
    if not isinstance(operator, Reduce) or kind.dtype != "float32" or not operator.axes:
        return 0, 0, 0
    first, last = min(operator.axes), max(operator.axes)
    if any(kind.shape[i] > 1 and i not in operator.axes for i in range(first, last)):
        return 0, 0, 0
    parts = kind.shape[:first], kind.shape[first : last + 1], kind.shape[last + 1 :]
    rows, columns, inner = map(math.prod, parts)
    return (rows, columns, inner) if rows * columns * inner else (0, 0, 0)


# Normalisations ----------------------------------------------------------------------------------


def _same(inner: GraphPattern, *kinds: type[ops.Operator]) -> GraphPattern:
    """Match a value after conversions to its own type, or after operators of these kinds."""
    return repeated(op((Cast, *kinds), value(where=is_float32)), inner)


def _mean(inner: GraphPattern) -> GraphPattern:
    """Match a mean of rows: a Reduce, or a pool of whole images as TensorFlow's exporter has it."""
    reduced = op(Reduce, inner, where=lambda reduce: reduce.kind == "ReduceMean" and reduce.keep)
    turned = op(Transpose((0, 2, 3, 1)), op(Reshape, inner))
    pooled = op(AveragePool, turned, where=lambda pool: pool.channels_last and not any(pool.pads))
    return either(reduced, op(Reshape, pooled))


def _square(inner: GraphPattern) -> tuple[NodePattern, NodePattern]:
    return op(Binary("Pow"), inner, number(equal=2.0)), op(Binary("Mul"), inner, inner)


def _deviation(variance: GraphPattern) -> tuple[GraphPattern, GraphPattern]:
    """Match the root of a variance plus epsilon, and the inverse of it."""
    spread = _same(op(Binary("Add"), variance, number("epsilon"), commutative=True))
    deviation = _same(op(Unary("Sqrt"), spread))
    one_over = op(Binary("Div"), number(equal=1.0), deviation)
    return deviation, _same(either(op(Unary("Reciprocal"), deviation), one_over))


def _normal(x: GraphPattern, variance: GraphPattern) -> tuple[NodePattern, NodePattern]:
    """Match a row divided by the root of its variance plus epsilon, or times the inverse of it."""
    deviation, inverse = _deviation(variance)
    return op(Binary("Div"), x, deviation), op(Binary("Mul"), x, inverse, commutative=True)


X = _same(value("x"))
MEAN = _same(_mean(X))
CENTRED = _same(op(Binary("Sub"), X, MEAN, capture="centred"))
SQUARED, SQUARED_MEAN = (_same(either(*_square(one))) for one in (X, MEAN))
MEAN_SQUARE = _same(_mean(SQUARED))
VARIANCE = either(
    _same(_mean(_same(either(*_square(CENTRED))))),
    _same(op(Binary("Sub"), MEAN_SQUARE, SQUARED_MEAN)),
)
NORMAL = _same(either(*_normal(CENTRED, VARIANCE), *_normal(X, MEAN_SQUARE)), Reshape)
SCALED = _same(
    op(Binary("Mul"), NORMAL, value("scale", constant=True), value="scaled", commutative=True),
    Reshape,
)
BIASED = op(
    *(Binary("Add"), either(NORMAL, SCALED), value("bias", constant=True)),
    value="biased",
    commutative=True,
)


def _affine(factor: GraphPattern) -> NodePattern:
    """Match TensorFlow's form: `x * factor + (bias - mean * factor)`."""
    moved = op(Binary("Mul"), MEAN, factor, capture="moved", commutative=True)
    shift = op(Binary("Sub"), value("bias", constant=True), moved, value="biased")
    return op(
        Binary("Add"), op(Binary("Mul"), X, factor, commutative=True), shift, commutative=True
    )


INVERSE = _deviation(VARIANCE)[1]
FACTOR = op(Binary("Mul"), INVERSE, value("scale", constant=True), value="scaled", commutative=True)
RESULT = either(_same(BIASED, Reshape), SCALED, NORMAL, _affine(FACTOR), _affine(INVERSE))
"""A normalisation of `x`, with scale and bias if these are constant."""

READERS = (op(Reduce, value("x")), *_square(value("x")), op(Reshape, value("x", where=is_float32)))
"""Nodes at which a normalisation of `x` may begin, other than conversions."""


@matcher(*READERS, op((Cast, Reshape), value(where=is_float32), value="x"))
def normalisation(scope: HostScope, node: Node, x: str) -> HostKernel | None:
    """Match the nodes of LayerNormalization or RMSNormalization, and a constant scale and bias."""
    users = scope.graph.users(x)
    ahead = () if node.inputs[0] == x else (node,)
    reached: dict[str, Node] = {}
    while users and len(reached) < MAX_NODES:
        fresh = [one for one in users if scope.is_free(one) and one.outputs[0].name not in reached]
        reached.update((one.outputs[0].name, one) for one in fresh)
        users = [user for one in fresh for user in scope.graph.users(one.outputs[0].name)]
    pooled = isinstance(node.attributes, Reshape) and not ahead
    ways = [*reached.values()][: MAX_POOL_AHEAD if pooled else None]
    if not any(isinstance(one.attributes, AveragePool if pooled else Reduce) for one in ways):
        return None
    for last in reversed(in_order(scope.graph, reached.values())):
        for match in RESULT.matches(scope, last.outputs[0].name, GraphMatch({"x": x})):
            nodes = in_order(scope.graph, (*ahead, *match.nodes))
            kernel = _normalised(scope, nodes, match) if node in nodes else None
            if kernel is not None:
                return kernel
    return None


def _normalised(scope: HostScope, nodes: tuple[Node, ...], match: GraphMatch) -> HostKernel | None:
    """Make the kernel of a normalisation's nodes, if they work on the same rows."""
    x, kind = nodes[0].inputs[0], nodes[-1].output.type
    means = [node for node in nodes if isinstance(node.attributes, Reduce | AveragePool)]
    extents = {_extents(scope, node)[1:] for node in means}
    columns, inner = extents.pop()
    if extents or not columns or inner != 1 or columns > MAX_COLUMNS or match["epsilon"] < 0:
        return None
    if scope.graph.is_constant(x) or scope.types[x].elements != kind.elements:
        return None
    if not scope.is_closed(nodes) or any(n.output.type.dtype != "float32" for n in nodes):
        return None
    rows = kind.elements // columns
    centred = match["centred"] is not None or match["moved"] is not None
    given = {"scale": match["scaled"], "bias": match["biased"]}
    for by_row, extent, held in ((False, columns, per_column), (True, rows, per_row)):
        constants = {name: np.full(extent, name == "scale", np.float32) for name in given}
        for name, result in given.items():
            if result is not None:
                found = held(scope.data(match[name]), scope.shape(result), columns)
                if found is None:
                    break
                constants[name] = found
        else:
            layer = LayerNormalisation(rows, columns, match["epsilon"], centred, by_row)
            return HostKernel(layer, {"x": x}, constants, nodes)
    return None


MATCHERS = (softmax, normalisation, reduction)
