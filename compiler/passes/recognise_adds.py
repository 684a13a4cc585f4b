"""Recognise residual adds: two Dequantize, Add or Sub, Quantize -> QAdd with fitted constants."""

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from ..graph.fit import fit_add
from .patterns import (
    dequantised,
    from_image,
    quantisation_of,
    quantised_output,
    strip_clamps,
    to_image,
)

SIGNS = {"Add": 1, "Sub": -1}


def recognise_adds(graph: Graph) -> Graph:
    """Replace quantised additions of two tensors of one shape by QAdd."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(clamps(Add | Sub(Dequantize(a), Dequantize(b)))) -> QAdd(a, b)."""
    target = quantised_output(node)
    if target is None:
        return None
    name, clamp = strip_clamps(builder, node.inputs[0])
    add = builder.producer(name)
    if add is None or not isinstance(add.attributes, ops.Binary):
        return None
    sign = SIGNS.get(add.attributes.kind)
    first, second = (dequantised(builder, operand) for operand in add.inputs)
    if sign is None or first is None or second is None:
        return None
    (a, a_quantisation), (b, b_quantisation) = first, second
    shape = builder.types[a].shape
    if shape != builder.types[b].shape or builder.is_constant(a) or builder.is_constant(b):
        return None
    y = quantisation_of(target)
    low, high = clamp.bounds(target)
    fit = fit_add(a_quantisation, b_quantisation, y, low, high, sign)
    operator = ops.QAdd(
        fit.multipliers, fit.constant, fit.scale, y.zero_point, low, high, fit.mismatches
    )
    images = [to_image(builder, operand, add.name) for operand in (a, b)]
    result = builder.emit(operator, images, add.name, quantisation=y)
    return from_image(builder, result, shape, add.name)
