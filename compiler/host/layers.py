"""Convolutions in float32, with what follows them: a residual and an activation."""

from dataclasses import dataclass

import numpy as np

from ..cpu import Convolution, DepthwiseConvolution, GroupedConvolution
from ..cpu.kernels.planar_convolution import PlanarConvolution
from ..graph import Node
from ..graph import operators as ops
from ..graph.operators import Operator
from .kernel import HostKernel, Matcher, Scope

ACTIVATIONS: dict[tuple[str, tuple[float, ...]], str] = {
    ("Relu", ()): "relu",
    ("Clip", (0.0, 6.0)): "relu6",
    ("Sigmoid", ()): "sigmoid",
    ("Tanh", ()): "tanh",
    ("Gelu", ()): "gelu",
    ("HardSwish", ()): "hardswish",
    ("Swish", (1.0,)): "silu",
}
"""Kind and parameters of a Unary -> activation of a kernel."""

MOST_PLANES = 4
"""Channels up to which an image is read in planes."""

GATES = {"Sigmoid": "silu"}
"""Functions that, multiplied by what they read, make an activation."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What a kernel does behind its sums.

    Parameters
    ----------
    nodes
        Covered, in the graph's order.
    residual
        The value that is added, if any.
    activation
        After that; "" for none.
    """

    nodes: tuple[Node, ...]
    residual: str | None
    activation: str


def epilogue(scope: Scope, node: Node, residual: bool) -> Epilogue:
    """What of a node's followers its kernel can do.

    Parameters
    ----------
    scope
        Where the node stands.
    node
        A layer.
    residual
        Whether the kernel can add an array.
    """
    added = _residual(scope, node) if residual else None
    last = node if added is None else added[0]
    nodes, activation = _activation(scope, last)
    if added is None:
        return Epilogue(nodes, None, activation)
    return Epilogue((added[0], *nodes), added[1], activation)


def _residual(scope: Scope, node: Node) -> tuple[Node, str] | None:
    """The Add of another value of the same shape, and that value."""
    add = scope.follower(node)
    if add is None or add.attributes != ops.Binary("Add"):
        return None
    others = [name for name in add.inputs if name != node.output.name]
    if len(others) != 1 or scope.constant(others[0]) is not None:
        return None
    kind = scope.graph.types[others[0]]
    fits = kind.dtype == "float32" and kind.shape == node.output.type.shape
    return (add, others[0]) if fits else None


def _activation(scope: Scope, node: Node) -> tuple[tuple[Node, ...], str]:
    """The nodes of an activation, and its name."""
    after = scope.follower(node)
    if after is not None and isinstance(after.attributes, ops.Unary):
        known = ACTIVATIONS.get((after.attributes.kind, after.attributes.parameters), "")
        return ((after,), known) if known else ((), "")
    return _gated(scope, node)


def _gated(scope: Scope, node: Node) -> tuple[tuple[Node, ...], str]:
    """The nodes of `x * gate(x)`, which reads x twice."""
    name, users = node.output.name, scope.graph.users(node.output.name)
    if len(users) != 2 or scope.graph.is_output(name) or not all(map(scope.is_free, users)):
        return (), ""
    gate, product = users
    if not isinstance(gate.attributes, ops.Unary) or gate.attributes.kind not in GATES:
        return (), ""
    if product.attributes != ops.Binary("Mul") or scope.follower(gate) != product:
        return (), ""
    if sorted(product.inputs) != sorted((name, gate.output.name)):
        return (), ""
    return (gate, product), GATES[gate.attributes.kind]


def match_convolution(scope: Scope, node: Node) -> HostKernel | None:
    """Conv of channels last with constant weights -> a convolution of any number of groups."""
    conv, x = node.attributes, scope.graph.types[node.inputs[0]]
    if not isinstance(conv, ops.Conv):
        return None
    w = scope.constant(node.inputs[1])
    if not conv.channels_last or w is None:
        return None
    out = w.shape[3]
    bias = scope.constant(node.inputs[2]) if len(node.inputs) == 3 else np.zeros(out, w.dtype)
    if bias is None or not x.elements:
        return None
    after = epilogue(scope, node, residual=conv.groups == 1)
    batch, height, width, channels = x.shape
    extents = (batch, height, width, channels)
    window = ((w.shape[0], w.shape[1]), conv.strides, conv.pads, conv.dilations, after.activation)
    if conv.groups == 1:
        added = after.residual is not None
        description = Convolution(*extents, out, *window, residual=added)
    elif conv.groups == channels == out:
        description = DepthwiseConvolution(*extents, *window)
        w = w.reshape(*window[0], channels)
    else:
        description = GroupedConvolution(*extents, out, *window, groups=conv.groups)
    inputs = {"x": node.inputs[0]}
    if after.residual is not None:
        inputs["residual"] = after.residual
    return HostKernel(description, inputs, {"w": w, "bias": bias}, (node, *after.nodes))


def match_planes(scope: Scope, node: Node) -> HostKernel | None:
    """Transpose of an image of few channels to channels last, and Conv -> PlanarConvolution."""
    if node.attributes != ops.Transpose((0, 2, 3, 1)):
        return None
    layer, image = scope.follower(node), scope.graph.types[node.inputs[0]]
    kernel = None if layer is None else match_convolution(scope, layer)
    if kernel is None or layer is None or layer.inputs[0] != node.output.name:
        return None
    conv = kernel.description
    if not isinstance(conv, Convolution) or conv.residual or image.shape[1] > MOST_PLANES:
        return None
    description = PlanarConvolution(
        *(conv.batch, conv.height, conv.width, conv.channels_in, conv.channels_out),
        conv.kernel,
        conv.strides,
        conv.pads,
        conv.dilations,
        conv.activation,
    )
    return HostKernel(description, {"x": node.inputs[0]}, kernel.constants, (node, *kernel.nodes))


MATCHERS: dict[type[Operator], tuple[Matcher, ...]] = {
    ops.Conv: (match_convolution,),
    ops.Transpose: (match_planes,),
}
