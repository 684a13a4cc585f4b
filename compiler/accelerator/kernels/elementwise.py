"""Residual addition and look-ups."""

from ....isa.configuration import Configuration
from ... import te
from ...graph import Graph, Node, QAdd
from ...tensor import Kernel
from .common import activation, pixel_axes, requantised, scalars, stored


def add(node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = requantise(a * ma + b * mb + constant, scale)` with zero point and clamp."""
    operator = node.attributes
    assert isinstance(operator, QAdd)
    first, second = node.inputs[:2]
    a = activation(first, graph, configuration)
    # Separate operands get separate banks, so that `x + x` can read both at once.
    b = activation(second, graph, configuration, again=first == second)
    pixel = *_, c = pixel_axes(node.output.name, graph, configuration)
    ma, mb = operator.multipliers
    out = stored(
        node.output.name, pixel, requantised(a[pixel] * ma + b[pixel] * mb, (c,), operator)
    )
    channels = out.tensor.shape[3]
    return te.kernel(node.name, out, scalars(operator.constant, operator.scale, channels))


def look_up(node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = table[x + 128]`."""
    x = activation(node.inputs[0], graph, configuration)
    pixel = pixel_axes(node.output.name, graph, configuration)
    out = stored(node.output.name, pixel, te.lookup(te.tensor("table", "int8", (256,)), x[pixel]))
    return te.kernel(node.name, out, {"table": graph.data(node.inputs[1])})
