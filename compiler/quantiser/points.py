"""Points of quantisation: the activations that become int8, in groups that share a scale."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..graph import Graph
from ..graph import operators as ops
from ..passes.moves_as_convolutions import is_copies
from .float_layer import FloatLayer, maker, origin


@dataclass(frozen=True, slots=True)
class Points:
    """The activations to quantise.

    Attributes
    ----------
    layers : tuple of FloatLayer
        The layers that read and write them, in topological order.
    replaced : frozenset of str
        Values that exist only as int8: outputs of layers, of Concats between them, and keys and
        values of attention that the network returns.
    readers : mapping
        Value that also exists in float -> outputs of the nodes that read its int8 form.
    groups : tuple of tuple of str
        All values of `replaced` and `readers`; the values of a group share one quantisation.
    states : frozenset of str
        Values of 16 bits, which are the sum of a high byte and a low one.
    gates : frozenset of str
        Factors of states, all in the quantisation `recognise_states.GATE`.
    centred : frozenset of str
        Values whose zero point should be 0. A product of two activations needs an extra pass for
        each operand with any other zero point, and a kernel of the user's own has no such pass.
    """

    layers: tuple[FloatLayer, ...]
    replaced: frozenset[str]
    readers: Mapping[str, frozenset[str]]
    groups: tuple[tuple[str, ...], ...]
    states: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    centred: frozenset[str] = frozenset()

    @property
    def values(self) -> tuple[str, ...]:
        """Return all values to quantise."""
        return tuple(name for group in self.groups for name in group)


def find_points(
    graph: Graph, layers: Iterable[FloatLayer], apart: frozenset[str] = frozenset()
) -> Points:
    """Return the values to quantise so that every layer reads and writes int8.

    A Concat that feeds layers shares one quantisation with its operands, so it only moves data; so
    does a convolution that copies, which is then exact.
    Concats whose outputs are in `apart` stay in float.
    """
    layers = tuple(layers)
    outputs = {layer.output for layer in layers}
    joined = _joining(graph, layers, outputs, apart)
    replaced = outputs | joined | _cached(graph, layers)
    readers: dict[str, set[str]] = {}
    parts = [
        *((layer.inputs, layer.inside) for layer in layers),
        *((node.inputs, {node.output.name}) for node in graph.nodes if _is(joined, node)),
    ]
    for inputs, inside in parts:
        for name in inputs:
            if origin(graph, name) not in replaced:
                readers.setdefault(name, set()).update(inside)
    leaders = {name: name for name in (*replaced, *readers)}

    def leader(name: str) -> str:
        while leaders[name] != name:
            name = leaders[name]
        return name

    for node in graph.nodes:
        if _is(joined, node):
            for name in node.inputs:
                moved = origin(graph, name)
                leaders[leader(moved if moved in replaced else name)] = leader(node.output.name)

    def point(name: str) -> str:
        return name if name in leaders else origin(graph, name)

    steps = [layer for layer in layers if layer.kind == "state"]
    for layer in steps:
        for state in layer.inputs[2:]:
            leaders[leader(point(state))] = leader(layer.output)
    for layer in layers:
        if layer.kind == "conv" and is_copies(graph.data(maker(graph, layer.head).inputs[1])):
            leaders[leader(point(layer.inputs[0]))] = leader(layer.output)
    groups: dict[str, list[str]] = {}
    for name in _in_order(graph):
        if name in leaders:
            groups.setdefault(leader(name), []).append(name)
    return Points(
        layers,
        frozenset(replaced),
        {name: frozenset(inside) for name, inside in readers.items()},
        tuple(tuple(group) for group in groups.values()),
        frozenset(one for step in steps for one in (*map(point, step.inputs[2:]), step.output)),
        frozenset(point(layer.inputs[0]) for layer in steps),
        frozenset(
            point(name)
            for layer in layers
            if layer.kind in ("matmul", "own")
            for name in layer.inputs
        ),
    )


def _cached(graph: Graph, layers: tuple[FloatLayer, ...]) -> set[str]:
    """Return the operands of products that the network returns, too: the host need not compute."""
    returned = {origin(graph, output.value) for output in graph.outputs}
    read = {
        origin(graph, name) for layer in layers if layer.kind == "matmul" for name in layer.inputs
    }
    return {name for name in returned & read if graph.producer(name) is not None}


def _is(joined: set[str], node) -> bool:
    return len(node.outputs) == 1 and node.output.name in joined


def _in_order(graph: Graph) -> Iterable[str]:
    yield from (value.name for value in graph.inputs)
    yield from (value.name for node in graph.nodes for value in node.outputs)


def _joining(
    graph: Graph, layers: tuple[FloatLayer, ...], outputs: set[str], apart: frozenset[str]
) -> set[str]:
    """Return the outputs of Concats between layers, found from the last one back."""
    reads = {origin(graph, name) for layer in layers for name in layer.inputs}
    joined: set[str] = set()
    for node in reversed(graph.nodes):
        if not isinstance(node.attributes, ops.Concat) or node.output.name not in reads - apart:
            continue
        sources = {origin(graph, name) for name in node.inputs}
        makers = [graph.producer(name) for name in sources]
        nested = any(m is not None and isinstance(m.attributes, ops.Concat) for m in makers)
        constant = any(graph.is_constant(name) for name in sources)
        if not constant and (nested or sources & outputs):
            joined.add(node.output.name)
            reads |= sources
    return joined
