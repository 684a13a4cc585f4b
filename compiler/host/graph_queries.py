"""Questions of matchers about graphs: numbers, rows of constants, the order of nodes."""

from collections.abc import Iterable, Mapping

import numpy as np

from ..graph import Graph, Node
from ..rewriting import GraphView


def scalar(view: GraphView, name: str) -> float | None:
    """A constant of one element as a number; None for other values."""
    if not view.is_constant(name) or view.types[name].elements != 1:
        return None
    return float(view.data(name).reshape(()))


def per_column(constant: np.ndarray, shape: tuple[int, ...], columns: int) -> np.ndarray | None:
    """A constant that is broadcast to `shape` as one row of `columns`; None if rows differ."""
    if constant.size not in (1, columns) or constant.dtype != np.float32:
        return None
    rows = np.broadcast_to(constant, shape).reshape(-1, columns)
    return np.array(rows[0]) if (rows == rows[0]).all() else None


def in_order(graph: Graph, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes in the graph's order, each once."""
    places = _places(graph)
    found = {places[node.outputs[0].name]: node for node in nodes}
    return tuple(found[place] for place in sorted(found))


_known: list[tuple[Graph, Mapping[str, int]]] = []
"""The last graph that was asked about, and where its nodes stand."""


def _places(graph: Graph) -> Mapping[str, int]:
    if not _known or _known[0][0] is not graph:
        places = {node.outputs[0].name: place for place, node in enumerate(graph.nodes)}
        _known[:] = [(graph, places)]
    return _known[0][1]
