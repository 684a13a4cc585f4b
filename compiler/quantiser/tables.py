"""Search for elementwise functions of one activation, which become tables or stay on the host."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from ..graph import Graph, Node, evaluate_node
from ..graph import operators as ops
from ..reach import reach
from .float_layer import FloatLayer, is_move, maker, origin
from .ranges import Function
from .states import cells

GRID = 4096
"""Samples of a function over its input range."""


def single_source(graph: Graph, node: Node, single: dict[str, str]) -> str | None:
    """Return the only value that an elementwise node depends on; None if there are several.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    node : Node
        An elementwise node.
    single : dict
        Earlier value -> the only value that it depends on.
    """
    shape = node.output.type.shape
    sources = set()
    for name in node.inputs:
        kind = graph.types[name]
        if graph.is_constant(name):
            if kind.elements != 1:
                return None
        elif kind.shape != shape or kind.dtype != "float32":
            return None
        else:
            sources.add(single.get(name, name))
    return sources.pop() if len(sources) == 1 else None


def find_tables(graph: Graph, inside: frozenset[str]) -> Iterable[FloatLayer]:
    """Yield the largest elementwise functions of one value.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    inside : frozenset of str
        Values of other layers, which are excluded.
    """
    single: dict[str, str] = {}
    for node in graph.nodes:
        elementwise = isinstance(node.attributes, ops.Pointwise)
        if elementwise and node.output.name not in inside:
            source = single_source(graph, node, single)
            if source is not None:
                single[node.output.name] = source
    for name, source in single.items():
        users = graph.users(name)
        inner = all(single.get(user.outputs[0].name) == source for user in users)
        if users and inner and not graph.is_output(name):
            continue
        region = frozenset(_between(graph, name, source))
        yield FloatLayer(maker(graph, name).name, "table", (source,), name, region, name, name)


def _between(graph: Graph, name: str, source: str) -> set[str]:
    """Return the values from a function's result back to its source, without the source."""

    def operands(value: str) -> Sequence[str]:
        node = graph.producer(value)
        return () if value == source or node is None else node.inputs

    found = reach([name], operands)
    return {one for one in found if one != source and graph.producer(one) is not None}


LONE = ("table", "add", "bias", "mul", "pool", "norm", "softmax")
"""Kinds of layers that the host computes as fast as the accelerator and more exactly."""


def without_lone_layers(
    graph: Graph, layers: list[FloatLayer], apart: frozenset[str] = frozenset()
) -> tuple[FloatLayer, ...]:
    """Drop tables that read or write float values, and sums and pools that do both.

    A sum is also dropped if only it would quantise an operand that the host makes, and a sum
    without a quantised reader if it reads one of `apart`, the outputs of Concats that stay in
    float. Constants are added apart in scores alone: elsewhere the reader's own point holds the
    sum, as with position embeddings. Elementwise products of two activations stay where a weighted
    layer reads them, directly or behind other products and sums, or a matrix product does, as
    behind a gate, and within recurrent cells: elsewhere their rounding is one more, and in masks of
    a spectrum the largest of all. Before a matrix product, a sum of products is a rotary embedding.
    """
    while True:
        produced = {layer.output for layer in layers}
        counts = Counter(origin(graph, name) for layer in layers for name in layer.inputs)
        combined = {layer.output: layer for layer in layers if layer.kind in ("add", "mul")}
        multiplied = set(cells(graph, layers))
        weighted = [layer for layer in layers if layer.weighted]
        products = [layer for layer in layers if layer.kind == "matmul"]
        for readers, inner in ((weighted, combined), (products, {})):
            sources = (origin(graph, name) for layer in readers for name in layer.inputs)
            multiplied.update(reach(sources, partial(_joined, graph, inner)))
        scores = {name for layer in layers if layer.kind == "softmax" for name in layer.inputs}
        kept = [
            layer
            for layer in layers
            if not _is_lone(graph, layer, produced, counts, apart)
            and not (layer.kind == "mul" and layer.output not in multiplied)
            and not (layer.kind == "bias" and layer.output not in scores)
        ]
        if len(kept) == len(layers):
            return tuple(layers)
        layers = kept


def _joined(graph: Graph, combined: Mapping[str, FloatLayer], name: str) -> Iterable[str]:
    """Return the origins of the parts of a Concat, or of what a sum or product combines."""
    node = graph.producer(name)
    joins = node is not None and isinstance(node.attributes, ops.Concat)
    parts = node.inputs if node and joins else ()
    if name in combined:
        parts = combined[name].inputs
    return (origin(graph, part) for part in parts)


def _is_lone(
    graph: Graph,
    layer: FloatLayer,
    produced: set[str],
    reads: Mapping[str, int],
    apart: frozenset[str],
) -> bool:
    if layer.kind not in LONE:
        return False
    sources = [origin(graph, name) for name in layer.inputs]
    given = [_is_quantised(graph, name, produced, apart) for name in sources]
    read = _is_read(graph, layer.output, reads, apart)
    if layer.kind in ("table", "bias", "softmax"):
        return not (any(given) and read)
    if layer.kind == "norm":
        return not (any(given) or read)
    made = (name for name, found in zip(sources, given, strict=True) if not found)
    if layer.kind in ("add", "mul") and any(
        graph.producer(name)
        and reads[name] == 1
        and not (read and any(given) and _is_first(graph, name, produced))
        for name in made
    ):
        return True
    return not read and (not any(given) or not apart.isdisjoint(sources))


def _is_first(graph: Graph, name: str, produced: set[str]) -> bool:
    """Tell whether a value depends on no layer, so that the host makes it before all of them."""

    def above(value: str) -> tuple[str, ...]:
        node = graph.producer(value)
        return node.inputs if node else ()

    return produced.isdisjoint(reach([name], above))


def _is_quantised(graph: Graph, name: str, produced: set[str], apart: frozenset[str]) -> bool:
    """Tell whether a value is a layer's output, or a Concat of such."""
    node = graph.producer(name)
    if name in apart:
        return False
    if node is not None and isinstance(node.attributes, ops.Concat):
        return any(
            _is_quantised(graph, origin(graph, part), produced, apart) for part in node.inputs
        )
    return name in produced


def _is_read(graph: Graph, name: str, reads: Container[str], apart: frozenset[str]) -> bool:
    """Tell whether a layer reads a value, directly or through Concats and moves."""

    def passed(value: str) -> Iterable[str]:
        for user in graph.users(value):
            made = [one.name for one in user.outputs]
            joins = isinstance(user.attributes, ops.Concat) and apart.isdisjoint(made)
            if joins or is_move(graph, user):
                yield from made

    return any(one in reads for one in reach([name], passed))


def apply_table(graph: Graph, layer: FloatLayer, x: np.ndarray) -> np.ndarray:
    """Apply the function of a layer of kind `table` to float32[...] inputs."""
    values = {layer.inputs[0]: x}

    def value_of(name: str) -> np.ndarray:
        if graph.is_constant(name):
            return graph.data(name).reshape(())
        if name not in values:
            node = maker(graph, name)
            values[name] = evaluate_node(node, [value_of(one) for one in node.inputs])[0]
        return values[name]

    return value_of(layer.output)


def sampled_table(graph: Graph, layer: FloatLayer, low: float, high: float) -> Function:
    """Return the function of a layer of kind `table`, interpolated between `GRID` samples."""
    margin = (high - low) / 16
    x = np.linspace(low - margin, high + margin, GRID, dtype=np.float32)
    y = apply_table(graph, layer, x).astype(np.float64)
    return lambda values: np.interp(values, x, y)
