"""Softmax and normalisations of rows: statistics of VECTOR, on machines with `row_statistics`."""

import numpy as np

from ....errors import UnfitError
from ....isa.configuration import Configuration
from ....isa.expressions import Op
from ....isa.meanings.softmax import exponential_entries
from ....isa.row_statistics import ENTRIES_BYTES, FRACTION_BITS, factor_pattern
from ... import te
from ...graph import Graph, Node
from ...graph.operators import QNorm, QSoftmax
from ...tensor import Kernel
from .common import activation, kernel_of, pixel_axes, requantised, stored, widen


@kernel_of.register
def softmax(operator: QSoftmax, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = clamp(requantise(e, F / sum(e)) + zero point)`, e being a table of `x - max(x)`."""
    entries = exponential_entries(operator.scale_x)
    constants = _constants(entries, 0, 1 / operator.scale_y, configuration)
    value = _of_row(Op.SOFTMAX, node, graph, configuration)
    clamped = te.clamp(value + operator.zero_point_y, operator.low, operator.high)
    out = stored(node.output.name, pixel_axes(node.output.name, graph, configuration), clamped)
    return te.kernel(node.name, out, constants)


@kernel_of.register
def normalise(operator: QNorm, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = requantise(normalised + bias, scale)` with zero point and clamp."""
    centre = () if operator.centred else (operator.zero_point_x,)
    squares = (np.arange(-128, 128) - sum(centre)) ** 2
    factor = operator.factor / (1 << FRACTION_BITS)
    constants = _constants(squares, operator.epsilon, factor, configuration)
    kind = Op.STANDARDISE if operator.centred else Op.NORMALISE
    value = _of_row(kind, node, graph, configuration, *centre)
    pixel = *_, c = pixel_axes(node.output.name, graph, configuration)
    out = stored(node.output.name, pixel, requantised(value, (c,), operator))
    channels = out.tensor.shape[3]
    bias, scale = map(graph.data, node.inputs[1:])
    constants["bias"] = widen(bias, 0, channels)
    constants["scale"] = widen(scale, 0, channels, 1)
    return te.kernel(node.name, out, constants)


def _of_row(
    op: Op, node: Node, graph: Graph, configuration: Configuration, *centre: int
) -> te.TensorExpression:
    """The operation on the row of each element of the node's input."""
    x = activation(node.inputs[0], graph, configuration)
    lanes = configuration.vector_lanes
    if x.tensor.shape[3] // lanes > 1 << configuration.extent_bits:
        raise UnfitError(f"node `{node.name}`: a row is too long for one loop; the host runs it")
    return te.row_operation(
        op,
        x[pixel_axes(node.output.name, graph, configuration)],
        te.tensor("table", "int8", (ENTRIES_BYTES,)),
        (te.tensor("epsilon", "int32", (lanes,)), te.tensor("factor", "float32", (lanes,))),
        graph.types[node.inputs[0]].shape[3],
        *centre,
    )


def _constants(
    entries: np.ndarray, epsilon: int, factor: float, configuration: Configuration
) -> dict[str, np.ndarray]:
    """The table of 16-bit entries, and a row of PARAM with E and F."""
    pattern = np.uint32(factor_pattern(factor)).view(np.float32)
    return {
        "table": entries.astype("<u2").view(np.int8),
        "epsilon": np.full(configuration.vector_lanes, epsilon, np.int32),
        "factor": np.full(configuration.vector_lanes, pattern, np.float32),
    }
