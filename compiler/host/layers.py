"""Float32 convolutions, with the residual and the activation after them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..cpu import Convolution, Epilogue, real_epilogue
from ..graph import Node
from ..graph import operators as ops
from ..rewriting import computed, constant, op, value
from .activations import activation_behind
from .kernel import HERE, HostKernel, HostScope, matcher
from .pools import has_floats

MAX_PLANES = 4
"""Maximum number of channels of an image that is read in planes."""

RESIDUAL = op(ops.Binary("Add"), HERE, computed("residual"), commutative=True)


@dataclass(frozen=True, slots=True)
class FusedNodes:
    """A layer and the nodes after it that its kernel can include.

    Parameters
    ----------
    nodes : tuple of Node
        The layer and these nodes, in the graph's order.
    inputs : mapping
        The values that the epilogue reads, by operand.
    epilogue : Epilogue
        The function of the layer's sums that these nodes compute.
    """

    nodes: tuple[Node, ...]
    inputs: Mapping[str, str]
    epilogue: Epilogue


def with_followers(scope: HostScope, node: Node) -> FusedNodes:
    """Find the addition of another value of the same type, and the activation, after a layer."""
    nodes, inputs = (node,), {}
    found = scope.behind(node, RESIDUAL)
    if found is not None and found["residual"] != node.output.name:
        kind, own = scope.types[found["residual"]], node.output.type
        if (kind.dtype, kind.shape) == (own.dtype, own.shape):
            nodes, inputs = (node, *found.nodes), {"residual": found["residual"]}
    more, activation = activation_behind(scope, nodes[-1])
    return FusedNodes((*nodes, *more), inputs, real_epilogue(activation, bool(inputs)))


X, W = value("x", where=has_floats), value("w", where=has_floats)
LAST = {"capture": "conv", "where": lambda conv: conv.is_image and conv.channels_last}


@matcher(op(ops.Conv, X, W, **LAST), op(ops.Conv, X, W, constant("bias"), **LAST))
def match_convolution(
    scope: HostScope, node: Node, conv: ops.Conv, x: str, w: str, bias: str | None
) -> HostKernel | None:
    """Match a Conv, channels last; computed weights in one group, or one for each channel."""
    shape, (high, wide, depth, out), kernel = scope.image(x), scope.shape(w), scope.constant(w)
    if kernel is None and conv.groups > 1 and (depth > 1 or out != conv.groups):
        return None
    fused = with_followers(scope, node)
    constants = {"bias": scope.data(bias) if bias else np.zeros(out, np.float32)}
    window = (high, wide), conv.strides, conv.pads, conv.dilations
    description = Convolution(
        *(*shape, out, *window),
        epilogue=fused.epilogue,
        # Sums of whole numbers, such as bytes less a zero point, stay exact.
        winograd=kernel is not None and not np.array_equal(kernel, np.rint(kernel)),
        groups=conv.groups,
        computed=kernel is None,
    )
    if kernel is None:
        return HostKernel(description, {"x": x, "w": w, **fused.inputs}, constants, fused.nodes)
    constants = {"w": kernel, **constants}
    return HostKernel(description, {"x": x, **fused.inputs}, constants, fused.nodes)


@matcher(op(ops.Transpose((0, 2, 3, 1)), X))
def match_planes(scope: HostScope, node: Node, x: str) -> HostKernel | None:
    """Match a Transpose of an image of few channels to channels last, and the Conv after it."""
    layer = scope.follower(node)
    kernel = None if layer is None else match_convolution(scope, layer)
    if kernel is None or kernel.inputs["x"] != node.output.name:
        return None
    conv = kernel.description
    if (
        not isinstance(conv, Convolution)
        or conv.groups > 1
        or conv.computed
        or scope.shape(x)[1] > MAX_PLANES
    ):
        return None
    planar, inputs = replace(conv, planes=True), {**kernel.inputs, "x": x}
    return HostKernel(planar, inputs, kernel.constants, (node, *kernel.nodes))


MATCHERS = (match_convolution, match_planes)
