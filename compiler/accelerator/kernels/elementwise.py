"""Residual addition, products, look-ups and steps of states."""

import numpy as np

from ....errors import UnfitError
from ....isa.configuration import Configuration
from ....isa.meanings.cells import GATE_ONE, GATE_ZERO_POINT, HIGH_UNIT
from ....isa.vector_operations import Combine
from ... import te
from ...graph import Graph, Node, QAdd, QLut, QMul
from ...graph.operators import QBlend
from ...tensor import Kernel
from .common import activation, broadcast, kernel_of, pixel_axes, requantising, scalars, stored


@kernel_of.register
def add(operator: QAdd, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = requantise(a * ma + b * mb + constant, scale)` with zero point and clamp."""
    first, second = node.inputs[:2]
    a = activation(first, graph, configuration)
    # Separate operands get separate banks, so that `x + x` can read both at once.
    b = activation(second, graph, configuration, again=first == second)
    pixel = pixel_axes(node.output.name, graph, configuration)
    ma, mb = operator.multipliers
    constants = scalars(operator.constant, operator.scale, a.tensor.shape[3])
    return requantising(node, pixel, a[pixel] * ma + b[pixel] * mb, operator, constants)


@kernel_of.register
def multiply(operator: QMul, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = requantise((a - za) * (b - zb), scale)` with zero point and clamp.

    VECTOR multiplies bytes, or a value of 18 bits in ACC by a byte. So `b - zb` is computed first,
    if zb is not 0, and `-za * (b - zb)` is added after the product, if za is not 0.

    Raises
    ------
    UnfitError
        When `b` is broadcast along channels, which are the lanes of a step.
    """
    (first, second), (za, zb) = node.inputs, (operator.zero_point_a, operator.zero_point_b)
    shape, small = (graph.types[name].shape for name in (first, second))
    if small[3] != shape[3]:
        raise UnfitError(
            f"node `{node.name}`: `{second}` has one value for several channels; the host runs it"
        )
    if small == shape and za and not zb:
        first, second, za, zb = second, first, zb, za
    a = activation(first, graph, configuration)
    b = activation(second, graph, configuration, again=first == second)
    pixel = *outer, c = pixel_axes(node.output.name, graph, configuration)
    place = broadcast(pixel, small)
    constants = scalars(za * zb, operator.scale, channels := a.tensor.shape[3])
    factor = b[place]
    if zb:
        ones = te.axes(**{f"one_{i}": 1 for i in "nyx"})
        own = (i if size > 1 else one for i, one, size in zip(outer, ones, small[:3], strict=True))
        constants["offset"] = np.full(channels, -zb, np.int32)
        offset = te.tensor("offset", "int32", (channels,))
        centred = te.compute("centred", "int32", (*own, c), b[place] + offset[c])
        factor = centred[place]
    total = te.apply(Combine.MUL, factor, a[pixel]) if zb else a[pixel] * factor
    if za:
        product = te.compute("product", "int32", pixel, total)
        total = product[pixel] + b[place] * -za
    return requantising(node, pixel, total, operator, constants)


@kernel_of.register
def look_up(operator: QLut, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = table[x + 128]`."""
    x = activation(node.inputs[0], graph, configuration)
    pixel = pixel_axes(node.output.name, graph, configuration)
    out = stored(node.output.name, pixel, te.lookup(te.tensor("table", "int8", (256,)), x[pixel]))
    return te.kernel(node.name, out, {"table": graph.data(node.inputs[1])})


@kernel_of.register
def blend(operator: QBlend, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = requantise(gate * state + increment)`, or what the high byte of that leaves.

    Raises
    ------
    UnfitError
        When one value is two of the operands.
    """
    if len({*node.inputs}) < len(node.inputs):
        raise UnfitError(f"node `{node.name}`: two operands are the same; the host runs it")
    pixel = *_, c = pixel_axes(node.output.name, graph, configuration)
    high, low, gate, increment = (
        activation(name, graph, configuration)[pixel] for name in node.inputs
    )
    total = high * HIGH_UNIT + low
    for name, then in (
        ("state", lambda state: te.apply(Combine.MUL, state, gate)),
        ("product", lambda product: product + high * (-GATE_ZERO_POINT * HIGH_UNIT)),
        ("partly", lambda kept: kept + low * -GATE_ZERO_POINT),
        ("kept", lambda kept: kept + increment * operator.multiplier),
    ):
        total = then(te.compute(name, "int32", pixel, total)[pixel])
    channels, unit = c.uses["c"].extent, HIGH_UNIT * GATE_ONE
    constants = scalars(-operator.zero_point * operator.multiplier, 1 / unit, channels)
    bias, scale, fine = (
        te.tensor(name, kind, (channels,))
        for name, kind in (("bias", "int32"), ("scale", "float32"), ("fine", "float32"))
    )
    if operator.low:
        total = te.compute("total", "int32", pixel, total + bias[c])[pixel]
        digit = te.clamp(te.requantise(total, scale[c]), -128, 127)
        rest = total + te.compute("digit", "int8", pixel, digit)[pixel] * -unit
        constants["fine"] = np.full(channels, 1 / GATE_ONE, np.float32)
        value = te.requantise(rest, fine[c])
    else:
        value = te.requantise(total + bias[c], scale[c])
    out = stored(node.output.name, pixel, te.clamp(value, -128, 127))
    return te.kernel(node.name, out, constants)
