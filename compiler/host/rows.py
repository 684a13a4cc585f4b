"""What works on rows: softmax, normalisations and reductions.

Normalisations come in many nodes, as importers and exporters write them out. They are found by what
each value means (`Meaning`), whatever the order of the nodes.
"""

import math

import numpy as np

from ..cpu import LayerNormalisation, Reduction, Softmax
from ..graph import Node
from ..graph import operators as ops
from ..graph.operators import Binary, Cast, Reduce, Reshape, Unary
from ..rewriting import op, value
from .graph_queries import in_order, per_column, scalar
from .kernel import HostKernel, HostScope, matcher
from .pools import has_floats

MOST_COLUMNS = 1 << 15
"""Elements of a row that is kept beside the one that it is made of."""

MOST_ACROSS = 1 << 11
"""The same, where rows lie side by side and a vector of them is kept."""

MOST_NODES = 24
"""Nodes of one normalisation."""

KINDS = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceSumSquare": "squares",
    "ReduceL2": "length",
}
"""Reductions of rows, and what `compiler.cpu` calls them."""


@matcher(op(ops.Softmax, value("x", constant=False, where=has_floats), capture="softmax"))
def softmax(scope: HostScope, node: Node, softmax: ops.Softmax, x: str) -> HostKernel | None:
    """Softmax over any axes side by side."""
    shape = scope.shape(x)
    inner = math.prod(shape[softmax.stop :])
    columns = math.prod(shape[softmax.axis : softmax.stop])
    if columns > (MOST_COLUMNS if inner == 1 else MOST_ACROSS):
        return None
    rows = math.prod(shape) // (columns * inner)
    return HostKernel(Softmax(rows, columns, softmax.log, inner), {"x": x}, nodes=(node,))


@matcher(op(Reduce, value("x", constant=False), capture="reduce", where=lambda r: r.kind in KINDS))
def reduction(scope: HostScope, node: Node, reduce: Reduce, x: str) -> HostKernel | None:
    """Reduce over axes side by side."""
    rows, columns, inner = _extents(scope, node)
    if not columns:
        return None
    description = Reduction(rows, columns, KINDS[reduce.kind], inner)
    return HostKernel(description, {"x": x}, nodes=(node,))


def _extents(scope: HostScope, node: Node) -> tuple[int, int, int]:
    """What lies before, along and behind the axes of a Reduce; zeros where they lie apart."""
    operator, kind = node.attributes, scope.graph.types[node.inputs[0]]
    if not isinstance(operator, Reduce) or kind.dtype != "float32" or not operator.axes:
        return 0, 0, 0
    first, last = min(operator.axes), max(operator.axes)
    if any(kind.shape[i] > 1 and i not in operator.axes for i in range(first, last)):
        return 0, 0, 0
    parts = kind.shape[:first], kind.shape[first : last + 1], kind.shape[last + 1 :]
    rows, columns, inner = map(math.prod, parts)
    return (rows, columns, inner) if rows * columns * inner else (0, 0, 0)


# Normalisations ----------------------------------------------------------------------------------

Meaning = tuple[str, bool]
"""What a value is: its name, and whether the row's mean was taken out of it."""

X, CENTRED = ("x", False), ("x", True)
MEAN, SQUARED_MEAN = ("mean", False), ("squared mean", False)
RESULTS = ("normal", "scaled", "biased")
"""Names of values that are a normalisation, each with the constants of those before it."""


