"""Average and maximum over sliding windows."""

from ....isa.configuration import Configuration
from ....isa.expressions import Affine, Call, Literal, Op, Reduction
from ...graph import Graph, Node, QAvgPool, QMaxPool
from ...tensor import Axis, Compute, Kernel, Tensor
from .common import activation, axes_of, epilogue, requantised, scalars, window

LOWEST = -128
"""The padding value of maximum pooling."""


def _windowed(attributes, dilations):
    rows, columns = window(attributes.strides, dilations, attributes.pads)
    over = tuple(Axis(n, k) for n, k in zip(("ky", "kx"), attributes.kernel, strict=True))
    return (Affine.of(n=1), rows, columns, Affine.of(c=1)), over


def average_pool(node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = requantise(sum(window) + constant, scale)` with zero point and clamp."""
    attributes = node.attributes
    assert isinstance(attributes, QAvgPool)
    x = activation(node.inputs[0], graph, configuration, attributes.zero_point_x)
    out = activation(node.output.name, graph, configuration)
    index, over = _windowed(attributes, (1, 1))
    channel = (Affine.of(c=1),)
    bias, scale = Tensor("bias", "int32", out.shape[3:]), Tensor("scale", "float32", out.shape[3:])
    total = requantised(Reduction(Op.ADD, x[index]), bias[channel], scale[channel])
    body = epilogue(total, attributes.zero_point_y, attributes.low, attributes.high)
    return Kernel(
        name=node.name,
        stages=(Compute(out, axes_of(out), over, body),),
        tensors={tensor.name: tensor for tensor in (x, out, bias, scale)},
        constants=scalars(attributes.constant, attributes.scale, out.shape[3]),
    )


def maximum_pool(node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = clamp(max(window))`, padded with the lowest value."""
    attributes = node.attributes
    assert isinstance(attributes, QMaxPool)
    x = activation(node.inputs[0], graph, configuration, LOWEST)
    out = activation(node.output.name, graph, configuration)
    index, over = _windowed(attributes, attributes.dilations)
    body = Call(
        Op.CLAMP,
        (
            Reduction(Op.MAXIMUM, x[index]),
            Literal(attributes.low),
            Literal(attributes.high),
        ),
    )
    return Kernel(
        name=node.name,
        stages=(Compute(out, axes_of(out), over, body),),
        tensors={tensor.name: tensor for tensor in (x, out)},
    )
