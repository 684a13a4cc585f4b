"""Activations behind a layer, as one function or as exporters write them out."""

import math

from ..graph import Node
from ..graph.operators import Binary, Unary
from ..rewriting import GraphPattern, either, number, op
from ..rewriting.patterns import NodePattern
from .kernel import HERE, HostScope

TOLERANCE = 1e-6
"""Of the constants of a written-out function, relative."""

Activation = tuple[tuple[Node, ...], str]
"""The nodes of an activation, in order, and what kernels call it; none and "" for none."""


def _times(a: GraphPattern, b: GraphPattern) -> NodePattern:
    return op(Binary("Mul"), a, b, commutative=True)


def _near(number_: float) -> GraphPattern:
    return number(equal=number_, tolerance=TOLERANCE)


ACTIVATIONS: tuple[tuple[NodePattern, str], ...] = (
    (op(Unary("Relu"), HERE), "relu"),
    (op(Unary("Clip", (0.0, 6.0)), HERE), "relu6"),
    (op(Unary("Sigmoid"), HERE), "sigmoid"),
    (op(Unary("Tanh"), HERE), "tanh"),
    (op(Unary("Gelu"), HERE), "gelu"),
    (op(Unary("HardSwish"), HERE), "hardswish"),
    (op(Unary("Swish", (1.0,)), HERE), "silu"),
    (_times(HERE, op(Unary("Sigmoid"), HERE)), "silu"),
)
"""Functions that kernels of layers compute, and what they call them."""

ERF = op(
    Unary("Erf"),
    either(op(Binary("Div"), HERE, _near(math.sqrt(2.0))), _times(HERE, _near(math.sqrt(0.5)))),
)
RAISED = op(Binary("Add"), ERF, _near(1.0), commutative=True)
HALF = _near(0.5)

GELU: tuple[tuple[NodePattern, str], ...] = (
    (_times(_times(HERE, RAISED), HALF), "gelu"),
    (_times(_times(RAISED, HALF), HERE), "gelu"),
    (_times(_times(HERE, HALF), RAISED), "gelu"),
)
"""`x * (1 + erf(x / sqrt(2))) / 2`, multiplied in any order."""


def activation_behind(
    scope: HostScope, node: Node, known: tuple[tuple[NodePattern, str], ...] = ACTIVATIONS
) -> Activation:
    """The first of the known activations that alone reads a float32 node."""
    for pattern, name in known if node.output.type.dtype == "float32" else ():
        found = scope.behind(node, pattern)
        if found and all(one.output.type.shape == node.output.type.shape for one in found.nodes):
            return found.nodes, name
    return (), ""
