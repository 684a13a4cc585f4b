"""Number of multiplications of a layer, by the model's definition.

All reports and shares count these, whatever a kernel multiplies on either side.
"""

import math
from collections.abc import Iterable

from . import operators as ops
from .ir import Graph, Node
from .operators import ConvTranspose, Recurrent


def macs_of(graph: Graph, node: Node) -> int:
    """Multiplications by weights, or of two activations, per run; 0 for other nodes.

    Depthwise and grouped convolutions count only the products within groups. The spare products of
    a QConv or QSums do not count, and neither do means, norms and elementwise products. A kernel
    that the user declared counts its sums of products.
    """
    operator = node.attributes
    if isinstance(operator, ops.OwnKernel | ops.QKernel):
        return operator.declared.macs
    if len(node.inputs) < 2:
        return 0
    x, weights = (graph.types[name].shape for name in node.inputs[:2])
    match operator:
        case Recurrent():
            state = graph.types[node.inputs[2]].shape
            return math.prod(x[:2]) * (math.prod(weights) + math.prod(state))
        case ConvTranspose():
            return math.prod(x) * math.prod(weights[1:])
        case ops.Multiplying():
            taps = (x[-1] // (operator.heads if operator.joined[0] else 1),)
        case ops.QConv() | ops.QSums():
            taps = (math.prod(weights[:3]) - operator.spare,)
        case ops.Conv():
            taps = weights[:-1] if operator.channels_last else weights[1:]
        case ops.MatMul() | ops.IntegerMatMul():
            taps = weights[-2:-1]
        case _:
            return 0
    size = operator.result_bytes if isinstance(operator, ops.Accelerated) else 1
    return node.output.type.elements // size * math.prod(taps)


def all_macs_of(graph: Graph, nodes: Iterable[Node]) -> int:
    """Multiplications of several nodes; see `macs_of`."""
    return sum(macs_of(graph, node) for node in nodes)


def keeps_channels_apart(node: Node) -> bool:
    """Whether a node is a convolution in which every output channel is a separate group."""
    operator, shape = node.attributes, node.outputs[0].type.shape
    match operator:
        case ops.QConv():
            return 1 < operator.groups == shape[-1]
        case ops.Conv():
            return 1 < operator.groups == shape[-1 if operator.channels_last else 1]
    return False
