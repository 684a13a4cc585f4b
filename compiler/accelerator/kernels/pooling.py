"""Average and maximum over sliding windows."""

from ....isa.configuration import Configuration
from ... import te
from ...graph import Graph, Node, QAvgPool, QMaxPool
from ...tensor import Kernel
from .common import activation, kernel_of, pixel_axes, requantising, scalars, stored

LOWEST = -128
"""The padding value of maximum pooling."""


def _windows(
    x: te.DeclaredTensor,
    pixel: tuple[te.Index, ...],
    operator: QAvgPool | QMaxPool,
    dilations: tuple[int, int],
) -> tuple[te.TensorExpression, tuple[te.Index, ...]]:
    """The elements of each window, and the axes over it."""
    n, *outer, c = pixel
    over = te.reduce_axes(**dict(zip(("ky", "kx"), operator.kernel, strict=True)))
    steps = zip(outer, over, operator.strides, dilations, operator.pads[:2], strict=True)
    row, column = (axis * stride + tap * far - pad for axis, tap, stride, far, pad in steps)
    return x[n, row, column, c], over


@kernel_of.register
def average_pool(
    operator: QAvgPool, node: Node, graph: Graph, configuration: Configuration
) -> Kernel:
    """`out = requantise(sum(window) + constant, scale)` with zero point and clamp."""
    x = activation(node.inputs[0], graph, configuration, operator.zero_point_x)
    pixel = pixel_axes(node.output.name, graph, configuration)
    total = te.sum(*_windows(x, pixel, operator, (1, 1)))
    constants = scalars(operator.constant, operator.scale, x.tensor.shape[3])
    return requantising(node, pixel, total, operator, constants)


@kernel_of.register
def maximum_pool(
    operator: QMaxPool, node: Node, graph: Graph, configuration: Configuration
) -> Kernel:
    """`out = clamp(max(window))`, padded with the lowest value."""
    x = activation(node.inputs[0], graph, configuration, LOWEST)
    pixel = pixel_axes(node.output.name, graph, configuration)
    most = te.max(*_windows(x, pixel, operator, operator.dilations))
    clamped = te.clamp(most, operator.low, operator.high)
    return te.kernel(node.name, stored(node.output.name, pixel, clamped))
