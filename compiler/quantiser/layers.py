"""What becomes one accelerator layer: which float nodes belong together, from where to where.

The grouping mirrors what the recognising passes look for between Dequantize and Quantize, so that
every layer found here turns into one integer operator.
"""

from collections.abc import Iterable

from ...errors import CompileError
from ..graph import Graph, Node
from ..graph import operators as ops
from .float_layer import FloatLayer
from .tables import find_tables, single_source, without_lone_layers

CLAMPS = ("Relu", "Clip")
"""Activations that every layer can end with at no cost."""


def find_layers(
    graph: Graph, keep_float: Iterable[str] = (), apart: frozenset[str] = frozenset()
) -> tuple[FloatLayer, ...]:
    """Group the nodes of a float graph into layers.

    Parameters
    ----------
    graph : Graph
        Prepared: weights constant, every weighted layer with a bias.
    keep_float : iterable of str
        Layers, nodes or values that stay in float, or ends of names that one layer alone has.
    apart : frozenset of str
        Outputs of Concats that do.

    Returns
    -------
    tuple of FloatLayer
        In topological order. Nodes in no layer stay in float.

    Raises
    ------
    CompileError
        If a name in `keep_float` is in no layer, or the end of the names of several.
    """
    found = [*_heavy_layers(graph)]
    inside = frozenset().union(*(layer.inside for layer in found))
    found += find_tables(graph, inside)
    order = {node.outputs[0].name: place for place, node in enumerate(graph.nodes)}
    found.sort(key=lambda layer: order[layer.output])
    kept = _matching(graph, found, tuple(keep_float))
    found = [layer for layer in found if layer not in kept]
    return without_lone_layers(graph, found, apart)


def _heavy_layers(graph: Graph) -> Iterable[FloatLayer]:
    """Yield convolutions, dense layers, pools and residual adds with their activations."""
    taken: set[str] = set()
    single: dict[str, str] = {}
    for node in graph.nodes:
        if len(node.outputs) != 1 or node.output.name in taken:
            continue
        attributes = node.attributes
        layer = None
        if isinstance(attributes, ops.Conv) and _constant_operands(graph, node):
            layer = _extended(graph, node, "conv", node.inputs[:1], node.output.name)
        elif isinstance(attributes, ops.MatMul) and _constant_operands(graph, node):
            biased = _bias_behind(graph, node)
            layer = biased and _extended(graph, node, "dense", node.inputs[:1], biased)
        elif isinstance(attributes, ops.MatMul) and _is_product(graph, node):
            layer = _extended(graph, node, "matmul", node.inputs, _factor_behind(graph, node))
        elif isinstance(attributes, ops.AveragePool) and _is_even(attributes):
            layer = _extended(graph, node, "pool", node.inputs, node.output.name)
        elif isinstance(attributes, (ops.Unary, ops.Binary)):
            source = single_source(graph, node, single)
            if source is not None:
                single[node.output.name] = source
            elif _is_residual(graph, node):
                layer = _extended(graph, node, "add", node.inputs, node.output.name)
        if layer:
            taken |= layer.inside
            yield layer


def _constant_operands(graph: Graph, node: Node) -> bool:
    """Tell whether a node has float32 data as first operand and constants as the others."""
    weights = node.inputs[1]
    rank = 2 if isinstance(node.attributes, ops.MatMul) else 4
    return (
        node.output.type.dtype == "float32"
        and not graph.is_constant(node.inputs[0])
        and all(graph.is_constant(name) for name in node.inputs[1:])
        and len(graph.types[weights].shape) == rank
    )


def _is_even(pool: ops.AveragePool) -> bool:
    """Tell whether all windows of a pool average over the same number of elements."""
    return not any(pool.overhang) and (not any(pool.pads) or pool.count_include_pad)


def _is_residual(graph: Graph, node: Node) -> bool:
    """Tell whether a node adds or subtracts two computed float tensors of one shape."""
    if node.attributes not in (ops.Binary("Add"), ops.Binary("Sub")):
        return False
    kinds = [graph.types[name] for name in node.inputs]
    constant = any(graph.is_constant(name) for name in node.inputs)
    return kinds[0] == kinds[1] and kinds[0].dtype == "float32" and not constant


def _only_user(graph: Graph, name: str) -> Node | None:
    users = graph.users(name)
    return users[0] if len(users) == 1 and not graph.is_output(name) else None


def _bias_behind(graph: Graph, node: Node) -> str | None:
    """Return the value of the Add of a constant bias behind a MatMul."""
    user = _only_user(graph, node.output.name)
    if user is None or user.attributes != ops.Binary("Add"):
        return None
    bias = next((name for name in user.inputs if graph.is_constant(name)), None)
    if bias is None or graph.types[bias].elements != node.output.type.shape[-1]:
        return None
    return user.output.name if user.output.type == node.output.type else None


def _is_product(graph: Graph, node: Node) -> bool:
    """Tell whether a MatMul multiplies two computed float tensors, image by image."""
    a, b = (graph.types[name].shape for name in node.inputs)
    constant = any(graph.is_constant(name) for name in node.inputs)
    return not constant and a[:-2] == b[:-2] and node.output.type.dtype == "float32"


def _factor_behind(graph: Graph, node: Node) -> str:
    """Return the value of a Mul or Div by one positive constant behind a MatMul, or its own."""
    user = _only_user(graph, node.output.name)
    name = node.output.name
    if user is None or user.attributes not in (ops.Binary("Mul"), ops.Binary("Div")):
        return name
    factor = next((each for each in user.inputs if graph.is_constant(each)), None)
    if factor is None or graph.types[factor].elements != 1 or not graph.data(factor).item() > 0:
        return name
    divides = user.attributes == ops.Binary("Div")
    return name if divides and user.inputs[0] == factor else user.output.name


def _extended(
    graph: Graph, node: Node, kind: str, inputs: tuple[str, ...], linear: str
) -> FloatLayer:
    """Return the layer of a node with the clamps behind it."""
    inside = {node.output.name, linear}
    output = linear
    while True:
        user = _only_user(graph, output)
        if user is None or not isinstance(user.attributes, ops.Unary):
            break
        if user.attributes.kind not in CLAMPS:
            break
        output = user.output.name
        inside.add(output)
    return FloatLayer(node.name, kind, inputs, output, frozenset(inside), node.output.name, linear)


def _matching(graph: Graph, layers: list[FloatLayer], names: tuple[str, ...]) -> list[FloatLayer]:
    """Return the layers that are meant by names of layers, nodes or values, or by their ends."""
    called = {layer.output: _names_of(graph, layer) for layer in layers}
    matching = []
    for name in names:
        meant = [layer for layer in layers if name in called[layer.output]]
        if not meant:
            meant = [
                layer
                for layer in layers
                if name and any(known.endswith(name) for known in called[layer.output])
            ]
            if len(meant) != 1:
                known = ", ".join(f"`{layer.name}`" for layer in meant or layers)
                several = f", which is the end of {len(meant)} names" if meant else ""
                raise CompileError(
                    f"graph `{graph.name}`: expected a layer to keep in float, got `{name}`"
                    f"{several}; choose of {known}"
                )
        matching += meant
    return matching


def _names_of(graph: Graph, layer: FloatLayer) -> set[str]:
    """Return what a layer, its nodes and its values are called."""
    nodes = {node.name for node in graph.nodes if node.outputs[0].name in layer.inside}
    return {layer.name, *layer.inside} | nodes
