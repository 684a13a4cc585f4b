"""Softmax, normalisations and rotations of rows, on machines with `row_statistics`."""

import numpy as np

from ....errors import UnfitError
from ....isa.expressions import Op
from ....isa.meanings.softmax import exponential_entries
from ....isa.row_statistics import ENTRIES_BYTES, FRACTION_BITS, factor_pattern
from ....isa.vector_operations import Combine
from ... import te
from ...graph.operators import QNorm, QRotate, QSoftmax
from ...tensor import Kernel
from .common import StoredNode, broadcast, kernel_of, scalars, widen
from .matmul import CHANNELS, ROWS


@kernel_of.register
def softmax(operator: QSoftmax, site: StoredNode) -> Kernel:
    """`out = clamp(requantise(e, F / sum(e)) + zero point)`, e being a table of `x - max(x)`."""
    entries = exponential_entries(operator.scale_x, masked=len(site.node.inputs) > 1)
    constants = _constants(entries, 0, 1 / operator.scale_y, site)
    value = _of_row(Op.SOFTMAX, site)
    clamped = te.clamp(value + operator.zero_point_y, operator.low, operator.high)
    return site.kernel(clamped, constants)


@kernel_of.register
def normalise(operator: QNorm, site: StoredNode) -> Kernel:
    """`out = requantise(normalised + bias, scale)` with zero point and clamp."""
    centre = () if operator.centred else (operator.zero_point_x,)
    squares = (np.arange(-128, 128) - sum(centre)) ** 2
    factor = operator.factor / (1 << FRACTION_BITS)
    constants = _constants(squares, operator.epsilon, factor, site)
    kind = Op.STANDARDISE if operator.centred else Op.NORMALISE
    bias, scale = map(site.graph.data, site.node.inputs[1:])
    constants["bias"] = widen(bias, 0, site.channels)
    constants["scale"] = widen(scale, 0, site.channels, 1)
    return site.requantising(_of_row(kind, site, *centre), operator, constants)


@kernel_of.register
def rotate(operator: QRotate, site: StoredNode) -> Kernel:
    """`out = requantise(sum((x - zx) * factor), scale)` over a channel and its partner."""
    types, channels = site.graph.types, site.channels
    n, _, row, c = site.pixel
    view = te.View(((0, 1), (CHANNELS, operator.span), (ROWS, 1), (CHANNELS, 1)))
    x, factors = (
        te.tensor(
            f"pairs of {name}",
            "int8",
            (types[name].shape[0], 2, types[name].shape[ROWS], channels),
            of=name,
            by=view,
        )
        for name in site.node.inputs
    )
    (turn,) = te.reduce_axes(t=2)
    constants = scalars(0, operator.scale, channels)
    factor = factors[0, turn, row, c]
    if operator.zero_point_x:
        own = te.axes(n=x.tensor.shape[0], t=2, x=x.tensor.shape[2], c=channels)
        offset = te.tensor("offset", "int32", (channels,))
        constants["offset"] = np.full(channels, -operator.zero_point_x, np.int32)
        centred = te.compute("centred", "int32", own, x[own] + offset[own[-1]])
        product = te.apply(Combine.MUL, centred[n, turn, row, c], factor)
    else:
        product = x[n, turn, row, c] * factor
    return site.requantising(te.sum(product, turn), operator, constants)


def _of_row(op: Op, site: StoredNode, *centre: int) -> te.TensorExpression:
    """The operation on the row of each element of the node's input."""
    name, *others = site.node.inputs
    x, pixel, mask = site.activation(name), site.pixel, None
    for other in others if op is Op.SOFTMAX else ():
        each = site.activation(other)
        mask = each[broadcast(pixel, each.tensor.shape)]
    lanes = site.configuration.vector_lanes
    if x.tensor.shape[3] // lanes > 1 << site.configuration.extent_bits:
        raise UnfitError(
            f"node `{site.node.name}`: a row is too long for one loop; the host runs it"
        )
    return te.row_operation(
        op,
        x[pixel],
        te.tensor("table", "int8", (ENTRIES_BYTES,)),
        (te.tensor("epsilon", "int32", (lanes,)), te.tensor("factor", "float32", (lanes,))),
        site.graph.types[name].shape[3],
        *centre,
        mask=mask,
    )


def _constants(
    entries: np.ndarray, epsilon: int, factor: float, site: StoredNode
) -> dict[str, np.ndarray]:
    """The table of 16-bit entries, and a row of PARAM with E and F."""
    pattern = np.uint32(factor_pattern(factor)).view(np.float32)
    lanes = site.configuration.vector_lanes
    return {
        "table": entries.astype("<u2").view(np.int8),
        "epsilon": np.full(lanes, epsilon, np.int32),
        "factor": np.full(lanes, pattern, np.float32),
    }
