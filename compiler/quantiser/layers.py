"""Grouping of float nodes into layers of the accelerator.

These are the groups that the recognising passes find between Dequantize and Quantize. Every layer
found here therefore becomes one integer operator.
"""

from collections.abc import Callable, Iterable

from ...errors import CompileError
from ..graph import Graph, Node, TensorType
from ..graph import operators as ops
from ..graph.short_names import denotes, listed_names, similar_names
from ..passes.masks import EXCLUDED, excludes, probabilities
from ..passes.normalisations import ROWS, channels_first, normalisation_of, normalisations
from ..passes.patterns import CLAMP, is_float32
from ..passes.recognise_matmuls import by_head
from ..passes.recognise_own_kernels import has_integer_form
from ..passes.recognise_pools import is_even
from ..rewriting import GraphMatch, computed, constant, op, value
from ..rewriting.patterns import NodePattern
from .float_layer import FloatLayer
from .states import find_states
from .tables import find_tables, single_source, without_lone_layers


def find_layers(
    graph: Graph, keep_float: Iterable[str] = (), apart: frozenset[str] = frozenset()
) -> tuple[FloatLayer, ...]:
    """Group the nodes of a float graph into layers.

    Parameters
    ----------
    graph : Graph
        A prepared graph: its weights are constant, and every weighted layer has a bias.
    keep_float : iterable of str
        Layers, nodes or values that stay in float, by name or by the unique end of a layer's name.
    apart : frozenset of str
        Outputs of Concats that stay in float.

    Returns
    -------
    tuple of FloatLayer
        The layers in topological order. All other nodes stay in float.

    Raises
    ------
    CompileError
        If a name in `keep_float` matches no layer, or is the end of several names.
    """
    rows = [*find_states(graph), *_row_layers(graph)]
    found = [*rows, *_heavy_layers(graph, rows)]
    inside = frozenset().union(*(layer.inside for layer in found))
    found += find_tables(graph, inside)
    order = {node.outputs[0].name: place for place, node in enumerate(graph.nodes)}
    found.sort(key=lambda layer: order[layer.output])
    kept = _matching(graph, found, tuple(keep_float))
    found = [layer for layer in found if layer not in kept]
    return without_lone_layers(graph, found, apart)


def has_rank(rank: int) -> Callable[[TensorType], bool]:
    """Return a condition on the rank of a type."""
    return lambda kind: len(kind.shape) == rank


def is_image(kind: TensorType) -> bool:
    """Tell whether a type is that of images in floats."""
    return kind.dtype == "float32" and len(kind.shape) == 4


HERE, A, B = value("here"), computed("a"), computed("b")
KERNEL, MATRIX = (constant(where=has_rank(rank)) for rank in (4, 2))
CONSTANT = constant("constant")

HEADS = (
    ("conv", op(ops.Conv, A, KERNEL, constant(), result=is_float32)),  # after `prepare`
    ("dense", op(ops.MatMul, A, MATRIX, result=is_float32)),
    ("matmul", op(ops.MatMul, A, value("b"), result=is_float32)),
    ("pool", op(ops.AveragePool, A, where=is_even, result=is_float32)),
    ("own", op(ops.OwnKernel, ..., where=has_integer_form, result=is_image)),
    ("add", op((ops.Binary("Add"), ops.Binary("Sub")), A, B, result=is_float32)),
    ("mul", op(ops.Binary("Mul"), A, B, result=is_float32)),
    ("bias", op(ops.Binary("Add"), A, CONSTANT, result=is_float32, commutative=True)),
)
"""Kinds of layers, with the pattern of the main node."""

BIAS = op(ops.Binary("Add"), HERE, CONSTANT, commutative=True)
TIMES = op(ops.Binary("Mul"), HERE, constant("factor"), commutative=True)
OVER = op(ops.Binary("Div"), HERE, constant("factor"))


NORM = normalisations(ROWS, channels_first)
SOFTMAX = probabilities(computed("x", where=is_float32))


def _norms_of(graph: Graph, node: Node) -> Iterable[GraphMatch]:
    """Yield possible normalisations of rows that end with a node."""
    for match in NORM.matches(graph, node.outputs[0].name, GraphMatch()):
        found = normalisation_of(graph, match.nodes, match, node.output.type.elements)
        if found is not None and not found.by_row:
            yield match


def _softmaxes_of(graph: Graph, node: Node) -> Iterable[GraphMatch]:
    """Yield the longest softmax of rows, with its mask, that ends with a node."""
    matches = SOFTMAX.matches(graph, node.outputs[0].name, GraphMatch())
    found = [match for match in matches if _is_masked(graph, match)]
    longest = sorted(found, key=lambda one: -len(one.nodes))[:1]
    return (match for match in longest if not match["softmax"].log)


ROW_LAYERS = {
    "norm": (ops.Binary, _norms_of),
    "softmax": (ops.Softmax | ops.Where, _softmaxes_of),
}
"""Kinds of layers of rows, with the operators that may come last, and the search."""


