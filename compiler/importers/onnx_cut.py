"""Cut a model: let it end at chosen values, and propose where, if it cannot be imported whole.

Detectors end in operators whose results have as many elements as there are objects. The network in
front of them has static shapes: it runs here, and the rest on its outputs.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter

import onnx

from ...errors import ImportModelError
from .onnx_reader import printable

MAX_CUTS = 20
"""Number of operators in front of which a proposed cut may end."""


def cut(model: onnx.ModelProto, outputs: Sequence[str], name: str) -> None:
    """Let a model end at named values, and drop the nodes that they do not need.

    Parameters
    ----------
    outputs
        Names of values, or of nodes whose results all become outputs.

    Raises
    ------
    ImportModelError
        If there is no value or node of a name.
    """
    graph = model.graph
    made = {one for node in graph.node for one in node.output if one}
    by_node = {node.name: [one for one in node.output if one] for node in graph.node if node.name}
    chosen: dict[str, None] = {}
    for wanted in outputs:
        if wanted not in made and wanted not in by_node:
            near = get_close_matches(wanted, sorted({*made, *by_node}), 3)
            last = [one for node in graph.node for one in node.output if one][-3:]
            listed = " or ".join(f"`{printable(one)}`" for one in near or last)
            raise ImportModelError(
                f"model `{name}`: expected outputs that its nodes make, got `{wanted}`; "
                + (f"did you mean {listed}?" if near else f"the last ones are {listed}")
            )
        chosen |= dict.fromkeys([wanted] if wanted in made else by_node[wanted])
    kept = _needed(graph.node, chosen)
    types = {value.name: value for value in (*graph.value_info, *graph.output)}
    shown = [types.get(one, onnx.ValueInfoProto(name=one)) for one in chosen]
    shown = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in shown]
    del graph.output[:]
    graph.output.extend(shown)
    nodes = [node for node, keep in zip(graph.node, kept, strict=True) if keep]
    del graph.node[:]
    graph.node.extend(nodes)
    read = {one for node in nodes for one in reads(node)}
    initialisers = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(initialisers)


def _needed(nodes: Sequence[onnx.NodeProto], values: Iterable[str]) -> list[bool]:
    """Tell for each node, in order, whether values depend on it."""
    needed, kept = set(values), []
    for node in reversed(nodes):
        kept.append(not needed.isdisjoint(node.output))
        if kept[-1]:
            needed.update(reads(node))
    return kept[::-1]


def order_nodes(graph: onnx.GraphProto) -> None:
    """Put nodes behind those that make their operands; ONNX Runtime reads files in any order.

    A graph that is in order, or has a cycle, is left as it is.
    """
    makers = {one: place for place, node in enumerate(graph.node) for one in node.output if one}
    ahead = [{makers[one] for one in reads(node) if one in makers} for node in graph.node]
    if all(max(places, default=-1) < place for place, places in enumerate(ahead)):
        return
    try:
        order = [*TopologicalSorter(dict(enumerate(ahead))).static_order()]
    except CycleError:
        return
    nodes = [graph.node[place] for place in order]
    ordered = onnx.GraphProto(node=nodes)
    graph.ClearField("node")
    graph.node.extend(ordered.node)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, those that its branches and loops capture included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from reads(inner)


def proposed_cut(
    model: onnx.ModelProto,
    refused: int,
    is_constant: Callable[[str], bool],
    refusal: Callable[[onnx.ModelProto], int | None],
) -> tuple[str, ...]:
    """Return the outputs of the largest part of a model that can be imported; none if it is empty.

    Parameters
    ----------
    refused
        Position of the node that was refused.
    is_constant
        Tells whether a value is known at import.
    refusal
        Imports a model and returns the position of the node that is refused; None if none is. It
        may raise ImportModelError for other reasons, and then there is no proposal.
    """
    nodes, graph = list(model.graph.node), model.graph
    stops = {refused}
    for _ in range(MAX_CUTS):
        outputs = _frontier(graph, nodes, stops, is_constant)
        if not outputs:
            return ()
        part = onnx.ModelProto.FromString(model.SerializeToString())
        cut(part, outputs, graph.name)
        try:
            place = refusal(part)
        except ImportModelError:
            return ()
        if place is None:
            return outputs
        made = list(part.graph.node[place].output)
        stops.add(next(i for i, node in enumerate(nodes) if list(node.output) == made))
    return ()


def _frontier(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    stops: Collection[int],
    is_constant: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the values, computed from the inputs, that nodes lead to without those at `stops`."""
    lost = {one for place in stops for one in nodes[place].output}
    live = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    made: set[str] = set()
    ends: dict[str, None] = {}
    for node in nodes:
        read = list(reads(node))
        if lost.isdisjoint(read) and lost.isdisjoint(node.output):
            if not live.isdisjoint(read):
                made.update(node.output)
                live.update(node.output)
            continue
        lost.update(node.output)
        ends |= dict.fromkeys(one for one in read if one in made and not is_constant(one))
    shown = [value.name for value in graph.output if value.name in made]
    return tuple(dict.fromkeys([*shown, *ends]))
