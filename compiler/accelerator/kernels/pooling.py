"""Average and maximum over sliding windows."""

from ... import te
from ...graph import QAvgPool, QMaxPool
from ...tensor import Kernel
from .common import StoredNode, kernel_of, scalars

LOWEST = -128
"""The padding value of maximum pooling."""


def _windows(
    site: StoredNode, operator: QAvgPool | QMaxPool, dilations: tuple[int, int], pad: int
) -> tuple[te.TensorExpression, tuple[te.Index, ...]]:
    """The elements of each window, and the axes over it."""
    x = site.activation(site.node.inputs[0], pad)
    n, *outer, c = site.pixel
    over = te.reduce_axes(**dict(zip(("ky", "kx"), operator.kernel, strict=True)))
    steps = zip(outer, over, operator.strides, dilations, operator.pads[:2], strict=True)
    row, column = (axis * stride + tap * far - pad for axis, tap, stride, far, pad in steps)
    return x[n, row, column, c], over


@kernel_of.register
def average_pool(operator: QAvgPool, site: StoredNode) -> Kernel:
    """`out = requantise(sum(window) + constant, scale)` with zero point and clamp."""
    total = te.sum(*_windows(site, operator, (1, 1), operator.zero_point_x))
    constants = scalars(operator.constant, operator.scale, site.channels)
    return site.requantising(total, operator, constants)


@kernel_of.register
def maximum_pool(operator: QMaxPool, site: StoredNode) -> Kernel:
    """`out = clamp(max(window))`, padded with the lowest value."""
    most = te.max(*_windows(site, operator, operator.dilations, LOWEST))
    return site.kernel(te.clamp(most, operator.low, operator.high))
