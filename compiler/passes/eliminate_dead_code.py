"""Drop nodes and constants on which no output depends."""

from ..graph import Graph, drop_unused


def eliminate_dead_code(graph: Graph) -> Graph:
    """Drop nodes and constants on which no output depends; the graph's inputs stay."""
    return drop_unused(graph)
