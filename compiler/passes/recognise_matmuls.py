"""Recognise quantised products of two activations: two Dequantize, MatMul, Quantize -> QMatMul.

A constant factor behind the product, such as the one over a square root in attention, is part of
the scale. Products that broadcast one operand over images or heads stay on the host, and so do
those whose sums the machine might not requantise exactly.
"""

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from ..graph import Builder, Graph, Node, Quantisation, rewrite
from ..graph import operators as ops
from .check_accumulators import SMALL_SCALE
from .patterns import (
    dequantised,
    from_image,
    known_number,
    quantisation_of,
    quantised_output,
    strip_clamps,
)
from .recognise_convolutions import output_scale


def recognise_matmuls(graph: Graph) -> Graph:
    """Replace quantised MatMul of two values computed at run time by QMatMul."""
    return rewrite(graph, _recognise)


def _recognise(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Quantize(clamps(factor * MatMul(Dequantize(a), Dequantize(b)))) -> QMatMul(a, b)."""
    target = quantised_output(node)
    if target is None:
        return None
    name, clamp = strip_clamps(builder, node.inputs[0])
    name, factor = _factor(builder, name)
    product = builder.producer(name)
    if product is None or not isinstance(product.attributes, ops.MatMul):
        return None
    first, second = (dequantised(builder, operand) for operand in product.inputs)
    if first is None or second is None:
        return None
    (a, a_quantisation), (b, b_quantisation) = first, second
    if builder.is_constant(a) or builder.is_constant(b):
        return None
    left, right = builder.types[a].shape, builder.types[b].shape
    outer = left[:-2]
    if outer != right[:-2] or not 0 < factor < np.inf:
        return None
    y = quantisation_of(target)
    with np.errstate(over="ignore", under="ignore"):
        second_scale = np.array([np.float32(b_quantisation.scale) * factor])
    scale = float(output_scale(product.name, a_quantisation.scale, second_scale, y.scale)[0])
    if not _exact(left[-1], a_quantisation, b_quantisation, scale):
        return None
    heads = outer[-1] if outer else 1
    images = int(np.prod(outer[:-1], dtype=np.int64))
    operator = ops.QMatMul(
        heads,
        scale,
        a_quantisation.zero_point,
        b_quantisation.zero_point,
        y.zero_point,
        False,
        (False, False, False),
        *clamp.bounds(target),
    )
    operands = [
        from_image(
            builder, _turned_late(builder, operand), (images, heads, *shape[-2:]), product.name
        )
        for operand, shape in ((a, left), (b, right))
    ]
    result = builder.emit(operator, operands, product.name, quantisation=y)
    return from_image(builder, result, (*outer, left[-2], right[-1]), product.name)


def _turned_late(builder: Builder, name: str) -> str:
    """Transpose(x) of rank 3 -> Transpose(Reshape(x)), one image: what `absorb_heads` looks for."""
    node = builder.producer(name)
    if node is None or not isinstance(node.attributes, ops.Transpose):
        return name
    shape = builder.types[node.inputs[0]].shape
    if len(shape) != 3:
        return name
    image = builder.emit(ops.Reshape((1, *shape)), node.inputs, node.name)
    permutation = (0, *(axis + 1 for axis in node.attributes.permutation))
    return builder.emit(ops.Transpose(permutation), [image], node.name)


def _factor(builder: Builder, name: str) -> tuple[str, np.float32]:
    """Walk back through a Mul or Div by one constant; return what it scales, and by how much."""
    node = builder.producer(name)
    one = np.float32(1)
    if node is None or node.attributes not in (ops.Binary("Mul"), ops.Binary("Div")):
        return name, one
    first, second = node.inputs
    divides = node.attributes == ops.Binary("Div")
    if not divides and known_number(builder, first) is not None:
        first, second = second, first
    number = known_number(builder, second)
    if number is None:
        return name, one
    with np.errstate(divide="ignore"):
        return first, one / number if divides else number


def _exact(depth: int, a: Quantisation, b: Quantisation, scale: float) -> bool:
    """Whether every sum fits int32, and is requantised as binary32 would; see `numbers`."""
    widest = [max(127 - one.zero_point, 128 + one.zero_point) for one in (a, b)]
    largest = depth * widest[0] * widest[1]
    return largest < EXACT_LIMIT or (largest < 2**31 and scale >= SMALL_SCALE)
