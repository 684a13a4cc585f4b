"""What matchers ask about nodes: numbers, rows of constants, whether nodes end in one value."""

from collections.abc import Iterable, Mapping

import numpy as np

from ..graph import Graph, Node
from .kernel import Scope


def scalar(scope: Scope, name: str) -> float | None:
    """A constant of one element as a number; None for other values."""
    data = scope.constant(name)
    return float(data.reshape(())) if data is not None and data.size == 1 else None


def per_column(constant: np.ndarray, shape: tuple[int, ...], columns: int) -> np.ndarray | None:
    """A constant that is broadcast to `shape` as one row of `columns`; None if rows differ."""
    if constant.size not in (1, columns) or constant.dtype != np.float32:
        return None
    rows = np.broadcast_to(constant, shape).reshape(-1, columns)
    return np.array(rows[0]) if (rows == rows[0]).all() else None


def in_order(scope: Scope, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes in the graph's order, each once."""
    places = _places(scope.graph)
    found = {places[node.outputs[0].name]: node for node in nodes}
    return tuple(found[place] for place in sorted(found))


_known: list[tuple[Graph, Mapping[str, int]]] = []
"""The last graph that was asked about, and where its nodes stand."""


def _places(graph: Graph) -> Mapping[str, int]:
    if not _known or _known[0][0] is not graph:
        places = {node.outputs[0].name: place for place, node in enumerate(graph.nodes)}
        _known[:] = [(graph, places)]
    return _known[0][1]


def is_closed(scope: Scope, nodes: Iterable[Node]) -> bool:
    """Whether nodes, in the graph's order, are free and only the last one's value is seen outside.

    Nodes of no output, or of several, are never closed.
    """
    nodes = tuple(nodes)
    names = {node.outputs[0].name for node in nodes}
    if not all(scope.is_free(node) and len(node.outputs) == 1 for node in nodes):
        return False
    return all(
        not scope.graph.is_output(node.output.name)
        and all(user.outputs[0].name in names for user in scope.graph.users(node.output.name))
        for node in nodes[:-1]
    )
