"""Prove for every layer that the machine requantises its accumulators exactly.

The machine saturates magnitudes of 2**24 and more. For scales of at least 2**-16, this equals the
binary32 definition (see `isa.numbers.requantise`). For smaller scales, the accumulators must stay
below 2**24.
"""

import numpy as np

from ...errors import CompileError
from ...isa.numbers import EXACT_LIMIT
from ..accumulators import SMALL_SCALE, accumulator_bounds
from ..graph import Graph, Node
from ..graph import operators as ops


def check_accumulators(graph: Graph) -> Graph:
    """Return the graph unchanged, or refuse it.

    Raises
    ------
    CompileError
        If a layer's accumulator may leave int32, or reach 2**24 with a scale below 2**-16.
    """
    for node in graph.nodes:
        if isinstance(node.attributes, ops.QConv):
            _check(graph, node)
    return graph


def _check(graph: Graph, node: Node) -> None:
    weights, bias, scale = (graph.data(name) for name in node.inputs[1:])
    lowest, highest = accumulator_bounds(weights, bias)
    if lowest.min(initial=0) < -(2**31) or highest.max(initial=0) >= 2**31:
        raise CompileError(
            f"layer `{node.name}`: expected accumulators within int32, got up to "
            f"`{max(highest.max(), -lowest.min())}`; quantise with smaller weights or split its "
            "input channels"
        )
    largest = np.maximum(highest, -lowest)
    wrong = np.flatnonzero((scale < SMALL_SCALE) & (largest >= EXACT_LIMIT))
    if wrong.size:
        channel = wrong[0]
        raise CompileError(
            f"layer `{node.name}`: output channel `{channel}`: expected accumulators below 2**24 "
            f"with an output scale below 2**-16, got up to `{largest[channel]}` with scale "
            f"`{scale[channel]}`; quantise the weights of {wrong.size} such channels with larger "
            "scales"
        )
