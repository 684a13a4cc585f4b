"""States of recurrent cells: layers that keep 16 bits, and their int8 form for other readers."""

from collections.abc import Iterable

from ..graph import Builder, Graph, Node, drop_unused
from ..graph import operators as ops
from ..passes.clean_activations import MAX_FLOAT32
from ..passes.patterns import CLAMP
from ..reach import reach
from ..rewriting import GraphMatch, computed, op, value
from .float_layer import FloatLayer, is_move, origin

MUL = ops.Binary("Mul")
SIGMOID = ops.Unary("Sigmoid")

STEP = op(
    ops.Binary("Add"),
    op(MUL, computed("gate"), value("state"), value="kept", commutative=True),
    op(MUL, value(), op(ops.Unary("Tanh"), value()), value="increment", commutative=True),
    commutative=True,
)
"""`gate * state + increment`, a candidate times another gate."""

WHOLE = ops.Unary("Clip", (-MAX_FLOAT32, MAX_FLOAT32))
"""A clamp that changes no value; it marks a state that is rounded to int8 for its readers."""

JOINS = ops.Concat, ops.ScatterND
"""Operators by which states leave together."""


def find_states(graph: Graph) -> Iterable[FloatLayer]:
    """Yield the steps of states, and their int8 forms; see `round_states`."""
    seen: set[str] = set()
    for node in graph.nodes:
        layer = _step(graph, node)
        if layer is None:
            continue
        yield layer
        for name in (*layer.inputs[2:], layer.output):
            rounded = (user for user in graph.users(name) if user.attributes == WHOLE)
            for user in rounded:
                if user.output.name not in seen:
                    seen.add(user.output.name)
                    yield _rounded(graph, user)


def round_states(graph: Graph) -> Graph:
    """Let all but the next step and the outputs read the int8 form of a state."""
    builder = Builder.from_graph(graph)
    layers = [layer for node in graph.nodes if (layer := _step(graph, node)) is not None]
    if not layers:
        return graph
    steps = {layer.output for layer in layers}
    states = steps.union(name for layer in layers for name in layer.inputs[2:])
    rounded = {
        name: builder.emit(WHOLE, [name], name, f"{name}.rounded")
        for name in (given.name for given in graph.inputs)
        if name in states
    }
    for node in graph.nodes:
        wide = not rounded.keys().isdisjoint(node.inputs) and _keeps(graph, node, steps)
        inputs = node.inputs if wide else tuple(rounded.get(name, name) for name in node.inputs)
        builder.append(Node(node.name, node.attributes, inputs, node.outputs))
        for name in states.intersection(made.name for made in node.outputs):
            rounded[name] = builder.emit(WHOLE, [name], node.name, f"{name}.rounded")
    return drop_unused(builder.graph(graph.outputs))


def _step(graph: Graph, node: Node) -> FloatLayer | None:
    """Return the layer of a step: its gate, its increment, and its state unless that is zero."""
    for match in STEP.matches_node(graph, node, GraphMatch()):
        state = match["state"]
        inputs = tuple(match[name] for name in ("gate", "increment", "state"))
        kept, gate = match["kept"], graph.producer(origin(graph, match["gate"]))
        same = all(graph.types[name] == node.output.type for name in inputs)
        if graph.is_constant(state):  # the first step of a sequence
            same, inputs = same and not graph.data(state).any(), inputs[:2]
        if same and gate is not None and gate.attributes == SIGMOID and graph.only_user(kept):
            inside = frozenset((kept, node.output.name))
            return FloatLayer(
                node.name, "state", inputs, node.output.name, inside, kept, node.output.name
            )
    return None


def _keeps(graph: Graph, node: Node, states: set[str]) -> bool:
    """Tell whether a reader leads only to next steps, and by movements to outputs."""
    waiting, seen = [node], set[str]()
    while waiting:
        user = waiting.pop()
        name = user.outputs[0].name
        if name in seen:
            continue
        seen.add(name)
        if not (isinstance(user.attributes, JOINS) or is_move(graph, user)):
            then = graph.only_user(name)
            if then is None or then.outputs[0].name not in states:
                return False
            continue
        waiting += graph.users(name)
    return True


def _rounded(graph: Graph, node: Node) -> FloatLayer:
    """Return the layer of a state's int8 form, with clamps behind it."""
    inside, last = {node.output.name}, node
    while (user := graph.only_user(last.output.name)) is not None:
        if next(CLAMP.matches_node(graph, user, GraphMatch()), None) is None:
            break
        inside.add(user.output.name)
        last = user
    head, output = node.output.name, last.output.name
    return FloatLayer(node.name, "rounded", node.inputs, output, frozenset(inside), head, output)


def cells(graph: Graph, layers: Iterable[FloatLayer]) -> set[str]:
    """Return the outputs of elementwise layers on the way to states and behind their int8 forms."""
    made = {layer.output: layer for layer in layers}
    readers: dict[str, list[FloatLayer]] = {}
    for layer in made.values():
        for name in layer.inputs:
            readers.setdefault(origin(graph, name), []).append(layer)

    def ahead(name: str) -> Iterable[str]:
        layer = made.get(name)
        if layer is None or layer.kind not in ("state", "table", "add", "mul"):
            return ()
        return (origin(graph, one) for one in layer.inputs)

    def behind(name: str) -> Iterable[str]:
        return (one.output for one in readers.get(name, ()) if one.kind in ("table", "mul"))

    states = [name for name, layer in made.items() if layer.kind == "state"]
    rounded = [name for name, layer in made.items() if layer.kind == "rounded"]
    return set(reach(states, ahead)) | set(reach(rounded, behind))
