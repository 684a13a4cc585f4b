"""Float32 convolutions, with the residual and the activation after them."""

from dataclasses import dataclass

import numpy as np

from ..cpu import Convolution
from ..cpu.kernels.planar_convolution import PlanarConvolution
from ..graph import Node
from ..graph import operators as ops
from ..rewriting import op, value
from .activations import activation_behind
from .kernel import HERE, HostKernel, HostScope, matcher
from .pools import has_floats

MAX_PLANES = 4
"""Maximum number of channels of an image that is read in planes."""

RESIDUAL = op(ops.Binary("Add"), HERE, value("residual", constant=False), commutative=True)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The steps that a kernel performs after its sums.

    Parameters
    ----------
    nodes : tuple of Node
        The nodes that these steps compute, in the graph's order.
    residual : str or None
        The value that is added; None if there is none.
    activation : str
        The activation, applied last; "" if there is none.
    """

    nodes: tuple[Node, ...]
    residual: str | None
    activation: str


def epilogue(scope: HostScope, node: Node, residual: bool) -> Epilogue:
    """Find the nodes after a layer that its kernel can include.

    Parameters
    ----------
    scope : HostScope
        The nodes that the kernel may take.
    node : Node
        A layer.
    residual : bool
        Whether the kernel can add an array: another value of the same type.
    """
    nodes, added = (), None
    found = scope.behind(node, RESIDUAL) if residual else None
    if found is not None and found["residual"] != node.output.name:
        kind, own = scope.types[found["residual"]], node.output.type
        if (kind.dtype, kind.shape) == (own.dtype, own.shape):
            nodes, added = found.nodes, found["residual"]
    more, activation = activation_behind(scope, nodes[-1] if nodes else node)
    return Epilogue((*nodes, *more), added, activation)


X, W = value("x", where=has_floats), value("w", constant=True)
LAST = {"capture": "conv", "where": lambda conv: conv.is_image and conv.channels_last}


@matcher(op(ops.Conv, X, W, **LAST), op(ops.Conv, X, W, value("bias", constant=True), **LAST))
def match_convolution(
    scope: HostScope, node: Node, conv: ops.Conv, x: str, w: str, bias: str | None
) -> HostKernel | None:
    """Match a Conv, channels last, constant weights, with any number of groups."""
    shape, kernel = scope.image(x), scope.data(w)
    out = kernel.shape[3]
    after = epilogue(scope, node, residual=conv.groups == 1)
    taps = (kernel.shape[0], kernel.shape[1])
    window = (taps, conv.strides, conv.pads, conv.dilations, after.activation)
    constants = {"w": kernel, "bias": scope.data(bias) if bias else np.zeros(out, kernel.dtype)}
    description = Convolution(
        *(*shape, out, *window),
        residual=after.residual is not None,
        # Sums of whole numbers, such as bytes less a zero point, stay exact.
        winograd=not np.array_equal(kernel, np.rint(kernel)),
        groups=conv.groups,
    )
    inputs = {"x": x} if after.residual is None else {"x": x, "residual": after.residual}
    return HostKernel(description, inputs, constants, (node, *after.nodes))


@matcher(op(ops.Transpose((0, 2, 3, 1)), X))
def match_planes(scope: HostScope, node: Node, x: str) -> HostKernel | None:
    """Match a Transpose of an image of few channels to channels last, and the Conv after it."""
    layer = scope.follower(node)
    kernel = None if layer is None else match_convolution(scope, layer)
    if kernel is None or kernel.inputs["x"] != node.output.name:
        return None
    conv = kernel.description
    if not isinstance(conv, Convolution) or conv.residual or conv.groups > 1:
        return None
    if scope.shape(x)[1] > MAX_PLANES:
        return None
    description = PlanarConvolution(
        *(conv.batch, conv.height, conv.width, conv.channels_in, conv.channels_out),
        *(conv.kernel, conv.strides, conv.pads, conv.dilations, conv.activation),
    )
    return HostKernel(description, {"x": x}, kernel.constants, (node, *kernel.nodes))


MATCHERS = (match_convolution, match_planes)
