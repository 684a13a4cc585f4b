"""Activations after a layer, as one operator or as the several nodes that exporters write."""

import math

from ..cpu.kernels.epilogue import ACTIVATIONS as FUSED_ACTIVATIONS
from ..graph import Node
from ..graph.operators import Binary, Unary
from ..rewriting import GraphPattern, either, number, op
from ..rewriting.patterns import NodePattern
from .kernel import HERE, HostScope

TOLERANCE = 1e-6
"""Relative tolerance for the constants of an activation that is written as several nodes."""

Activation = tuple[tuple[Node, ...], str]
"""The nodes of an activation in order, and its name in kernels; () and "" if there is none."""


def _times(a: GraphPattern, b: GraphPattern) -> NodePattern:
    return op(Binary("Mul"), a, b, commutative=True)


def _near(number_: float) -> GraphPattern:
    return number(equal=number_, tolerance=TOLERANCE)


ERF = op(
    Unary("Erf"),
    either(op(Binary("Div"), HERE, _near(math.sqrt(2.0))), _times(HERE, _near(math.sqrt(0.5)))),
)
RAISED = op(Binary("Add"), ERF, _near(1.0), commutative=True)
HALF = _near(0.5)

ACTIVATIONS: tuple[tuple[NodePattern, str], ...] = (
    *((op(Unary(*function), HERE), name) for name, function in FUSED_ACTIVATIONS.items()),
    (_times(HERE, op(Unary("Sigmoid"), HERE)), "silu"),
    # x * (1 + erf(x / sqrt(2))) / 2, multiplied in any order
    (_times(_times(HERE, RAISED), HALF), "gelu"),
    (_times(_times(RAISED, HALF), HERE), "gelu"),
    (_times(_times(HERE, HALF), RAISED), "gelu"),
)
"""Functions that kernels of layers compute, with their names in kernels."""


def activation_behind(scope: HostScope, node: Node) -> Activation:
    """Find an activation that is the only reader of a float32 node."""
    for pattern, name in ACTIVATIONS if node.output.type.dtype == "float32" else ():
        found = scope.behind(node, pattern)
        if found and all(one.output.type.shape == node.output.type.shape for one in found.nodes):
            return found.nodes, name
    return (), ""
