"""Reasons for layers in float between quantised ones: which neighbour is not quantised.

A layer runs in integers only if all its operands are dequantised and all its readers quantise its
result. Moves belong to either side, and so do clamps and biases behind a layer. Elementwise
functions of one value are one function, so the search passes through all of them.
"""

from collections.abc import Callable

from ..graph import Graph, Node
from ..graph import operators as ops
from ..passes.patterns import is_clamp
from ..passes.sink_dequantize import MOVES

LAYERS = (ops.Conv, ops.ConvTranspose, ops.MatMul, ops.AveragePool, ops.Pointwise)
"""Operators that have a form in integers; functions of two values at least as sums."""

Passed = Callable[[Node], bool]
"""Tells whether the search passes through a node."""


def float_reasons(graph: Graph) -> dict[str, str]:
    """Return the neighbour that keeps each layer in float, by the layer's output.

    Only one side of such a layer is in float. Layers inside a float part of the network are left
    out, and so are all layers of a float network.
    """
    if not any(isinstance(node.attributes, ops.Quantize) for node in graph.nodes):
        return {}
    found = {}
    for node in graph.nodes:
        if not isinstance(node.attributes, LAYERS) or node.outputs[0].type.dtype != "float32":
            continue
        if isinstance(node.attributes, ops.Pointwise):
            ahead = behind = is_elementwise
        else:
            ahead, behind = is_move, lambda user: joins_layer(graph, user)
        source, reader = _source(graph, node, ahead), float_reader(graph, node, behind)
        if bool(source) != bool(reader):
            found[node.outputs[0].name] = source or reader
    return found


def is_move(node: Node) -> bool:
    """Tell whether a node only moves elements."""
    return isinstance(node.attributes, MOVES)


def is_elementwise(node: Node) -> bool:
    """Tell whether a node computes element by element, or only moves elements."""
    return isinstance(node.attributes, (ops.Pointwise, *MOVES))


def joins_layer(graph: Graph, node: Node) -> bool:
    """Tell whether a node behind a layer is a move, or becomes part of the layer."""
    operator = node.attributes
    if isinstance(operator, ops.Binary):
        return operator.kind == "Add" and any(map(graph.is_constant, node.inputs))
    return is_move(node) or (isinstance(operator, ops.Unary) and is_clamp(operator))


def _source(graph: Graph, node: Node, passed: Passed) -> str:
    """Say which operand is in float; empty if none is."""
    waiting, seen = [node], {node.outputs[0].name}
    while waiting:
        for name in waiting.pop(0).inputs:
            maker = graph.producer(name)
            if graph.is_constant(name) or name in seen:
                continue
            seen.add(name)
            if maker is None:
                return f"input `{name}` is in float"
            if passed(maker):
                waiting.append(maker)
            elif not isinstance(maker.attributes, ops.Dequantize):
                return f"`{maker.name}` (`{maker.op}`) makes its operand in float"
    return ""


def float_reader(graph: Graph, node: Node, passed: Passed) -> str:
    """Say what reads the result in float; empty if nothing does."""
    waiting, seen = [node], {node.outputs[0].name}
    while waiting:
        (name, *_) = (value.name for value in waiting.pop(0).outputs)
        if graph.is_output(name):
            return "its result is an output in float"
        for user in graph.users(name):
            if isinstance(user.attributes, ops.Quantize) or user.outputs[0].name in seen:
                continue
            seen.add(user.outputs[0].name)
            if not passed(user):
                return f"`{user.name}` (`{user.op}`) reads its result in float"
            waiting.append(user)
    return ""
