"""Drop what no output depends on."""

from ..graph import Graph, drop_unused


def eliminate_dead_code(graph: Graph) -> Graph:
    """Drop nodes and constants that no output depends on; the graph's inputs stay."""
    return drop_unused(graph)
