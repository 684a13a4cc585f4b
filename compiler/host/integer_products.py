"""Products of two quantised activations, as attention has them."""

import numpy as np

from ...isa.numbers import INT8_MAX, INT8_MIN
from ..cpu import ByteProduct, Requantisation
from ..graph import Node
from ..graph.operators import QMatMul
from .integer_bounds import fits, is_plain
from .kernel import HostKernel, Scope

TAPS = 4
"""Elements that a dot product takes; heads that lie side by side are read in such groups."""


def match_product(scope: Scope, node: Node) -> HostKernel | None:
    """A QMatMul."""
    layer = node.attributes
    assert isinstance(layer, QMatMul)
    if any(map(scope.graph.is_constant, node.inputs)):
        return None
    a, b = (scope.graph.types[name].shape for name in node.inputs)
    heads = layer.heads
    joined = tuple(together and heads > 1 for together in layer.joined)
    rows, inner = a[2], a[3] // heads if joined[0] else a[3]
    apart = b[3] // heads if joined[1] else b[3]
    columns = b[2] if layer.transposed else apart
    sideways = joined[0] or (joined[1] and layer.transposed)
    if sideways and inner % TAPS:
        return None
    reach = [max(INT8_MAX - z, z - INT8_MIN) for z in (layer.zero_point_a, layer.zero_point_b)]
    size = inner * reach[0] * reach[1]
    scale = float(np.float32(layer.scale))
    if not fits(size) or not is_plain(size, scale):
        return None
    described = ByteProduct(
        *(a[0], heads, rows, inner, columns),
        zero_points=(layer.zero_point_a, layer.zero_point_b),
        scale=scale,
        quantised=Requantisation(
            *("int8", "int8", 0, layer.zero_point_y, layer.low, layer.high), folded=True
        ),
        transposed=layer.transposed,
        joined=(joined[0], joined[1], joined[2]),
    )
    inputs = dict(zip(described.operands, node.inputs, strict=True))
    return HostKernel(described, inputs, {}, (node,), exact=True)
