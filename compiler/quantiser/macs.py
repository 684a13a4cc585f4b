"""Share of a network's multiplications that the accelerator computes."""

from ..graph import Graph
from ..graph import operators as ops
from ..graph.macs import macs_of


def macs(graph: Graph) -> tuple[int, int]:
    """Count the multiplications of integer layers and of all layers in one run.

    Parameters
    ----------
    graph : Graph
        The network at any stage.
    """
    accelerated = total = 0
    for node in graph.nodes:
        count = macs_of(graph, node)
        total += count
        accelerated += count if isinstance(node.attributes, (ops.QConv, ops.QMatMul)) else 0
    return accelerated, total


def accelerated_share(integer: Graph) -> float:
    """Return the share of multiplications in integer layers; 0 if there are none."""
    accelerated, total = macs(integer)
    return accelerated / max(total, 1)