def _row_layers(graph: Graph) -> Iterable[FloatLayer]:
    """Yield layers of rows, which no other layer reads inside."""
    for kind, (operators, search) in ROW_LAYERS.items():
        taken: set[str] = set()
        for node in reversed(graph.nodes):
            name = node.outputs[0].name
            if name in taken or not isinstance(node.attributes, operators):
                continue
            for match in search(graph, node):
                values = frozenset(one.output.name for one in match.nodes)
                if _is_closed(graph, values - {name}, values):
                    taken |= values
                    first, named = match.nodes[0].output.name, match.named.get("softmax", node)
                    yield FloatLayer(named.name, kind, (match["x"],), name, values, first, name)
                    break


def _is_masked(graph: Graph, match: GraphMatch) -> bool:
    """Tell whether what a match takes for a mask is one."""
    if match["fill"] is not None:
        return match["fill"] <= EXCLUDED
    return match["mask"] is None or excludes(graph, match["mask"])


def _is_closed(graph: Graph, inner: frozenset[str], values: frozenset[str]) -> bool:
    """Tell whether only nodes of `values` read the inner ones."""
    return not any(
        graph.is_output(name)
        or any(user.outputs[0].name not in values for user in graph.users(name))
        for name in inner
    )


def _heavy_layers(graph: Graph, rows: Iterable[FloatLayer]) -> Iterable[FloatLayer]:
    """Yield convolutions, dense layers, pools and residual adds with their activations."""
    taken = {name for layer in rows for name in layer.inside}
    single: dict[str, str] = {}
    for node in graph.nodes:
        if node.outputs[0].name in taken:
            continue
        if isinstance(node.attributes, ops.Pointwise):
            source = single_source(graph, node, single)
            if source is not None:
                single[node.output.name] = source
                continue
        for kind, head in HEADS:
            match = next(head.matches_node(graph, node), None)
            layer = None if match is None else _layer(graph, node, kind, match)
            if layer is not None:
                taken |= layer.inside
                yield layer
                break


def _layer(graph: Graph, node: Node, kind: str, match: GraphMatch) -> FloatLayer | None:
    """Return the layer of a main node; None if its operands do not fit."""
    given = [match[name] for name in ("a", "b") if match[name] is not None]
    inputs = tuple(name for name in given if not graph.is_constant(name))
    if kind == "own":
        inputs = tuple(dict.fromkeys(name for name in node.inputs if not graph.is_constant(name)))
        if not all(is_image(graph.types[name]) for name in inputs):
            return None
    shapes = [graph.types[name].shape for name in given]
    linear = node.output.name
    if kind == "bias" and (
        graph.types[inputs[0]] != node.output.type or excludes(graph, match["constant"])
    ):
        return None
    if kind in ("add", "mul") and node.output.type.shape not in shapes:
        return None
    if kind == "matmul":
        if shapes[0][:-2] != shapes[1][:-2]:
            return None
        for pattern in (TIMES, OVER):
            behind = _behind(graph, linear, pattern)
            held = None if behind is None else graph.data(behind["factor"])
            factors = by_head(held, node.output.type.shape)
            if behind is not None and factors is not None and (factors > 0).all():
                linear = behind.nodes[-1].output.name
                break
    if kind == "dense":
        biased = _behind(graph, linear, BIAS)
        if biased is None or graph.types[biased["constant"]].elements != node.output.type.shape[-1]:
            return None
        if biased.nodes[-1].output.type != node.output.type:
            return None
        linear = biased.nodes[-1].output.name
    inside, output = {node.output.name, linear}, linear
    while (clamp := _behind(graph, output, CLAMP)) is not None:
        output = clamp.nodes[-1].output.name
        inside.add(output)
    return FloatLayer(node.name, kind, inputs, output, frozenset(inside), node.output.name, linear)


def _behind(graph: Graph, name: str, pattern: NodePattern) -> GraphMatch | None:
    """Match the only reader of a value with a pattern around `HERE`."""
    user = graph.only_user(name)
    start = GraphMatch({"here": name})
    return None if user is None else next(pattern.matches_node(graph, user, start), None)


def _matching(graph: Graph, layers: list[FloatLayer], names: tuple[str, ...]) -> list[FloatLayer]:
    """Return the layers that names of layers, nodes or values denote, whole or by their ends."""
    called = {layer.output: _names_of(graph, layer) for layer in layers}
    matching = []
    for name in names:
        meant = [layer for layer in layers if name in called[layer.output]]
        if not meant:
            meant = [layer for layer in layers if denotes(name, layer.name)]
            if len(meant) != 1:
                meant = [
                    layer
                    for layer in layers
                    if name and any(known.endswith(name) for known in called[layer.output])
                ]
            if len(meant) != 1:
                known = [layer.name for layer in meant or layers]
                raise CompileError(
                    f"graph `{graph.name}`: expected a layer to keep in float, got `{name}`"
                    + (
                        f", which is the end of {len(meant)} names; choose one of "
                        f"{listed_names(known)}"
                        if meant
                        else similar_names(name, known)
                    )
                )
        matching += meant
    return matching


def _names_of(graph: Graph, layer: FloatLayer) -> set[str]:
    """Return the names of a layer, its nodes and its values."""
    nodes = {node.name for node in graph.nodes if node.outputs[0].name in layer.inside}
    return {layer.name, *layer.inside} | nodes
