"""Queries of matchers about graphs: scalars, rows of constants, the order of nodes."""

from collections.abc import Iterable, Mapping

from ..graph import Graph, Node
from ..rewriting import GraphView


def scalar(view: GraphView, name: str) -> float | None:
    """Return a constant of one element as a number; None for other values."""
    if not view.is_constant(name) or view.types[name].elements != 1:
        return None
    return float(view.data(name).reshape(()))


def in_order(graph: Graph, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Sort nodes by the graph's order and drop duplicates."""
    places = _places(graph)
    found = {places[node.outputs[0].name]: node for node in nodes}
    return tuple(found[place] for place in sorted(found))


_known: list[tuple[Graph, Mapping[str, int]]] = []
"""The graph of the last query, and the positions of its nodes."""


def _places(graph: Graph) -> Mapping[str, int]:
    if not _known or _known[0][0] is not graph:
        places = {node.outputs[0].name: place for place, node in enumerate(graph.nodes)}
        _known[:] = [(graph, places)]
    return _known[0][1]
