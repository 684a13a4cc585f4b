"""Recognise quantised pools: Dequantize, AveragePool, Quantize -> QAvgPool; MaxPool -> QMaxPool.

Averages over different numbers of elements (padding that does not count) stay on the host.
"""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from ..graph.fit import fit_average
from .patterns import (
    TO_FIRST,
    TO_LAST,
    dequantised,
    quantisation_of,
    quantised_output,
    strip_clamps,
)

LARGEST_WINDOW = 1 << 16
"""Elements of a window from which its sum could leave the range that requantises exactly."""


def recognise_pools(graph: Graph) -> Graph:
    """Replace quantised pools by QAvgPool and QMaxPool."""
    return rewrite(graph, _recognise_average, _recognise_maximum)


def _recognise_average(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(clamps(AveragePool(Dequantize(x)))) -> QAvgPool(x)."""
    target = quantised_output(node)
    if target is None:
        return None
    name, clamp = strip_clamps(builder, node.inputs[0])
    pool = builder.producer(name)
    if pool is None or not isinstance(pool.attributes, ops.AveragePool):
        return None
    window = pool.attributes
    found = dequantised(builder, pool.inputs[0])
    count = window.kernel[0] * window.kernel[1]
    uneven = any(window.overhang) or (any(window.pads) and not window.count_include_pad)
    if found is None or uneven or count >= LARGEST_WINDOW:
        return None
    x, quantisation = found
    y = quantisation_of(target)
    low, high = clamp.bounds(target)
    fit = fit_average(count, quantisation, y, low, high)
    operator = ops.QAvgPool(
        window.kernel,
        window.strides,
        window.pads,
        quantisation.zero_point,
        fit.constant,
        fit.scale,
        y.zero_point,
        low,
        high,
        fit.mismatches,
    )
    image = builder.emit(ops.Transpose(TO_LAST), [x], pool.name)
    result = builder.emit(operator, [image], pool.name, quantisation=y)
    return builder.emit(ops.Transpose(TO_FIRST), [result], pool.name)


def _recognise_maximum(builder: Builder, node: Node, graph: Graph) -> str | None:
    """MaxPool of int8 -> QMaxPool."""
    window = node.attributes
    if not isinstance(window, ops.MaxPool) or builder.types[node.inputs[0]].dtype != "int8":
        return None
    operator = ops.QMaxPool(window.kernel, window.strides, window.pads, window.dilations)
    image = builder.emit(ops.Transpose(TO_LAST), node.inputs, node.name)
    result = builder.emit(operator, [image], node.name)
    return builder.emit(ops.Transpose(TO_FIRST), [result], node.name)
