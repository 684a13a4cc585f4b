"""Residual addition, products, look-ups and steps of states."""

import numpy as np

from ....errors import UnfitError
from ....isa.meanings.cells import GATE_ONE, GATE_ZERO_POINT, HIGH_UNIT
from ....isa.vector_operations import Combine
from ... import te
from ...graph import QAdd, QLut, QMul
from ...graph.operators import QBlend
from ...tensor import Kernel
from .common import StoredNode, broadcast, kernel_of, scalars


@kernel_of.register
def add(operator: QAdd, site: StoredNode) -> Kernel:
    """`out = requantise(a * ma + b * mb + constant, scale)` with zero point and clamp.

    Raises
    ------
    UnfitError
        When `b` is broadcast along channels, which are the lanes of a step.
    """
    first, second = site.node.inputs[:2]
    _refuse_shared_channels(site, second)
    a = site.activation(first)
    # Separate operands get separate banks, so that `x + x` can read both at once.
    b = site.activation(second, again=first == second)
    pixel, (ma, mb) = site.pixel, operator.multipliers
    constants = scalars(operator.constant, operator.scale, site.channels)
    small = site.graph.types[second].shape
    # Fusion takes a constant index for broadcasting, so a whole operand has none.
    place = pixel if small == site.node.output.type.shape else broadcast(pixel, small)
    return site.requantising(a[pixel] * ma + b[place] * mb, operator, constants)


@kernel_of.register
def multiply(operator: QMul, site: StoredNode) -> Kernel:
    """`out = requantise((a - za) * (b - zb), scale)` with zero point and clamp.

    VECTOR multiplies bytes, or a value of 18 bits in ACC by a byte. So `b - zb` is computed first,
    if zb is not 0, and `-za * (b - zb)` is added after the product, if za is not 0.

    Raises
    ------
    UnfitError
        When `b` is broadcast along channels, which are the lanes of a step.
    """
    (first, second), (za, zb) = site.node.inputs, (operator.zero_point_a, operator.zero_point_b)
    shape, small = (site.graph.types[name].shape for name in (first, second))
    _refuse_shared_channels(site, second)
    if small == shape and za and not zb:
        first, second, za, zb = second, first, zb, za
    a = site.activation(first)
    b = site.activation(second, again=first == second)
    pixel = *outer, c = site.pixel
    place = broadcast(pixel, small)
    constants = scalars(za * zb, operator.scale, channels := site.channels)
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
    return site.requantising(total, operator, constants)


def _refuse_shared_channels(site: StoredNode, operand: str) -> None:
    if site.graph.types[operand].shape[3] != site.node.output.type.shape[3]:
        raise UnfitError(
            f"node `{site.node.name}`: `{operand}` has one value for several channels; "
            "the host runs it"
        )


@kernel_of.register
def look_up(operator: QLut, site: StoredNode) -> Kernel:
    """`out = table[x + 128]`."""
    x, table = site.node.inputs
    found = te.lookup(te.tensor("table", "int8", (256,)), site.activation(x)[site.pixel])
    return site.kernel(found, {"table": site.graph.data(table)})


@kernel_of.register
def blend(operator: QBlend, site: StoredNode) -> Kernel:
    """`out = requantise(gate * state + increment)`, or what the high byte of that leaves.

    Raises
    ------
    UnfitError
        When one value is two of the operands.
    """
    node = site.node
    if len({*node.inputs}) < len(node.inputs):
        raise UnfitError(f"node `{node.name}`: two operands are the same; the host runs it")
    pixel = *_, c = site.pixel
    high, low, gate, increment = (site.activation(name)[pixel] for name in node.inputs)
    total = high * HIGH_UNIT + low
    for name, then in (
        ("state", lambda state: te.apply(Combine.MUL, state, gate)),
        ("product", lambda product: product + high * (-GATE_ZERO_POINT * HIGH_UNIT)),
        ("partly", lambda kept: kept + low * -GATE_ZERO_POINT),
        ("kept", lambda kept: kept + increment * operator.multiplier),
    ):
        total = then(te.compute(name, "int32", pixel, total)[pixel])
    channels, unit = site.channels, HIGH_UNIT * GATE_ONE
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
    return site.kernel(te.clamp(value, -128, 127), constants)
