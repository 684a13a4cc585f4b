"""How much of a network the accelerator computes, in multiplications."""

from ..graph import Graph
from ..graph import operators as ops
from ..macs import macs_of


def macs(graph: Graph) -> tuple[int, int]:
    """Return the multiplications of integer layers, and those of all layers, for one run.

    Parameters
    ----------
    graph : Graph
        Any stage.
    """
    accelerated = total = 0
    for node in graph.nodes:
        count = macs_of(graph, node)
        total += count
        accelerated += count if isinstance(node.attributes, (ops.QConv, ops.QMatMul)) else 0
    return accelerated, total


def accelerated_share(integer: Graph) -> float:
    """Return the share of multiplications that integer layers compute; 0 where there are none."""
    accelerated, total = macs(integer)
    return accelerated / max(total, 1)