class Normalisation:
    """What values mean, from a value on, while nodes are looked at in order.

    Parameters
    ----------
    scope
        Where the nodes stand.
    x
        The value whose rows are normalised.
    """

    def __init__(self, scope: HostScope, x: str) -> None:
        self.scope = scope
        self.meanings: dict[str, Meaning] = {x: X}
        self.columns = 0
        self.epsilon = 0.0
        self.scale: np.ndarray | None = None
        self.bias: np.ndarray | None = None

    def add(self, node: Node) -> bool:
        """Note what a node's value means; False where it means nothing."""
        if len(node.outputs) != 1 or node.output.type.dtype != "float32":
            return False
        operator = node.attributes
        found: Meaning | None = None
        if isinstance(operator, Reduce):
            found = self._reduced(node)
        elif isinstance(operator, Binary):
            found = self._binary(node, operator.kind)
        elif isinstance(operator, Unary):
            name, centred = self.meanings[node.inputs[0]]
            known = {("Sqrt", "spread"): "deviation", ("Reciprocal", "deviation"): "inverse"}
            if (operator.kind, name) in known:
                found = (known[operator.kind, name], centred)
        elif _is_same(self.scope, node):
            meaning = self.meanings[node.inputs[0]]
            plain = isinstance(operator, Cast)
            found = meaning if plain or meaning[0] in RESULTS else None
        if found is not None:
            self.meanings[node.output.name] = found
        return found is not None

    def _reduced(self, node: Node) -> Meaning | None:
        """A mean over rows, always the same rows."""
        operator, (_, columns, inner) = node.attributes, _extents(self.scope, node)
        assert isinstance(operator, Reduce)
        fits = operator.kind == "ReduceMean" and operator.keep and columns and inner == 1
        if not fits or columns != (self.columns or columns):
            return None
        self.columns = columns
        name, centred = self.meanings[node.inputs[0]]
        if (name, centred) == X:
            return MEAN
        return ("mean square", centred) if name == "square" else None

    def _binary(self, node: Node, kind: str) -> Meaning | None:
        a, b = (self.meanings.get(name) for name in node.inputs)
        square = _is_square(self.scope, node)
        if square and a in (X, CENTRED):
            return "square", a[1]
        if square and a == MEAN:
            return SQUARED_MEAN
        if kind == "Sub" and (a, b) == (X, MEAN):
            return CENTRED
        if kind == "Sub" and (a, b) == (("mean square", False), SQUARED_MEAN):
            return "mean square", True
        if a is not None and b is not None:
            return _normal(kind, a, b) or (_normal(kind, b, a) if kind == "Mul" else None)
        return self._constant(node, kind)

    def _constant(self, node: Node, kind: str) -> Meaning | None:
        """A value beside a constant: epsilon, scale or bias."""
        place = 0 if node.inputs[0] in self.meanings else 1
        name, centred = self.meanings[node.inputs[place]]
        constant = self.scope.constant(node.inputs[1 - place])
        if constant is None:
            return None
        number = scalar(self.scope, node.inputs[1 - place])
        if kind == "Add" and name == "mean square" and number is not None and number >= 0:
            self.epsilon = number
            return "spread", centred
        if kind == "Div" and place == 1 and number == 1.0 and name == "deviation":
            return "inverse", centred
        if name not in RESULTS or not self.columns:
            return None
        row = per_column(constant, node.output.type.shape, self.columns)
        if kind == "Mul" and name == "normal" and row is not None:
            self.scale = row
            return "scaled", centred
        if kind == "Add" and name != "biased" and row is not None:
            self.bias = row
            return "biased", centred
        return None


def _normal(kind: str, x: Meaning, share: Meaning) -> Meaning | None:
    """A row divided by its deviation, or times the inverse of that."""
    wanted = {"Div": "deviation", "Mul": "inverse"}.get(kind)
    return ("normal", x[1]) if x[0] == "x" and share == (wanted, x[1]) else None


def _is_square(scope: HostScope, node: Node) -> bool:
    """Whether a node multiplies a value with itself."""
    if node.attributes == Binary("Pow"):
        return scalar(scope, node.inputs[1]) == 2.0
    return node.attributes == Binary("Mul") and node.inputs[0] == node.inputs[1]


def _is_same(scope: HostScope, node: Node) -> bool:
    """Whether a node's value is its operand, perhaps in another shape."""
    if isinstance(node.attributes, Reshape):
        return True
    known = isinstance(node.attributes, Cast)
    return known and scope.graph.types[node.inputs[0]].dtype == node.output.type.dtype


@matcher(op((Reduce, Binary, Cast, Reshape)))
def normalisation(scope: HostScope, node: Node) -> HostKernel | None:
    """LayerNormalization or RMSNormalization as written out, with scale and bias if constant."""
    starts = _is_same(scope, node)
    if isinstance(node.attributes, Binary) and not _is_square(scope, node):
        return None
    x = node.inputs[0] if not starts else node.output.name
    if scope.graph.types[x].dtype != "float32" or scope.graph.is_constant(node.inputs[0]):
        return None
    known = Normalisation(scope, x)
    nodes = [node] if starts else []
    seen: set[str] = set()
    best: HostKernel | None = None
    while len(nodes) < MOST_NODES:
        readers = [user for name in known.meanings for user in scope.graph.users(name)]
        waiting = [
            user
            for user in in_order(scope.graph, readers)
            if user not in nodes and user.outputs[0].name not in seen
        ]
        if not waiting:
            break
        following = waiting[0]
        seen.add(following.outputs[0].name)
        if not scope.is_free(following) or not known.add(following):
            continue
        nodes = list(in_order(scope.graph, (*nodes, following)))
        if known.meanings[following.outputs[0].name][0] in RESULTS:
            kernel = _normalised(scope, known, node, nodes)
            best = kernel or best
    return best


def _normalised(
    scope: HostScope, known: Normalisation, first: Node, nodes: list[Node]
) -> HostKernel | None:
    """The kernel of the nodes so far, those that the last does not need left out."""
    last = nodes[-1].output
    name, centred = known.meanings[last.name]
    x = first.inputs[0]
    if first not in nodes or not scope.is_closed(nodes) or name not in RESULTS:
        return None
    columns = known.columns
    if columns > MOST_COLUMNS or scope.graph.types[x].elements != last.type.elements:
        return None
    scale = np.ones(columns, np.float32) if known.scale is None else known.scale
    bias = np.zeros(columns, np.float32) if known.bias is None else known.bias
    description = LayerNormalisation(last.type.elements // columns, columns, known.epsilon, centred)
    constants = {"scale": scale, "bias": bias}
    return HostKernel(description, {"x": x}, constants, tuple(nodes))


MATCHERS = (softmax, normalisation, reduction)
