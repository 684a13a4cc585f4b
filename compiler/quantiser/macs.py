"""How much of a network the accelerator computes, in multiplications."""

import math

from ..graph import Graph
from ..graph import operators as ops


def macs(graph: Graph) -> tuple[int, int]:
    """Return the multiplications of integer layers, and those of all layers, for one run.

    Parameters
    ----------
    graph : Graph
        Any stage; depthwise and grouped convolutions count what they compute.
    """
    accelerated = total = 0
    for node in graph.nodes:
        attributes = node.attributes
        if not isinstance(attributes, (ops.QConv, ops.QMatMul, ops.Conv, ops.MatMul)):
            continue
        integer = isinstance(attributes, (ops.QConv, ops.QMatMul))
        weights = graph.types[node.inputs[1]].shape
        if isinstance(attributes, ops.QMatMul):
            heads = attributes.heads if attributes.joined[0] else 1
            taps = (graph.types[node.inputs[0]].shape[-1] // heads,)
        elif integer:
            taps = weights[:3]
        elif isinstance(attributes, ops.Conv):
            taps = weights[1:]
        else:
            taps = weights[-2:-1]
        count = node.output.type.elements * math.prod(taps)
        total += count
        accelerated += count if integer else 0
    return accelerated, total


def accelerated_share(integer: Graph) -> float:
    """Return the share of multiplications that integer layers compute; 0 where there are none."""
    accelerated, total = macs(integer)
    return accelerated / max(total, 1)
