"""Share of a network's multiplications that the accelerator computes."""

from ..graph import Graph, accelerated_nodes
from ..graph.macs import all_macs_of


def macs(graph: Graph) -> tuple[int, int]:
    """Count the multiplications of integer layers and of all layers in one run.

    Parameters
    ----------
    graph : Graph
        The network at any stage.
    """
    return all_macs_of(graph, accelerated_nodes(graph)), all_macs_of(graph, graph.nodes)


def accelerated_share(integer: Graph) -> float:
    """Return the share of multiplications in integer layers; 0 if there are none."""
    accelerated, total = macs(integer)
    return accelerated / max(total, 1)
